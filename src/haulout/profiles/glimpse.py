"""One look at a cluster: what checks see of it when nobody follows it, as for `haulout why`.

    glimpse = await take(client, configuration)
    glimpse.get("n1"), glimpse.notes

Only what the configuration needs is read, once. What may not be seen is a note: a check that looks at it may say
something else than it does in the operator.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from haulout.drain.workloads import KINDS, Record, Reference, Scaled, Workload
from haulout.errors import Forbidden, HauloutError, NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.client import Client
from haulout.kube.objects import Lease, Node, Page, RawObject
from haulout.kube.resources import LEASES, NODES, PODS, Resource
from haulout.profiles import data, fitting, workloads
from haulout.profiles.fitting import Room
from haulout.profiles.model import Configuration
from haulout.profiles.performing import HYPERVISORS
from haulout.profiles.plugin import Answer, Need, NodeSight, Outside, Question, Sights, State
from haulout.profiles.sights import NodeSights

T = TypeVar("T")

_DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, model=RawObject)
_UNDER_NAMES: dict[Need, tuple[Resource[Any], ...]] = {
    Need.PODS: (PODS.of(RawObject),),
    Need.ROOM: (PODS.of(RawObject),),
    Need.LEASES: (LEASES,),
    Need.HYPERVISORS: (HYPERVISORS,),
    Need.DAEMON_SETS: (_DAEMON_SETS,),
    Need.NOTICES: (MAINTENANCE_NOTICES,),
    Need.WORKLOADS: (PODS.of(RawObject), *KINDS.values()),
}


@dataclass(slots=True)
class Glimpse(Sights):
    """What was there."""

    found: NodeSights
    raw: dict[str, RawObject]  # the nodes, as they were read
    objects: dict[str, tuple[Any, ...]]  # by the name of the resource
    notes: list[str] = field(default_factory=list)
    answers: dict[Question, Answer] = field(default_factory=dict)
    asked: dict[Question, None] = field(default_factory=dict)  # a set with an order
    _pods: dict[str, list[RawObject]] | None = None

    def get(self, name: str) -> NodeSight | None:
        """Return a node."""
        return self.found.get(name)

    async def ask(self, outside: Outside, client: Client) -> bool:
        """Ask what checks have asked for and nobody has answered; return whether there was anything."""
        open_questions = [it for it in self.asked if it not in self.answers]
        if not open_questions:
            return False
        async with asyncio.TaskGroup() as group:
            tasks = {it: group.create_task(_answer(it, outside, client)) for it in open_questions}
        self.answers |= {question: task.result() for question, task in tasks.items()}
        return True

    # As plugins ask

    def nodes(self) -> Collection[NodeSight]:
        """Return all nodes."""
        return self.found.all()

    def nodes_in(self, state: State) -> Collection[NodeSight]:
        """Return the nodes whose state label says so; in maintenance are also those that are on their way there."""
        return self.found.in_state(state)

    def nodes_with(self, label: str) -> Collection[NodeSight]:
        """Return the nodes that have a label."""
        return self.found.with_label(label)

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node."""
        if self._pods is None:
            self._pods = {}
            for pod in self.objects.get(str(PODS), ()):
                self._pods.setdefault(pod.get("spec", {}).get("nodeName", ""), []).append(pod)
        return self._pods.get(node, ())

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        found = self.objects.get(str(LEASES), ())
        return next((it for it in found if (it.namespace, it.name) == (namespace, name)), None)

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor."""
        return next((it for it in self.objects.get(str(HYPERVISORS), ()) if it["metadata"]["name"] == name), None)

    def room(self, node: str) -> Room | None:
        """Return what a node has left for pods."""
        sight = self.found.get(node)
        if sight is None:
            return None
        allocatable = self.raw[node].get("status", {}).get("allocatable", {})
        return fitting.room_of(sight.node, allocatable, self.pods_on(node))

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets."""
        return self.objects.get(str(_DAEMON_SETS), ())

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node."""
        return [it for it in self.objects.get(str(MAINTENANCE_NOTICES), ()) if it.node == node]

    def workloads_on(self, node: str) -> Record:
        """Return the workloads that have pods on a node."""
        return workloads.recorded(self.pods_on(node), self._workload)

    def evicted_from(self, node: str) -> Collection[Workload]:
        """Return whose pods were evicted from a node, by the record on it."""
        return workloads.evicted(self.found.find(node), self.pods_on(node), self._workload)

    def _workload(self, reference: Reference) -> Scaled | None:
        found: tuple[Scaled, ...] = self.objects.get(str(KINDS[reference.kind]), ())
        return next((it for it in found if it.key == reference.key), None)

    def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question; None: it was not asked yet."""
        self.asked[question] = None
        return self.answers.get(question)


async def take(client: Client, configuration: Configuration) -> Glimpse:
    """Look at all nodes and at what the configuration needs; raises `KubeError` if nodes may not be seen."""
    needed = {str(it): it for need in configuration.needs for it in _UNDER_NAMES.get(need, ())}
    notes: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            nodes = group.create_task(client.list(NODES.of(RawObject)))
            others = {
                name: group.create_task(_seen(client.list(it), name, notes)) for name, it in sorted(needed.items())
            }
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    objects = {name: task.result() for name, task in others.items()}
    return made(nodes.result().items, objects, notes=sorted(notes))


def made(nodes: Iterable[RawObject], objects: dict[str, tuple[Any, ...]], *, notes: Iterable[str] = ()) -> Glimpse:
    """Return a look at these nodes and objects."""
    raw = {node["metadata"]["name"]: node for node in nodes}
    found = NodeSights(data.entries_of, changed=_ignore)
    for node in raw.values():
        found.follow(None, msgspec.convert(node, Node, strict=False))
    return Glimpse(found, raw, objects, list(notes))


def _ignore(*_: object) -> None:
    """Hear that a node changed: this is one look, and nobody waits."""


async def _seen(listing: Awaitable[Page[T]], what: str, notes: list[str]) -> tuple[T, ...]:
    try:
        return (await listing).items
    except NotFound:
        return ()  # there is no such kind here, so there are no such objects
    except Forbidden as error:
        notes.append(f"{what}: you may not see them ({error.message}); checks that look at them may be wrong here")
        return ()


async def _answer(question: Question, outside: Outside, client: Client) -> Answer:
    at = client.clock.now()
    try:
        return Answer(at, await question.ask(outside))
    except HauloutError as error:
        return Answer(at, problem=f"{error} (asked from here, not from where the operator runs)")
