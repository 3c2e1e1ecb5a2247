"""The condition Emptied of a notice: whether the node has been emptied for the maintenance. Pure.

Emptied permits an early start: sources that support it (`haulout.controllers.notices.early_start`) act on it. It is
True only while all of these hold, and False only after it was True:

- the maintenance is due, and a profile empties the node for it;
- only profiles are cordon owners: a person who ordered maintenance may be working on the node;
- no pods remain that a drain would evict, or the node has the condition Drained.
"""

from haulout.api.maintenancenotice import NoticeCondition, NoticePhase
from haulout.api.objects import Node, StatusCondition
from haulout.controllers.notices.conditions.on_time import Observation, OnTimeReason, Timeliness
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of

_NOT_EMPTY = "NotEmpty"
_PROFILE_OWNER_PREFIX = "profile/"  # prefix of profiles among cordon owners


def emptied_condition(observation: Observation, timeliness: Timeliness | None) -> StatusCondition | None:
    """Return the condition's new value; None if it stays as it is."""
    previous = observation.notice.status.condition(NoticeCondition.EMPTIED)
    if observation.phase.is_over or (observation.phase is NoticePhase.ACTIVE and previous is not None):
        return None
    reason, message = _blocking_reason(observation, timeliness)
    is_unknown = reason == _NOT_EMPTY and timeliness is None  # pods are no longer listed once the maintenance has begun
    if reason and (previous is None or is_unknown):
        return None
    return StatusCondition(
        type=NoticeCondition.EMPTIED,
        status=str(not reason),
        reason=reason or "Empty",
        message=message
        or f"{observation.node.name if observation.node else ''} is cordoned and empty: the maintenance may begin",
    )


def is_emptied(observation: Observation, timeliness: Timeliness | None) -> bool:
    """Return whether the maintenance may begin early."""
    return not _blocking_reason(observation, timeliness)[0]


def _blocking_reason(observation: Observation, timeliness: Timeliness | None) -> tuple[str, str]:
    node = observation.node
    if node is None:
        return "NodeNotFound", "the node of this notice is not known"
    if observation.phase is not NoticePhase.DUE or not observation.is_handled:
        return "NotDue", f"{node.name} need not be drained for this notice now"
    owners = cordon_owners(node)
    if not node.spec.unschedulable or not owners:
        return "NotCordoned", f"{node.name} is not cordoned for this notice"
    others = [owner for owner in owners if not owner.startswith(_PROFILE_OWNER_PREFIX)]
    if others:
        return "CordonedByOthers", f"{node.name} is also kept cordoned by {', '.join(others)}"
    if timeliness is None or timeliness.reason is not OnTimeReason.EMPTY:
        return _NOT_EMPTY, f"{node.name} is not empty yet" if timeliness is None else timeliness.message
    return "", ""


def cordon_owners(node: Node) -> tuple[str, ...]:
    """Return the cordon owners of a node; none if the annotation is missing or invalid."""
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return ()
    return () if mark is None else tuple(sorted(mark.owners))
