"""What nodes say about drains of profiles: the conditions DrainInProgress and Drained (KEP-5683).

    change = published(node, DrainState(...), now=now)

Others write these conditions, too: a NodeMaintenance by `haulout.drain.lifecycle`, and whoever knows the proposal. What
somebody else has written is left alone. Our messages begin with words of their own while a condition is True, so that a
NodeMaintenance leaves them alone; when they are False they begin as those of a NodeMaintenance, and it may take them
over. What it has left False may be taken over by us.

Nothing is remembered here: what the node says, and where its profiles stand, tells a successor what it should say.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from haulout.drain import cordon
from haulout.drain.cordon import BadMark
from haulout.drain.lifecycle import OURS as FREE
from haulout.drain.lifecycle import NodeCondition
from haulout.kube.objects import Condition, Node, RawObject
from haulout.kube.timestamps import whole_seconds

OURS = "Haulout profile "
_REQUESTED, _COMPLETED, _ENDED = "ProfileRequested", "DrainCompleted", "MaintenanceEnded"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainState:
    """How it stands with the drains of a node: by profile whether each is done, and which profiles have it."""

    drains: Mapping[str, bool]
    waiting: Collection[str] = ()  # profiles with a transition that has begun
    away: Collection[str] = ()  # profiles that are not operational, or on their way


def published(node: Node, state: DrainState, *, now: datetime) -> RawObject | None:
    """Return the change that makes the node's conditions say how far its drains are; None if they do."""
    found = {it.type: it for it in node.status.conditions if it.type in (NodeCondition.DRAINING, NodeCondition.DRAINED)}
    profile, true = _wanted(node, state, found)
    # Both are written at first, so that a node says the same in the end whatever was missed on the way.
    changed = [
        _condition(kind, profile, now, is_true=kind is true)
        for kind in (NodeCondition.DRAINING, NodeCondition.DRAINED)
        if (true is not None if kind not in found else _is_due(found[kind], profile, is_true=kind is true))
    ]
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def _wanted(node: Node, state: DrainState, found: Mapping[str, Condition]) -> tuple[str, NodeCondition | None]:
    """Return which condition is to be True, and for which profile; None: neither is."""
    running = [name for name, is_done in state.drains.items() if not is_done]
    if running:
        return running[0], NodeCondition.DRAINING
    if state.drains:
        return next(iter(state.drains)), NodeCondition.DRAINED
    said = next((it for it in found.values() if it.status == "True" and it.message.startswith(OURS)), None)
    if said is None:
        return "", None
    profile = said.message.removeprefix(OURS)
    if profile not in state.away or not _is_held(node, profile):
        return profile, None
    # A drain that failed is tried again, and one of a predecessor goes on.
    return profile, NodeCondition(said.type) if profile in state.waiting else NodeCondition.DRAINED


def _is_held(node: Node, profile: str) -> bool:
    try:
        mark = cordon.cordon_of(node)
    except BadMark:
        return node.spec.unschedulable
    return mark is not None and f"profile/{profile}" in mark.owners


def _is_due(found: Condition, profile: str, *, is_true: bool) -> bool:
    if found.message.startswith(OURS):
        return found.status != str(is_true) or (is_true and found.message != f"{OURS}{profile}")
    return is_true and found.status == "False" and found.message.startswith(FREE)


def _condition(kind: NodeCondition, profile: str, now: datetime, *, is_true: bool) -> RawObject:
    reason = _ENDED if not is_true else _REQUESTED if kind is NodeCondition.DRAINING else _COMPLETED
    return {
        "type": str(kind),
        "status": str(is_true),
        "reason": reason,
        "message": f"{OURS}{profile}" if is_true else f"{FREE}profile {profile}",
        "lastTransitionTime": whole_seconds(now),
    }
