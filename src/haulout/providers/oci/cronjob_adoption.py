"""Takes over what the OCI Node Maintenance Handler had planned: each of its CronJobs becomes a notice.

The messages that these CronJobs were made from are acknowledged, so nobody will tell again. The order of things:

1. OCI is asked what is open for the machine of the node. What it shows is taken as it is, under the names that the
   stream and the lists use as well: there is never a second notice for it. Only if OCI shows nothing, or says nothing
   until an hour before the drain, is the notice made of what the CronJob says.
2. When the notice is there the CronJob is suspended, and labelled. Until then it would still do its work, should we
   die; if it fires after all, it does what we do. Who wants to go back to the handler lets it go on.
3. When its maintenance was to begin the CronJob is deleted, and so is one whose time had passed when we first saw it:
   otherwise it would fire again a year later. A job that it has started is left to end first.

Whatever is not written exactly as the handler writes it, or was suspended by somebody else, is left alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node, ObjectMeta
from haulout.api.provider_id import machine_key
from haulout.errors import CloudError, Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.handler_cronjobs import CRON_JOBS, CronJob, HandlerDrain, parse_cron_job, report_of

log = logging.getLogger(__name__)

ADOPTED_LABEL = "haulout.dev/adopted"  # a label of CronJobs that we have suspended
NOTICE_ANNOTATION = "haulout.dev/notice"  # an annotation of these: what has become of them
ADOPTED_FROM_ANNOTATION = "haulout.dev/adopted-from"  # an annotation of notices: the CronJob

_FINISHED_STAGES = (NoticeStage.CANCELLED, NoticeStage.ENDED)
_WAIT_FOR_OCI_UNTIL = timedelta(hours=1)  # before the drain

ListOpenMaintenance = Callable[[str], Awaitable[Sequence[NoticeReport]]]


def permissions(*, namespace: str = "") -> tuple[Permission, ...]:
    """Return what is needed; CronJobs are in `namespace`, or in any if it is empty."""
    group, plural, namespace_or_all = CRON_JOBS.group, CRON_JOBS.plural, namespace or None
    purpose = "take over what the OCI Node Maintenance Handler has planned"
    return (Permission(("list", "watch", "patch", "delete"), group, plural, namespace_or_all, purpose),)


class CronJobAdoption:
    """Takes over CronJobs, those that are there and those that come; `run` may be called once.

    `list_open_maintenance` returns what OCI shows as open for an instance, and raises `CloudError` if it shows nothing
    now.
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
        self._missing_nodes: dict[str, str] = {}  # by key, the node that is not there
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=1,
            metrics=client.metrics,
            name="scheduled drains",
        )

    def problems(self) -> Sequence[str]:
        """Return which CronJobs cannot be taken over yet, and why, a line each."""
        problem = self._jobs.health().problem
        read_problems = (f"oci: CronJobs cannot be read, which is tried again: {problem}",) if problem else ()
        return (*read_problems, *self._problems.values())

    async def run(self) -> None:
        """Work until cancelled; somebody else runs the cache of nodes."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._watch_jobs())
            await self._nodes.wait_synced()
            stack.callback(self._nodes.subscribe(self._on_node))  # that copy outlives us
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

    # One look

    async def _reconcile(self, key: str) -> datetime | None:
        job = self._jobs.get(key)
        drain = None if job is None else parse_cron_job(job)
        if job is None or drain is None or (job.spec.suspend and ADOPTED_LABEL not in job.metadata.labels):
            return None
        try:
            if drain.start <= self._clock.now():
                if not job.status.active:  # else the watch will tell: its job would be deleted with it
                    await self._delete(job, drain)
                return None
            if not job.spec.suspend:
                await self._adopt(job, drain)
        except (Conflict, NotFound) as error:
            log.debug("CronJob %s is not as it was: %s", key, error)
            return None  # the watch will tell
        return drain.start

    async def _adopt(self, job: CronJob, drain: HandlerDrain) -> None:
        node = self._nodes.get(drain.node)
        if node is None:
            self._missing_nodes[job.key] = drain.node
            log.warning("oci: CronJob %s is not taken over: there is no node %s", job.key, drain.node)
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
        if notices[matching.name].spec.stage in _FINISHED_STAGES:
            # An earlier maintenance of the machine has the name, for some days yet. The CronJob will do its work.
            log.warning("oci: CronJob %s is not taken over: notice %s is over", job.key, matching.name)
            return
        await self._suspend(job, matching)
        self._problems.pop(job.key, None)
        log.info("oci: CronJob %s is suspended: what it was to do is MaintenanceNotice %s now", job.key, matching.name)

    async def _reports(self, job: CronJob, drain: HandlerDrain, node: Node) -> Sequence[NoticeReport]:
        """Return the maintenance that a drain is for: what OCI says, or else what the CronJob says."""
        planned = report_of(drain, node)
        machine = machine_key(node.spec.provider_id)
        if not machine:
            return (planned,)
        try:
            return tuple(await self._list_open_maintenance(machine)) or (planned,)
        except CloudError as error:
            if drain.at - self._clock.now() > _WAIT_FOR_OCI_UNTIL:
                self._problems[job.key] = f"oci: CronJob {job.key} is not taken over yet, which is tried again: {error}"
                raise
            log.warning("oci: CronJob %s is taken over as it is: %s", job.key, error)
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
    """Return what is kept of a CronJob: of those that are none of the handler's next to nothing."""
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
