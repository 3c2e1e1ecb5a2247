"""Asks Compute every few minutes how things are: what the stream lost, moved, or never told.

What a list shows becomes a notice, or changes one. An open notice that no list shows is asked for by itself: it has
ended, was cancelled, or lies in a compartment that we did not know of. Only if it cannot be found, though the list of
the compartment of its instance came whole, is it gone. An error never says that something is gone, and what was told a
moment ago may not be in lists yet.

A notice whose node is not found by the machine's OCID gets what people call the machine, for nodes that do not tell
which machine they run on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import ApiError, CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice, NoticeCondition, Stage
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources.calls import answered, no_beat
from haulout.notices.sources.news import take
from haulout.notices.sources.oci import SOURCE
from haulout.notices.sources.oci.cloud import NOT_FOUND, Compute, Document
from haulout.notices.sources.oci.occurrences import Occurrences, about, heard_at, maintenance_of
from haulout.notices.sources.oci.reading import Unreadable, is_listed, of_entry
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_OPEN_STATES = ("SCHEDULED", "STARTED", "PROCESSING")  # in the order in which they follow: none slips through
_OPEN_STAGES = ("", Stage.SCHEDULED, Stage.STARTED, Stage.FAILED)  # what failed may yet succeed
_ENDED_INSTANCES = ("TERMINATING", "TERMINATED")
_SOON = timedelta(seconds=10)
_PAUSE = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.5)
_LISTED_AFTER = timedelta(minutes=15)  # what is told is in lists by then
_MOST_PAGES = 1000
_LONGEST_NAME = 255


class Reconciler:
    """Compares notices with what Compute shows, in the compartments that it is told of."""

    def __init__(
        self,
        compute: Compute,
        *,
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
        compartments: Iterable[str] = (),
        every: timedelta = timedelta(minutes=5),
        beat: Callable[[], object] = no_beat,
    ) -> None:
        self.trouble = ""
        self._compute = compute
        self._clock = clock
        self._random = random
        self._quarantine = quarantine
        self._compartments = dict.fromkeys(compartments)  # a set with an order
        self._places: dict[str, str] = {}  # in which compartment a maintenance is, as far as that is known
        self._every = every
        self._heard = beat
        self._failures = 0
        self._wake = asyncio.Event()

    async def run(self, inbox: Inbox) -> None:
        """Look now, and again and again, until cancelled."""
        while True:
            try:
                await self.look(inbox)
            except (CloudError, KubeError) as error:
                self._failures += 1
                self.trouble = f"oci: maintenance cannot be compared with Compute, which is tried again: {error}"
                log.warning("%s", self.trouble)
                told = error.retry_after if isinstance(error, CloudError | ApiError) else None
                await self._wait(max(_PAUSE.delay(self._failures, self._random), told or timedelta()))
            else:
                self._failures, self.trouble = 0, ""
                await self._wait(self._every)

    def hears(self, notice_id: str, compartment: str) -> None:
        """Hear that something happened, to a maintenance and in a compartment if that is known."""
        self._place(notice_id, compartment)
        self.look_soon()

    def look_soon(self) -> None:
        """Look again within some seconds, not only when it is time."""
        self._wake.set()

    async def ask(self, report: Report) -> Report | None:
        """Return the present state of a maintenance; None if it cannot be had."""
        try:
            return self._read(await self._event(report.notice_id))
        except CloudError as error:
            log.info("oci: the present state of %s is not known: %s", report.notice_id, error)
            return None

    async def is_unknown(self, report: Report) -> bool | None:
        """Tell whether Compute does not know a maintenance, though it knows its instance; None if that is not known."""
        try:
            if is_listed(report.notice_id):
                await self._event(report.notice_id)
                return False
        except CloudError as error:
            if error.status != NOT_FOUND:
                return None
        try:
            has_instance = await self._instance(report.provider_id) is not None
        except CloudError:
            return None
        return True if has_instance else None  # without the permission to look nothing is found

    async def of_instance(self, instance: str) -> list[Report]:
        """Return all that is open for an instance; raises `CloudError` if that cannot be had as a whole."""
        found = await answered(self._compute.instance(instance), doing=f"asking for instance {instance}")
        compartment = found.get("compartmentId")
        self._place("", compartment)
        shown = await self._list(str(compartment)) if compartment else {}
        return [it for it in shown.values() if it.provider_id == instance]

    async def _wait(self, pause: timedelta) -> None:
        try:
            async with asyncio.timeout(pause.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._clock.sleep(_SOON)  # by then others have looked at what is new, too
        self._wake.clear()

    # One look

    async def look(self, inbox: Inbox) -> None:
        """Compare everything once; raises the last of the errors, after all that could be done is done."""
        notices = await inbox.of(SOURCE)
        known = {it: Occurrences.of(it, notices) for it in {maintenance_of(it) for it in notices}}
        self._places = {key: place for key, place in self._places.items() if key in known}
        failure: CloudError | None = None
        shown: dict[str, Report] = {}
        whole, broken = set[str](), set[str]()
        for compartment in list(self._compartments):
            try:
                shown |= await self._list(compartment)
                whole.add(compartment)
            except CloudError as error:
                broken.add(compartment)
                failure = error
        for maintenance, report in shown.items():
            found = known.get(maintenance, Occurrences(maintenance))
            await take(inbox, found.latest, found.about_latest(report), self._quarantine)
        for notice in notices:
            if notice.spec.stage not in _OPEN_STAGES:
                continue
            try:
                maintenance = maintenance_of(notice)
                if maintenance not in shown and self._places.get(maintenance) not in broken:
                    await self._settle(inbox, notice, whole)
                if _is_lost(notice):
                    await self._name(inbox, notice)
            except CloudError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _list(self, compartment: str) -> dict[str, Report]:
        """Return all that is open in a compartment; an error if that cannot be had as a whole."""
        found: dict[str, Report] = {}
        for state in _OPEN_STATES:
            for entry in await self._pages(compartment, state):
                report = self._read(entry)
                if report is not None:
                    found[report.notice_id] = report
                    self._place(report.notice_id, compartment)
        return found

    async def _pages(self, compartment: str, state: str) -> Sequence[Document]:
        entries: list[Document] = []
        page = ""
        for _ in range(_MOST_PAGES):
            asking = self._compute.maintenance_events(compartment, state=state, page=page)
            more, page = await answered(asking, doing=f"listing maintenance in {compartment}")
            self._heard()
            entries += more
            if not page:
                return entries
        raise CloudError(
            f"the list does not end after {_MOST_PAGES} pages", doing=f"listing maintenance in {compartment}"
        )

    def _read(self, entry: Document) -> Report | None:
        try:
            return of_entry(entry, at=self._clock.now())
        except Unreadable as error:
            self._quarantine.put(where=f"maintenance {entry.get('id')}", why=str(error), what=entry)
            return None

    async def _event(self, event: str) -> Document:
        entry, _ = await answered(self._compute.maintenance_event(event), doing=f"asking for maintenance {event}")
        self._place(event, entry.get("compartmentId"))
        return entry

    async def _settle(self, inbox: Inbox, notice: MaintenanceNotice, whole: set[str]) -> None:
        """Find out what became of a maintenance that no list shows."""
        maintenance = maintenance_of(notice)
        report, is_known = None, is_listed(maintenance)
        try:
            if is_known:
                report = self._read(await self._event(maintenance))
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
            is_known = False
        if not is_known and self._is_settled(notice):
            report = await self._gone(notice, whole)
        if report is not None:
            await take(inbox, notice, about(notice, report), self._quarantine)

    def _is_settled(self, notice: MaintenanceNotice) -> bool:
        told = heard_at(notice)  # not reported_at alone: an event may say that it is years old
        return told is not None and self._clock.now() - told > _LISTED_AFTER

    async def _gone(self, notice: MaintenanceNotice, whole: set[str]) -> Report | None:
        """Return that a maintenance is over which is not known any more, if that is certain."""
        instance = await self._instance(notice.spec.provider_id)
        if instance is None:
            log.info("oci: neither maintenance %s nor its instance is found", notice.spec.notice_id)
            return None
        self._place(maintenance_of(notice), instance.get("compartmentId"))
        has_ended = instance.get("lifecycleState") in _ENDED_INSTANCES
        if not has_ended and (instance.get("compartmentId") not in whole or notice.spec.stage == Stage.FAILED):
            return None  # that OCI has forgotten a failure does not make the machine fit
        has_begun = notice.spec.stage in (Stage.STARTED, Stage.FAILED)
        return _about(notice, self._clock, stage=Stage.ENDED if has_begun else Stage.CANCELLED)

    def _place(self, notice_id: str, compartment: object) -> None:
        """Know where a maintenance is, and look there from now on."""
        if not isinstance(compartment, str) or not compartment:
            return
        if notice_id:
            self._places[notice_id] = compartment
        if compartment not in self._compartments:
            self._compartments[compartment] = None
            self.look_soon()

    async def _name(self, inbox: Inbox, notice: MaintenanceNotice) -> None:
        """Say what people call the machine of a notice."""
        instance = await self._instance(notice.spec.provider_id)
        name = None if instance is None else instance.get("displayName")
        if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME:
            report = _about(notice, self._clock, machine_name=name)
            await take(inbox, notice, report, self._quarantine)

    async def _instance(self, instance: str) -> Document | None:
        try:
            return await answered(self._compute.instance(instance), doing=f"asking for instance {instance}")
        except CloudError as error:
            if error.status != NOT_FOUND:
                raise
            return None


def _is_lost(notice: MaintenanceNotice) -> bool:
    """Tell whether no node is found, and what people call the machine might help."""
    condition = notice.status.condition(NoticeCondition.NODE_FOUND)
    return condition is not None and condition.status == "False" and not notice.spec.machine_name


def _about(
    notice: MaintenanceNotice, clock: Clock, *, stage: Stage = Stage.SCHEDULED, machine_name: str = ""
) -> Report:
    spec = notice.spec
    return Report(source=SOURCE, notice_id=spec.notice_id, at=clock.now(), stage=stage, machine_name=machine_name)
