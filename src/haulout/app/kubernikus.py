"""Nodes of Kubernikus: wiring of the controller, if there is a `kubernikus.yaml`.

It runs under the lease of the SAP maintenance-controller, beside profiles, so never at the same time as that
controller. Its supervisor restarts it alone after a failure. The OpenStack SDK is loaded only when the first server is
to be deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from haulout.api.objects import Node
from haulout.api.reasons import OperatorEventReason
from haulout.app.operator_events import OperatorEvents
from haulout.compat import openstack_config
from haulout.controllers.kubernikus.nova import Nova
from haulout.core.metrics import Metric, MetricKind, MetricVec
from haulout.core.text import format_count
from haulout.drain.metrics import InitiatorDrainMetrics
from haulout.errors import LeadershipHandover
from haulout.history.pending_entries import Backlog
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from haulout.app.kubernikus_settings import KubernikusFile
    from haulout.controllers.kubernikus.controller import KubernikusController

Credentials = Callable[[], Awaitable[openstack_config.OpenStackSettings]]

_REPORTER = "kubernikus"  # reporting controller of events, as in the SAP maintenance-controller
_FLUSH_TIMEOUT = timedelta(seconds=2)

ORDERS = Metric(
    "haulout_kubernikus_deletions",
    "How many nodes are marked for deletion by their label.",
    ("stuck",),
    kind=MetricKind.GAUGE,
    details="`stuck` is `true` for nodes that need attention; only where the Kubernikus controller runs",
)
OUTDATED = Metric(
    "haulout_kubernikus_kubelets_outdated",
    "How many nodes have a kubelet of another version than the API server.",
    kind=MetricKind.GAUGE,
    details="according to their label; only where the Kubernikus controller runs",
)
METRICS = (ORDERS, OUTDATED)


def openstack_nova(credentials: Credentials) -> Nova:
    """Return a Nova client of the OpenStack SDK."""
    from haulout.controllers.kubernikus.openstack_sdk import SdkNova

    return SdkNova(credentials)


@dataclass(slots=True)
class KubernikusComponent:
    """State that outlives leadership: the file, how to connect to Nova, and the controller while this replica leads."""

    file: "KubernikusFile"
    connect_nova: Callable[[Credentials], Nova] = openstack_nova
    drain_metrics: InitiatorDrainMetrics | None = None  # drain counters
    controller: "KubernikusController | None" = None  # while this replica leads
    history_backlog: Backlog = field(default_factory=Backlog)  # history entries that are not written yet
    on_record_created: Callable[[str], object] = lambda _: None  # called with a node's name when its record is created
    supervisor: Supervisor = field(default_factory=partial(Supervisor, "Kubernikus"))

    def troubles(self) -> Iterator[str]:
        """Yield problems that need attention."""
        if self.supervisor.problem:
            yield self.supervisor.problem
        if (problem := self.file.problem) is not None:
            yield f"the last valid version of {self.file.path} stays in force: {problem}"
        if self.controller is not None:
            yield from self.controller.problems()

    def status_lines(self) -> Iterator[str]:
        """Yield a line for the status page."""
        if self.controller is None:
            yield "[+] Kubernikus: not running on this replica, but on the leader or in a SAP maintenance-controller"
        elif problem := next(self.troubles(), ""):
            yield f"[-] Kubernikus: {problem}"
        else:
            orders = format_count(self.controller.order_count(), "node")
            yield f"[+] Kubernikus: running on this replica; to be deleted: {orders}"

    def collect_metrics(self) -> Iterator[MetricVec]:
        """Yield the current values of all metrics, only while the controller runs here."""
        if self.controller is None:
            return
        orders, stuck = MetricVec(ORDERS), self.controller.stuck_count()
        orders.set("true", to=stuck)
        orders.set("false", to=self.controller.order_count() - stuck)
        outdated = MetricVec(OUTDATED)
        outdated.set(to=self.controller.kubelet_versions.outdated_count())
        yield from (orders, outdated)


async def run_kubernikus(
    client: Client,
    kubernikus: KubernikusComponent,
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
        kubernikus,
        identity=identity,
        nodes=nodes,
        own_node=own_node,
        namespace=operator_events.namespace,
    )
    report = partial(operator_events.warn, reason=OperatorEventReason.KUBERNIKUS_FAILED, action="RunKubernikus")
    await kubernikus.supervisor.run(work, client=client, report=report)


async def _run_controller(
    client: Client,
    kubernikus: KubernikusComponent,
    *,
    identity: str,
    nodes: Informer[Node],
    own_node: str,
    namespace: str,
) -> None:
    from haulout.controllers.kubernikus.controller import KubernikusController
    from haulout.controllers.profiles.external import keystone
    from haulout.controllers.profiles.external.network_client import NetworkClient

    file, network = kubernikus.file, NetworkClient(client=client)

    async def credentials() -> openstack_config.OpenStackSettings:
        secret = file.settings.secret
        namespace, name = (secret.namespace, secret.name) if secret else ("", "")
        return await keystone.read_settings(network, namespace=namespace, secret=name)

    events, history = (
        EventRecorder(client, instance=identity, controller=_REPORTER),
        HistoryWriter(client, kubernikus.history_backlog, on_created=kubernikus.on_record_created),
    )
    controller = KubernikusController(
        client,
        nova=kubernikus.connect_nova(credentials),
        nodes=nodes,
        journal=Journal(_REPORTER, events, history, metrics=client.metrics),
        settings=file.settings,
        namespace=namespace,
        handover=Handover(own_node),
        drain_metrics=kubernikus.drain_metrics,
    )
    handover: LeadershipHandover | None = None
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(writer)
            for writer in (events.run(), history.run(), file.watch(controller.update_settings))
        ]
        kubernikus.controller = controller
        try:
            await controller.run()
        except LeadershipHandover as error:  # a TaskGroup would wrap it into an ExceptionGroup
            handover = error
        finally:
            kubernikus.controller = None
            await asyncio.gather(*(writer.flush(_FLUSH_TIMEOUT) for writer in (history, events)))
            await network.close()
            for task in background:
                task.cancel()
    if handover is not None:
        raise handover
