"""What the OCI Node Maintenance Handler has left in a cluster: its CronJobs, read as what they stand for. Pure.

    drain = of_cron_job(job)            # None: it is somebody else's
    drain.at, drain.start               # when it was to begin, and the maintenance 15 minutes later

The handler writes down neither the maintenance nor the machine nor the year. The node is in the command and in the
name, and both have to say the same: what a person has named or written alike is not taken for the handler's. The year
is the first that fits, counted from when the CronJob was made. When it fires next is no help: that is a year late for
one that has fired, and for one whose minute had passed when it was made, since the handler drops the seconds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceKind
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import Base, Node, Object, RawObject
from haulout.api.provider_id import machine_key
from haulout.api.resources import Resource
from haulout.core.walltime import EARLIEST, LATEST
from haulout.providers.oci import SOURCE

LEAD = timedelta(minutes=15)  # the handler's, which nobody can change
DEFAULT_DURATION = timedelta(days=1)  # what is assumed where nobody says: that long a window is common

_SOURCE_WITHOUT_MACHINE = "onmh"  # a source nobody listens to: times decide
_NAME = re.compile(r"scheduled-drain-(?P<node>.+)-\d{6}")
_COMMAND = re.compile(r"kubectl drain (?P<node>\S+) --ignore-daemonsets --delete-emptydir-data --force --timeout=10m")
_SCHEDULE = re.compile(r"(?P<minute>\d{1,2}) (?P<hour>\d{1,2}) (?P<day>\d{1,2}) (?P<month>\d{1,2}) \*")
_MAX_CLOCK_SKEW = timedelta(minutes=5)  # between the handler's look at its clock and the API server's
_MAX_YEARS = 9  # until there is a 29th of February for sure


class _Container(Base, frozen=True):
    command: tuple[str, ...] = ()


class _PodSpec(Base, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(Base, frozen=True):
    spec: _PodSpec = _PodSpec()


class _JobSpec(Base, frozen=True):
    template: _Template = _Template()


class _JobTemplate(Base, frozen=True):
    spec: _JobSpec = _JobSpec()


class CronJobSpec(Base, frozen=True):
    """When, and what."""

    schedule: str = ""
    time_zone: str = ""
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class CronJobStatus(Base, frozen=True):
    """What has become of it."""

    active: tuple[RawObject, ...] = ()  # its jobs that are at work


class CronJob(Object, frozen=True):
    """A CronJob, as far as it matters here."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True, model=CronJob)


@dataclass(frozen=True, slots=True)
class HandlerDrain:
    """What the handler had planned."""

    node: str
    at: datetime
    created_at: datetime

    @property
    def start(self) -> datetime:
        """When the maintenance begins, to the minute."""
        return self.at + LEAD

    def is_for(self, plan: MaintenancePlan | None) -> bool:
        """Tell whether it was planned for a maintenance."""
        start = None if plan is None else plan.start
        return start is not None and (start - LEAD).replace(second=0, microsecond=0) == self.at


def parse_cron_job(job: CronJob) -> HandlerDrain | None:
    """Return what a CronJob stands for; None if the handler has not written it."""
    name_match, schedule = _NAME.fullmatch(job.name), _SCHEDULE.fullmatch(job.spec.schedule)
    node, created_at = _drained_node(job), job.metadata.creation_timestamp
    if name_match is None or name_match["node"] != node or schedule is None or job.spec.time_zone or created_at is None:
        return None
    at = next(_instants(schedule, since=created_at - _MAX_CLOCK_SKEW), None)
    return None if at is None else HandlerDrain(node, at, created_at)


def report_of(drain: HandlerDrain, node: Node) -> NoticeReport:
    """Return the maintenance that a drain was planned for, where nobody else tells of it.

    Its name is the machine's, as for an event that does not name its maintenance. Of several drains of one machine the
    one that was planned last counts: the handler leaves the old one when a maintenance is moved.
    """
    machine = machine_key(node.spec.provider_id)
    return NoticeReport(
        source=SOURCE if machine else _SOURCE_WITHOUT_MACHINE,
        notice_id=machine or f"scheduled-drain-{drain.node}",
        at=drain.created_at,
        provider_id=machine,
        node_name="" if machine else drain.node,
        plan=MaintenancePlan(
            kind=MaintenanceKind.UNKNOWN,
            description="Taken over from the OCI Node Maintenance Handler, which says neither what it is nor how long.",
            start=drain.start,
            end=drain.start + DEFAULT_DURATION,
        ),
    )


def _drained_node(job: CronJob) -> str:
    """Return the node that is drained; empty if that is not all that is done."""
    match job.spec.job_template.spec.template.spec.containers:
        case [_Container(command=("/bin/sh", "-c", script))]:
            found = _COMMAND.fullmatch(script.strip())
            return found["node"] if found else ""
    return ""


def _instants(schedule: "re.Match[str]", *, since: datetime) -> Iterator[datetime]:
    month, day, hour, minute = (int(schedule[field]) for field in ("month", "day", "hour", "minute"))
    since = since.replace(second=0, microsecond=0)
    for year in range(since.year, since.year + _MAX_YEARS):
        try:
            instant = datetime(year, month, day, hour, minute, tzinfo=UTC)
        except ValueError:
            continue
        if max(since, EARLIEST) <= instant <= LATEST:
            yield instant
