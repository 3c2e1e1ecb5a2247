"""Take over the plans of the OCI Node Maintenance Handler: each of its CronJobs becomes a notice.

    drain = parse_cron_job(job)         # None: not one of the handler's
    drain.at, drain.start               # start of the drain, and of the maintenance 15 minutes later

The handler records neither the maintenance nor the machine nor the year. The node is in the command and in the name,
and both must match: a similar CronJob of a user must not be mistaken for the handler's. The year is the first that fits
after the CronJob was created. Its next scheduled time does not help: it is a year late if the CronJob has fired, or if
its minute had passed at its creation, since the handler drops the seconds.

The messages from which the CronJobs were made are committed, so they will not be received again. The steps:

1. List the open maintenance of the node's machine in OCI. It is used as it is, with the same IDs as from the stream and
   the lists: there is never a second notice for it. Only if OCI returns none, or does not answer until an hour before
   the drain, is the notice made from the CronJob.
2. When the notice exists, suspend and label the CronJob. Until then the CronJob would still do its work after a crash;
   if it fires nevertheless, it does what the operator does. To go back to the handler, resume the CronJobs.
3. At the planned start of the maintenance delete the CronJob, likewise one whose time had passed when it was first
   observed: otherwise it would fire again a year later. A running job is left to finish first.

CronJobs that are not exactly as the handler writes them, or that were suspended by others, are left alone.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from haulout.api import annotations
from haulout.api.maintenancenotice import MaintenanceKind, is_finished
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import Base, Node, Object, ObjectMeta, RawObject, machine_key
from haulout.api.resources import Resource
from haulout.core.walltime import EARLIEST, LATEST
from haulout.errors import CloudError, Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci import SOURCE

log = logging.getLogger(__name__)

ADOPTED_LABEL = annotations.ADOPTED  # a label of CronJobs that we suspended
NOTICE_ANNOTATION = annotations.ADOPTED_NOTICE  # an annotation of these CronJobs: the name of their notice
ADOPTED_FROM_ANNOTATION = annotations.ADOPTED_FROM  # an annotation of notices: the CronJob

_WAIT_FOR_OCI_UNTIL = timedelta(hours=1)  # before the drain

ListOpenMaintenance = Callable[[str], Awaitable[Sequence[NoticeReport]]]

LEAD = timedelta(minutes=15)  # fixed in the handler
DEFAULT_DURATION = timedelta(days=1)  # assumed if no duration is known; windows of this length are common

_SOURCE_WITHOUT_MACHINE = "onmh"  # the ID of no event source, so nothing reports the end: the times decide
_NAME = re.compile(r"scheduled-drain-(?P<node>.+)-\d{6}")
# The command that new_job.py of the handler writes.
_COMMAND = re.compile(r"kubectl drain (?P<node>\S+) --ignore-daemonsets --delete-emptydir-data --force --timeout=10m")
_SCHEDULE = re.compile(r"(?P<minute>\d{1,2}) (?P<hour>\d{1,2}) (?P<day>\d{1,2}) (?P<month>\d{1,2}) \*")
_MAX_CLOCK_SKEW = timedelta(minutes=5)  # between the handler's clock and the API server's
_MAX_YEARS = 9  # enough to include a 29th of February


def permissions(*, namespace: str = "") -> tuple[Permission, ...]:
    """Return the permissions; CronJobs are in `namespace`, or in all namespaces if it is empty."""
    group, plural, namespace_or_all = CRON_JOBS.group, CRON_JOBS.plural, namespace or None
    purpose = "adopt CronJobs of the OCI Node Maintenance Handler"
    return (Permission(("list", "watch", "patch", "delete"), group, plural, namespace_or_all, purpose),)


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
    """Schedule and job template: what tells a CronJob of the handler from others."""

    schedule: str = ""
    time_zone: str = ""
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class CronJobStatus(Base, frozen=True):
    """Status of a CronJob: the jobs that a deletion would delete, too."""

    active: tuple[RawObject, ...] = ()  # its running jobs


class CronJob(Object, frozen=True):
    """A CronJob with the fields that matter here."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


@dataclass(frozen=True, slots=True)
class HandlerDrain:
    """A drain that the handler planned, by its CronJob."""

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


class CronJobAdoption:
    """Adopts existing and new CronJobs. Call `run` at most once.

    `list_open_maintenance` returns the open maintenance of an instance, and raises `CloudError` if OCI does not answer.
    """

    def __init__(
        self, client: Client, *, nodes: Informer[Node], list_open_maintenance: ListOpenMaintenance, namespace: str = ""
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._notice_writer = NoticeWriter(client)
        self._nodes = nodes
        self._list_open_maintenance = list_open_maintenance
        self._jobs: Informer[CronJob] = Informer(
            client, ListWatch(CRON_JOBS, namespace=namespace or None), transform=_trimmed
        )
        self._problems: dict[str, str] = {}
        self._missing_nodes: dict[str, str] = {}  # by key of the CronJob: its node, which does not exist
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=1,
            metrics=client.metrics,
            name="CronJob adoption",
        )

    def problems(self) -> Sequence[str]:
        """Return one line per CronJob that cannot be adopted yet."""
        problem = self._jobs.health().problem
        read_problems = (f"oci: CronJobs cannot be read, retrying: {problem}",) if problem else ()
        return (*read_problems, *self._problems.values())

    async def run(self) -> None:
        """Run until cancelled. The caller runs the node informer."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._watch_jobs())
            await self._nodes.wait_synced()
            stack.callback(self._nodes.subscribe(self._on_node))  # the node informer outlives this component
            await self._jobs.wait_synced()
            self._jobs.subscribe(self._on_job)
            await self._queue.run()

    async def _watch_jobs(self) -> None:
        await self._jobs.run()

    def _on_job(self, old: CronJob | None, new: CronJob | None) -> None:
        if old is not None:
            self._problems.pop(old.key, None)
            self._missing_nodes.pop(old.key, None)
        if new is not None and parse_cron_job(new) is not None:
            self._queue.add(new.key)

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:
            for key in [job_key for job_key, node in self._missing_nodes.items() if node == new.name]:
                self._queue.add(key)

    # Reconcile

    async def _reconcile(self, key: str) -> datetime | None:
        job = self._jobs.get(key)
        drain = None if job is None else parse_cron_job(job)
        if job is None or drain is None or (job.spec.suspend and ADOPTED_LABEL not in job.metadata.labels):
            return None
        try:
            if drain.start <= self._clock.now():
                if not job.status.active:  # deletion would delete its running job
                    await self._delete(job, drain)
                return None
            if not job.spec.suspend:
                await self._adopt(job, drain)
        except (Conflict, NotFound) as error:
            log.debug("CronJob %s has changed, retrying: %s", key, error)
            return None  # the watch triggers the next reconcile
        return drain.start

    async def _adopt(self, job: CronJob, drain: HandlerDrain) -> None:
        node = self._nodes.get(drain.node)
        if node is None:
            self._missing_nodes[job.key] = drain.node
            log.warning("oci: CronJob %s is not adopted: there is no node %s", job.key, drain.node)
            return
        reports = await self._reports(job, drain, node)
        matching = next((report for report in reports if drain.is_for(report.plan)), reports[0])
        annotations = {ADOPTED_FROM_ANNOTATION: job.key}
        notices = {
            report.name: await self._notice_writer.write(
                replace(report, notes=annotations if report is matching else {})
            )
            for report in reports
        }
        if is_finished(notices[matching.name]):
            # An earlier maintenance of the machine has the name, for some more days. The CronJob will do its work.
            log.warning("oci: CronJob %s is not adopted: MaintenanceNotice %s is over", job.key, matching.name)
            return
        await self._suspend(job, matching)
        self._problems.pop(job.key, None)
        log.info("oci: CronJob %s is suspended: MaintenanceNotice %s replaces it", job.key, matching.name)

    async def _reports(self, job: CronJob, drain: HandlerDrain, node: Node) -> Sequence[NoticeReport]:
        """Return the maintenance for a drain: from OCI, or else from the CronJob."""
        planned = report_of(drain, node)
        machine = machine_key(node.spec.provider_id)
        if not machine:
            return (planned,)
        try:
            return tuple(await self._list_open_maintenance(machine)) or (planned,)
        except CloudError as error:
            if drain.at - self._clock.now() > _WAIT_FOR_OCI_UNTIL:
                self._problems[job.key] = f"oci: CronJob {job.key} is not adopted yet, retrying: {error}"
                raise
            log.warning("oci: CronJob %s is adopted without data from OCI: %s", job.key, error)
            return (planned,)

    async def _suspend(self, job: CronJob, report: NoticeReport) -> None:
        metadata = {
            "uid": job.uid,
            "resourceVersion": job.resource_version,
            "labels": {ADOPTED_LABEL: "true"},
            "annotations": {NOTICE_ANNOTATION: report.name},
        }
        patch = merge_patch({"metadata": metadata, "spec": {"suspend": True}})
        await self._client.patch(CRON_JOBS, job.name, patch, namespace=job.namespace)

    async def _delete(self, job: CronJob, drain: HandlerDrain) -> None:
        await self._client.delete(
            CRON_JOBS,
            job.name,
            namespace=job.namespace,
            uid=job.uid,
            resource_version=job.resource_version,
        )
        log.info("oci: CronJob %s is deleted: it was for %s, and would run again in a year", job.key, drain.at)


def _trimmed(job: CronJob) -> CronJob:
    """Return the parts of a CronJob to keep in memory: of those that are not the handler's only the key."""
    if parse_cron_job(job) is not None:
        return job
    metadata = job.metadata
    return CronJob(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
    )


CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True, model=CronJob)


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
    created last applies: the handler keeps the old CronJob when a maintenance is moved.
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
