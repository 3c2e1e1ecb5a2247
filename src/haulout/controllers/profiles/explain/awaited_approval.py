"""Whether a node waits at a check for something that a person can set, by what is written on the node. Pure.

Only what the configuration itself asks for, in the state that a profile is in, can be set this way. What else the node
waits for does not matter: an approval may come first (`haulout.controllers.profiles.explain.approval`).
"""

from dataclasses import dataclass

from haulout.api.objects import Node
from haulout.controllers.profiles.config.model import Configuration, Profile
from haulout.controllers.profiles.explain.approval import (
    ApprovalError,
    MetadataChange,
    MetadataField,
    change_satisfying,
)
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, State


@dataclass(frozen=True, slots=True)
class AwaitedApproval:
    """What a check waits for, and whether that is so already."""

    change: MetadataChange
    is_met: bool


def awaited_approval(
    node: Node, configuration: Configuration, *, profile: str, check: str, by: str = ""
) -> AwaitedApproval:
    """Return what a check of a profile waits for at a node, from whoever approves; raises `ApprovalError`."""
    known = configuration.profiles.get(profile)
    if known is None:
        raise ApprovalError(f"there is no profile {profile!r} in the configuration")
    state = _state(node, known)
    checks = [
        member.plugin
        for transition in known.states[state].transitions
        for member in transition.check.members
        if member.name == check
    ]
    if not checks:
        raise ApprovalError(f"profile {profile} is {state} on node {node.name}, where it has no check {check!r}")
    change = change_satisfying(checks[0], by=by)
    if change is None:
        raise ApprovalError(f"check {check} of profile {profile} looks for no label or annotation of the node")
    current = node.metadata.labels if change.field is MetadataField.LABEL else node.metadata.annotations
    required_value = getattr(checks[0], "value", "")
    return AwaitedApproval(change, is_met=change.key in current and required_value in ("", current[change.key]))


def _state(node: Node, profile: Profile) -> State:
    try:
        status = data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION)).get(profile.name)
    except data_annotation.DataError as error:
        raise ApprovalError(f"where the profiles of node {node.name} stand cannot be read: {error}") from None
    if status is None or status.current not in tuple(State):
        raise ApprovalError(f"profile {profile.name} does not see to node {node.name}")
    return State(status.current)
