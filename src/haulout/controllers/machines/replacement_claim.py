"""Which Machine of a set is being replaced: an annotation on the set, so that it is one at a time. Pure.

The claim is taken by compare-and-swap on the set before its Machine is touched: of all who write to one state of the
set, one succeeds, so not even an operator that does not lead any more exceeds the budget. It names the version of the
Machine that its owner deletes, and no other. Whoever withdraws a claim of a Machine that stays changes that Machine
first: a deletion that is still under way is then refused.

With a surge the same write scales the set up, and later the one that scales it down says so. Whatever dies in between,
the set tells its successor how far it was.
"""

from enum import StrEnum

import msgspec

from haulout.api.objects import Base
from haulout.api.openshift import Machine, MachineSet

CLAIM_ANNOTATION = "haulout.dev/replacing"
WITHDRAWN_ANNOTATION = "haulout.dev/replacement-withdrawn"


class ClaimStage(StrEnum):
    """How far it is."""

    WITHOUT_SURGE = ""  # there is no surge: the Machine is deleted
    SCALED_UP = "up"  # the set has one more than it should have
    SCALED_DOWN = "down"  # and has no more: it deletes the Machine, which is marked


class ReplacementClaim(Base, frozen=True):
    """A Machine is being replaced."""

    machine: str
    uid: str
    version: str = ""  # of the Machine: no other is deleted
    stage: str = ClaimStage.WITHOUT_SURGE

    @property
    def annotation_value(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def read_claim(machine_set: MachineSet) -> ReplacementClaim | None:
    """Return who is being replaced; None if it is nobody, or if what is written there makes no sense."""
    value = machine_set.metadata.annotations.get(CLAIM_ANNOTATION)
    if not value:
        return None
    try:
        return msgspec.json.decode(value, type=ReplacementClaim)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def new_claim(machine: Machine, *, surge: bool) -> ReplacementClaim:
    """Return the claim to take for a Machine."""
    stage = ClaimStage.SCALED_UP if surge else ClaimStage.WITHOUT_SURGE
    return ReplacementClaim(machine=machine.name, uid=machine.uid, version=machine.resource_version, stage=stage)
