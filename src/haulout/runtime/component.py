"""A part of the operator that can be switched on: what it needs, what it runs, and how it is.

    class Widgets(Component):
        title = "Widgets"

        async def lead(self, leader: Leader) -> None:
            async with leader.journal("widgets", self.history_backlog) as journal:
                await Controller(WidgetReconciler(leader.client, journal), leader.client, name="Widget").run()

A component outlives leadership: `lead` is called each time this replica becomes the leader, and again after a failure.
All its state that a successor needs is in the API server. What it shows (problems, status lines, metrics) is computed
when it is read.

`Leader` is what a component gets from the process while it leads. It is the only thing that components share.

The module of a component is imported by every command, since options and help texts follow from its class. It must be
light: what only a running component needs is imported in its methods.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from haulout.api.objects import Node
from haulout.core.clock import Clock
from haulout.core.metrics import Metric, MetricVec
from haulout.drain.metrics import DrainMetrics, InitiatorDrainMetrics
from haulout.errors import ConfigError, LeadershipHandover
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout.runtime.supervisor import Supervisor

FLUSH_TIMEOUT = timedelta(seconds=2)


class Warn(Protocol):
    """Records a warning Event about the operator itself."""

    async def __call__(self, note: str, *, reason: str, action: str) -> None: ...


class Writer(Protocol):
    """Something that queues writes and sends them in the background."""

    async def run(self) -> object: ...

    async def flush(self, within: timedelta, /) -> None: ...


@asynccontextmanager
async def running(*writers: Writer) -> AsyncIterator[None]:
    """Run writers while the context lasts, and send what they have queued at its end."""
    handover: LeadershipHandover | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run(writer)) for writer in writers]
        try:
            yield
        except LeadershipHandover as error:  # a TaskGroup would wrap it into an ExceptionGroup
            handover = error
        finally:
            await asyncio.gather(*(writer.flush(FLUSH_TIMEOUT) for writer in writers))
            for task in tasks:
                task.cancel()
    if handover is not None:
        raise handover


async def _run(writer: Writer) -> None:
    await writer.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """What a component needs while this replica leads."""

    client: Client  # with the fence of the leader election
    identity: str
    namespace: str  # of the operator
    nodes: Informer[Node]  # shared by all components
    warn: Warn
    handover: Handover = field(default_factory=Handover)
    on_record_created: Callable[[str], object] = lambda _: None  # called with a node's name when its record is created

    def events(self, controller: str) -> EventRecorder:
        """Return a recorder whose Events name this controller; the caller runs it."""
        return EventRecorder(self.client, instance=self.identity, controller=controller)

    def history(self, backlog: Backlog) -> HistoryWriter:
        """Return a history writer that continues with the entries that are not written yet; the caller runs it."""
        return HistoryWriter(self.client, backlog, on_created=self.on_record_created)

    @asynccontextmanager
    async def journal(self, controller: str, backlog: Backlog) -> AsyncIterator[Journal]:
        """Yield a journal whose Events and history entries are written while the context lasts."""
        events, history = self.events(controller), self.history(backlog)
        async with running(events, history):
            yield Journal(controller, events, history, metrics=self.client.metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """The file that switches a component on, and what commands and manifests say about it.

    The option of `haulout run` is `--NAME FILE`, with the name of the component.
    """

    name: str  # `widgets.yaml`
    configures: str  # what is maintained by it: `nodes of Widgets`
    run_help: str  # of the option of `haulout run`
    go_flag: str  # that switches it on in the SAP maintenance-controller, which reads `default_path`
    go_flag_help: str
    object_name: str  # of the ConfigMap or Secret in which an installation has the file
    is_secret: bool = False
    manifests_help: str  # of the option of `haulout manifests`
    decides_permissions: bool = False  # then `haulout manifests` reads the file
    check_help: str = ""  # of the option of `haulout check`; empty: that command does not check such files

    @property
    def default_path(self) -> Path:
        """The path that the SAP maintenance-controller reads, relative to the working directory."""
        return Path("config", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonOwner:
    """The owner of a component's cordons, for commands that show or resolve them."""

    name: str  # as in the cordon annotation
    describe: Callable[[Node], str]  # why it holds a node
    is_present: Callable[[Node], bool]  # whether the cause still exists on a node
    release_command: Callable[[str], str] = lambda _: (
        ""
    )  # that ends the hold of the node with this name, if there is one


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in a file, and warnings about it."""

    settings: Any
    warnings: tuple[ConfigError, ...] = ()


class Component(ABC):
    """A part of the operator. Its supervisor restarts it alone after a failure."""

    name: ClassVar[str] = ""  # of options, values of the chart and volumes: `widgets`
    title: ClassVar[str]  # in messages: `Widgets`
    failure_reason: ClassVar[str]  # of the Event after a failure: `WidgetsFailed`
    action: ClassVar[str]  # of that Event: `RunWidgets`
    metrics: ClassVar[tuple[Metric, ...]] = ()  # that `collect_metrics` yields
    initiator: ClassVar[str] = ""  # label of its drains in metrics; empty: it drains nothing
    settings_file: ClassVar[SettingsFile | None] = None  # None: it needs none, and always runs
    cordon_owner: ClassVar[CordonOwner | None] = None  # None: it cordons nothing, or for objects of its own
    replaces_smc: ClassVar[bool] = False  # the SAP maintenance-controller does the same: run only with its lease

    @classmethod
    def load(cls, path: Path, *, environ: Mapping[str, str], clock: Clock) -> Self:
        """Return the component that a settings file configures. Raise `ConfigErrors`; check that its SDK exists."""
        raise NotImplementedError

    @classmethod
    def parse(cls, data: bytes, *, file: str, environ: Mapping[str, str]) -> LoadedSettings:
        """Return the settings in the content of a file. Raise `ConfigErrors`."""
        raise NotImplementedError

    @classmethod
    def explain(cls, settings: Any) -> Iterator[str]:
        """Yield lines about what settings do, for `haulout check`."""
        del settings
        yield from ()

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        """Return the permissions for settings, None if they are unknown; the operator runs in `namespace`."""
        del settings, namespace
        return ()

    def __init__(self) -> None:
        self.supervisor = Supervisor(self.title)
        self.history_backlog = Backlog()  # history entries that are not written yet
        self.drain_metrics: InitiatorDrainMetrics | None = None

    @abstractmethod
    async def lead(self, leader: Leader) -> None:
        """Run until cancelled. Raise `LeadershipHandover` when another process must take over."""

    async def run(self, leader: Leader) -> None:
        """Run `lead`, and again after each failure."""

        async def report(note: str) -> None:
            await leader.warn(note, reason=self.failure_reason, action=self.action)

        await self.supervisor.run(lambda: self.lead(leader), client=leader.client, report=report)

    def warnings(self) -> Iterable[ConfigError]:
        """Return warnings about the settings file, for the log."""
        return ()

    def use_drain_metrics(self, drain_metrics: DrainMetrics) -> None:
        """Count the drains of this component with those of the process."""
        if self.initiator:
            self.drain_metrics = drain_metrics.for_initiator(self.initiator)

    def unready(self) -> Iterator[str]:
        """Yield why this replica is not ready. That another replica leads is no reason."""
        yield from ()

    def problems(self) -> Iterator[str]:
        """Yield problems that need attention, the most important one first."""
        if self.supervisor.problem:
            yield self.supervisor.problem

    def status_lines(self) -> Iterator[str]:
        """Yield lines for the status page: `[+]` healthy, `[-]` not."""
        yield from ()

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of `metrics`."""
        yield from ()
