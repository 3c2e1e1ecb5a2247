"""Whether the maintenance of a workload cluster may begin: the budget across clusters.

    admission = Budget(client, limits=(read_limit("2"),), namespace="haulout")
    if reason := await admission.admit(key): ...        # "2 of 2 clusters are in maintenance: …": asked again later
    await admission.release(key)                        # nothing of the cluster is active, as was seen there

A cluster in maintenance has a slot in a ledger of the management cluster, taken by compare-and-swap before the first
of its nodes is touched (`haulout.kube.ledger`), so that two hubs that both believe to lead cannot exceed a limit. Who
has a slot goes on with as many nodes as it likes: a budget that was made smaller stops new ones, and strands nobody.

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

from haulout.errors import KubeError, NotFound
from haulout.hub.cluster_limits import ClusterLimit, read_limit
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import HOOK, ClusterKey
from haulout.kube.access import Permission
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.ledger import LEDGERS, Ledger, Limit, Slot, ledger_name

log = logging.getLogger(__name__)

LEDGER = "clusters-in-maintenance"
_REMEMBERED = timedelta(minutes=1)  # labels of a Cluster, and that a cluster is not gone

Labels = Mapping[str, str]


class Admission(Protocol):
    """Says whether maintenance may begin."""

    async def admit(self, key: ClusterKey, *, has_begun: bool = False) -> str:
        """Return why the maintenance of a cluster may not begin yet, for people; empty: it may.

        One that `has_begun` counts from now on, whether there is room or not. Whoever asks is not released from before
        it asks until it has begun, and ended: it would go on without a slot.
        """
        ...

    async def release(self, key: ClusterKey) -> None:
        """Hear that nothing of a cluster is active, nor about to be; said as often as one likes."""
        ...


class Everybody:
    """Lets all clusters begin whenever they like."""

    async def admit(self, key: ClusterKey, *, has_begun: bool = False) -> str:
        """Let it begin."""
        del key, has_begun
        return ""

    async def release(self, key: ClusterKey) -> None:
        """Forget it."""


def by_budget(client: Client, typed: Sequence[str], *, namespace: str) -> Admission:
    """Return who says whether maintenance may begin, by limits as they were typed; without any, everybody may."""
    limits = tuple(map(read_limit, typed))
    return Budget(client, limits=limits, namespace=namespace) if limits else Everybody()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of a limit is used."""

    limit: ClusterLimit
    holders: tuple[str, ...] = ()  # `namespace/name`, in order
    waiting: tuple[str, ...] = ()  # the first to come first


class Budget:
    """Lets as many clusters be in maintenance at once as limits allow."""

    def __init__(self, client: Client, *, limits: Sequence[ClusterLimit], namespace: str) -> None:
        self._client = client
        self._limits = tuple(limits)
        self._ledger = Ledger(client, namespace=namespace)
        self._version = ""  # of Cluster API, once it was asked for
        self._by = f"hub/{client.random.getrandbits(64):016x}"  # this hub, in this life of its process
        self._inherited: frozenset[tuple[str, str]] | None = None  # keys of slots; None: it has not looked yet
        self._given: set[str] = set()  # clusters that may have slots, and have not been released
        self._waiting: dict[str, datetime] = {}
        self._labels: dict[str, tuple[float, Labels]] = {}
        self._seen: dict[str, float] = {}  # clusters that are not gone, until when that is believed
        self._turn = asyncio.Lock()  # who asks finds what is given back either there or gone

    async def admit(self, key: ClusterKey, *, has_begun: bool = False) -> str:
        """Return why the maintenance of a cluster may not begin yet; empty: it may."""
        try:
            async with self._turn:
                reason = await self._admit(str(key), has_begun=has_begun)
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
            async with self._turn:
                if self._inherited is None:
                    await self._look()
                if name not in self._given:
                    return
                self._given.discard(name)
                await self._ledger.give_back(LEDGER, lambda it: it.name == name and self._is_ours(it))
        except KubeError as error:
            log.warning("the slot of cluster %s is dropped when somebody needs it: %s", name, error)

    async def uses(self) -> tuple[Use, ...]:
        """Return how much of each limit is used, and by whom; raises `KubeError`."""
        await self._labels_of({*self._waiting, *(it.name for it in await self._look())})
        return self.known_uses()

    def known_uses(self) -> tuple[Use, ...]:
        """Return the same, as we last heard of it: nobody is asked. Nothing, if we have not looked yet."""
        if self._inherited is None:
            return ()
        holders = sorted({it.name for it in self._ledger.known.get(LEDGER, ()) if not self._is_over(it)})
        waiting = sorted(set(self._waiting) - set(holders), key=lambda it: (self._waiting[it], it))
        return tuple(
            Use(
                limit=limit,
                holders=tuple(it for it in holders if self._is_about(limit, it)),
                waiting=tuple(it for it in waiting if self._is_about(limit, it)),
            )
            for limit in self._limits
        )

    def _is_about(self, limit: ClusterLimit, name: str) -> bool:
        _, labels = self._labels.get(name, (0.0, None))
        return labels is None or limit.is_about(labels)  # of whom nobody knows counts everywhere

    async def _admit(self, name: str, *, has_begun: bool) -> str:
        slots = await self._look()
        own = {it.key for it in slots if it.name == name and self._is_ours(it)}
        if (name, self._by) in own:
            return ""
        labels = await self._labels_of({name, *(it.name for it in slots)})
        limits = {
            it: Limit(most=it.most, counts=_counting(it, labels)) for it in self._limits if it.is_about(labels[name])
        }
        if not limits:
            return ""
        slot = Slot(uid=name, name=name, since=self._client.clock.now(), by=self._by)
        # What its predecessor began, or somebody when there was no budget, counts and is not stopped.
        asked = () if own or has_begun else tuple(limits.values())
        self._given.add(name)  # before it is: the answer may be lost
        refusal = await self._ledger.take(LEDGER, slot, limits=asked, is_held=self._is_held)
        if refusal is None:
            return ""
        others = [it for it in refusal.slots if it.name != name]
        for said, limit in limits.items():
            if not limit.has_room(name, others):
                return said.used_up(sorted({it.name for it in others if limit.counts(it)}))
        return "others are quicker to take part in the budget across clusters"

    async def _look(self) -> tuple[Slot, ...]:
        """Return all slots; the first look tells which ones predecessors have left."""
        slots = await self._ledger.slots(LEDGER)
        if self._inherited is None:
            self._inherited = frozenset(it.key for it in slots)
            self._given |= {it.name for it in slots}
        return slots

    def _is_ours(self, slot: Slot) -> bool:
        """Tell whether we may give it back: it is ours, or was our predecessor's."""
        return slot.by == self._by or slot.key in (self._inherited or ())

    def _is_over(self, slot: Slot) -> bool:
        """Tell whether it was given back, and is still there: the server could not be reached then."""
        return self._is_ours(slot) and slot.name not in self._given

    async def _is_held(self, slot: Slot) -> bool:
        """Ask the server whether there still is a cluster to be maintained."""
        if self._is_over(slot):
            return False
        now = self._client.clock.monotonic()
        self._seen = {name: until for name, until in self._seen.items() if until > now}
        if slot.name in self._seen:
            return True
        key = _key(slot.name)
        machines = await self._client.list(clusterapi.machines(await self._served()), namespace=key.namespace)
        if not any(it.cluster == key and (it.is_enabled or HOOK in it.metadata.annotations) for it in machines.items):
            return False
        self._seen[slot.name] = now + _REMEMBERED.total_seconds()
        return True

    async def _labels_of(self, names: Collection[str]) -> dict[str, Labels]:
        """Return the labels of Clusters, as they were a moment ago; without limits that need them there are none."""
        if not any(it.needs_labels for it in self._limits):
            return {name: {} for name in names}
        now = self._client.clock.monotonic()
        of_use = {*names, *self._waiting, *self._given}
        self._labels = {name: known for name, known in self._labels.items() if name in of_use}
        for name in sorted(it for it in set(names) if it not in self._labels or self._labels[it][0] <= now):
            self._labels[name] = now + _REMEMBERED.total_seconds(), await self._read_labels(_key(name))
        return {name: self._labels[name][1] for name in names}

    async def _read_labels(self, key: ClusterKey) -> Labels:
        if not (key.namespace and key.name):
            return {}  # somebody has written over the ledger
        clusters = clusterapi.clusters(await self._served())
        try:
            return (await self._client.get(clusters, key.name, namespace=key.namespace)).metadata.labels
        except NotFound:
            return {}

    async def _served(self) -> str:
        """Return the version of Cluster API that is served; raises `KubeError`."""
        if not self._version:
            found = [it for it in clusterapi.VERSIONS if await serves(self._client, clusterapi.machines(it))]
            if not found:
                raise KubeError("Cluster API is not installed in this cluster")
            self._version = found[0]
        return self._version


def permissions(home: str) -> tuple[Permission, ...]:
    """Return what a budget takes, beside what a hub may do without one: slots in the namespace `home`, and labels."""
    why, names = "keep the budget across clusters, if there is one", (ledger_name(LEDGER),)
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), LEDGERS.group, LEDGERS.plural, home, why),
        Permission(("get", "patch"), LEDGERS.group, LEDGERS.plural, home, why, names=names),
        Permission(("get",), clusterapi.GROUP, "clusters", None, why),
    )


def _counting(limit: ClusterLimit, labels: Mapping[str, Labels]) -> Callable[[Slot], bool]:
    def counts(slot: Slot) -> bool:
        known = labels.get(slot.name)
        return known is None or limit.is_about(known)  # a slot that came a moment ago counts everywhere

    return counts


def _key(name: str) -> ClusterKey:
    namespace, _, rest = name.partition("/")
    return ClusterKey(namespace, rest)
