"""Profiles in a whole cluster: the controller as a process, with little around it, and how nodes stand.

phone = Phone()
async with a_cluster(clock).with_nodes(2).on_the_sandbox() as cluster:
    cluster.run(operating(FILE, phone))
    await label(cluster, "n1", {PROFILE_LABEL: "os"})
    await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.REQUIRED)
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from haulout.budget.line import Line
from haulout.budget.slots import WITHDRAWN
from haulout.drain import cordon, workloads
from haulout.drain.lifecycle import NodeCondition
from haulout.drain.workloads import Record, Workload
from haulout.history.keeper import Keeper
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Lease, RawObject, object_key
from haulout.kube.resources import LEASES
from haulout.profiles import begun, passed, topics
from haulout.profiles.controller import Controller, Settings
from haulout.profiles.fitting import Room
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import (
    DATA_ANNOTATION,
    STATE_LABEL,
    Answer,
    NodeSight,
    Question,
    Sights,
    State,
)
from haulout.profiles.sights import NodeSights
from haulout.profiles.stepping import Surroundings
from haulout.profiles.steps import Sending
from haulout.profiles.telling import Teller
from support.invariants import (
    DisruptionsWithinBudget,
    ForeignThingsUntouched,
    Invariant,
    NodeBudget,
    OnlyOurCordonsLifted,
)
from support.live import LiveCluster
from support.looking import cordon_owners
from support.processes import Program
from support.stepping import loaded

HOME = "haulout"


@dataclass(slots=True)
class Phone:
    """Whoever is told: it outlives the process that tells."""

    rang: list[tuple[str, str, str]] = field(default_factory=list)  # node, instance, state


class Around(Surroundings):
    """What there is beside nodes: leases, and nothing else."""

    def __init__(self, controller: Controller, client: Client, phone: Phone) -> None:
        self._controller = controller
        self._phone = phone
        self._leases: Cache[Lease] = Cache(client, Selection(LEASES, namespace=HOME), row=as_is)

    def use(self, configuration: Configuration) -> None:
        """Follow what there is in any case."""

    async def run(self) -> None:
        """Follow leases."""
        self._leases.subscribe(self._tell)
        await self._leases.run()

    def sights(self, node: str, nodes: NodeSights) -> Sights:
        """Return what checks see."""
        del node
        return Seen(nodes, self._leases)

    def asks_every(self, node: str) -> timedelta | None:
        """Return that nobody outside is asked."""
        del node
        return None

    def post(self, sending: Sending, node: NodeSight) -> None:
        """Ring."""
        self._phone.rang.append((node.node.name, sending.instance, sending.state))

    async def settle(self, within: timedelta) -> None:
        """Have nothing under way."""
        del within

    def _tell(self, old: Lease | None, new: Lease | None) -> None:
        if found := new or old:
            self._controller.note_topics(frozenset({topics.lease(found.namespace, found.name)}))


class Seen(Sights):
    """What checks see: nodes and leases."""

    def __init__(self, nodes: NodeSights, leases: Cache[Lease]) -> None:
        self._nodes = nodes
        self._leases = leases

    def nodes(self) -> Collection[NodeSight]:
        """Return all nodes."""
        return self._nodes.all()

    def nodes_in(self, state: State) -> Collection[NodeSight]:
        """Return the nodes in a state."""
        return self._nodes.in_state(state)

    def nodes_with(self, label: str) -> Collection[NodeSight]:
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

    def room(self, node: str) -> Room | None:
        """Return none."""
        del node
        return None

    def daemon_sets(self) -> Collection[RawObject]:
        """Return none."""
        return ()

    def workloads_on(self, node: str) -> Record:
        """Return none."""
        del node
        return Record()

    def evicted_from(self, node: str) -> Collection[Workload]:
        """Return none."""
        del node
        return ()

    def answer(self, question: Question) -> Answer | None:
        """Return that nobody answers."""
        del question
        return None


def operating(
    text: str | Callable[[], str],
    phone: Phone | None = None,
    *,
    seen: Callable[[Controller], object] = lambda _: None,
    with_history: bool = False,
) -> Program:
    """Return the operator: the controller, with its events, by a file; `seen` hears of each life of it."""

    async def operate(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="maintenance")
        history = Keeper(client) if with_history else None
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(it.run()) for it in (events, history) if it is not None]
            try:
                controller = a_controller(client, events, phone or Phone(), history)
                controller.use(loaded(text if isinstance(text, str) else text()))
                seen(controller)
                await controller.run()
            finally:
                for task in beside:
                    task.cancel()

    return operate


def a_controller(
    client: Client, events: EventRecorder, phone: Phone, history: Keeper | None = None, *, line: Line | None = None
) -> Controller:
    """Return a controller with little around it."""
    return Controller(
        client,
        teller=Teller(events, clock=client.clock),
        settings=Settings(namespace=HOME),
        surroundings=lambda it: Around(it, client, phone),
        history=history,
        line=line,
    )


# What a person does


async def label(cluster: LiveCluster, node: str, labels: Mapping[str, str | None]) -> None:
    """Set labels of a node; None takes one off."""
    await cluster.change("nodes", node, metadata={"labels": dict(labels)})


async def annotate(cluster: LiveCluster, node: str, **annotations: str | None) -> None:
    """Set annotations of a node."""
    await cluster.change("nodes", node, metadata={"annotations": annotations})


# How it stands


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


def written(cluster: LiveCluster, node: str) -> str:
    """Return the data annotation of a node."""
    return str(metadata(cluster, node).get("annotations", {}).get(DATA_ANNOTATION, ""))


def states(cluster: LiveCluster, node: str) -> dict[str, str]:
    """Return where its profiles stand."""
    return {
        name: it["Current"] for name, it in json.loads(written(cluster, node) or '{"Profiles":{}}')["Profiles"].items()
    }


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    """Tell whether a node takes no pods."""
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


def events(cluster: LiveCluster, node: str) -> list[str]:
    """Return the reasons of what we told of a node, in order."""
    return [it["reason"] for it in told(cluster, node)]


def told(cluster: LiveCluster, node: str) -> list[RawObject]:
    """Return the events about a node that are ours."""
    about = [it for it in cluster.all("events").values() if _about(it).get("name") == node]
    ours = [it for it in about if "maintenance" in (it.get("reportingController"), it.get("reportingComponent"))]
    return sorted(ours, key=lambda it: str(it.get("eventTime")))


def _about(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found


# What must hold


def is_away(node: RawObject) -> bool:
    """Tell whether a node is in maintenance, or on its way there."""
    meta: dict[str, Any] = node["metadata"]
    on_its_way = State.IN_MAINTENANCE in meta.get("annotations", {}).get(begun.ANNOTATION, "")
    return on_its_way or meta.get("labels", {}).get(STATE_LABEL) == State.IN_MAINTENANCE


def invariants(*operators: str, most: int | str | None = None, ours: tuple[str, ...] = ()) -> tuple[Invariant, ...]:
    """Return what must hold of profiles, whatever happens; no more than `most` nodes are in maintenance."""
    names = set(operators or ("operator",))
    annotations = (cordon.MARK, cordon.BACKUP, WITHDRAWN, begun.ANNOTATION, passed.ANNOTATION, DATA_ANNOTATION)
    known = (
        *annotations,
        workloads.ANNOTATION,
        NodeCondition.DRAINING,
        NodeCondition.DRAINED,
        STATE_LABEL,
        "node.kubernetes.io/unschedulable:*",
        *ours,
    )
    held: list[Invariant] = [
        OnlyOurCordonsLifted(operator=names, owners=cordon_owners),
        ForeignThingsUntouched(operator=names, ours=known),
    ]
    if most is not None:
        budget = NodeBudget(name="the file", at_most=most)
        held.append(DisruptionsWithinBudget(operator=names, budgets=(budget,), disrupts=is_away))
    return tuple(held)
