"""Nodes on ESX hosts under the operator: on where there is an `esx.yaml`, or a stand-in of vCenter in the sandbox.

It is seen to beside profiles, under the lease of the SAP maintenance-controller: never beside one of these. Should it
break it is started again by itself. The SDK of vSphere is loaded only where it is on, by the replica that leads.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.api.objects import Node
from haulout.app.operator_events import OperatorEvents
from haulout.app.supervisor import Supervisor
from haulout.controllers.esx.decision import HostState
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.core.text_format import format_count
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import ConfigErrors, LeadershipHandover
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder

if TYPE_CHECKING:
    from haulout.app.esx_settings import EsxFile
    from haulout.controllers.esx.controller import EsxController

_REPORTER = "ESX"  # who tells by events
_FLUSH_TIMEOUT = timedelta(seconds=2)

HOSTS = Metric(
    "haulout_esx_hosts",
    "How many ESX hosts with nodes are in a state.",
    ("state",),
    kind=MetricKind.GAUGE,
    details="`true` in maintenance or on the way, `alarm`, or `false`; only who sees to them has it",
)
VCENTER_UP = Metric(
    "haulout_esx_vcenter_up",
    "Whether the vCenter of a zone answered when it was last asked.",
    ("zone",),
    kind=MetricKind.GAUGE,
    details="the same",
)
NODES = Metric(
    "haulout_esx_nodes",
    "How many nodes are away for the maintenance of their ESX host, on their way there or back, or wait for that.",
    ("stuck",),
    kind=MetricKind.GAUGE,
    details="`stuck` is true for those that somebody should look after; the same",
)
METRICS = (HOSTS, VCENTER_UP, NODES)


@dataclass(slots=True)
class EsxComponent:
    """What outlives leadership: how vCenters are found, and what is known while this replica sees to nodes."""

    read_settings: Callable[[], EsxSettings]
    connect: Callable[[Client], VCenterLogin]
    file_problem: Callable[[], ConfigErrors | None] = lambda: None  # with the file as it is now
    drain_metrics: InitiatorDrainMetrics | None = None  # counts drains
    controller: "EsxController | None" = None  # while we see to them, and not another
    history_backlog: Backlog = field(default_factory=Backlog)  # what happened and is not in the history of nodes yet
    on_record_created: Callable[[str], object] = lambda _: None  # hears of nodes for which a record is made
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "ESX"))

    @classmethod
    def from_file(cls, file: "EsxFile") -> "EsxComponent":
        """Return what a file says, for vCenters that the SDK speaks to."""

        def connect(client: Client) -> VCenterLogin:
            from haulout.controllers.esx.vsphere_sdk import vcenter_login

            return vcenter_login(client.clock)

        return cls(read_settings=file.settings, connect=connect, file_problem=lambda: file.problem)

    def troubles(self) -> Iterator[str]:
        """Yield what somebody should look after."""
        if self.supervisor.problem:
            yield self.supervisor.problem
        if (problem := self.file_problem()) is not None:
            yield f"what the file for ESX said before stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.problems()
            yield from self.controller.history.problems()

    def status_lines(self) -> Iterator[str]:
        """Yield how it stands."""
        if self.controller is None:
            yield "[+] ESX: this replica does not see to it; the leader does, or a SAP maintenance-controller"
            return
        if problem := next(self.troubles(), ""):
            yield f"[-] ESX: {problem.removeprefix('ESX ')}"
            return
        states = [state for zone in self.controller.zones.values() for state in zone.host_states.values()]
        busy = sum(host_state is not HostState.HEALTHY for host_state in states)
        yield f"[+] ESX: this replica sees to {format_count(len(states), 'host')}; in maintenance or alarm: {busy}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield all numbers, as they are now."""
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
    """See to nodes on ESX hosts, also after it broke, until cancelled; others keep `nodes` up to date.

    Raises `LeadershipHandover` when `own_node`, on which this process runs, is about to be drained.
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
    report = partial(operator_events.warn, reason="EsxBroke", action="SeeToEsx")
    await esx.supervisor.run(work, client=client, report=report)


async def _run_controller(
    client: Client, esx: EsxComponent, *, identity: str, nodes: Informer[Node], own_node: str, namespace: str
) -> None:
    from haulout.controllers.esx.controller import EsxController

    # Pods are many: what is told of them must not crowd out what is told of nodes.
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
        except LeadershipHandover as error:  # which a group would wrap
            handover = error
        finally:
            esx.controller = None
            await asyncio.gather(*(writer.flush(_FLUSH_TIMEOUT) for writer in (history, events, pod_events)))
            for task in writers:
                task.cancel()
    if handover is not None:
        raise handover
