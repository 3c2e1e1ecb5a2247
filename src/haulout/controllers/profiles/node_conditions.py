"""The node conditions DrainInProgress and Drained (KEP-5683) for drains of profiles.

    change = conditions_patch(node, DrainState(...), now=now)

Others write these conditions, too: NodeMaintenances (`haulout.drain.node_conditions`), and any other implementation of
the KEP. A condition that another writer has set is left alone. While a condition is True, its message starts with a
prefix of profiles, so that a NodeMaintenance leaves it alone. When it is False, the message starts like that of a
NodeMaintenance, which may then take it over. Profiles may take over a condition that a NodeMaintenance has left False.

This module keeps no state: the node and the states of its profiles determine what the conditions should be, also after
a change of leader.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from haulout.api.objects import Condition, Node, NodeConditionType, RawObject
from haulout.api.reasons import NodeConditionReason
from haulout.core.timestamps import whole_seconds
from haulout.drain import cordon
from haulout.drain.cordon import InvalidCordonAnnotation
from haulout.drain.node_conditions import MESSAGE_PREFIX as FREE

PROFILE_PREFIX = "Haulout profile "
_REQUESTED, _COMPLETED, _ENDED = (
    NodeConditionReason.PROFILE_REQUESTED,
    NodeConditionReason.DRAIN_COMPLETED,
    NodeConditionReason.MAINTENANCE_ENDED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """The drains of a node: by profile, whether each is done, and which profiles are in or entering maintenance."""

    drains: Mapping[str, bool]
    pending_profiles: Collection[str] = ()  # with a pending transition
    maintained_profiles: Collection[str] = ()  # not operational, or leaving operational


def conditions_patch(node: Node, state: DrainState, *, now: datetime) -> RawObject | None:
    """Return the patch that updates the conditions of the node to its drains; None if they are up to date."""
    found = {
        condition.type: condition
        for condition in node.status.conditions
        if condition.type in (NodeConditionType.DRAINING, NodeConditionType.DRAINED)
    }
    profile, true_condition = _wanted_condition(node, state, found)
    # Write both conditions the first time, so that the final state is the same whatever updates were missed.
    changed = [
        _condition(kind, profile, now, is_true=kind is true_condition)
        for kind in (NodeConditionType.DRAINING, NodeConditionType.DRAINED)
        if (
            true_condition is not None
            if kind not in found
            else _is_due(found[kind], profile, is_true=kind is true_condition)
        )
    ]
    if not changed:
        return None
    # Conditions are merged by type in a strategic merge patch, so those of the kubelet are not touched. The
    # resourceVersion protects conditions of the same type that another writer sets.
    return {"metadata": node.preconditions, "status": {"conditions": changed}}


def _wanted_condition(
    node: Node, state: DrainState, found: Mapping[str, Condition]
) -> tuple[str, NodeConditionType | None]:
    """Return which condition must be True, and for which profile; None: neither."""
    running = [name for name, is_done in state.drains.items() if not is_done]
    if running:
        return running[0], NodeConditionType.DRAINING
    if state.drains:
        return next(iter(state.drains)), NodeConditionType.DRAINED
    own_condition = next(
        (
            condition
            for condition in found.values()
            if condition.status == "True" and condition.message.startswith(PROFILE_PREFIX)
        ),
        None,
    )
    if own_condition is None:
        return "", None
    profile = own_condition.message.removeprefix(PROFILE_PREFIX)
    if profile not in state.maintained_profiles or not _is_cordoned_by(node, profile):
        return profile, None
    # A failed drain is retried, and a drain of the previous leader continues.
    return profile, NodeConditionType(
        own_condition.type
    ) if profile in state.pending_profiles else NodeConditionType.DRAINED


def _is_cordoned_by(node: Node, profile: str) -> bool:
    try:
        mark = cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        return node.spec.unschedulable
    return mark is not None and f"profile/{profile}" in mark.owners


def _is_due(found: Condition, profile: str, *, is_true: bool) -> bool:
    if found.message.startswith(PROFILE_PREFIX):
        return found.status != str(is_true) or (is_true and found.message != f"{PROFILE_PREFIX}{profile}")
    return is_true and found.status == "False" and found.message.startswith(FREE)


def _condition(kind: NodeConditionType, profile: str, now: datetime, *, is_true: bool) -> RawObject:
    reason = _ENDED if not is_true else _REQUESTED if kind is NodeConditionType.DRAINING else _COMPLETED
    return {
        "type": str(kind),
        "status": str(is_true),
        "reason": reason,
        "message": f"{PROFILE_PREFIX}{profile}" if is_true else f"{FREE}profile {profile}",
        "lastTransitionTime": whole_seconds(now),
    }
