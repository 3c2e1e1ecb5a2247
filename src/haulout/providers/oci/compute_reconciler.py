"""Poll Compute every few minutes for what the stream lost, moved, or never reported.

Listed maintenance creates or changes notices. An open notice whose maintenance no list contains is read individually:
the maintenance has ended, was cancelled, or is in an unknown compartment. It counts as gone only if it is not found
although the list of its instance's compartment is complete. An error never ends a notice, and neither does a missing
list entry shortly after a message, since lists lag behind the stream.

If no node has the machine's OCID, the notice gets the display name of the machine, for nodes without a provider ID.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticeStage
from haulout.api.notice_reports import NoticeReport
from haulout.core.backoff import POLL_FAILED
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError
from haulout.providers.cloud_calls import LastAnswer
from haulout.providers.notice_writer import NoticeWriter, write_if_changed
from haulout.providers.oci import SOURCE
from haulout.providers.oci.api import NOT_FOUND, Compute, Document
from haulout.providers.oci.correlation import Occurrences, last_heard_at, maintenance_of, report_for
from haulout.providers.oci.maintenance_events import UnreadableMaintenanceEvent, is_maintenance_id, parse_entry
from haulout.providers.poller import Poller
from haulout.providers.problems import Problems
from haulout.providers.quarantine import Quarantine

log = logging.getLogger(__name__)

_OPEN_STATES = ("SCHEDULED", "STARTED", "PROCESSING")  # in the order of their transitions, so that none is missed
_OPEN_STAGES = ("", NoticeStage.SCHEDULED, NoticeStage.STARTED, NoticeStage.FAILED)  # FAILED: it may still succeed
_TERMINATED_STATES = ("TERMINATING", "TERMINATED")
_POLL_SOON_AFTER = timedelta(seconds=10)  # by then the stream's messages are written, too
_LIST_DELAY = timedelta(minutes=15)  # lists contain what was reported by then
_MAX_PAGES = 1000
_MAX_NAME = 255


class ComputeReconciler:
    """Compares notices with Compute, in the known compartments."""

    def __init__(
        self,
        compute: Compute,
        *,
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
        problems: Problems,
        last_answer: LastAnswer,
        compartments: Iterable[str] = (),
        interval: timedelta = timedelta(minutes=5),
    ) -> None:
        self._compute = compute
        self._clock = clock
        self._quarantine = quarantine
        self._compartments = dict.fromkeys(compartments)  # used as an ordered set
        self._compartment_of: dict[str, str] = {}  # by maintenance: its compartment, if known
        self._last_answer = last_answer
        self._poller = Poller(
            Retry(clock, random, POLL_FAILED),
            problems,
            failure="maintenance events cannot be reconciled with OCI Compute",
            interval=lambda: interval,
            wake_delay=_POLL_SOON_AFTER,
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Reconcile now and after each interval, until cancelled."""
        await self._poller.run(lambda: self.reconcile(notice_writer))

    def on_message(self, notice_id: str, compartment: str) -> None:
        """Handle a message: remember the compartment if it has one, and reconcile soon."""
        self._remember_compartment(notice_id, compartment)
        self.reconcile_soon()

    def reconcile_soon(self) -> None:
        """Reconcile within seconds instead of after the interval."""
        self._poller.wake()

    async def current_state(self, report: NoticeReport) -> NoticeReport | None:
        """Return the current state of a maintenance; None if it cannot be read."""
        try:
            return self._parse(await self._get_event(report.notice_id))
        except CloudError as error:
            log.info("oci: the current state of %s cannot be read: %s", report.notice_id, error)
            return None

    async def is_unknown(self, report: NoticeReport) -> bool | None:
        """Return whether Compute knows the instance of a maintenance, but not the maintenance; None if unclear."""
        try:
            if is_maintenance_id(report.notice_id):
                await self._get_event(report.notice_id)
                return False
        except CloudError as error:
            if error.status != NOT_FOUND:
                return None
        try:
            has_instance = await self._get_instance(report.provider_id) is not None
        except CloudError:
            return None
        return True if has_instance else None  # without permission every read returns 404

    async def open_for_instance(self, instance: str) -> list[NoticeReport]:
        """Return all open maintenance of an instance; raise `CloudError` if the list is incomplete."""
        found = await await_with_timeout(self._compute.instance(instance), doing=f"asking for instance {instance}")
        compartment = found.get("compartmentId")
        self._remember_compartment("", compartment)
        listed = await self._list(str(compartment)) if compartment else {}
        return [report for report in listed.values() if report.provider_id == instance]

    # Reconcile

    async def reconcile(self, notice_writer: NoticeWriter) -> None:
        """Reconcile everything once; raise the last error after everything else is done."""
        notices = await notice_writer.list_by_source(SOURCE)
        occurrences = {
            item: Occurrences.for_maintenance(item, notices) for item in {maintenance_of(item) for item in notices}
        }
        self._compartment_of = {
            key: compartment_id for key, compartment_id in self._compartment_of.items() if key in occurrences
        }
        failure: CloudError | None = None
        listed: dict[str, NoticeReport] = {}
        complete, failed = set[str](), set[str]()
        for compartment in list(self._compartments):
            try:
                listed |= await self._list(compartment)
                complete.add(compartment)
            except CloudError as error:
                failed.add(compartment)
                failure = error
        for maintenance, report in listed.items():
            found = occurrences.get(maintenance, Occurrences(maintenance))
            await write_if_changed(notice_writer, found.latest, found.for_latest(report), self._quarantine)
        for notice in notices:
            if notice.spec.stage not in _OPEN_STAGES:
                continue
            try:
                maintenance = maintenance_of(notice)
                if maintenance not in listed and self._compartment_of.get(maintenance) not in failed:
                    await self._reconcile_unlisted(notice_writer, notice, complete)
                if _needs_machine_name(notice):
                    await self._write_machine_name(notice_writer, notice)
            except CloudError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _list(self, compartment: str) -> dict[str, NoticeReport]:
        """Return all open maintenance in a compartment; raise `CloudError` if the list is incomplete."""
        found: dict[str, NoticeReport] = {}
        # One list per state: the API has no filter for several, and finished events would fill most pages.
        for state in _OPEN_STATES:
            for entry_document in await self._list_pages(compartment, state):
                report = self._parse(entry_document)
                if report is not None:
                    found[report.notice_id] = report
                    self._remember_compartment(report.notice_id, compartment)
        return found

    async def _list_pages(self, compartment: str, state: str) -> Sequence[Document]:
        entries: list[Document] = []
        page = ""
        for _ in range(_MAX_PAGES):
            request = self._compute.maintenance_events(compartment, state=state, page=page)
            page_entries, page = await await_with_timeout(request, doing=f"listing maintenance in {compartment}")
            self._last_answer.record()
            entries += page_entries
            if not page:
                return entries
        raise CloudError(
            f"the list does not end after {_MAX_PAGES} pages", doing=f"listing maintenance in {compartment}"
        )

    def _parse(self, entry: Document) -> NoticeReport | None:
        try:
            return parse_entry(entry, at=self._clock.now())
        except UnreadableMaintenanceEvent as error:
            self._quarantine.add(where=f"maintenance {entry.get('id')}", why=str(error), what=entry)
            return None

    async def _get_event(self, event: str) -> Document:
        entry, _ = await await_with_timeout(
            self._compute.maintenance_event(event), doing=f"asking for maintenance {event}"
        )
        self._remember_compartment(event, entry.get("compartmentId"))
        return entry

    async def _reconcile_unlisted(
        self, notice_writer: NoticeWriter, notice: MaintenanceNotice, complete: set[str]
    ) -> None:
        """Read a maintenance that no list contains, and write its state or its end."""
        maintenance = maintenance_of(notice)
        report, is_known = None, is_maintenance_id(maintenance)
        try:
            if is_known:
                report = self._parse(await self._get_event(maintenance))
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
            is_known = False
        if not is_known and self._should_be_listed(notice):
            report = await self._end_report(notice, complete)
        if report is not None:
            await write_if_changed(notice_writer, notice, report_for(notice, report), self._quarantine)

    def _should_be_listed(self, notice: MaintenanceNotice) -> bool:
        heard = last_heard_at(notice)  # not reported_at alone: a message may have a time that is years old
        return heard is not None and self._clock.now() - heard > _LIST_DELAY

    async def _end_report(self, notice: MaintenanceNotice, complete: set[str]) -> NoticeReport | None:
        """Return the end of a maintenance that does not exist any more; None if that is not certain."""
        instance = await self._get_instance(notice.spec.provider_id)
        if instance is None:
            log.info("oci: neither maintenance %s nor its instance is found", notice.spec.notice_id)
            return None
        self._remember_compartment(maintenance_of(notice), instance.get("compartmentId"))
        has_ended = instance.get("lifecycleState") in _TERMINATED_STATES
        if not has_ended and (instance.get("compartmentId") not in complete or notice.spec.stage == NoticeStage.FAILED):
            return None  # a failed maintenance that OCI has deleted does not mean that the machine works
        has_started = notice.spec.stage in (NoticeStage.STARTED, NoticeStage.FAILED)
        return _report(notice, self._clock, stage=NoticeStage.ENDED if has_started else NoticeStage.CANCELLED)

    def _remember_compartment(self, notice_id: str, compartment: object) -> None:
        """Remember the compartment of a maintenance, and poll the compartment from now on."""
        if not isinstance(compartment, str) or not compartment:
            return
        if notice_id:
            self._compartment_of[notice_id] = compartment
        if compartment not in self._compartments:
            self._compartments[compartment] = None
            self.reconcile_soon()

    async def _write_machine_name(self, notice_writer: NoticeWriter, notice: MaintenanceNotice) -> None:
        """Add the display name of the machine to a notice."""
        instance = await self._get_instance(notice.spec.provider_id)
        name = None if instance is None else instance.get("displayName")
        if isinstance(name, str) and 0 < len(name) <= _MAX_NAME:
            report = _report(notice, self._clock, machine_name=name)
            await write_if_changed(notice_writer, notice, report, self._quarantine)

    async def _get_instance(self, instance: str) -> Document | None:
        try:
            return await await_with_timeout(self._compute.instance(instance), doing=f"asking for instance {instance}")
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
            return None


def _needs_machine_name(notice: MaintenanceNotice) -> bool:
    """Return whether no node is found, and the machine's display name could help."""
    condition = notice.status.condition(NoticeCondition.NODE_FOUND)
    return condition is not None and condition.status == "False" and not notice.spec.machine_name


def _report(
    notice: MaintenanceNotice, clock: Clock, *, stage: NoticeStage = NoticeStage.SCHEDULED, machine_name: str = ""
) -> NoticeReport:
    spec = notice.spec
    return NoticeReport(source=SOURCE, notice_id=spec.notice_id, at=clock.now(), stage=stage, machine_name=machine_name)
