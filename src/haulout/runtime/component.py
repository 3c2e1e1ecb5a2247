"""A part of the operator that can be switched on: what it needs, what it runs, and how it is.

    class Widgets(Component):
        title = "Widgets"

        async def lead(self, leader: Leader) -> None:
            async with leader.journal("widgets", self.history_backlog) as journal:
                await Controller(WidgetReconciler(leader.client, journal), leader.client, name="Widget").run()

A component outlives leadership: `lead` is called each time this replica becomes the leader, and again after a failure.
`serve` is called once, on every replica. All its state that a successor needs is in the API server. What it shows
(problems, status lines, metrics) is computed when it is read. `haulout.runtime.manager` calls all of them.

`Leader` is what a component gets from the process while it leads. It is the only thing that components share.

The module of a component is imported by every command, since options and help texts follow from its class. It must be
light: what only a running component needs is imported in its methods.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from haulout.api.annotations import OPERATOR_REPORTER
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import OperatorEventReason
from haulout.api.resources import Resource
from haulout.budget.budget_check import WaitingList
from haulout.core.clock import Clock
from haulout.core.metrics import Histogram, Metric, MetricVec
from haulout.drain.metrics import DrainMetrics, InitiatorDrainMetrics
from haulout.errors import ConfigError
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder
from haulout.runtime.freezes import FreezeLister
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout.runtime.supervisor import Supervisor
from haulout.runtime.tasks import running


class Warn(Protocol):
    """Records a warning Event about the operator itself."""

    async def __call__(self, note: str, *, reason: str, action: str) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedInformers:
    """The informers that several components read. The manager runs them, so they outlast a component that fails."""

    nodes: Informer[Node]
    maintenances: Informer[NodeMaintenance]
    notices: Informer[MaintenanceNotice]
    freezes: FreezeLister
    is_used: bool = True  # False: no component of this process reads them except `freezes`, so they do not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """What a component needs while this replica leads."""

    client: Client  # with the fence of the leader election
    identity: str
    namespace: str  # of the operator
    informers: SharedInformers
    warn: Warn
    waiting_list: WaitingList = field(default_factory=WaitingList)  # NodeMaintenances that wait for a budget slot
    handover: Handover = field(default_factory=Handover)
    on_record_created: Callable[[str], object] = lambda _: None  # called with a node's name when its record is created

    @property
    def nodes(self) -> Informer[Node]:
        return self.informers.nodes

    @property
    def freezes(self) -> FreezeLister:
        return self.informers.freezes

    def events(self, controller: str = OPERATOR_REPORTER) -> EventRecorder:
        """Return a recorder whose Events name this reporting controller; the caller runs it."""
        return EventRecorder(self.client, instance=self.identity, controller=controller)

    def history(self, backlog: Backlog) -> HistoryWriter:
        """Return a history writer that continues with the entries that are not written yet; the caller runs it."""
        return HistoryWriter(self.client, backlog, warn=self._warn_of_history, on_created=self.on_record_created)

    async def _warn_of_history(self, note: str) -> None:
        await self.warn(note, reason=OperatorEventReason.HISTORY_FORBIDDEN, action="WriteHistory")

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


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A custom resource whose definition Haulout brings, and which its component reconciles where it is installed."""

    resource: Resource[Any]
    description: str  # what it is for
    definition: Callable[[], RawObject]  # the CustomResourceDefinition
    option: str = ""  # of `haulout manifests`, which includes the definition; empty: it is always included


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


class Component:
    """A part of the operator. Its supervisor restarts it alone after a failure."""

    name: ClassVar[str] = ""  # of options, values of the chart and volumes: `widgets`
    title: ClassVar[str]  # in messages: `Widgets`
    failure_reason: ClassVar[str] = ""  # of the Event after a failure of `lead`: `WidgetsFailed`
    action: ClassVar[str] = ""  # of that Event: `RunWidgets`
    metrics: ClassVar[tuple[Metric, ...]] = ()  # that `collect_metrics` yields
    initiator: ClassVar[str] = ""  # label of its drains in metrics; empty: it drains nothing
    lease: ClassVar[str] = ""  # of the predecessor that does the same: the component leads only while we hold it, too
    settings_file: ClassVar[SettingsFile | None] = None  # None: it needs none, and always runs
    custom_resource: ClassVar[CustomResource | None] = None  # that it reconciles
    cordon_owner: ClassVar[CordonOwner | None] = None  # None: it cordons nothing, or for objects of its own

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
        self.leads = False  # whether this replica leads; with a `lease`, another process may nevertheless hold that
        self.history_backlog = Backlog()  # history entries that are not written yet
        self.drain_metrics: InitiatorDrainMetrics | None = None

    async def serve(self, client: Client) -> None:
        """Run on every replica, from its start until cancelled. A failure ends the process."""
        del client

    async def wait_until_needed(self, leader: Leader) -> None:
        """Return when there is something to do. Its `lease` is not taken before."""
        del leader

    async def lead(self, leader: Leader) -> None:
        """Run until cancelled. Raise `LeadershipHandover` when another process must take over."""
        del leader
        await asyncio.Event().wait()

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

    def failures(self) -> Iterator[str]:
        """Yield why the component had to be restarted."""
        if self.supervisor.problem:
            yield self.supervisor.problem

    def problems(self) -> Iterator[str]:
        """Yield problems that need attention, the most important one first."""
        yield from self.failures()

    def waiting_for_budget(self) -> int | None:
        """Return how many of its nodes wait for a slot of the budget; None: it does not use the budget."""
        return None

    def status_lines(self) -> Iterator[str]:
        """Yield lines for the status page: `[+]` healthy, `[-]` not."""
        yield from ()

    def collect_metrics(self) -> Iterator[MetricVec | Histogram]:
        """Yield the current values of `metrics`."""
        yield from ()
