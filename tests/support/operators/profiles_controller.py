"""The profiles controller as a process in a whole cluster, with few other components, and the states of nodes.

notifications = NotificationLog()
async with a_cluster(clock).with_nodes(2).on_the_sandbox() as cluster:
    cluster.run(profiles_controller(FILE, notifications))
    await set_labels(cluster, "n1", {PROFILE_LABEL: "os"})
    await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.REQUIRED)
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from haulout.api import workloads
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Lease, NodeConditionType, RawObject, object_key
from haulout.api.resources import LEASES
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.budget.budget_check import WaitingList
from haulout.budget.slots import SLOT_WITHDRAWN_ANNOTATION
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.controller import NAME, ProfilesController
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.observation import NotificationRequest
from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    ClusterView,
    ExternalQuery,
    ObservedNode,
    QueryResult,
    State,
)
from haulout.controllers.profiles.reconciler import Informers
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.drain import cordon
from haulout.history.interface import NoHistory
from haulout.history.writer import HistoryWriter
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.runtime.freezes import NoFreezes
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from haulout.runtime.tasks import background
from support.clusters.live_cluster import LiveCluster
from support.clusters.process import Program
from support.expectations.objects import cordon_owners
from support.fakes.profile_node import load_configuration
from support.invariants import (
    DisruptionsWithinBudget,
    ForeignMetadataUntouched,
    Invariant,
    NodeBudget,
    OnlyOwnCordonsRemoved,
)

NAMESPACE = "haulout"


@dataclass(slots=True)
class NotificationLog:
    """Receives notifications, and outlives the process that sends them."""

    sent: list[tuple[str, str, str]] = field(default_factory=list)  # node, instance, state


class LeaseInformers(Informers):
    """Informers of leases, and of nothing else besides nodes."""

    def __init__(self, controller: ProfilesController, client: Client, notifications: NotificationLog) -> None:
        self._controller = controller
        self._notifications = notifications
        self._leases: Informer[Lease] = Informer(client, ListWatch(LEASES, namespace=NAMESPACE), transform=as_is)

    def use(self, configuration: Configuration) -> None:
        """Add the informers."""

    async def run(self) -> None:
        """Follow leases."""
        self._leases.subscribe(self._on_lease_change)
        await self._leases.run()

    def cluster_view(self, node: str, nodes: NodeIndex) -> ClusterView:
        """Return the view for checks."""
        del node
        return NodeAndLeaseView(nodes, self._leases)

    def query_interval(self, node: str) -> timedelta | None:
        """Return None: no external service is queried."""
        del node
        return None

    def send(self, notification: NotificationRequest, observed: ObservedNode) -> None:
        """Record a notification."""
        self._notifications.sent.append((observed.node.name, notification.instance, notification.state))

    async def flush(self, timeout: timedelta) -> None:
        """Do nothing."""
        del timeout

    def _on_lease_change(self, old: Lease | None, new: Lease | None) -> None:
        if found := new or old:
            self._controller.requeue_for_topics(frozenset({topics.lease(found.namespace, found.name)}))


class NodeAndLeaseView(ClusterView):
    """A view of nodes and leases for checks."""

    def __init__(self, nodes: NodeIndex, leases: Informer[Lease]) -> None:
        self._nodes = nodes
        self._leases = leases

    def nodes(self) -> Collection[ObservedNode]:
        """Return all nodes."""
        return self._nodes.all()

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes in a state."""
        return self._nodes.in_state(state)

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        """Return the nodes that have a label."""
        return self._nodes.with_label(label)

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        return self._leases.get(object_key(name, namespace))

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return none."""
        del node
        return ()

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return none."""
        del node
        return ()

    def hypervisor(self, name: str) -> RawObject | None:
        """Return none."""
        del name
        return None

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return none."""
        del node
        return None

    def daemon_sets(self) -> Collection[RawObject]:
        """Return none."""
        return ()

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return none."""
        del node
        return WorkloadRecord()

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return none."""
        del node
        return ()

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return no result."""
        del query
        return None


def profiles_controller(
    text: str | Callable[[], str],
    notifications: NotificationLog | None = None,
    *,
    on_started: Callable[[ProfilesController], object] = lambda _: None,
    with_history: bool = False,
) -> Program:
    """Return the operator: the controller, with its events, by a file; `on_started` is called with each new process."""

    async def run_controller(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="maintenance")
        history = HistoryWriter(client) if with_history else None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(component.run()) for component in (events, history) if component is not None]
            try:
                controller = a_profiles_controller(client, events, notifications or NotificationLog(), history)
                controller.use(load_configuration(text if isinstance(text, str) else text()))
                on_started(controller)
                await run_with_nodes(controller)
            finally:
                for task in tasks:
                    task.cancel()

    return run_controller


def a_profiles_controller(
    client: Client,
    events: EventRecorder,
    notifications: NotificationLog,
    history: HistoryWriter | None = None,
    *,
    waiting_list: WaitingList | None = None,
    handover: Handover | None = None,
) -> ProfilesController:
    """Return a controller with few other components."""
    return ProfilesController(
        client,
        events=ProfileEvents(Journal(NAME, events, metrics=client.metrics), clock=client.clock),
        namespace=NAMESPACE,
        informers=lambda controller: LeaseInformers(controller, client, notifications),
        nodes=node_cache(client),
        history=history or NoHistory(),
        waiting_list=waiting_list or WaitingList(),
        handover=handover or Handover(),
        freezes=NoFreezes(),
    )


async def run_with_nodes(controller: ProfilesController) -> None:
    """Run a controller and its informer of nodes."""
    async with background(controller._cache.run()):
        await controller.run()


# Actions of a user


async def set_labels(cluster: LiveCluster, node: str, labels: Mapping[str, str | None]) -> None:
    """Set labels of a node; None takes one off."""
    await cluster.patch("nodes", node, metadata={"labels": dict(labels)})


async def set_annotations(cluster: LiveCluster, node: str, **annotations: str | None) -> None:
    """Set annotations of a node."""
    await cluster.patch("nodes", node, metadata={"annotations": annotations})


# State


def metadata(cluster: LiveCluster, node: str) -> RawObject:
    """Return the metadata of a node."""
    found: RawObject = cluster.get("nodes", node)["metadata"]
    return found


def labels(cluster: LiveCluster, node: str) -> Mapping[str, str]:
    """Return the labels of a node."""
    found: Mapping[str, str] = metadata(cluster, node).get("labels", {})
    return found


def state(cluster: LiveCluster, node: str) -> str:
    """Return the state label of a node."""
    return labels(cluster, node).get(STATE_LABEL, "")


def data_annotation(cluster: LiveCluster, node: str) -> str:
    """Return the data annotation of a node."""
    return str(metadata(cluster, node).get("annotations", {}).get(DATA_ANNOTATION, ""))


def states(cluster: LiveCluster, node: str) -> dict[str, str]:
    """Return the states of its profiles."""
    return {
        name: profile["Current"]
        for name, profile in json.loads(data_annotation(cluster, node) or '{"Profiles":{}}')["Profiles"].items()
    }


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


def event_reasons(cluster: LiveCluster, node: str) -> list[str]:
    """Return the reasons of our Events about a node, in order."""
    return [event["reason"] for event in own_events(cluster, node)]


def own_events(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return the events about a node that are ours."""
    node_events = [event for event in cluster.by_key("events").values() if _regarding(event).get("name") == node]
    events = [
        event
        for event in node_events
        if "maintenance" in (event.get("reportingController"), event.get("reportingComponent"))
    ]
    return sorted(events, key=lambda event: str(event.get("eventTime")))


def _regarding(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found


# Invariants


def is_in_maintenance(node: RawObject) -> bool:
    """Tell whether a node is in maintenance, or on its way there."""
    meta: dict[str, Any] = node["metadata"]
    is_pending = State.IN_MAINTENANCE in meta.get("annotations", {}).get(transitions.PENDING_ANNOTATION, "")
    return is_pending or meta.get("labels", {}).get(STATE_LABEL) == State.IN_MAINTENANCE


def invariants(
    *operators: str, max_unavailable: int | str | None = None, own_metadata: tuple[str, ...] = ()
) -> tuple[Invariant, ...]:
    """Return what must hold of profiles, whatever happens; no more than `max_unavailable` nodes are in maintenance."""
    names = set(operators or ("operator",))
    annotations = (
        cordon.CORDON_ANNOTATION,
        cordon.CORDON_BACKUP_ANNOTATION,
        SLOT_WITHDRAWN_ANNOTATION,
        transitions.PENDING_ANNOTATION,
        transitions.UNRECORDED_ANNOTATION,
        DATA_ANNOTATION,
    )
    known = (
        *annotations,
        workloads.WORKLOADS_ANNOTATION,
        NodeConditionType.DRAINING,
        NodeConditionType.DRAINED,
        STATE_LABEL,
        "node.kubernetes.io/unschedulable:*",
        *own_metadata,
    )
    result: list[Invariant] = [
        OnlyOwnCordonsRemoved(operator=names, owners=cordon_owners),
        ForeignMetadataUntouched(operator=names, ours=known),
    ]
    if max_unavailable is not None:
        budget = NodeBudget(name="the file", at_most=max_unavailable)
        result.append(DisruptionsWithinBudget(operator=names, budgets=(budget,), is_disrupted=is_in_maintenance))
    return tuple(result)
