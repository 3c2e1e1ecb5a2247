"""What the checks of one node see of the cluster: the nodes, and what the surroundings know."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from haulout.drain.workloads import Record, Workload
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import Lease, RawObject
from haulout.profiles import workloads
from haulout.profiles.fitting import Room
from haulout.profiles.plugin import Answer, NodeSight, Question, Sights, State
from haulout.profiles.sights import NodeSights

if TYPE_CHECKING:  # it makes them
    from haulout.profiles.surroundings import Surroundings


class Scenery(Sights):
    """What is seen for one node, during one look at it."""

    def __init__(self, node: str, nodes: NodeSights, surroundings: "Surroundings") -> None:
        self._node = node
        self._nodes = nodes
        self._around = surroundings

    def nodes(self) -> Collection[NodeSight]:
        """Return all nodes."""
        return self._nodes.all()

    def nodes_in(self, state: State) -> Collection[NodeSight]:
        """Return the nodes whose state label says so; in maintenance are also those that are on their way."""
        return self._nodes.in_state(state)

    def nodes_with(self, label: str) -> Collection[NodeSight]:
        """Return the nodes that have a label."""
        return self._nodes.with_label(label)

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node; `haulout.profiles.podrows` tells which of their fields there are."""
        return [row.raw for row in self._around.pods(node, asked_by=self._node)]

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        return self._around.lease(namespace, name, asked_by=self._node)

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor; there are none in a cluster that does not know of them."""
        row = self._around.hypervisor(name, asked_by=self._node)
        return None if row is None else row.raw

    def room(self, node: str) -> Room | None:
        """Return what a node has left for pods, None if it is gone."""
        sight = self._nodes.get(node)
        return None if sight is None else self._around.room(sight, asked_by=self._node)

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets."""
        return [row.raw for row in self._around.daemon_sets(asked_by=self._node)]

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node; nothing in a cluster that does not know of notices."""
        return self._around.notices(node, asked_by=self._node)

    def workloads_on(self, node: str) -> Record:
        """Return the workloads that have pods on a node, as they are now."""
        return workloads.recorded(self.pods_on(node), self._around.finding_workloads(asked_by=self._node))

    def evicted_from(self, node: str) -> Collection[Workload]:
        """Return whose pods were evicted from a node."""
        find = self._around.finding_workloads(asked_by=self._node)
        return workloads.evicted(self._nodes.find(node), self.pods_on(node), find)

    def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question; None: it was not asked yet, and is from now on."""
        return self._around.answers.answer(self._node, question)


class Aside(Scenery):
    """What is seen when no node is looked at: questions that nobody has asked are not asked."""

    def answer(self, question: Question) -> Answer | None:
        """Return the answer to a question, if somebody else has asked it."""
        return self._around.answers.known(question)
