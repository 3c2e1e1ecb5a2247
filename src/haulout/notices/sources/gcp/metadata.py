"""What the metadata server tells its own machine, as a source of notices: for `haulout agent`.

    source = GcpMetadataSource(over_http(address), clock=clock, random=random, node="gke-pool-1-abcd")

Three keys are followed, each by a request that the server answers when the key changes: what is planned
(upcoming-maintenance), what begins at once (maintenance-event), and whether the machine is taken back (preempted).
A live migration is told of only to those who have asked for the key before, so it is asked for from the start.

A server that does not answer, or says 404 or 503, has said nothing: what it said before holds. That is how it answers
about what is planned wherever nothing ever was, so this is no trouble.

No aiohttp here, nor anything else that is big: this runs on each node.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources import news
from haulout.notices.sources.calls import Pulse, answered
from haulout.notices.sources.fetching import UNREADABLE, Fetch, Fetched
from haulout.notices.sources.gcp import SOURCE
from haulout.notices.sources.gcp.joining import (
    BOOT,
    is_over,
    of_absence,
    of_maintenance_event,
    of_preempted,
    of_silence,
    of_upcoming,
)
from haulout.notices.sources.gcp.readings import (
    MIGRATES,
    TERMINATES,
    Machine,
    Unheard,
    Unreadable,
    Upcoming,
    scheduled,
    upcoming_of,
)
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

FLAVOR: Mapping[str, str] = {"Metadata-Flavor": "Google"}

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_BASE = "/computeMetadata/v1"
_UPCOMING, _EVENT, _PREEMPTED = "instance/upcoming-maintenance", "instance/maintenance-event", "instance/preempted"
_KEYS = (_UPCOMING, _EVENT, _PREEMPTED)
_OPTIONS = {_UPCOMING: "alt=json"}
_OK, _NOT_FOUND = 200, 404
_SILENT = (404, 503)  # it knows nothing yet
_POLL = timedelta(seconds=60)
_GRACE = timedelta(seconds=15)  # for an answer to a request that waited its time
_WITHIN = timedelta(seconds=10)
_SILENCE = timedelta(seconds=60)  # between two questions about what it does not know
_HASTY = timedelta(seconds=5)
_AT_ONCE = timedelta(seconds=2)  # what happens is told, whatever else is not answered meanwhile
_LOOK_AGAIN = timedelta(minutes=5)
_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.3)
_BUSY_AT_MOST = 3  # times in a row: a server that moves with its machine says 503 for a moment
_NOT_SAID = "?"


class MetadataServer:
    """Reads keys of the metadata server."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def text(self, key: str, *, options: str = "") -> str:
        """Return the value of a key; raises `CloudError`."""
        return _text(await self._asked(key, options, within=_WITHIN), key)

    async def changed(self, key: str, *, options: str = "", etag: str = "") -> tuple[str, str]:
        """Return the value of a key and its etag: at once if it has another than this, or else when that changes."""
        if etag:
            wait = f"wait_for_change=true&last_etag={quote(etag)}&timeout_sec={_POLL.total_seconds():.0f}"
            options = f"{options}&{wait}" if options else wait
        fetched = await self._asked(key, options, within=_POLL + _GRACE if etag else _WITHIN)
        return _text(fetched, key), fetched.headers.get("etag", "")

    async def machine(self) -> Machine:
        """Return the machine that asks; raises `CloudError`."""
        machine = Machine(
            project=await self.text("project/project-id"),
            zone=(await self.text("instance/zone")).rpartition("/")[2],
            name=await self.text("instance/name"),
            number=await self.text("instance/id"),
        )
        return scheduled(machine, await self._scheduling())

    async def _scheduling(self) -> Any:
        try:
            return msgspec.json.decode(await self.text("instance/scheduling/", options="recursive=true"))
        except CloudError as error:
            if error.status != _NOT_FOUND:
                raise
        except UNREADABLE:
            log.warning("gcp: instance/scheduling is no JSON, so it is not known what maintenance means here")
        return None

    async def _asked(self, key: str, options: str, *, within: timedelta) -> Fetched:
        target = f"{_BASE}/{key}?{options}" if options else f"{_BASE}/{key}"
        asking = self._fetch("GET", target, headers=FLAVOR, within=within)
        return await answered(asking, doing=f"asking for {key}", within=within + _GRACE)


def boot_id(path: Path = _BOOT) -> str:
    """Return what tells this start of the machine from others; empty if nobody knows."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


class GcpMetadataSource:
    """Maintenance of the machine that this runs on; `boot` tells one start of it from the next."""

    name = SOURCE

    def __init__(self, fetch: Fetch, *, clock: Clock, random: Random, node: str, boot: str = "") -> None:
        self.quarantine = Quarantine(SOURCE, clock)
        self.taken = 0
        self._server = MetadataServer(fetch)
        self._clock = clock
        self._random = random
        self._node = node
        self._boot = boot
        self._pulse = Pulse(clock)
        self._said: dict[str, str] = {}  # by key; not there: it was not asked yet
        self._changed = asyncio.Event()
        self._known: dict[str, MaintenanceNotice] = {}
        self._is_known = False
        self._troubles: dict[str, str] = {}

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what the metadata server says."""
        return not self._troubles and self._pulse.ago() is not None

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, a line each."""
        return (*dict.fromkeys(self._troubles.values()), *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return how long ago the metadata server last answered."""
        return self._pulse.ago()

    async def run(self, inbox: Inbox) -> None:
        """Report what the metadata server says, until cancelled."""
        machine = await self._identified()
        log.info("gcp: this is %s (%s)", machine.provider_id, machine.number)
        async with asyncio.TaskGroup() as group:
            for key in _KEYS:
                group.create_task(self._follow(key))
            group.create_task(self._report(inbox, machine))

    # What the server says

    async def _identified(self) -> Machine:
        failures = 0
        while True:
            try:
                machine = await self._server.machine()
            except CloudError as error:
                failures += 1
                self._complain("identity", f"the metadata server does not answer, which is tried again: {error}")
                await self._clock.sleep(_PAUSE.delay(failures, self._random))
            else:
                self._well("identity")
                self._pulse.beat()
                return machine

    async def _follow(self, key: str) -> None:
        etag, failures = "", 0
        while True:
            asked = self._clock.monotonic()
            try:
                said, etag = await self._server.changed(key, options=_OPTIONS.get(key, ""), etag=etag)
            except CloudError as error:
                is_silent = error.status in _SILENT and key == _UPCOMING
                etag, failures = "", 0 if is_silent else failures + 1
                if is_silent:
                    self._hear(key, _NOT_SAID)
                else:
                    self._miss(key, error, failures)
                await self._clock.sleep(_SILENCE if is_silent else _PAUSE.delay(failures, self._random))
            else:
                failures, is_news = 0, self._said.get(key) != said
                self._hear(key, said)
                if not etag:  # nothing to wait for
                    await self._clock.sleep(_SILENCE)
                elif not is_news and self._clock.monotonic() - asked < _HASTY.total_seconds():
                    await self._clock.sleep(_HASTY)  # it does not wait for a change, as it was asked to

    def _hear(self, key: str, said: str) -> None:
        self._well(key)
        self._pulse.beat()
        self._note(key, said)

    def _miss(self, key: str, error: CloudError, failures: int) -> None:
        if failures >= _BUSY_AT_MOST or error.status == _NOT_FOUND:
            self._complain(key, f"the metadata server does not answer, which is tried again: {error}")
        if key == _UPCOMING or key not in self._said:
            self._note(key, _NOT_SAID)

    def _note(self, key: str, said: str) -> None:
        if self._said.get(key) != said:
            self._said[key] = said
            self._changed.set()

    # What becomes of it

    async def _report(self, inbox: Inbox, machine: Machine) -> None:
        failures = 0
        while True:
            await self._wait()
            if len(self._said) < len(_KEYS):
                continue
            try:
                await self._look(inbox, machine)
            except KubeError as error:
                failures += 1
                self._is_known = False
                self._complain("notices", f"notices cannot be written, which is tried again: {error}")
                await self._clock.sleep(_PAUSE.delay(failures, self._random))
                self._changed.set()
            else:
                failures = 0
                self._well("notices")

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_AGAIN.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            if self._open():
                self._is_known = False  # somebody may have deleted what is still planned
        self._changed.clear()

    async def _look(self, inbox: Inbox, machine: Machine) -> None:
        if self._said[_EVENT].startswith((MIGRATES, TERMINATES)):
            await self._ask_what_is_planned()
        at = self._clock.now()
        if not self._is_known:
            found = await inbox.of(SOURCE, node=self._node)
            self._known, self._is_known = {it.name: it for it in found}, True
        await self._take(inbox, of_absence(machine.number, self._known.values(), at=at))
        for reports in (self._of_upcoming, self._of_event, self._of_preempted):
            await self._take(inbox, reports(machine, at))

    async def _ask_what_is_planned(self) -> None:
        """Hear of a maintenance that begins before what happens is taken for another: two answers come in any order."""
        try:
            async with asyncio.timeout(_AT_ONCE.total_seconds()):
                self._said[_UPCOMING] = await self._server.text(_UPCOMING, options=_OPTIONS[_UPCOMING])
        except (CloudError, TimeoutError) as error:
            log.debug("gcp: what is planned is as it was heard last: %s", error)

    def _of_upcoming(self, machine: Machine, at: datetime) -> Iterable[Report]:
        said, notices = self._said[_UPCOMING], self._open()
        if said != _NOT_SAID:
            try:
                upcoming = _upcoming(said)
            except Unheard:
                pass
            except Unreadable as error:
                self.quarantine.put(where=_UPCOMING, why=str(error), what=said)
            else:
                known = tuple(self._known.values())
                notes = {BOOT: self._boot} if self._boot else {}
                return of_upcoming(machine, upcoming, known, at=at, node=self._node, notes=notes)
        return of_silence(machine, notices, word=self._said[_EVENT], boot=self._boot, at=at)

    def _of_event(self, machine: Machine, at: datetime) -> Iterable[Report]:
        word = self._said[_EVENT]
        if word == _NOT_SAID or not word:
            return ()
        return of_maintenance_event(machine, word, tuple(self._known.values()), at=at, node=self._node)

    def _of_preempted(self, machine: Machine, at: datetime) -> Iterable[Report]:
        word = self._said[_PREEMPTED].upper()
        if word not in ("TRUE", "FALSE"):
            return ()
        return of_preempted(machine, is_preempted=word == "TRUE", notices=self._open(), at=at, node=self._node)

    def _open(self) -> tuple[MaintenanceNotice, ...]:
        return tuple(it for it in self._known.values() if not is_over(it))

    async def _take(self, inbox: Inbox, reports: Iterable[Report]) -> None:
        for report in list(reports):
            before = self._known.get(report.name)
            notice = await news.take(inbox, before, report, self.quarantine)
            if notice is not None and notice is not before:
                self.taken += 1
                self._known[notice.name] = notice

    def _complain(self, about: str, trouble: str) -> None:
        line = f"{SOURCE}: {trouble}"
        if self._troubles.get(about) != line:
            log.warning("%s", line)
        self._troubles[about] = line

    def _well(self, about: str) -> None:
        self._troubles.pop(about, None)


def _upcoming(said: str) -> Upcoming | None:
    text = said.strip().strip('"')
    if text.upper() in ("", "NONE"):
        return None
    try:
        return upcoming_of(msgspec.json.decode(text))
    except UNREADABLE:
        raise Unreadable(f"expected NONE or an object in JSON, found {text!r:.100}") from None


def _text(fetched: Fetched, key: str) -> str:
    text = fetched.body.decode("utf-8", "replace").strip()
    if fetched.status != _OK:
        raise CloudError(text[:200] or "no reason given", doing=f"asking for {key}", status=fetched.status)
    return text
