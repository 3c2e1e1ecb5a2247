"""The scheduler's cache: which pods are on which nodes and the resources they use, updated pod by pod."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from haulout_sandbox.nodes.informers import PodView

_GENERATIONS = count(1)  # compared only for equality


@dataclass(slots=True)
class NodeInfo:
    """The pods of a node, and the resources they use."""

    requested: dict[str, int] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    used_ports: Counter[tuple[str, int]] = field(default_factory=Counter)
    generation: int = 0  # changes whenever the used resources change


@dataclass(slots=True)
class _PodsPerZone:
    """How many pods of one owner are in each zone, for one assignment of nodes to zones."""

    zone_by_node: Mapping[str, str]  # by node
    pods_by_zone: dict[str, int]

    def add(self, node: str, delta: int) -> None:
        zone = self.zone_by_node.get(node, "")
        self.pods_by_zone[zone] = self.pods_by_zone.get(zone, 0) + delta


class SchedulerCache:
    """The pods on each node: those bound in the cluster, and those assumed by the scheduler."""

    def __init__(self) -> None:
        self.node_infos: dict[str, NodeInfo] = {}
        self.pods_per_node_by_owner: dict[str, Counter[str]] = {}  # by owner: pods per node
        self.pods_with_anti_affinity: dict[str, PodView] = {}  # pods with anti-affinity to other pods
        self._assignments: dict[str, tuple[PodView, str]] = {}
        self._pods_per_zone: dict[str, _PodsPerZone] = {}  # by owner, for owners that were asked for

    def add_pod(self, pod: PodView, node: str) -> None:
        """Put `pod` on `node`, and on no other."""
        previous = self._assignments.get(pod.key)
        if (
            previous
            and previous[1] == node
            and previous[0].uid == pod.uid
            and previous[0].scheduling_key == pod.scheduling_key
        ):
            self._replace_pod(pod, node)
            return
        self.remove_pod(pod.key)
        node_info = self.node_infos.setdefault(node, NodeInfo())
        node_info.pods[pod.key] = pod
        self._assignments[pod.key] = pod, node
        self._count_pod(node_info, pod, node, +1)
        if pod.affinity.pod_anti_affinity.required:
            self.pods_with_anti_affinity[pod.key] = pod

    def _replace_pod(self, pod: PodView, node: str) -> None:
        """Store a newer state of a pod on the same node; its resources are unchanged."""
        self._assignments[pod.key] = pod, node
        self.node_infos[node].pods[pod.key] = pod
        if pod.key in self.pods_with_anti_affinity:
            self.pods_with_anti_affinity[pod.key] = pod

    def remove_pod(self, key: str) -> None:
        if (assignment := self._assignments.pop(key, None)) is None:
            return
        pod, node = assignment
        node_info = self.node_infos[node]
        del node_info.pods[key]
        self._count_pod(node_info, pod, node, -1)
        self.pods_with_anti_affinity.pop(key, None)
        if not node_info.pods:
            del self.node_infos[node]

    def pods_per_zone(self, owner: str, zone_by_node: Mapping[str, str]) -> Mapping[str, int]:
        """Return how many pods of an owner are in each zone.

        `zone_by_node` maps nodes to zones. The pods are counted once and then updated, since replicas are scheduled one
        after the other.
        """
        cached = self._pods_per_zone.get(owner)
        if cached is None or cached.zone_by_node is not zone_by_node:
            cached = _PodsPerZone(zone_by_node, {})
            for node, pods in self.pods_per_node_by_owner[owner].items():
                cached.add(node, pods)
            self._pods_per_zone[owner] = cached
        return cached.pods_by_zone

    def node_of(self, key: str) -> str | None:
        assignment = self._assignments.get(key)
        return assignment[1] if assignment else None

    def _count_pod(self, node_info: NodeInfo, pod: PodView, node: str, delta: int) -> None:
        node_info.generation = next(_GENERATIONS)
        for name, amount in pod.requests.items():
            node_info.requested[name] = node_info.requested.get(name, 0) + delta * amount
        for port in pod.host_ports:
            node_info.used_ports[port] += delta
        if pod.owner_uid:
            pods_per_node = self.pods_per_node_by_owner.setdefault(pod.owner_uid, Counter())
            pods_per_node[node] += delta
            if pods_per_zone := self._pods_per_zone.get(pod.owner_uid):
                pods_per_zone.add(node, delta)
            if not pods_per_node[node]:
                del pods_per_node[node]
            if not pods_per_node:
                del self.pods_per_node_by_owner[pod.owner_uid]
                self._pods_per_zone.pop(pod.owner_uid, None)


EMPTY_NODE_INFO = NodeInfo()
