"""The metadata server of a machine as an event source, for `haulout agent`.

    source = GcpMetadataEventSource(http_fetch(address), clock=clock, random=random, node="gke-pool-1-abcd")

Three keys are watched, each with a request that the server answers when the key changes: planned maintenance
(upcoming-maintenance), what begins at once (maintenance-event), and whether the machine is being preempted (preempted).
The server announces a live migration only to clients that requested the key before, so it is requested from the start.

No response, 404 or 503 changes nothing: the last value holds. The server answers so for upcoming-maintenance if no
maintenance was ever planned, so this is not a problem.

This module runs on every node: it must not import aiohttp or anything else that is large.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice, is_finished
from haulout.api.notice_reports import NoticeReport
from haulout.core.backoff import RECONNECT
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError, KubeError
from haulout.providers.event_source import AgentEventSource
from haulout.providers.gcp import SOURCE
from haulout.providers.gcp.correlation import (
    BOOT_ID,
    reports_of_maintenance_event,
    reports_of_missing_machine,
    reports_of_preemption,
    reports_of_upcoming,
    reports_without_upcoming,
)
from haulout.providers.gcp.upcoming_maintenance import (
    MIGRATES,
    TERMINATES,
    MaintenanceUnknown,
    UnreadableMaintenance,
    UpcomingMaintenance,
    VirtualMachine,
    parse_upcoming,
    with_scheduling,
)
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch, FetchedResponse
from haulout.providers.notice_writer import NoticeWriter, write_if_changed
from haulout.providers.poller import Poller

log = logging.getLogger(__name__)

FLAVOR: Mapping[str, str] = {"Metadata-Flavor": "Google"}

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BASE = "/computeMetadata/v1"
_UPCOMING, _EVENT, _PREEMPTED = "instance/upcoming-maintenance", "instance/maintenance-event", "instance/preempted"
_KEYS = (_UPCOMING, _EVENT, _PREEMPTED)
_OPTIONS = {_UPCOMING: "alt=json"}
_OK, _NOT_FOUND = 200, 404
_UNKNOWN_STATUSES = (404, 503)  # the server knows nothing yet
_POLL = timedelta(seconds=60)
_WAIT_MARGIN = timedelta(seconds=15)  # additional timeout of a request that waits for a change
_TIMEOUT = timedelta(seconds=10)
_UNKNOWN_POLL_INTERVAL = timedelta(seconds=60)  # between two requests for an unknown key
# For a server that answers at once although nothing has changed.
_MIN_POLL_INTERVAL = timedelta(seconds=5)
_REFRESH_TIMEOUT = timedelta(seconds=2)  # an event must be reported even if other keys are not answered
_RESYNC_AFTER = timedelta(minutes=5)
# consecutive failures before a problem is reported: a server that migrates with its machine returns 503 briefly
_MAX_FAILURES = 3
_UNKNOWN = "?"
_FAILURE = "the metadata server does not answer"


class MetadataServer:
    """Reads keys of the metadata server. It keeps no values: the event source does."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def text(self, key: str, *, options: str = "") -> str:
        """Return the value of a key; raise `CloudError`."""
        return _text(await self._request(key, options, within=_TIMEOUT), key)

    async def wait_for_change(self, key: str, *, options: str = "", etag: str = "") -> tuple[str, str]:
        """Return the value of a key and its etag, at once or as soon as the etag differs from the given one."""
        if etag:
            wait = f"wait_for_change=true&last_etag={quote(etag)}&timeout_sec={_POLL.total_seconds():.0f}"
            options = f"{options}&{wait}" if options else wait
        answer = await self._request(key, options, within=_POLL + _WAIT_MARGIN if etag else _TIMEOUT)
        return _text(answer, key), answer.headers.get("etag", "")

    async def machine(self) -> VirtualMachine:
        """Return the machine that this process runs on; raise `CloudError`."""
        machine = VirtualMachine(
            project=await self.text("project/project-id"),
            zone=(await self.text("instance/zone")).rpartition("/")[2],
            name=await self.text("instance/name"),
            number=await self.text("instance/id"),
        )
        return with_scheduling(machine, await self._scheduling())

    async def _scheduling(self) -> Any:
        try:
            return msgspec.json.decode(await self.text("instance/scheduling/", options="recursive=true"))
        except CloudError as error:
            if error.status != _NOT_FOUND:
                raise
        except DECODE_ERRORS:
            log.warning(
                "gcp: instance/scheduling is not JSON, so it is unknown whether maintenance "
                "migrates or stops the machine"
            )
        return None

    async def _request(self, key: str, options: str, *, within: timedelta) -> FetchedResponse:
        target = f"{_BASE}/{key}?{options}" if options else f"{_BASE}/{key}"
        pending = self._fetch("GET", target, headers=FLAVOR, within=within)
        return await await_with_timeout(pending, doing=f"asking for {key}", within=within + _WAIT_MARGIN)


def boot_id(path: Path = _BOOT) -> str:
    """Return the boot ID of the machine; empty if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class GcpMetadataEventSource(AgentEventSource):
    """Watches the maintenance of this machine; `current_boot_id` identifies the current boot."""

    def __init__(self, fetch: Fetch, *, clock: Clock, random: Random, node: str, current_boot_id: str = "") -> None:
        super().__init__(SOURCE, clock, node=node)
        self._server = MetadataServer(fetch)
        self._clock = clock
        self._random = random
        self._boot_id = current_boot_id
        self._values: dict[str, str] = {}  # by key; absent: not read yet
        self._notices: dict[str, MaintenanceNotice] = {}
        self._listed_at: float | None = None  # monotonic; None: the notices must be listed
        self._poller = Poller(
            Retry(clock, random, RECONNECT),
            self._current_problems,
            failure=_FAILURE,
            interval=lambda: _RESYNC_AFTER,
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the maintenance of this machine as notices, until cancelled."""
        machine = await self._identify_machine()
        log.info("gcp: the agent runs on %s (%s)", machine.provider_id, machine.number)
        async with asyncio.TaskGroup() as group:
            for key in _KEYS:
                group.create_task(self._watch_key(key))
            group.create_task(self._poller.run(lambda: self._reconcile(notice_writer, machine)))

    # Read the keys

    async def _identify_machine(self) -> VirtualMachine:
        retry = Retry(self._clock, self._random, RECONNECT)
        while True:
            try:
                machine = await self._server.machine()
            except CloudError as error:
                self._current_problems.set("identity", f"{_FAILURE}, retrying: {error}")
                await retry.wait(error)
            else:
                self._current_problems.set("identity")
                self._last_answer.record()
                return machine

    async def _watch_key(self, key: str) -> None:
        etag, retry = "", Retry(self._clock, self._random, RECONNECT)
        while True:
            requested_at = self._clock.monotonic()
            try:
                value, etag = await self._server.wait_for_change(key, options=_OPTIONS.get(key, ""), etag=etag)
            except CloudError as error:
                etag = ""
                if error.status in _UNKNOWN_STATUSES and key == _UPCOMING:
                    retry.reset()
                    self._on_value(key, _UNKNOWN)
                    await self._clock.sleep(_UNKNOWN_POLL_INTERVAL)
                else:
                    self._on_error(key, error, retry.failures + 1)
                    await retry.wait(error)
            else:
                retry.reset()
                is_changed = self._values.get(key) != value
                self._on_value(key, value)
                if not etag:  # without an etag there is no change to wait for
                    await self._clock.sleep(_UNKNOWN_POLL_INTERVAL)
                elif not is_changed and self._clock.monotonic() - requested_at < _MIN_POLL_INTERVAL.total_seconds():
                    await self._clock.sleep(_MIN_POLL_INTERVAL)  # the server ignores wait_for_change

    def _on_value(self, key: str, value: str) -> None:
        self._current_problems.set(key)
        self._last_answer.record()
        self._set_value(key, value)

    def _on_error(self, key: str, error: CloudError, failures: int) -> None:
        if failures >= _MAX_FAILURES or error.status == _NOT_FOUND:
            self._current_problems.set(key, f"{_FAILURE}, retrying: {error}")
        if key == _UPCOMING or key not in self._values:
            self._set_value(key, _UNKNOWN)

    def _set_value(self, key: str, value: str) -> None:
        if self._values.get(key) != value:
            self._values[key] = value
            self._poller.wake()

    # Write notices

    async def _reconcile(self, notice_writer: NoticeWriter, machine: VirtualMachine) -> None:
        if len(self._values) < len(_KEYS):
            return
        try:
            await self._write_notices(notice_writer, machine)
        except KubeError:
            self._listed_at = None
            raise

    async def _write_notices(self, notice_writer: NoticeWriter, machine: VirtualMachine) -> None:
        if self._values[_EVENT].startswith((MIGRATES, TERMINATES)):
            await self._refresh_upcoming()
        at = self._clock.now()
        if self._must_list():
            self._listed_at = self._clock.monotonic()
            found = await notice_writer.list_by_source(SOURCE, node=self._node)
            self._notices = {notice.name: notice for notice in found}
        await self._write(notice_writer, reports_of_missing_machine(machine.number, self._notices.values(), at=at))
        for reports in (self._upcoming_reports, self._event_reports, self._preemption_reports):
            await self._write(notice_writer, reports(machine, at))

    def _must_list(self) -> bool:
        """Return whether the notices are not known, or a user may have deleted one that is still planned."""
        if self._listed_at is None:
            return True
        age = self._clock.monotonic() - self._listed_at
        return bool(self._open_notices()) and age >= _RESYNC_AFTER.total_seconds()

    async def _refresh_upcoming(self) -> None:
        """Read the planned maintenance before an event is reported, since the responses arrive in any order.

        Otherwise an event of a planned maintenance could become a notice of its own.
        """
        try:
            async with asyncio.timeout(_REFRESH_TIMEOUT.total_seconds()):
                self._values[_UPCOMING] = await self._server.text(_UPCOMING, options=_OPTIONS[_UPCOMING])
        except (CloudError, TimeoutError) as error:
            log.debug("gcp: using the planned maintenance of the last answer: %s", error)

    def _upcoming_reports(self, machine: VirtualMachine, at: datetime) -> Iterable[NoticeReport]:
        value, notices = self._values[_UPCOMING], self._open_notices()
        if value != _UNKNOWN:
            try:
                upcoming = _parse_upcoming(value)
            except MaintenanceUnknown:
                pass
            except UnreadableMaintenance as error:
                self.quarantine.add(where=_UPCOMING, why=str(error), what=value)
            else:
                known = tuple(self._notices.values())
                annotations = {BOOT_ID: self._boot_id} if self._boot_id else {}
                return reports_of_upcoming(machine, upcoming, known, at=at, node=self._node, annotations=annotations)
        return reports_without_upcoming(machine, notices, event=self._values[_EVENT], boot_id=self._boot_id, at=at)

    def _event_reports(self, machine: VirtualMachine, at: datetime) -> Iterable[NoticeReport]:
        event = self._values[_EVENT]
        if event == _UNKNOWN or not event:
            return ()
        return reports_of_maintenance_event(machine, event, tuple(self._notices.values()), at=at, node=self._node)

    def _preemption_reports(self, machine: VirtualMachine, at: datetime) -> Iterable[NoticeReport]:
        value = self._values[_PREEMPTED].upper()
        if value not in ("TRUE", "FALSE"):
            return ()
        return reports_of_preemption(
            machine, is_preempted=value == "TRUE", notices=self._open_notices(), at=at, node=self._node
        )

    def _open_notices(self) -> tuple[MaintenanceNotice, ...]:
        return tuple(notice for notice in self._notices.values() if not is_finished(notice))

    async def _write(self, notice_writer: NoticeWriter, reports: Iterable[NoticeReport]) -> None:
        for report in list(reports):
            before = self._notices.get(report.name)
            notice = await write_if_changed(notice_writer, before, report, self.quarantine)
            if notice is not None and notice is not before:
                self._messages_processed += 1
                self._notices[notice.name] = notice


def _parse_upcoming(value: str) -> UpcomingMaintenance | None:
    text = value.strip().strip('"')
    if text.upper() in ("", "NONE"):
        return None
    try:
        return parse_upcoming(msgspec.json.decode(text))
    except DECODE_ERRORS:
        raise UnreadableMaintenance(f"expected NONE or an object in JSON, found {text!r:.100}") from None


def _text(fetched: FetchedResponse, key: str) -> str:
    text = fetched.body.decode("utf-8", "replace").strip()
    if fetched.status != _OK:
        raise CloudError(text[:200] or "no reason given", doing=f"asking for {key}", status=fetched.status)
    return text
