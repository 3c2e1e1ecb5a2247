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

from haulout.kinds.openshift import Machine, MachineSet
from haulout.kube.objects import Base

CLAIM = "haulout.dev/replacing"
TOUCHED = "haulout.dev/replacement-withdrawn"


class Stage(StrEnum):
    """How far it is."""

    ALONE = ""  # there is no surge: the Machine is deleted
    UP = "up"  # the set has one more than it should have
    DOWN = "down"  # and has no more: it deletes the Machine, which is marked


class Claim(Base, frozen=True):
    """A Machine is being replaced."""

    machine: str
    uid: str
    version: str = ""  # of the Machine: no other is deleted
    stage: str = Stage.ALONE

    @property
    def written(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def claim_on(found: MachineSet) -> Claim | None:
    """Return who is being replaced; None if it is nobody, or if what is written there makes no sense."""
    text = found.metadata.annotations.get(CLAIM)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Claim)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def claim_for(machine: Machine, *, surge: bool) -> Claim:
    """Return the claim to take for a Machine."""
    stage = Stage.UP if surge else Stage.ALONE
    return Claim(machine=machine.name, uid=machine.uid, version=machine.resource_version, stage=stage)
