"""Parse the CronJobs that the OCI Node Maintenance Handler left in a cluster. Pure.

    drain = parse_cron_job(job)         # None: not one of the handler's
    drain.at, drain.start               # start of the drain, and of the maintenance 15 minutes later

The handler records neither the maintenance nor the machine nor the year. The node is in the command and in the name,
and both must match: a similar CronJob of a user must not be mistaken for the handler's. The year is the first that fits
after the CronJob was created. Its next scheduled time does not help: it is a year late if the CronJob has fired, or if
its minute had passed at its creation, since the handler drops the seconds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceKind
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import Base, Node, Object, RawObject, machine_key
from haulout.api.resources import Resource
from haulout.core.walltime import EARLIEST, LATEST
from haulout.providers.oci import SOURCE

LEAD = timedelta(minutes=15)  # fixed in the handler
DEFAULT_DURATION = timedelta(days=1)  # assumed if no duration is known; windows of this length are common

_SOURCE_WITHOUT_MACHINE = "onmh"  # the ID of no event source, so nothing reports the end: the times decide
_NAME = re.compile(r"scheduled-drain-(?P<node>.+)-\d{6}")
_COMMAND = re.compile(r"kubectl drain (?P<node>\S+) --ignore-daemonsets --delete-emptydir-data --force --timeout=10m")
_SCHEDULE = re.compile(r"(?P<minute>\d{1,2}) (?P<hour>\d{1,2}) (?P<day>\d{1,2}) (?P<month>\d{1,2}) \*")
_MAX_CLOCK_SKEW = timedelta(minutes=5)  # between the handler's clock and the API server's
_MAX_YEARS = 9  # enough to include a 29th of February


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
    """Schedule and job template."""

    schedule: str = ""
    time_zone: str = ""
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class CronJobStatus(Base, frozen=True):
    """Status of a CronJob."""

    active: tuple[RawObject, ...] = ()  # its running jobs


class CronJob(Object, frozen=True):
    """A CronJob with the fields that matter here."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True, model=CronJob)


@dataclass(frozen=True, slots=True)
class HandlerDrain:
    """A drain that the handler planned."""

    node: str
    at: datetime
    created_at: datetime

    @property
    def start(self) -> datetime:
        """The start of the maintenance, to the minute."""
        return self.at + LEAD

    def is_for(self, plan: MaintenancePlan | None) -> bool:
        """Return whether the drain was planned for this maintenance."""
        start = None if plan is None else plan.start
        return start is not None and (start - LEAD).replace(second=0, microsecond=0) == self.at


def parse_cron_job(job: CronJob) -> HandlerDrain | None:
    """Return the drain of a CronJob; None if the handler did not write it."""
    name_match, schedule = _NAME.fullmatch(job.name), _SCHEDULE.fullmatch(job.spec.schedule)
    node, created_at = _drained_node(job), job.metadata.creation_timestamp
    if name_match is None or name_match["node"] != node or schedule is None or job.spec.time_zone or created_at is None:
        return None
    at = next(_instants(schedule, since=created_at - _MAX_CLOCK_SKEW), None)
    return None if at is None else HandlerDrain(node, at, created_at)


def report_of(drain: HandlerDrain, node: Node) -> NoticeReport:
    """Return the report of the maintenance for a drain, if OCI does not report it.

    Its ID is the machine's, as for an event without a maintenance OCID. Of several drains of one machine the one
    created
    last applies: the handler keeps the old CronJob when a maintenance is moved.
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
            description="Adopted from the OCI Node Maintenance Handler, which records neither kind nor duration.",
            start=drain.start,
            end=drain.start + DEFAULT_DURATION,
        ),
    )


def _drained_node(job: CronJob) -> str:
    """Return the node that the job drains; empty if the job does anything else."""
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
