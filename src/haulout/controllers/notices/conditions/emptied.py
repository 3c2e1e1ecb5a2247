"""Whether a node has been emptied for a maintenance: the condition Emptied of a notice. Pure.

It is the leave to begin before the time: clouds that can be told to (`haulout.controllers.notices.early_start`) go by
it. So it is True only while all of this holds, and is said only then, or to take it back:

- the maintenance is due, and a profile empties the node for it;
- profiles, and nobody else, keep the node cordoned: a person who has ordered maintenance may be at work on it;
- nothing is left there that a drain would make leave, or who drains it says that it is done.
"""

from haulout.api.maintenancenotice import NoticeCondition, NoticePhase
from haulout.api.objects import Node, StatusCondition
from haulout.controllers.notices.conditions.on_time import Observation, OnTimeReason, Timeliness
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of

_NOT_EMPTY = "NotEmpty"
_PROFILE_OWNER_PREFIX = "profile/"  # of owners of a cordon


def emptied_condition(observation: Observation, timeliness: Timeliness | None) -> StatusCondition | None:
    """Return what to say, by what is left on the node; None: nothing else than was said before."""
    previous = observation.notice.status.condition(NoticeCondition.EMPTIED)
    if observation.phase.is_over or (observation.phase is NoticePhase.ACTIVE and previous is not None):
        return None
    reason, message = _blocking_reason(observation, timeliness)
    is_unknown = reason == _NOT_EMPTY and timeliness is None  # nobody looks at pods any more once its time has come
    if reason and (previous is None or is_unknown):
        return None
    return StatusCondition(
        type=NoticeCondition.EMPTIED,
        status=str(not reason),
        reason=reason or "Empty",
        message=message or f"{observation.node.name if observation.node else ''} is cordoned and empty: it may begin",
    )


def is_emptied(observation: Observation, timeliness: Timeliness | None) -> bool:
    """Tell whether it may begin."""
    return not _blocking_reason(observation, timeliness)[0]


def _blocking_reason(observation: Observation, timeliness: Timeliness | None) -> tuple[str, str]:
    node = observation.node
    if node is None:
        return "NodeNotFound", "which node it is about is not known"
    if observation.phase is not NoticePhase.DUE or not observation.is_handled:
        return "NotDue", f"{node.name} is not to be emptied for it now"
    owners = cordon_owners(node)
    if not node.spec.unschedulable or not owners:
        return "NotCordoned", f"{node.name} is not cordoned for it"
    others = [owner for owner in owners if not owner.startswith(_PROFILE_OWNER_PREFIX)]
    if others:
        return "HeldByOthers", f"{node.name} is kept out of service for {', '.join(others)}, too"
    if timeliness is None or timeliness.reason is not OnTimeReason.EMPTY:
        return _NOT_EMPTY, f"{node.name} is not empty yet" if timeliness is None else timeliness.message
    return "", ""


def cordon_owners(node: Node) -> tuple[str, ...]:
    """Return who keeps a node cordoned, of those who leave a mark."""
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return ()
    return () if mark is None else tuple(sorted(mark.owners))
