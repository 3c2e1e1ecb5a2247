"""Take over the plans of the OCI Node Maintenance Handler: each of its CronJobs becomes a notice.

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node, ObjectMeta, machine_key
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

ADOPTED_LABEL = "haulout.dev/adopted"  # a label of CronJobs that we suspended
NOTICE_ANNOTATION = "haulout.dev/notice"  # an annotation of these CronJobs: the name of their notice
ADOPTED_FROM_ANNOTATION = "haulout.dev/adopted-from"  # an annotation of notices: the CronJob

_FINISHED_STAGES = (NoticeStage.CANCELLED, NoticeStage.ENDED)
_WAIT_FOR_OCI_UNTIL = timedelta(hours=1)  # before the drain

ListOpenMaintenance = Callable[[str], Awaitable[Sequence[NoticeReport]]]


def permissions(*, namespace: str = "") -> tuple[Permission, ...]:
    """Return the permissions; CronJobs are in `namespace`, or in all namespaces if it is empty."""
    group, plural, namespace_or_all = CRON_JOBS.group, CRON_JOBS.plural, namespace or None
    purpose = "adopt CronJobs of the OCI Node Maintenance Handler"
    return (Permission(("list", "watch", "patch", "delete"), group, plural, namespace_or_all, purpose),)


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
        if notices[matching.name].spec.stage in _FINISHED_STAGES:
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
