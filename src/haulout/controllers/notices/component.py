"""Maintenance notices: wiring of their controller and of the event sources of clouds.

They run only on the leader, and only while the MaintenanceNotice CRD is installed. Without a source they are still of
use: users and other tools write notices, too.

The controller and each source have their own supervisor (`haulout.runtime.supervisor`): one that fails restarts alone.
A source that restarts is created anew, as on a new leader; its state is in the notices, and in the messages that the
cloud has not been told to delete. No source starts before notices can be written, because messages could not be stored.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.controllers.notices.controller import MaintenanceNoticeController
from haulout.controllers.notices.lease_advice import lease_advice
from haulout.controllers.notices.metrics import NoticeMetrics
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.core.clock import Clock
from haulout.core.metrics import Histogram, MetricVec
from haulout.core.text import format_count
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.recorder import EventRecorder
from haulout.providers.event_source import EarlyStartSource, EventSource, ReschedulableSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine, QuarantinedMessage
from haulout.runtime.operator_events import OperatorEvents
from haulout.runtime.supervisor import Supervisor

_REPEAT_AFTER = timedelta(hours=1)
_MAX_KINDS = 5  # per source, within _REPEAT_AFTER


class QuarantineEvents:
    """Reports the messages that one source quarantines by events: each kind once an hour, and few kinds.

    The log contains each of them, and metrics their number. A stream full of invalid messages must not flood the
    namespace with events.
    """

    def __init__(self, source: str, *, operator_events: OperatorEvents, clock: Clock) -> None:
        self._source = source
        self._operator_events = operator_events
        self._clock = clock
        self._reported_at: dict[str, float] = {}  # monotonic instants, by kind
        self._pending: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, quarantine: Quarantine) -> None:
        quarantine.on_quarantined = self._on_quarantined
        while True:
            note = await self._pending.get()
            await self._operator_events.warn(
                note, reason=OperatorEventReason.NOTICE_UNREADABLE, action="ReadCloudEvents"
            )

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


log = logging.getLogger(__name__)

# Creates all event sources, always the same number in the same order; none is connected yet.
MakeSources = Callable[[Client, Informer[Node]], Sequence[EventSource]]


def no_sources(client: Client, nodes: Informer[Node]) -> Sequence[EventSource]:
    del client, nodes
    return ()


@dataclass(slots=True)
class SourceListener:
    """A source with its supervisor. The source is replaced at each restart; the listener stays."""

    source: EventSource
    quarantine_events: QuarantineEvents
    is_running: bool = False
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        self.supervisor = Supervisor(f"source {self.name}")

    @property
    def name(self) -> str:
        """The `spec.source` of its notices."""
        return self.source.name

    def problems(self) -> Sequence[str]:
        """Return why the source does not work, and what it could not read."""
        crash = (self.supervisor.problem,) if self.supervisor.problem else ()
        return (*crash, *(self.source.problems() if self.is_running else ()))

    @property
    def is_up(self) -> bool:
        return self.is_running and self.source.is_up


@dataclass(slots=True)
class NoticesComponent:
    """State that outlives leadership: how to make sources, and the controller while this replica leads."""

    make_sources: MakeSources = no_sources
    controller: MaintenanceNoticeController | None = None  # while this replica leads
    listeners: tuple[SourceListener, ...] = ()  # while this replica leads
    first_notice: asyncio.Event = field(default_factory=asyncio.Event)  # set once there is a notice
    leases: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)  # lease timings of this replica
    subscribers: list[Callable[[str], None]] = field(default_factory=list)  # with the name of each changed notice
    logged_advice: set[str] = field(default_factory=set)  # advice about lease timings that was logged
    metrics: NoticeMetrics = field(default_factory=NoticeMetrics)
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "notices"))
    listeners_supervisor: Supervisor = field(default_factory=partial(Supervisor, "cloud event sources"))

    def source(self, name: str) -> EventSource | None:
        """Return the running source with this name, if any."""
        return next(
            (listener.source for listener in self.listeners if listener.name == name and listener.is_running), None
        )

    def mover(self, name: str) -> ReschedulableSource | None:
        """Return the running source with this name if its cloud can reschedule maintenance."""
        source = self.source(name)
        return source if isinstance(source, ReschedulableSource) else None

    def starter(self, name: str) -> EarlyStartSource | None:
        """Return the running source with this name if its cloud can start maintenance early."""
        source = self.source(name)
        return source if isinstance(source, EarlyStartSource) else None

    def troubles(self) -> tuple[str, ...]:
        obstacle, is_bad = self._read_problem()
        waiting = (f"MaintenanceNotices are not reconciled: {obstacle}",) if is_bad else ()
        crashes = tuple(item.problem for item in (self.supervisor, self.listeners_supervisor) if item.problem)
        sources = tuple(problem for item in self.listeners for problem in item.problems())
        return (*(crashes or waiting), *self._unreadable_notices(), *self._lease_advice(), *sources)

    def log_lease_advice(self, *sources: str) -> None:
        """Log, once, that leases should be shorter for notices of these sources, if so."""
        advice = lease_advice(self.leases, sources)
        if advice and advice not in self.logged_advice:
            self.logged_advice.add(advice)
            log.warning("%s", advice)

    def status_lines(self) -> Iterator[str]:
        """Yield one line per component, `[+]` if it is healthy and `[-]` if not."""
        obstacle, is_bad = self._read_problem()
        if self.controller is None:
            problem = self.supervisor.problem
            yield (
                f"[-] notices: {problem}" if problem else "[+] notices: reconciled by the leader, not by this replica"
            )
        elif obstacle:
            yield f"[{'-' if is_bad else '+'}] notices: {obstacle}"
        else:
            yield f"[+] notices: this replica reconciles {format_count(len(self.controller.notices), 'notice')}"
        for listener in self.listeners:
            problem = next(iter(listener.problems()), "")
            state = (
                "running on this replica" if listener.is_running else "waiting until MaintenanceNotices can be written"
            )
            yield f"[-] source {listener.name}: {problem}" if problem else f"[+] source {listener.name}: {state}"

    def collect_metrics(self) -> Iterator[MetricVec | Histogram]:
        """Yield the current values of all metrics."""
        notices = () if self.controller is None else self.controller.notices.all()
        running = [listener.source for listener in self.listeners if listener.is_running]
        self.metrics.update(notices, running=running, up={listener.name: listener.is_up for listener in self.listeners})
        yield from self.metrics.all()

    def _lease_advice(self) -> Iterator[str]:
        """Yield advice about lease timings, for the configured sources and those of existing notices."""
        notices = () if self.controller is None else self.controller.notices.all()
        sources = {*(item.name for item in self.listeners), *(item.spec.source for item in notices)}
        if advice := lease_advice(self.leases, sources):
            yield advice

    def _unreadable_notices(self) -> Iterator[str]:
        misfits = {} if self.controller is None else self.controller.notices.undecodable
        for name, problem in misfits.items():
            more = "" if len(misfits) == 1 else f" (and {len(misfits) - 1} more)"
            yield f"MaintenanceNotice {name} is ignored because it cannot be decoded{more}: {problem}"
            return

    def _read_problem(self) -> tuple[str, bool]:
        """Return why notices cannot be read, and whether that is a problem.

        A missing CRD is a problem only if there are sources.
        """
        if self.controller is None:
            return "", False
        health = self.controller.notices.health()
        if health.is_missing:
            missing = f"{MAINTENANCE_NOTICES.kind} is not installed; `haulout manifests --crds-only` prints it"
            return missing, bool(self.listeners)
        if health.problem:
            return health.problem, True
        return "" if health.has_synced else "the initial list is not complete", False


async def run_notices(
    client: Client,
    notices: NoticesComponent,
    *,
    events: EventRecorder,
    nodes: Informer[Node],
    operator_events: OperatorEvents,
    handling: ProfilePolicy,
) -> None:
    """Run the controller and all sources until cancelled; the caller runs `events` and `nodes`."""
    runner = _NoticesRunner(
        client, notices, events=events, nodes=nodes, operator_events=operator_events, handling=handling
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(notices.supervisor.run(runner.run_controller, client=client, report=runner.report))
        group.create_task(notices.listeners_supervisor.run(runner.run_listeners, client=client, report=runner.report))


class _NoticesRunner:
    """Runs notices during one term of leadership."""

    def __init__(
        self,
        client: Client,
        notices: NoticesComponent,
        *,
        events: EventRecorder,
        nodes: Informer[Node],
        operator_events: OperatorEvents,
        handling: ProfilePolicy,
    ) -> None:
        self._client = client
        self._notices = notices
        self._events = events
        self._nodes = nodes
        self._operator_events = operator_events
        self._handling = handling
        self._can_write = asyncio.Event()

    async def run_controller(self) -> None:
        controller = MaintenanceNoticeController(
            self._client,
            events=self._events,
            nodes=self._nodes,
            reschedulable_source_of=self._notices.mover,
            early_start_source_of=self._notices.starter,
            profile_policy=self._handling,
            on_status_written=self._notices.metrics.count_review,
        )
        controller.notices.subscribe(self._on_notice)
        self._notices.controller = controller
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(controller.run())
                await controller.notices.wait_synced()
                self._can_write.set()
        finally:
            self._notices.controller = None

    def _on_notice(self, before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
        self._notices.first_notice.set()
        for callback in self._notices.subscribers:
            callback((after or before or MaintenanceNotice()).name)
        if before is None and after is not None:
            self._notices.log_lease_advice(after.spec.source)

    async def run_listeners(self) -> None:
        """Run all sources, each under its own supervisor, until cancelled."""
        make_quarantine_events = partial(
            QuarantineEvents, operator_events=self._operator_events, clock=self._client.clock
        )
        self._notices.listeners = tuple(
            SourceListener(listener, make_quarantine_events(listener.name)) for listener in self._make_sources()
        )
        try:
            await self._can_write.wait()
            self._notices.log_lease_advice(*(listener.name for listener in self._notices.listeners))
            async with asyncio.TaskGroup() as group:
                for index, listener in enumerate(self._notices.listeners):
                    group.create_task(
                        listener.supervisor.run(
                            partial(self._run_listener, index), client=self._client, report=self.report
                        )
                    )
        finally:
            self._notices.listeners = ()

    async def _run_listener(self, index: int) -> None:
        # By index: the listener stays for metrics and the dashboard, while each restart replaces the source in it.
        listener = self._notices.listeners[index]
        source = listener.source = self._make_sources()[index]
        listener.is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(listener.quarantine_events.run(source.quarantine))
                await source.run(NoticeWriter(self._client))
                # A source runs until cancelled. If it returns, the supervisor must restart it and report that.
                raise RuntimeError("it ended unexpectedly")
        finally:
            listener.is_running = False
            self._notices.metrics.finish_source(source)

    def _make_sources(self) -> Sequence[EventSource]:
        return self._notices.make_sources(self._client, self._nodes)

    async def report(self, note: str) -> None:
        await self._operator_events.warn(note, reason=OperatorEventReason.NOTICES_FAILED, action="RunNotices")
