"""Whether a node waits at a check for a label or annotation that a person can set, by the state on the node. Pure.

Only a change that the configuration asks for in the current state of a profile can be made this way. Other checks that
the node waits for do not matter: an approval may come first (`haulout.controllers.profiles.explain.approval`).
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
    """The change that a check waits for, and whether the node already has it."""

    change: MetadataChange
    is_met: bool


def awaited_approval(
    node: Node, configuration: Configuration, *, profile: str, check: str, by: str = ""
) -> AwaitedApproval:
    """Return the change that a check of a profile waits for, made by `by`. Raise `ApprovalError` if there is none."""
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
        raise ApprovalError(f"profile {profile} is {state} on node {node.name}; that state has no check {check!r}")
    change = change_satisfying(checks[0], by=by)
    if change is None:
        raise ApprovalError(f"check {check} of profile {profile} does not read a label or annotation of the node")
    current = node.metadata.labels if change.field is MetadataField.LABEL else node.metadata.annotations
    required_value = getattr(checks[0], "value", "")
    return AwaitedApproval(change, is_met=change.key in current and required_value in ("", current[change.key]))


def _state(node: Node, profile: Profile) -> State:
    try:
        status = data_annotation.statuses_of(node.metadata.annotations.get(DATA_ANNOTATION)).get(profile.name)
    except data_annotation.DataError as error:
        raise ApprovalError(f"the states of the profiles of node {node.name} cannot be read: {error}") from None
    if status is None or status.current not in tuple(State):
        raise ApprovalError(f"profile {profile.name} does not apply to node {node.name}")
    return State(status.current)
