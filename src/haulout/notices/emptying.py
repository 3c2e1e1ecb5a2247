"""Whether a node has been emptied for a maintenance: the condition Emptied of a notice. Pure.

It is the leave to begin before the time: clouds that can be told to (`haulout.notices.starting`) go by it. So it is
True only while all of this holds, and is said only then, or to take it back:

- the maintenance is due, and a profile empties the node for it;
- profiles, and nobody else, keep the node cordoned: a person who has ordered maintenance may be at work on it;
- nothing is left there that a drain would make leave, or who drains it says that it is done.
"""

from haulout.drain.cordon import BadMark, cordon_of
from haulout.kinds.notice import NoticeCondition, Phase
from haulout.kube.objects import Node, StatusCondition
from haulout.notices.timeliness import Plan, Timeliness, Verdict

_NOT_EMPTY = "NotEmpty"
_PROFILES = "profile/"  # of owners of a cordon


def emptied(plan: Plan, found: Timeliness | None) -> StatusCondition | None:
    """Return what to say, by what is left on the node; None: nothing else than was said before."""
    said = plan.notice.status.condition(NoticeCondition.EMPTIED)
    if plan.phase.is_over or (plan.phase is Phase.ACTIVE and said is not None):
        return None
    reason, why = _why_not(plan, found)
    is_unknown = reason == _NOT_EMPTY and found is None  # nobody looks at pods any more once its time has come
    if reason and (said is None or is_unknown):
        return None
    return StatusCondition(
        type=NoticeCondition.EMPTIED,
        status=str(not reason),
        reason=reason or "Empty",
        message=why or f"{plan.node.name if plan.node else ''} is cordoned and empty: it may begin",
    )


def is_emptied(plan: Plan, found: Timeliness | None) -> bool:
    """Tell whether it may begin."""
    return not _why_not(plan, found)[0]


def _why_not(plan: Plan, found: Timeliness | None) -> tuple[str, str]:
    node = plan.node
    if node is None:
        return "NodeNotFound", "which node it is about is not known"
    if plan.phase is not Phase.DUE or not plan.is_minded:
        return "NotDue", f"{node.name} is not to be emptied for it now"
    owners = cordon_owners(node)
    if not node.spec.unschedulable or not owners:
        return "NotCordoned", f"{node.name} is not cordoned for it"
    others = [it for it in owners if not it.startswith(_PROFILES)]
    if others:
        return "HeldByOthers", f"{node.name} is kept out of service for {', '.join(others)}, too"
    if found is None or found.reason is not Verdict.EMPTY:
        return _NOT_EMPTY, f"{node.name} is not empty yet" if found is None else found.message
    return "", ""


def cordon_owners(node: Node) -> tuple[str, ...]:
    """Return who keeps a node cordoned, of those who leave a mark."""
    try:
        mark = cordon_of(node)
    except BadMark:
        return ()
    return () if mark is None else tuple(sorted(mark.owners))
