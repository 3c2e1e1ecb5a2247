"""Whether the maintenance of a workload cluster may begin: the budget across clusters.

    admission = Budget(client, limits=(read_limit("2"),), namespace="haulout")
    if reason := await admission.admit(key): ...        # "2 of 2 clusters are in maintenance: …": asked again later
    await admission.release(key)                        # nothing of the cluster is active, as was seen there

A cluster in maintenance has a slot in a ledger of the management cluster, taken by compare-and-swap before the first
of its nodes is touched (`haulout.kube.slot_ledger`), so that two hubs that both believe to lead cannot exceed a limit.
Who has a slot goes on with as many nodes as it likes: a budget that was made smaller stops new ones, and strands
nobody.

A slot is given back by the hub, which has looked at the nodes of that cluster and found nothing: its own, and those
that its predecessors left, which are the ones that were there when it first looked. One that came later is another
hub's, which knows better. That a cluster cannot be reached is no reason to give its slot back.

Of clusters that are gone nobody looks at the nodes any more. When there is no room the server is asked for the Machines
of those that have slots: where none is enabled or has our hook, there is no cluster to be maintained by us.

When the management cluster cannot be asked nothing new begins, and the reason says so.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from haulout.api import clusterapi
from haulout.api.clusterapi import PRE_DRAIN_HOOK, ClusterKey
from haulout.controllers.clusterapi.cluster_limits import ClusterLimit, parse_limit
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.rbac import Permission
from haulout.kube.slot_ledger import CONFIG_MAPS, Slot, SlotLedger, SlotLimit, ledger_name

log = logging.getLogger(__name__)

LEDGER_NAME = "clusters-in-maintenance"
_CACHE_TTL = timedelta(minutes=1)  # labels of a Cluster, and that a cluster is not gone

Labels = Mapping[str, str]


class ClusterBudget(Protocol):
    """Says whether maintenance may begin."""

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Return why the maintenance of a cluster may not begin yet, for people; empty: it may.

        One that `is_running` counts from now on, whether there is room or not. Whoever asks is not released from before
        it asks until it has begun, and ended: it would go on without a slot.
        """
        ...

    async def release(self, key: ClusterKey) -> None:
        """Hear that nothing of a cluster is active, nor about to be; said as often as one likes."""
        ...


class UnlimitedClusterBudget:
    """Lets all clusters begin whenever they like."""

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Let it begin."""
        del key, is_running
        return ""

    async def release(self, key: ClusterKey) -> None:
        """Forget it."""


def new_cluster_budget(client: Client, limit_texts: Sequence[str], *, namespace: str) -> ClusterBudget:
    """Return who says whether maintenance may begin, by limits as they were typed; without any, everybody may."""
    limits = tuple(map(parse_limit, limit_texts))
    return LimitedClusterBudget(client, limits=limits, namespace=namespace) if limits else UnlimitedClusterBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUsage:
    """How much of a limit is used."""

    limit: ClusterLimit
    holders: tuple[str, ...] = ()  # `namespace/name`, in order
    waiting: tuple[str, ...] = ()  # the first to come first


class LimitedClusterBudget:
    """Lets as many clusters be in maintenance at once as limits allow."""

    def __init__(self, client: Client, *, limits: Sequence[ClusterLimit], namespace: str) -> None:
        self._client = client
        self._limits = tuple(limits)
        self._ledger = SlotLedger(client, namespace=namespace)
        self._version = ""  # of Cluster API, once it was asked for
        self._holder = f"hub/{client.random.getrandbits(64):016x}"  # this hub, in this life of its process
        self._inherited_slots: frozenset[tuple[str, str]] | None = None  # keys of slots; None: it has not looked yet
        self._possible_holders: set[str] = set()  # clusters that may have slots, and have not been released
        self._waiting: dict[str, datetime] = {}
        self._labels: dict[str, tuple[float, Labels]] = {}
        self._in_use_until: dict[str, float] = {}  # clusters that are not gone, until when that is believed
        self._lock = asyncio.Lock()  # who asks finds what is given back either there or gone

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Return why the maintenance of a cluster may not begin yet; empty: it may."""
        try:
            async with self._lock:
                reason = await self._acquire(str(key), is_running=is_running)
        except KubeError as error:
            reason = f"the budget across clusters cannot be asked: {error}"
        if reason:
            self._waiting.setdefault(str(key), self._client.clock.now())
        else:
            self._waiting.pop(str(key), None)
        return reason

    async def release(self, key: ClusterKey) -> None:
        """Give back the slots of a cluster in which nothing is active."""
        name = str(key)
        self._waiting.pop(name, None)
        try:
            async with self._lock:
                if self._inherited_slots is None:
                    await self._read_slots()
                if name not in self._possible_holders:
                    return
                self._possible_holders.discard(name)
                await self._ledger.release(LEDGER_NAME, lambda slot: slot.name == name and self._is_own(slot))
        except KubeError as error:
            log.warning("the slot of cluster %s is dropped when somebody needs it: %s", name, error)

    async def usage(self) -> tuple[LimitUsage, ...]:
        """Return how much of each limit is used, and by whom; raises `KubeError`."""
        await self._labels_of({*self._waiting, *(slot.name for slot in await self._read_slots())})
        return self.cached_usage()

    def cached_usage(self) -> tuple[LimitUsage, ...]:
        """Return the same, as we last heard of it: nobody is asked. Nothing, if we have not looked yet."""
        if self._inherited_slots is None:
            return ()
        holders = sorted(
            {item.name for item in self._ledger.last_read.get(LEDGER_NAME, ()) if not self._is_released(item)}
        )
        waiting = sorted(set(self._waiting) - set(holders), key=lambda item: (self._waiting[item], item))
        return tuple(
            LimitUsage(
                limit=limit,
                holders=tuple(item for item in holders if self._counts_for(limit, item)),
                waiting=tuple(item for item in waiting if self._counts_for(limit, item)),
            )
            for limit in self._limits
        )

    def _counts_for(self, limit: ClusterLimit, name: str) -> bool:
        _, labels = self._labels.get(name, (0.0, None))
        return labels is None or limit.selects(labels)  # of whom nobody knows counts everywhere

    async def _acquire(self, name: str, *, is_running: bool) -> str:
        slots = await self._read_slots()
        own_slots = {item.key for item in slots if item.name == name and self._is_own(item)}
        if (name, self._holder) in own_slots:
            return ""
        labels = await self._labels_of({name, *(item.name for item in slots)})
        limits = {
            item: SlotLimit(max_slots=item.max_clusters, counts=_slot_counter(item, labels))
            for item in self._limits
            if item.selects(labels[name])
        }
        if not limits:
            return ""
        slot = Slot(uid=name, name=name, since=self._client.clock.now(), by=self._holder)
        # What its predecessor began, or somebody when there was no budget, counts and is not stopped.
        enforced = () if own_slots or is_running else tuple(limits.values())
        self._possible_holders.add(name)  # before it is: the answer may be lost
        refusal = await self._ledger.acquire(LEDGER_NAME, slot, limits=enforced, is_held=self._is_in_use)
        if refusal is None:
            return ""
        others = [item for item in refusal.slots if item.name != name]
        for cluster_limit, ledger_limit in limits.items():
            if not ledger_limit.has_free_slot(name, others):
                return cluster_limit.exhausted_message(
                    sorted({item.name for item in others if ledger_limit.counts(item)})
                )
        return "others are quicker to take part in the budget across clusters"

    async def _read_slots(self) -> tuple[Slot, ...]:
        """Return all slots; the first look tells which ones predecessors have left."""
        slots = await self._ledger.slots(LEDGER_NAME)
        if self._inherited_slots is None:
            self._inherited_slots = frozenset(slot.key for slot in slots)
            self._possible_holders |= {slot.name for slot in slots}
        return slots

    def _is_own(self, slot: Slot) -> bool:
        """Tell whether we may give it back: it is ours, or was our predecessor's."""
        return slot.by == self._holder or slot.key in (self._inherited_slots or ())

    def _is_released(self, slot: Slot) -> bool:
        """Tell whether it was given back, and is still there: the server could not be reached then."""
        return self._is_own(slot) and slot.name not in self._possible_holders

    async def _is_in_use(self, slot: Slot) -> bool:
        """Ask the server whether there still is a cluster to be maintained."""
        if self._is_released(slot):
            return False
        now = self._client.clock.monotonic()
        self._in_use_until = {name: until for name, until in self._in_use_until.items() if until > now}
        if slot.name in self._in_use_until:
            return True
        key = _parse_key(slot.name)
        machines = await self._client.list(
            clusterapi.machine_resource(await self._served_version()), namespace=key.namespace
        )
        if not any(
            machine.cluster == key and (machine.is_enabled or PRE_DRAIN_HOOK in machine.metadata.annotations)
            for machine in machines.items
        ):
            return False
        self._in_use_until[slot.name] = now + _CACHE_TTL.total_seconds()
        return True

    async def _labels_of(self, names: Collection[str]) -> dict[str, Labels]:
        """Return the labels of Clusters, as they were a moment ago; without limits that need them there are none."""
        if not any(item.needs_labels for item in self._limits):
            return {name: {} for name in names}
        now = self._client.clock.monotonic()
        needed = {*names, *self._waiting, *self._possible_holders}
        self._labels = {name: cached for name, cached in self._labels.items() if name in needed}
        for name in sorted(item for item in set(names) if item not in self._labels or self._labels[item][0] <= now):
            self._labels[name] = now + _CACHE_TTL.total_seconds(), await self._read_labels(_parse_key(name))
        return {name: self._labels[name][1] for name in names}

    async def _read_labels(self, key: ClusterKey) -> Labels:
        if not (key.namespace and key.name):
            return {}  # somebody has written over the ledger
        clusters = clusterapi.cluster_resource(await self._served_version())
        try:
            return (await self._client.get(clusters, key.name, namespace=key.namespace)).metadata.labels
        except NotFound:
            return {}

    async def _served_version(self) -> str:
        """Return the version of Cluster API that is served; raises `KubeError`."""
        if not self._version:
            versions = [
                version
                for version in clusterapi.VERSIONS
                if await serves(self._client, clusterapi.machine_resource(version))
            ]
            if not versions:
                raise KubeError("Cluster API is not installed in this cluster")
            self._version = versions[0]
        return self._version


def permissions(namespace: str) -> tuple[Permission, ...]:
    """Return what a budget takes, beside what a hub may do without one.

    Slots in the namespace `namespace`, and labels.
    """
    purpose, names = "keep the budget across clusters, if there is one", (ledger_name(LEDGER_NAME),)
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), CONFIG_MAPS.group, CONFIG_MAPS.plural, namespace, purpose),
        Permission(("get", "patch"), CONFIG_MAPS.group, CONFIG_MAPS.plural, namespace, purpose, names=names),
        Permission(("get",), clusterapi.GROUP, "clusters", None, purpose),
    )


def _slot_counter(limit: ClusterLimit, labels: Mapping[str, Labels]) -> Callable[[Slot], bool]:
    def counts(slot: Slot) -> bool:
        cluster_labels = labels.get(slot.name)
        return cluster_labels is None or limit.selects(
            cluster_labels
        )  # a slot that came a moment ago counts everywhere

    return counts


def _parse_key(name: str) -> ClusterKey:
    namespace, _, cluster = name.partition("/")
    return ClusterKey(namespace, cluster)
