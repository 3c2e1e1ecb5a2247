"""An event source of a cloud as a component of the operator.

It starts once notices can be written: before, it could not store the messages that it reads. A restart creates the
source anew, as a new leader does. All its state is in the notices, and in the messages that the cloud has not been told
to delete.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.core.clock import Clock
from haulout.core.cloud_sdk import OptionalSdk
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.event_source import EventSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine, QuarantinedMessage
from haulout.runtime.component import Component, Leader, Warn
from haulout.runtime.tasks import background

MakeSource = Callable[[Client, Informer[Node]], EventSource]

_REPEAT_AFTER = timedelta(hours=1)
_MAX_KINDS = 5  # per source, within _REPEAT_AFTER


class EventSourceComponent(Component):
    """Runs the event source that `make` creates; `name` is the `spec.source` of its notices."""

    failure_reason, action = OperatorEventReason.NOTICES_FAILED, "RunNotices"

    def __init__(self, name: str, make: MakeSource) -> None:
        self.title = f"source {name}"  # type: ignore[misc]  # of the class elsewhere: here each source has its own
        super().__init__()
        self.source_name = name
        self.source: EventSource | None = None  # while it runs
        self.on_source_stopped: Callable[[EventSource], object] = lambda _: None
        self._make = make

    async def lead(self, leader: Leader) -> None:
        await leader.informers.notices.wait_synced()
        source = self._make(leader.client, leader.nodes)
        quarantine_events = QuarantineEvents(self.source_name, warn=leader.warn, clock=leader.client.clock)
        self.source = source
        try:
            async with background(quarantine_events.run(source.quarantine)):
                await source.run(NoticeWriter(leader.client))
                # A source runs until cancelled. If it returns, the supervisor must restart it and report that.
                raise RuntimeError("it ended unexpectedly")
        finally:
            self.source = None
            self.on_source_stopped(source)

    @property
    def is_up(self) -> bool:
        """Whether the source receives events from its cloud."""
        return self.source is not None and self.source.is_up

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.source is not None:
            yield from self.source.problems()

    def status_lines(self) -> Iterator[str]:
        if not self.leads:
            return
        problem = next(self.problems(), "")
        waiting_text = "waiting until MaintenanceNotices can be written"
        state = waiting_text if self.source is None else "running on this replica"
        yield f"[-] {self.title}: {problem}" if problem else f"[+] {self.title}: {state}"


class CloudComponent(EventSourceComponent):
    """The event source of a cloud that environment variables configure.

    `read` and all that follows from the class is used by commands: a module of such a component must import no SDK.
    """

    name: ClassVar[str]  # the `spec.source` of its notices
    cloud: ClassVar[str]  # in messages
    prefix: ClassVar[str]  # of the variables that no predecessor has
    variables: ClassVar[tuple[str, ...]]
    enabling_variables: ClassVar[tuple[str, ...]]  # without one of them the source is off
    sdk: ClassVar[OptionalSdk | None] = None

    def __init__(self, settings: Any) -> None:
        super().__init__(self.name, self.make_source)
        self.settings = settings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Any:
        """Return the settings in environment variables; None: the source is off. Raise `ConfigError`."""
        raise NotImplementedError

    def describe(self) -> Iterator[str]:
        """Yield lines about where events come from, for the log."""
        yield from ()

    def ignored_variables(self) -> Iterator[str]:
        """Yield which variables have no effect, and why."""
        yield from ()

    def make_source(self, client: Client, nodes: Informer[Node]) -> EventSource:
        """Return a new source, which is not connected yet. Only this method imports the SDK."""
        raise NotImplementedError


class QuarantineEvents:
    """Reports the messages that one source quarantines by events: each kind once an hour, and few kinds.

    The log contains each of them, and metrics their number. A stream full of invalid messages must not flood the
    namespace with events.
    """

    def __init__(self, source: str, *, warn: Warn, clock: Clock) -> None:
        self._source = source
        self._warn = warn
        self._clock = clock
        self._reported_at: dict[str, float] = {}  # monotonic instants, by kind
        self._pending: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, quarantine: Quarantine) -> None:
        quarantine.on_quarantined = self._on_quarantined
        while True:
            note = await self._pending.get()
            await self._warn(note, reason=OperatorEventReason.NOTICE_UNREADABLE, action="ReadCloudEvents")

    def _on_quarantined(self, message: QuarantinedMessage) -> None:
        now = self._clock.monotonic()
        self._reported_at = {
            kind: at for kind, at in self._reported_at.items() if now - at < _REPEAT_AFTER.total_seconds()
        }
        kind = _problem_kind(message.why)
        if kind in self._reported_at or len(self._reported_at) >= _MAX_KINDS:
            return
        self._reported_at[kind] = now
        self._pending.put_nowait(
            f"{self._source}: cannot parse a message, at {message.where}: {message.why}; it is quarantined"
        )


def _problem_kind(why: str) -> str:
    """Return the expectation in the message, without the actual value, which differs each time."""
    # Offsets and lengths differ in messages of the same kind.
    return re.sub(r"\d+", "#", why.partition(", found")[0])
