"""What the labels of a node of GKE say about maintenance of its host. Pure.

    said = read(node)                                   # None: nothing is planned; raises `Unreadable`
    for report in reports(node, said, notices, at=now): …

GKE labels nodes with accelerators some weeks ahead, with the time in seconds since 1970. It shows one maintenance at
most. The notice is named after the node, which is another once its uid is, and the start that was told first; while it
is open and has not begun, another time means that it was moved. A label that is gone means that it is over, or was
called off, which is noted (`GONE`). What is over stays over: the same start never makes another notice.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from haulout.core.walltime import EARLIEST, LATEST
from haulout.kinds.early import may_have_begun
from haulout.kinds.notice import Kind, MaintenanceNotice, Stage
from haulout.kinds.reports import Plan, Report
from haulout.kube.objects import Node
from haulout.notices.sources.gke import SOURCE

_PREFIX = "cloud.google.com"
START, LATEST_START = f"{_PREFIX}/scheduled-maintenance-time", f"{_PREFIX}/scheduled-maintenance-time-latest"
ACTIVE, PERFORM = f"{_PREFIX}/active-node-maintenance", f"{_PREFIX}/perform-maintenance"
TERMINATING = f"{_PREFIX}/impending-node-termination"  # a taint

GONE = "gke.haulout.dev/gone-at"

_SECONDS = re.compile(r"[0-9]{1,11}", re.ASCII)  # more is no year of a calendar
_OVER = (Stage.CANCELLED, Stage.ENDED)
_FALSE = "false"


class Unreadable(ValueError):
    """A label that makes no sense: what was found, and what was expected."""


@dataclass(frozen=True, slots=True)
class Said:
    """What labels say."""

    start: datetime | None
    deadline: datetime | None
    has_begun: bool


def marks(node: Node | None) -> tuple[object, ...]:
    """Return all of a node that counts here, to tell whether it has changed."""
    if node is None:
        return ()
    labels = node.metadata.labels
    return (node.uid, *(labels.get(it) for it in (START, LATEST_START, ACTIVE)), _is_terminating(node))


def read(node: Node) -> Said | None:
    """Return what the labels of a node say; None if that is nothing. Raises `Unreadable`."""
    labels = node.metadata.labels
    is_active = labels.get(ACTIVE, _FALSE).lower() != _FALSE
    if START not in labels and not is_active:
        return None
    start = _instant(labels[START], START) if START in labels else None
    latest = _instant(labels[LATEST_START], LATEST_START) if LATEST_START in labels else None
    deadline = latest if latest is not None and start is not None and start <= latest else None
    is_due = start is not None and _is_terminating(node)
    return Said(start, deadline, is_active or is_due)


def reports(node: Node, said: Said | None, notices: Sequence[MaintenanceNotice], *, at: datetime) -> Iterator[Report]:
    """Yield what follows for a node; `notices` are all of this source about nodes of its name."""
    ours = [it for it in notices if it.spec.notice_id.startswith(f"{node.uid}-")]
    known = [it for it in ours if not is_over(it)]
    meant = None if said is None else _meant(known, said)
    yield from (gone(it, at=at) for it in notices if it is not meant and not is_over(it))
    if said is None:
        return
    if meant is None and said.start is None and any(GONE not in it.metadata.annotations for it in ours):
        return  # somebody has ended what goes on, and it has no start to be known by
    called = _named(node, said, at) if meant is None else meant.spec.notice_id
    yield Report(
        source=SOURCE,
        notice_id=called,
        at=at,
        provider_id=node.spec.provider_id,
        node_name=node.name,
        stage=Stage.STARTED if said.has_begun else Stage.SCHEDULED,
        plan=None if said.start is None and meant is not None else _plan(said),
    )


def gone(notice: MaintenanceNotice, *, at: datetime) -> Report:
    """Return what is said about a maintenance that no label tells of any more, or whose node is gone."""
    spec = notice.spec
    is_ahead = spec.stage in ("", Stage.SCHEDULED) and spec.start is not None and at < spec.start
    notes = {GONE: f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    stage = Stage.CANCELLED if is_ahead and not may_have_begun(notice) else Stage.ENDED
    return Report(source=SOURCE, notice_id=spec.notice_id, at=at, node_name=spec.node_name, stage=stage, notes=notes)


def is_over(notice: MaintenanceNotice) -> bool:
    """Tell whether nothing more is expected of it."""
    return notice.spec.stage in _OVER


def _meant(known: Sequence[MaintenanceNotice], said: Said) -> MaintenanceNotice | None:
    same = [it for it in known if said.start is None or it.spec.start == said.start]
    moved = [it for it in known if said.has_begun or it.spec.stage != Stage.STARTED]
    return next(iter((*same, *moved)), None)


def _named(node: Node, said: Said, at: datetime) -> str:
    return f"{node.uid}-{said.start or at:%Y%m%dt%H%M%S}"


def _plan(said: Said) -> Plan:
    return Plan(
        kind=Kind.REBOOT,  # accelerators cannot move while they run
        reason="HostMaintenance",
        description="maintenance of the host, as GKE says by labels of the node",
        start=said.start,
        deadline=said.deadline,
    )


def _is_terminating(node: Node) -> bool:
    return any(it.key == TERMINATING for it in node.spec.taints)


def _instant(written: str, label: str) -> datetime:
    found = datetime.fromtimestamp(int(written), UTC) if _SECONDS.fullmatch(written) else None
    if found is None or not EARLIEST <= found < LATEST:
        raise Unreadable(f"expected seconds since 1970 as label {label}, found {written[:60]!r}")
    return found
