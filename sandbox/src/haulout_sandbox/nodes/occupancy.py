"""Which pods are on which nodes, and what of the nodes they take: the scheduler's book, kept up to date pod by pod."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from haulout_sandbox.nodes.view import PodView

_STAMPS = count(1)  # only ever compared for being the same


@dataclass(slots=True)
class Site:
    """What is taken of one node, and by whom."""

    used: dict[str, int] = field(default_factory=dict)
    pods: dict[str, PodView] = field(default_factory=dict)
    ports: Counter[tuple[str, int]] = field(default_factory=Counter)
    stamp: int = 0  # another one whenever something else is taken


@dataclass(slots=True)
class _InZones:
    """How many pods of one owner are in which zone, as long as nodes are in these zones."""

    zones: Mapping[str, str]  # by node
    counts: dict[str, int]

    def count(self, node: str, by: int) -> None:
        zone = self.zones.get(node, "")
        self.counts[zone] = self.counts.get(zone, 0) + by


class Occupancy:
    """Which pods are on which nodes: those that the cluster knows of, and those that we have only just put there."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.siblings: dict[str, Counter[str]] = {}  # by owner: how many are on which node
        self.aloof: dict[str, PodView] = {}  # pods that do not want certain others near them
        self._where: dict[str, tuple[PodView, str]] = {}
        self._in_zones: dict[str, _InZones] = {}  # by owner, of those that were asked for

    def put(self, pod: PodView, node: str) -> None:
        """Note that `pod` is on `node`, and nowhere else."""
        known = self._where.get(pod.key)
        if known and known[1] == node and known[0].uid == pod.uid and known[0].wishes == pod.wishes:
            self._renew(pod, node)
            return
        self.take(pod.key)
        site = self.sites.setdefault(node, Site())
        site.pods[pod.key] = pod
        self._where[pod.key] = pod, node
        self._count(site, pod, node, +1)
        if pod.affinity.pod_anti_affinity.required:
            self.aloof[pod.key] = pod

    def _renew(self, pod: PodView, node: str) -> None:
        """Take a newer state of a pod that stays where it is: it takes what it took before."""
        self._where[pod.key] = pod, node
        self.sites[node].pods[pod.key] = pod
        if pod.key in self.aloof:
            self.aloof[pod.key] = pod

    def take(self, key: str) -> None:
        """Note that the pod is on no node."""
        if (found := self._where.pop(key, None)) is None:
            return
        pod, node = found
        site = self.sites[node]
        del site.pods[key]
        self._count(site, pod, node, -1)
        self.aloof.pop(key, None)
        if not site.pods:
            del self.sites[node]

    def in_zones(self, owner: str, zones: Mapping[str, str]) -> Mapping[str, int]:
        """Return how many of the pods of an owner that has some are in which zone; `zones` tells that of each node.

        They are counted once, and from then on as they come and go, since replicas are placed one after the other.
        """
        known = self._in_zones.get(owner)
        if known is None or known.zones is not zones:
            known = _InZones(zones, {})
            for node, number in self.siblings[owner].items():
                known.count(node, number)
            self._in_zones[owner] = known
        return known.counts

    def node_of(self, key: str) -> str | None:
        """Return the node that the pod is on."""
        found = self._where.get(key)
        return found[1] if found else None

    def _count(self, site: Site, pod: PodView, node: str, by: int) -> None:
        site.stamp = next(_STAMPS)
        for name, amount in pod.requests.items():
            site.used[name] = site.used.get(name, 0) + by * amount
        for port in pod.host_ports:
            site.ports[port] += by
        if pod.owner_uid:
            nodes = self.siblings.setdefault(pod.owner_uid, Counter())
            nodes[node] += by
            if in_zones := self._in_zones.get(pod.owner_uid):
                in_zones.count(node, by)
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self.siblings[pod.owner_uid]
                self._in_zones.pop(pod.owner_uid, None)


EMPTY = Site()
