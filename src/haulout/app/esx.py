"""Nodes on ESX hosts: wiring of the controller, if there is an `esx.yaml`, or a simulated vCenter in the sandbox.

It runs under the lease of the SAP maintenance-controller, beside profiles, so never at the same time as that
controller. Its supervisor restarts it alone after a failure. Only the leader loads the vSphere SDK, and only where ESX
is configured.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.app.operator_events import OperatorEvents
from haulout.controllers.esx.decision import HostState
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.core.text import format_count
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import ConfigErrors, LeadershipHandover
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.app.esx_settings import EsxFile
    from haulout.controllers.esx.controller import EsxController

_REPORTER = "ESX"  # reporting controller of events
_FLUSH_TIMEOUT = timedelta(seconds=2)

HOSTS = Metric(
    "haulout_esx_hosts",
    "How many ESX hosts with nodes are in each maintenance state.",
    ("state",),
    kind=MetricKind.GAUGE,
    details="`true`: in maintenance or entering it, `alarm`, or `false`; only where the ESX controller runs",
)
VCENTER_UP = Metric(
    "haulout_esx_vcenter_up",
    "Whether the vCenter of a zone answered the last request.",
    ("zone",),
    kind=MetricKind.GAUGE,
    details="only where the ESX controller runs",
)
NODES = Metric(
    "haulout_esx_nodes",
    "How many nodes are in maintenance for their ESX host, entering or leaving it, or waiting for it.",
    ("stuck",),
    kind=MetricKind.GAUGE,
    details="`stuck` is `true` for nodes that need attention; only where the ESX controller runs",
)
METRICS = (HOSTS, VCENTER_UP, NODES)


@dataclass(slots=True)
class EsxComponent:
    """State that outlives leadership: how to connect to vCenters, and the controller while this replica leads."""

    read_settings: Callable[[], EsxSettings]
    connect: Callable[[Client], VCenterLogin]
    file_problem: Callable[[], ConfigErrors | None] = lambda: None  # with the current content of the file
    drain_metrics: InitiatorDrainMetrics | None = None  # drain counters
    controller: "EsxController | None" = None  # while this replica leads
    history_backlog: Backlog = field(default_factory=Backlog)  # history entries that are not written yet
    on_record_created: Callable[[str], object] = lambda _: None  # called with a node's name when its record is created
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "ESX"))

    @classmethod
    def from_file(cls, file: "EsxFile") -> "EsxComponent":
        """Return the component for a file, with a vCenter login that uses the SDK."""

        def connect(client: Client) -> VCenterLogin:
            from haulout.controllers.esx.vsphere_sdk import vcenter_login

            return vcenter_login(client.clock)

        return cls(read_settings=file.settings, connect=connect, file_problem=lambda: file.problem)

    def troubles(self) -> Iterator[str]:
        """Yield problems that need attention."""
        if self.supervisor.problem:
            yield self.supervisor.problem
        if (problem := self.file_problem()) is not None:
            yield f"the last valid ESX configuration stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.problems()
            yield from self.controller.history.problems()

    def status_lines(self) -> Iterator[str]:
        """Yield a line for the status page."""
        if self.controller is None:
            yield "[+] ESX: not running on this replica, but on the leader or in a SAP maintenance-controller"
            return
        if problem := next(self.troubles(), ""):
            yield f"[-] ESX: {problem.removeprefix('ESX ')}"
            return
        states = [state for zone in self.controller.zones.values() for state in zone.host_states.values()]
        busy = sum(host_state is not HostState.HEALTHY for host_state in states)
        yield f"[+] ESX: this replica manages {format_count(len(states), 'host')}; in maintenance or alarm: {busy}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of all metrics, only while the controller runs here."""
        if self.controller is None:
            return
        hosts, vcenters_up, nodes = MetricVec(HOSTS), MetricVec(VCENTER_UP), MetricVec(NODES)
        for state in HostState:
            hosts.set(state, to=0)
        for stuck in ("false", "true"):
            nodes.set(stuck, to=0)
        for letter, zone in self.controller.zones.items():
            vcenters_up.set(letter, to=zone.is_reachable)
            for state in zone.host_states.values():
                hosts.add(state)
            for is_stuck in zone.nodes_in_progress():
                nodes.add(str(is_stuck).lower())
        yield from (hosts, vcenters_up, nodes)


async def run_esx(
    client: Client,
    esx: EsxComponent,
    *,
    identity: str,
    nodes: Informer[Node],
    operator_events: OperatorEvents,
    own_node: str = "",
) -> None:
    """Run the controller, restarting it after failures, until cancelled; the caller runs the informer `nodes`.

    Raise `LeadershipHandover` when `own_node`, on which this process runs, is about to be drained.
    """
    work = partial(
        _run_controller,
        client,
        esx,
        identity=identity,
        nodes=nodes,
        own_node=own_node,
        namespace=operator_events.namespace,
    )
    report = partial(operator_events.warn, reason=OperatorEventReason.ESX_FAILED, action="RunEsx")
    await esx.supervisor.run(work, client=client, report=report)


async def _run_controller(
    client: Client, esx: EsxComponent, *, identity: str, nodes: Informer[Node], own_node: str, namespace: str
) -> None:
    from haulout.controllers.esx.controller import EsxController

    # A recorder of its own: many events of pods must not delay those of nodes.
    events, pod_events = (EventRecorder(client, instance=identity, controller=_REPORTER) for _ in range(2))
    history = HistoryWriter(client, esx.history_backlog, on_created=esx.on_record_created)
    controller = EsxController(
        client,
        connect=esx.connect(client),
        read_settings=esx.read_settings,
        events=events,
        nodes=nodes,
        own_node=own_node,
        namespace=namespace,
        about_pods=pod_events,
        drain_metrics=esx.drain_metrics,
        history=history,
    )
    handover: LeadershipHandover | None = None
    async with asyncio.TaskGroup() as group:
        writers = [group.create_task(writer.run()) for writer in (events, pod_events, history)]
        esx.controller = controller
        try:
            await controller.run()
        except LeadershipHandover as error:  # a TaskGroup would wrap it into an ExceptionGroup
            handover = error
        finally:
            esx.controller = None
            await asyncio.gather(*(writer.flush(_FLUSH_TIMEOUT) for writer in (history, events, pod_events)))
            for task in writers:
                task.cancel()
    if handover is not None:
        raise handover
