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

from haulout.errors import CloudError, Conflict, NotFound
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import Stage
from haulout.kinds.reports import Report
from haulout.kube.access import Permission
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Metadata, Node
from haulout.kube.patches import merge_patch
from haulout.kube.queue import Queue
from haulout.notices.inbox import Inbox
from haulout.notices.sources.oci.handler import CRON_JOBS, CronJob, Drain, of_cron_job, report_of

log = logging.getLogger(__name__)

ADOPTED = "haulout.dev/adopted"  # a label of CronJobs that we have suspended
NOTICE = "haulout.dev/notice"  # an annotation of these: what has become of them
ADOPTED_FROM = "haulout.dev/adopted-from"  # an annotation of notices: the CronJob

_OVER = (Stage.CANCELLED, Stage.ENDED)
_OCI_HAS_UNTIL = timedelta(hours=1)  # before the drain

Ask = Callable[[str], Awaitable[Sequence[Report]]]


def permissions(*, namespace: str = "") -> tuple[Permission, ...]:
    """Return what is needed; CronJobs are in `namespace`, or in any if it is empty."""
    group, plural, where = CRON_JOBS.group, CRON_JOBS.plural, namespace or None
    why = "take over what the OCI Node Maintenance Handler has planned"
    return (Permission(("list", "watch", "patch", "delete"), group, plural, where, why),)


class Adoption:
    """Takes over CronJobs, those that are there and those that come; `run` may be called once.

    `ask` returns what OCI shows as open for an instance, and raises `CloudError` if it shows nothing now.
    """

    def __init__(self, client: Client, *, nodes: Cache[Node], ask: Ask, namespace: str = "") -> None:
        self._client = client
        self._clock = client.clock
        self._inbox = Inbox(client)
        self._nodes = nodes
        self._ask = ask
        self._jobs: Cache[CronJob] = Cache(client, Selection(CRON_JOBS, namespace=namespace or None), row=_kept)
        self._troubles: dict[str, str] = {}
        self._lost: dict[str, str] = {}  # by key, the node that is not there
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=1,
            meters=client.meters,
            name="scheduled drains",
        )

    def troubles(self) -> Sequence[str]:
        """Return which CronJobs cannot be taken over yet, and why, a line each."""
        problem = self._jobs.health().problem
        unread = (f"oci: CronJobs cannot be read, which is tried again: {problem}",) if problem else ()
        return (*unread, *self._troubles.values())

    async def run(self) -> None:
        """Work until cancelled; somebody else runs the cache of nodes."""
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._follow())
            await self._nodes.wait_synced()
            stack.callback(self._nodes.subscribe(self._note_node))  # that copy outlives us
            await self._jobs.wait_synced()
            self._jobs.subscribe(self._note_job)
            await self._queue.run()

    async def _follow(self) -> None:
        await self._jobs.run()

    def _note_job(self, old: CronJob | None, new: CronJob | None) -> None:
        if old is not None:
            self._troubles.pop(old.key, None)
            self._lost.pop(old.key, None)
        if new is not None and of_cron_job(new) is not None:
            self._queue.add(new.key)

    def _note_node(self, old: Node | None, new: Node | None) -> None:
        if old is None and new is not None:
            for key in [it for it, node in self._lost.items() if node == new.name]:
                self._queue.add(key)

    # One look

    async def _work(self, key: str) -> datetime | None:
        job = self._jobs.get(key)
        drain = None if job is None else of_cron_job(job)
        if job is None or drain is None or (job.spec.suspend and ADOPTED not in job.metadata.labels):
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

    async def _adopt(self, job: CronJob, drain: Drain) -> None:
        node = self._nodes.get(drain.node)
        if node is None:
            self._lost[job.key] = drain.node
            log.warning("oci: CronJob %s is not taken over: there is no node %s", job.key, drain.node)
            return
        reports = await self._reports(job, drain, node)
        meant = next((it for it in reports if drain.is_for(it.plan)), reports[0])
        notes = {ADOPTED_FROM: job.key}
        notices = {it.name: await self._inbox.take(replace(it, notes=notes if it is meant else {})) for it in reports}
        if notices[meant.name].spec.stage in _OVER:
            # An earlier maintenance of the machine has the name, for some days yet. The CronJob will do its work.
            log.warning("oci: CronJob %s is not taken over: notice %s is over", job.key, meant.name)
            return
        await self._suspend(job, meant)
        self._troubles.pop(job.key, None)
        log.info("oci: CronJob %s is suspended: what it was to do is MaintenanceNotice %s now", job.key, meant.name)

    async def _reports(self, job: CronJob, drain: Drain, node: Node) -> Sequence[Report]:
        """Return the maintenance that a drain is for: what OCI says, or else what the CronJob says."""
        planned = report_of(drain, node)
        machine = machine_key(node.spec.provider_id)
        if not machine:
            return (planned,)
        try:
            return tuple(await self._ask(machine)) or (planned,)
        except CloudError as error:
            if drain.at - self._clock.now() > _OCI_HAS_UNTIL:
                self._troubles[job.key] = f"oci: CronJob {job.key} is not taken over yet, which is tried again: {error}"
                raise
            log.warning("oci: CronJob %s is taken over as it is: %s", job.key, error)
            return (planned,)

    async def _suspend(self, job: CronJob, report: Report) -> None:
        basis = {
            "uid": job.uid,
            "resourceVersion": job.resource_version,
            "labels": {ADOPTED: "true"},
            "annotations": {NOTICE: report.name},
        }
        patch = merge_patch({"metadata": basis, "spec": {"suspend": True}})
        await self._client.patch(CRON_JOBS, job.name, patch, namespace=job.namespace)

    async def _delete(self, job: CronJob, drain: Drain) -> None:
        await self._client.delete(
            CRON_JOBS,
            job.name,
            namespace=job.namespace,
            uid=job.uid,
            resource_version=job.resource_version,
        )
        log.info("oci: CronJob %s is deleted: it was for %s, and would run again in a year", job.key, drain.at)


def _kept(job: CronJob) -> CronJob:
    """Return what is kept of a CronJob: of those that are none of the handler's next to nothing."""
    if of_cron_job(job) is not None:
        return job
    known = job.metadata
    return CronJob(
        metadata=Metadata(
            name=known.name, namespace=known.namespace, uid=known.uid, resource_version=known.resource_version
        )
    )
