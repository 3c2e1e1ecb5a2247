"""What is shown and told of a Machine that waits for its node, whatever for: deletion and maintenance alike. Pure."""

from dataclasses import replace
from datetime import datetime

from haulout.hub import words
from haulout.hub.asks import Ask
from haulout.hub.outcome import Part, Seen, Telling
from haulout.hub.standing import MachineStanding, Why
from haulout.kinds.clusterapi import TRUE
from haulout.kube.objects import Node


def is_asked(node: Node, ask: Ask | None, *, label: str, note: str) -> bool:
    """Tell whether a node says what is asked of it; without a note, a hub that knew no notes has asked."""
    return node.metadata.labels.get(label) == TRUE and (ask is not None or note not in node.metadata.annotations)


def standing(
    seen: Seen,
    why: Why,
    reason: str,
    *,
    since: datetime | None,
    until: datetime | None = None,
    is_approved: bool = False,
) -> MachineStanding:
    """Return how it stands with a Machine."""
    return MachineStanding(
        name=seen.machine.name,
        node=seen.machine.node,
        why=why,
        is_approved=is_approved,
        reason=reason,
        since=since,
        until=until,
    )


def waiting(seen: Seen, shown: MachineStanding, *, since: datetime | None) -> Part:
    """Return that a Machine waits as is `shown`, which takes too long some time after `since`; None: it never does."""
    overdue = None if since is None else since + seen.settings.overdue_after
    looks = [it for it in (shown.until, overdue) if it is not None and it > seen.now]
    part = Part(standing=shown, next_look=min(looks, default=None))
    if since is None or overdue is None or overdue > seen.now:
        return part
    return replace(
        part, remarks=(Telling(reason="ApprovalOverdue", note=words.overdue(shown.reason, since), is_bad=True),)
    )


def remarked(part: Part, reason: str, *, is_bad: bool = False) -> Part:
    """Return the same, of which people hear once what it waits for; if that is bad, on the node, too."""
    note = "" if part.standing is None else part.standing.reason
    return replace(part, remarks=(Telling(reason=reason, note=note, is_bad=is_bad, of_node=is_bad), *part.remarks))
