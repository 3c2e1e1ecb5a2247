"""The claim: which Machine of a set is being replaced, as an annotation on the set, so that it is one at a time. Pure.

The claim is written by compare-and-swap on the set before its Machine is changed: of all writers to one resourceVersion
of the set, one succeeds, so not even an operator that has lost leadership exceeds the budget. It names the
resourceVersion of the Machine that its owner deletes, and no other. Whoever withdraws the claim of a Machine that stays
changes that Machine first: a deletion in flight then fails its precondition.

With a surge, the same write scales the set up, and the write that scales it down records that in the claim. Wherever a
process dies in between, the set tells its successor how far the replacement was.
"""

from enum import StrEnum

import msgspec

from haulout.api import annotations
from haulout.api.objects import Base
from haulout.api.openshift import Machine, MachineSet

CLAIM_ANNOTATION = annotations.REPLACING
WITHDRAWN_ANNOTATION = annotations.REPLACEMENT_WITHDRAWN


class ClaimStage(StrEnum):
    """The stage of a replacement."""

    WITHOUT_SURGE = ""  # the Machine is deleted directly
    SCALED_UP = "up"  # the set has one replica more than it should
    SCALED_DOWN = "down"  # the set is back at its size and deletes the marked Machine


class ReplacementClaim(Base, frozen=True):
    """The value of the claim annotation."""

    machine: str
    uid: str
    version: str = ""  # resourceVersion of the Machine to delete
    stage: str = ClaimStage.WITHOUT_SURGE

    @property
    def annotation_value(self) -> str:
        return msgspec.json.encode(self).decode()


def read_claim(machine_set: MachineSet) -> ReplacementClaim | None:
    """Return the claim on a set; None if there is none or it cannot be decoded."""
    value = machine_set.metadata.annotations.get(CLAIM_ANNOTATION)
    if not value:
        return None
    try:
        return msgspec.json.decode(value, type=ReplacementClaim)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def new_claim(machine: Machine, *, surge: bool) -> ReplacementClaim:
    """Return a new claim for a Machine."""
    stage = ClaimStage.SCALED_UP if surge else ClaimStage.WITHOUT_SURGE
    return ReplacementClaim(machine=machine.name, uid=machine.uid, version=machine.resource_version, stage=stage)
