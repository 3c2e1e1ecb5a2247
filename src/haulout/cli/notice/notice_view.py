"""Notices as they stand now, whether or not an operator runs.

The status of a notice is as old as the operator's last look. What is shown is worked out from what was said, with the
lead time that the status knows of. An object that cannot be read is a note, and hides no other.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
)
from haulout.api.notice_phase import DEFAULT_LEAD, PhaseStatus, drain_at, phase_at
from haulout.api.objects import UndecodableObject
from haulout.controllers.notices.cancellation import is_from_event_source
from haulout.errors import HauloutError, NotFound
from haulout.kube import discovery
from haulout.kube.client import Client

PRESSING_WITHIN = timedelta(days=1)
_PREFIXES = ("maintenancenotice.haulout.dev/", "maintenancenotices.haulout.dev/", "maintenancenotice/", "mn/")


@dataclass(frozen=True, slots=True)
class NoticeView:
    """A notice, and how it stands."""

    notice: MaintenanceNotice
    phase_status: PhaseStatus
    now: datetime

    @property
    def phase(self) -> NoticePhase:
        """How it stands, in a word."""
        return self.phase_status.phase

    @property
    def node(self) -> str:
        """The node that it is about; empty while that is not known."""
        return self.notice.node

    @property
    def needs_drain(self) -> bool:
        """Tell whether its node is to be emptied, unless a profile thinks otherwise."""
        return not self.phase.is_over and self.notice.spec.kind != MaintenanceKind.FREEZE

    @property
    def drains_at_once(self) -> bool:
        """Tell whether its node is to be emptied, and nobody has said when it begins."""
        return self.needs_drain and self.notice.spec.start is None

    @property
    def drain_at(self) -> datetime | None:
        """When its node is to be emptied; None: at once, or not at all."""
        return drain_at(self.notice.spec, lead=lead_time_of(self.notice)) if self.needs_drain else None

    @property
    def is_on_time(self) -> bool | None:
        """Tell whether the node will be empty when it begins; None if nobody knows."""
        condition = self.notice.status.condition(NoticeCondition.ON_TIME)
        if condition is None or self.phase.is_over:
            return None
        return {"True": True, "False": False}.get(condition.status)

    @property
    def is_observed(self) -> bool:
        """Tell whether the operator knows of it as it is."""
        status = self.notice.status
        return bool(status.phase) and status.observed_generation >= self.notice.metadata.generation

    @property
    def is_imminent(self) -> bool:
        """Tell whether something happens within a day."""
        if self.phase is not NoticePhase.PLANNED:
            return not self.phase.is_over
        start = self.notice.spec.start
        return start is not None and start - self.now <= PRESSING_WITHIN

    @property
    def is_by_a_source(self) -> bool:
        """Tell whether somebody wrote it who goes on telling how it is: a cloud, not a person."""
        return is_from_event_source(self.notice.spec)

    @property
    def sort_key(self) -> tuple[bool, float, str]:
        """What to sort by: the start, and those first that may begin at any moment."""
        start = self.notice.spec.start
        return start is not None, 0.0 if start is None else start.timestamp(), self.notice.name


def view_of(notice: MaintenanceNotice, *, now: datetime) -> NoticeView:
    """Return how a notice stands."""
    return NoticeView(notice, phase_at(notice.spec, now=now, lead=lead_time_of(notice)), now)


def lead_time_of(notice: MaintenanceNotice) -> timedelta:
    """Return how long before its start it is due: as its status says, if that is about this start."""
    start, due = notice.spec.start, notice.status.drain_at
    if start is None or due is None or notice.status.start != start or start < due:
        return DEFAULT_LEAD
    return start - due


async def list_views(client: Client) -> tuple[list[NoticeView], list[str]]:
    """Return all notices, by their start, and a note for each that cannot be read; raises `KubeError`."""
    now = client.clock.now()
    views: list[NoticeView] = []
    notes: list[str] = []
    async for page in client.pages(MAINTENANCE_NOTICES):
        for item in page.items:
            if isinstance(item, UndecodableObject):
                notes.append(f"MaintenanceNotice {item.name} cannot be read: {item.problem}")
            else:
                views.append(view_of(item, now=now))
    return sorted(views, key=lambda view: view.sort_key), notes


def strip_notice_prefix(name: str) -> str:
    """Return the name of a notice out of what `-o name` prints."""
    return next((name.removeprefix(candidate) for candidate in _PREFIXES if name.startswith(candidate)), name)


async def missing_kind_error(client: Client, error: NotFound) -> HauloutError:
    """Return what to say when something is not there: how to install its kind, or what the server said."""
    if await discovery.serves(client, MAINTENANCE_NOTICES):
        return error
    install = "haulout manifests --crds-only | kubectl apply -f -"
    return HauloutError(
        f"this cluster knows no notices: {MAINTENANCE_NOTICES} is not installed; to install it: {install}"
    )
