"""Whether a node waits at a check for something that a person can set, by what is written on the node. Pure.

Only what the configuration itself asks for, in the state that a profile is in, can be set this way. What else the node
waits for does not matter: an approval may come first (`haulout.profiles.approval`).
"""

from dataclasses import dataclass

from haulout.kube.objects import Node
from haulout.profiles import data
from haulout.profiles.approval import ApprovalError, Where, Wish, satisfying
from haulout.profiles.model import Configuration, Profile
from haulout.profiles.plugin import DATA_ANNOTATION, State


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a check waits for, and whether that is so already."""

    wish: Wish
    is_met: bool


def awaited(node: Node, configuration: Configuration, *, profile: str, check: str, by: str = "") -> Awaited:
    """Return what a check of a profile waits for at a node, from whoever approves; raises `ApprovalError`."""
    known = configuration.profiles.get(profile)
    if known is None:
        raise ApprovalError(f"there is no profile {profile!r} in the configuration")
    state = _state(node, known)
    checks = [it.plugin for way in known.states[state].transitions for it in way.check.members if it.name == check]
    if not checks:
        raise ApprovalError(f"profile {profile} is {state} on node {node.name}, where it has no check {check!r}")
    wish = satisfying(checks[0], by=by)
    if wish is None:
        raise ApprovalError(f"check {check} of profile {profile} looks for no label or annotation of the node")
    there = node.metadata.labels if wish.where is Where.LABEL else node.metadata.annotations
    wanted = getattr(checks[0], "value", "")
    return Awaited(wish, is_met=wish.key in there and wanted in ("", there[wish.key]))


def _state(node: Node, profile: Profile) -> State:
    try:
        entry = data.entries_of(node.metadata.annotations.get(DATA_ANNOTATION)).get(profile.name)
    except data.DataError as error:
        raise ApprovalError(f"where the profiles of node {node.name} stand cannot be read: {error}") from None
    if entry is None or entry.current not in tuple(State):
        raise ApprovalError(f"profile {profile.name} does not see to node {node.name}")
    return State(entry.current)
