"""Replacement of OpenShift Machines: active where MachineMaintenances and the Machine API are installed.

If they are installed later, the component notices without a restart. On other clusters the cost is small: one discovery
request, and further ones only if a node has the annotation of a Machine; the controller is not imported before.

Notices create records only where MaintenanceNotices are installed. Both controllers share the informers of Machines and
records.

Settings for replacing Machines, from environment variables.

    settings, policy = read(os.environ)  # raises ConfigErrors

The window has the YAML syntax of the check `timeWindow`; one line suffices.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from haulout.api.machinemaintenance import (
    MACHINE_MAINTENANCES,
    NAMESPACE,
    MachineMaintenance,
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
)
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind
from haulout.api.objects import Node
from haulout.api.openshift import MACHINE_OF_NODE, MACHINE_SETS, MACHINES
from haulout.api.reasons import OperatorEventReason
from haulout.api.resources import Resource
from haulout.app.operator_events import OperatorEvents
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.controllers.machines.settings import MachineSettings
from haulout.controllers.profiles.config import reader
from haulout.controllers.profiles.plugins.checks.time_window import TimeWindow
from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.core.text import format_count
from haulout.core.windows import Timetable
from haulout.core.yaml_decoder import did_you_mean
from haulout.errors import ConfigError, ConfigErrors, KubeError
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.controllers.machines.controller import MachineMaintenanceController

log = logging.getLogger(__name__)

_REPORTER = "MachineMaintenance"  # reporting controller of events
_FLUSH_TIMEOUT = timedelta(seconds=2)
_DISCOVERY_BACKOFF = Backoff(first=timedelta(minutes=1), limit=timedelta(minutes=10))  # between discovery requests
_NOT_OBSERVED = "Unseen"  # the phase in metrics of a record without a phase

PHASES = Metric(
    "haulout_machine_maintenances",
    "How many MachineMaintenances are in each phase.",
    ("phase",),
    kind=MetricKind.GAUGE,
    details="`Unseen` before the first reconcile; only on the leader, if there are any",
)
LATE = Metric(
    "haulout_machine_maintenances_late",
    "How many MachineMaintenances will not finish before the cloud begins its maintenance.",
    kind=MetricKind.GAUGE,
    details="only on the leader, if there are any",
)
METRICS = (PHASES, LATE)

_PREFIX = "HAULOUT_MACHINES_"
LEAD, WINDOW, SURGE, KINDS = MACHINE_VARIABLES = tuple(f"{_PREFIX}{it}" for it in ("LEAD", "WINDOW", "SURGE", "KINDS"))
_SOURCE = "environment"  # the location that errors name
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}
_NONE = "none"


@dataclass(slots=True)
class MachinesComponent:
    """State that outlives leadership: the settings, and the controller while this replica leads."""

    settings: MachineSettings = field(default_factory=MachineSettings)
    policy: NoticeFilter = field(default_factory=NoticeFilter)
    controller: "MachineMaintenanceController | None" = None  # while this replica leads
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "Machine replacement"))

    def troubles(self) -> Iterator[str]:
        """Yield problems that need attention."""
        if self.supervisor.problem:
            yield self.supervisor.problem
        if self.controller is not None and (problem := self.controller.informers.problem()):
            yield f"Machines are not replaced: {problem}"
        hint = f"`kubectl get machinemaintenances -n {self.settings.namespace or NAMESPACE}` shows why"
        if refused := sum(record.status.phase == MachineMaintenancePhase.REFUSED for record in self._records()):
            yield f"{format_count(refused, 'MachineMaintenance')} cannot be done: {hint}"
        if late := sum(map(_is_late, self._records())):
            yield f"{format_count(late, 'Machine')} will not be replaced before the cloud begins: {hint}"

    def status_lines(self) -> Iterator[str]:
        """Yield a line for the status page; nothing if there are no Machines."""
        if self.controller is None:
            return
        if problem := self.controller.informers.problem():
            yield f"[-] machines: {problem}"
            return
        waiting = sum(not _is_over(record) for record in self._records())
        yield f"[+] machines: running on this replica; to be replaced: {waiting}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of all metrics, only while the controller runs here."""
        if self.controller is None:
            return
        phases, late = MetricVec(PHASES), MetricVec(LATE)
        for phase in (_NOT_OBSERVED, *MachineMaintenancePhase):
            phases.set(phase, to=0)
        for record in self._records():
            phases.add(record.status.phase or _NOT_OBSERVED)
        late.set(to=sum(map(_is_late, self._records())))
        yield from (phases, late)

    def _records(self) -> tuple[MachineMaintenance, ...]:
        return () if self.controller is None else tuple(self.controller.informers.maintenances.informer.all())


async def run_machines(
    client: Client,
    machines: MachinesComponent,
    *,
    identity: str,
    nodes: Informer[Node],
    operator_events: OperatorEvents,
) -> None:
    """Replace Machines, restarting after failures, until cancelled; the caller runs the informer `nodes`."""
    work = partial(replace_machines, client, machines, identity=identity, nodes=nodes)
    report = partial(operator_events.warn, reason=OperatorEventReason.MACHINES_FAILED, action="RunMachines")
    await machines.supervisor.run(work, client=client, report=report)


async def replace_machines(
    client: Client, machines: MachinesComponent, *, identity: str, nodes: Informer[Node]
) -> None:
    """Replace Machines until cancelled or until a failure."""
    await _wait_until_served(client, MACHINE_MAINTENANCES, nodes=nodes)
    await _wait_until_served(client, MACHINES, MACHINE_SETS, nodes=nodes)
    from haulout.controllers.machines.controller import (
        MachineMaintenanceController,  # imported late with its dependencies: of use on OpenShift only
    )

    log.info("MachineMaintenances and Machines are installed: Machines are replaced on request")
    events = EventRecorder(client, instance=identity, controller=_REPORTER)
    controller = MachineMaintenanceController(client, events=events, nodes=nodes, settings=machines.settings)
    async with asyncio.TaskGroup() as group:
        event_writer = group.create_task(events.run())
        machines.controller = controller
        try:
            async with asyncio.TaskGroup() as controllers:
                controllers.create_task(controller.run())
                controllers.create_task(_create_records_from_notices(client, machines, controller, nodes))
        finally:
            machines.controller = None
            await events.flush(_FLUSH_TIMEOUT)
            event_writer.cancel()


async def _create_records_from_notices(
    client: Client, machines: MachinesComponent, controller: "MachineMaintenanceController", nodes: Informer[Node]
) -> None:
    """Create records from notices, once MaintenanceNotices are served."""
    from haulout.controllers.machines.notice_controller import MachineNoticeController

    await _wait_until_served(client, MAINTENANCE_NOTICES, nodes=nodes)
    namespace = machines.settings.namespace or NAMESPACE
    await MachineNoticeController(
        client, informers=controller.informers, namespace=namespace, notice_filter=machines.policy
    ).run()


async def _wait_until_served(client: Client, *resources: Resource[Any], nodes: Informer[Node]) -> None:
    """Wait until the API server serves all of these resources."""
    tries = 0
    while not await _are_served(client, *resources):
        if not tries:
            await _wait_for_machine(nodes)
        else:
            await client.clock.sleep(_DISCOVERY_BACKOFF.delay(tries, client.random))
        tries += 1


async def _are_served(client: Client, *resources: Resource[Any]) -> bool:
    failures = 0
    while True:
        try:
            return await serves(client, *resources)
        except KubeError as error:
            log.debug("cannot discover whether %ss are installed: %s", resources[0].kind, error)
        failures += 1
        await client.clock.sleep(_DISCOVERY_BACKOFF.delay(failures, client.random))


async def _wait_for_machine(nodes: Informer[Node]) -> None:
    """Wait until a node has the annotation of a Machine."""
    found = asyncio.Event()

    def on_node(_: Node | None, new: Node | None) -> None:
        if new is not None and MACHINE_OF_NODE in new.metadata.annotations:
            found.set()

    unsubscribe = nodes.subscribe(on_node)
    try:
        await found.wait()
    finally:
        unsubscribe()


def _is_over(record: MachineMaintenance) -> bool:
    return record.status.phase in (MachineMaintenancePhase.COMPLETED, MachineMaintenancePhase.CANCELLED)


def _is_late(record: MachineMaintenance) -> bool:
    on_time = record.status.condition(MachineMaintenanceCondition.ON_TIME)
    return not _is_over(record) and on_time is not None and on_time.status == "False"


def read_settings(variables: Mapping[str, str]) -> tuple[MachineSettings, NoticeFilter]:
    """Parse the environment variables; raise `ConfigErrors` with all errors at once."""
    environment = _Environment(variables)
    terms = ReplacementPolicy(lead=environment.lead(), windows=environment.windows(), surge=environment.surge())
    policy = environment.policy()
    if environment.problems:
        raise ConfigErrors(environment.problems)
    return MachineSettings(policy=terms), policy


class _Environment:
    """Parses the variables, and collects errors."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.problems: list[ConfigError] = []
        for name in variables:
            if name.startswith(_PREFIX) and name not in MACHINE_VARIABLES:
                self._add_problem(name, f"there is no such setting{did_you_mean(name, MACHINE_VARIABLES)}")

    def lead(self) -> timedelta | None:
        """Return how long before the start of the cloud's maintenance a Machine may be replaced; None: at once."""
        text = self._text(LEAD)
        try:
            lead = duration.parse(text) if text else None
        except duration.DurationError as error:
            self._add_problem(LEAD, str(error))
            return None
        if lead is not None and lead < timedelta():
            self._add_problem(LEAD, f"expected a duration that is not negative, found {text!r:.60}")
        return lead

    def windows(self) -> Timetable | None:
        """Return when Machines may be replaced; None: always."""
        text = self._text(WINDOW)
        if not text:
            return None
        try:
            window, warnings = reader.read(TimeWindow, text, file=WINDOW)
        except ConfigErrors as error:
            self.problems += error.errors
            return None
        self.problems += warnings  # warnings count as errors: a misspelled key would silently drop the window
        if window.calendars:
            self._add_problem(WINDOW, "calendars are not supported here: use blackouts")
        return window.timetable()

    def surge(self) -> bool:
        """Return whether the replacement Machine is created first."""
        text = self._text(SURGE)
        if text.lower() not in _BOOLEANS:
            self._add_problem(SURGE, f"expected true or false, found {text!r:.60}")
        return _BOOLEANS.get(text.lower(), False)

    def policy(self) -> NoticeFilter:
        """Return which notices cause the replacement of a Machine."""
        kinds = [kind.strip() for kind in self._text(KINDS).split(",") if kind.strip()]
        if not kinds:
            return NoticeFilter()
        if kinds == [_NONE]:
            return NoticeFilter(kinds=frozenset())
        for kind in kinds:
            if kind not in tuple(MaintenanceKind):
                expected = f"expected kinds of notices ({', '.join(MaintenanceKind)}) with commas between, or {_NONE}"
                self._add_problem(KINDS, f"{expected}; found {kind!r:.60}")
        return NoticeFilter(kinds=frozenset(kinds))

    def _text(self, name: str) -> str:
        return self._variables.get(name, "").strip()

    def _add_problem(self, name: str, problem: str) -> None:
        self.problems.append(ConfigError(problem, file=_SOURCE, key=name))
