"""The OCI event source: the stream reports at once, Compute reliably; either of them is optional.

Without a stream everything is found by the next poll. Without configured compartments, those that the stream names are
polled.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import datetime
from random import Random

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node
from haulout.core import timestamps
from haulout.core.clock import Clock
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.event_source import BaseEventSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci import SOURCE
from haulout.providers.oci.api import Compute, Document, Streaming
from haulout.providers.oci.compute_reconciler import ComputeReconciler
from haulout.providers.oci.handler_cronjobs import CronJobAdoption
from haulout.providers.oci.stream_consumer import ConsumerOptions, StreamConsumer

_REFUSED_STATUSES = (400, 403, 404, 409)  # OCI returns 404 for what may not be changed


class OciEventSource(BaseEventSource):
    """Maintenance of OCI instances. Call `run` at most once; the caller runs the node informer."""

    def __init__(
        self,
        compute: Compute,
        *,
        streaming: Streaming | None = None,
        consumer_options: ConsumerOptions | None = None,
        compartments: Sequence[str] = (),
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(SOURCE, clock)
        self._compute = compute
        self._reconciler = ComputeReconciler(
            compute,
            clock=clock,
            random=random,
            quarantine=self.quarantine,
            problems=self._current_problems,
            last_answer=self._last_answer,
            compartments=compartments,
        )
        self._adoption: CronJobAdoption | None = None
        self._consumer = None
        if streaming is not None:
            self._consumer = StreamConsumer(
                streaming,
                consumer_options or ConsumerOptions(instance=f"haulout-{random.getrandbits(64):016x}"),
                clock=clock,
                random=random,
                quarantine=self.quarantine,
                problems=self._current_problems,
                last_answer=self._last_answer,
                on_message=self._reconciler.on_message,
                compute=self._reconciler,
            )

    @property
    def messages_processed(self) -> int:
        """The number of messages about maintenance that became notices."""
        return 0 if self._consumer is None else self._consumer.messages_processed

    def problems(self) -> Sequence[str]:
        adoption_problems = () if self._adoption is None else self._adoption.problems()
        return (*self._current_problems.lines(), *adoption_problems, *self.quarantine.problems())

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write OCI's maintenance as notices, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run(notice_writer))
            if self._consumer is not None:
                group.create_task(self._consumer.run(notice_writer))
            if self._adoption is not None:
                group.create_task(self._adoption.run())

    def adopt_cronjobs(self, client: Client, *, nodes: Informer[Node], namespace: str = "") -> None:
        """Adopt the CronJobs of the OCI Node Maintenance Handler, in one namespace or in all.

        Call this before `run`.
        """
        list_open_maintenance = self._reconciler.open_for_instance
        self._adoption = CronJobAdoption(
            client, nodes=nodes, list_open_maintenance=list_open_maintenance, namespace=namespace
        )

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Move a maintenance to another start; do nothing if it has that start already.

        Raise `RescheduleRefused` if OCI refuses, and another `ExternalError` if it does not answer.
        """
        event = notice.spec.notice_id
        doing = f"moving maintenance {event}"
        entry, etag = await await_with_timeout(self._compute.maintenance_event(event), doing=doing)
        if _instant(entry, "timeWindowStart") == to:
            return
        problem = _refusal_reason(entry, to)
        if problem:
            raise RescheduleRefused(f"{doing}: {problem}")
        # The same request after a crash has the same token, and OCI executes it once.
        token = hashlib.sha256(f"{event} {to.isoformat()} {etag}".encode()).hexdigest()[:40]
        try:
            await await_with_timeout(self._compute.move_event(event, start=to, etag=etag, token=token), doing=doing)
        except CloudError as error:
            if error.status not in _REFUSED_STATUSES:
                raise
            raise RescheduleRefused(f"{doing}: OCI refuses: {error.message}") from error
        self._reconciler.reconcile_soon()


def _refusal_reason(entry: Document, to: datetime) -> str:
    state = entry.get("lifecycleState")
    if state != "SCHEDULED":
        return f"it is {state}, and only one that is SCHEDULED can be moved"
    if entry.get("canReschedule") is not True:
        return "OCI does not let it be moved"
    due = _instant(entry, "timeHardDueDate")
    return f"it has to begin by {due:%Y-%m-%d %H:%M} UTC" if due is not None and to > due else ""


def _instant(entry: Document, key: str) -> datetime | None:
    try:
        return timestamps.parse_go_time(str(entry.get(key))).instant
    except ValueError:
        return None
