"""The budget across clusters: limits how many workload clusters are in maintenance at once.

    budget = LimitedClusterBudget(client, limits=(parse_limit("2"),), namespace="haulout")
    if reason := await budget.acquire(key): ...        # "2 of 2 clusters are in maintenance: …": retried later
    await budget.release(key)                          # none of the cluster's nodes has a request

A limit is about all clusters, or about those whose Cluster object has certain labels. All limits apply together:

    limit = parse_limit("2")                      # of all clusters
    limit = parse_limit("env=prod:1")             # of those with that label; any selector as for `kubectl -l`
    limit.selects({"env": "prod"})

A cluster in maintenance holds a slot in a ledger of the management cluster. It is acquired by compare-and-swap before
the first node of the cluster is touched (`haulout.kube.slot_ledger`), so that two controllers that both believe they
lead cannot exceed a limit. A cluster with a slot continues with any number of nodes. Lowering the budget stops new
clusters only.

The controller releases a slot after it has checked that no node of the cluster has a request. It releases its own slots
and inherited ones, which are those that existed at its first read. A slot that appears later belongs to another
controller and stays. An unreachable cluster keeps its slot.

Nothing checks the nodes of deleted clusters any more. When a limit is exhausted, the Machines of the clusters that hold
slots are listed: if no Machine is enabled or has the pre-drain hook, the slot no longer counts.

While the management cluster cannot be reached, nothing new begins, and the reason says so.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from haulout.api import clusterapi
from haulout.api.clusterapi import PRE_DRAIN_HOOK, ClusterKey
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.rbac import Permission
from haulout.kube.selectors import EVERYTHING, Selector, SelectorError, parse
from haulout.kube.slot_ledger import CONFIG_MAPS, Slot, SlotLedger, SlotLimit, ledger_name

log = logging.getLogger(__name__)

LEDGER_NAME = "clusters-in-maintenance"
_CACHE_TTL = timedelta(minutes=1)  # for the labels of a Cluster, and for the check whether a slot is in use

Labels = Mapping[str, str]

_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_MAX_NAMES = 5  # names in an error message


class ClusterBudget(Protocol):
    """Decides whether maintenance of a cluster may begin."""

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        """Acquire a slot; return why maintenance of the cluster may not begin yet, or "" if it may.

        With `is_running` the cluster is counted even if that exceeds a limit. From before this call until its
        maintenance has begun and ended, the caller must prevent `release` for the cluster: it would continue without a
        slot.
        """
        ...

    async def release(self, key: ClusterKey) -> None:
        """Release the slots of a cluster with no requests, present or imminent. Calling it repeatedly is harmless."""
        ...


class UnlimitedClusterBudget:
    """A budget without limits, which needs no ledger and sends no requests."""

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        del key, is_running
        return ""

    async def release(self, key: ClusterKey) -> None: ...


def new_cluster_budget(client: Client, limit_texts: Sequence[str], *, namespace: str) -> ClusterBudget:
    """Return the budget for limits as given on the command line; without limits every cluster may begin."""
    limits = tuple(map(parse_limit, limit_texts))
    return LimitedClusterBudget(client, limits=limits, namespace=namespace) if limits else UnlimitedClusterBudget()


@dataclass(frozen=True, slots=True)
class ClusterLimit:
    """At most `max_clusters` of the selected clusters."""

    max_clusters: int
    selector: Selector = EVERYTHING

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a cluster whose Cluster object has these labels counts."""
        return self.selector.matches(labels)

    @property
    def needs_labels(self) -> bool:
        """Whether the limit depends on labels of the Cluster object."""
        return self.selector != EVERYTHING

    @property
    def name(self) -> str:
        """The selected clusters, for users: the selector, or `all clusters`."""
        return str(self.selector) if self.needs_labels else "all clusters"

    def __str__(self) -> str:
        """Format the limit: `at most 1 cluster with env=prod`."""
        return (
            f"at most {self.max_clusters} {'cluster' if self.max_clusters == 1 else 'clusters'}{self._selector_suffix}"
        )

    def exhausted_message(self, holders: Sequence[str]) -> str:
        """Return why the limit is exhausted: `2 of 2 clusters are in maintenance: team-a/prod, team-b/prod`."""
        verb = "is" if len(holders) == 1 else "are"
        noun = "cluster" if self.max_clusters == 1 else "clusters"
        return (
            f"{len(holders)} of {self.max_clusters} {noun}{self._selector_suffix} "
            f"{verb} in maintenance: {_join_names(holders)}"
        )

    @property
    def _selector_suffix(self) -> str:
        return f" with {self.selector}" if self.needs_labels else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUsage:
    """The current usage of a limit, for the dashboard and metrics."""

    limit: ClusterLimit
    holders: tuple[str, ...] = ()  # `namespace/name`, sorted
    waiting: tuple[str, ...] = ()  # the longest waiting first


class LimitedClusterBudget:
    """Allows as many clusters in maintenance at once as the limits permit."""

    def __init__(self, client: Client, *, limits: Sequence[ClusterLimit], namespace: str) -> None:
        self._client = client
        self._limits = tuple(limits)
        self._ledger = SlotLedger(client, namespace=namespace)
        self._version = ""  # of the Cluster API, once discovered
        self._holder = f"hub/{client.random.getrandbits(64):016x}"  # a restarted process is a different holder
        self._inherited_slots: frozenset[tuple[str, str]] | None = None  # slots at the first read; None: not read yet
        self._possible_holders: set[str] = set()  # clusters that may hold slots and were not released
        self._waiting: dict[str, datetime] = {}
        self._labels: dict[str, tuple[float, Labels]] = {}
        self._in_use_until: dict[str, float] = {}  # by cluster: monotonic time until which the slot counts as in use
        self._lock = asyncio.Lock()  # an acquire must not interleave with a release of the same slot

    async def acquire(self, key: ClusterKey, *, is_running: bool = False) -> str:
        try:
            async with self._lock:
                reason = await self._acquire(str(key), is_running=is_running)
        except KubeError as error:
            reason = f"the budget across clusters cannot be read: {error}"
        if reason:
            self._waiting.setdefault(str(key), self._client.clock.now())
        else:
            self._waiting.pop(str(key), None)
        return reason

    async def release(self, key: ClusterKey) -> None:
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
            log.warning(
                "the slot of cluster %s cannot be released now; it is released when another cluster needs it: %s",
                name,
                error,
            )

    async def usage(self) -> tuple[LimitUsage, ...]:
        """Read the ledger and return the usage of each limit; raise `KubeError`."""
        await self._labels_of({*self._waiting, *(slot.name for slot in await self._read_slots())})
        return self.cached_usage()

    def cached_usage(self) -> tuple[LimitUsage, ...]:
        """Return the usage as of the last read, without a request; empty if the ledger was not read yet."""
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
        return labels is None or limit.selects(labels)  # a cluster with unknown labels counts against every limit

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
        # Maintenance that a previous process began, or that began without a budget, counts and is not stopped.
        enforced = () if own_slots or is_running else tuple(limits.values())
        self._possible_holders.add(name)  # before the request: its response may be lost
        refusal = await self._ledger.acquire(LEDGER_NAME, slot, limits=enforced, is_held=self._is_in_use)
        if refusal is None:
            return ""
        others = [item for item in refusal.slots if item.name != name]
        for cluster_limit, ledger_limit in limits.items():
            if not ledger_limit.has_free_slot(name, others):
                return cluster_limit.exhausted_message(
                    sorted({item.name for item in others if ledger_limit.counts(item)})
                )
        return "other clusters took the free slots of the budget across clusters first"

    async def _read_slots(self) -> tuple[Slot, ...]:
        """Return all slots. The first read determines which ones are inherited."""
        slots = await self._ledger.slots(LEDGER_NAME)
        if self._inherited_slots is None:
            self._inherited_slots = frozenset(slot.key for slot in slots)
            self._possible_holders |= {slot.name for slot in slots}
        return slots

    def _is_own(self, slot: Slot) -> bool:
        """Return whether this process may release the slot: it is its own or inherited."""
        return slot.by == self._holder or slot.key in (self._inherited_slots or ())

    def _is_released(self, slot: Slot) -> bool:
        """Return whether the slot was released, but the write failed, so that it is still in the ledger."""
        return self._is_own(slot) and slot.name not in self._possible_holders

    async def _is_in_use(self, slot: Slot) -> bool:
        """Return whether the cluster still has Machines to maintain, from the API server or a recent answer."""
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
        """Return the labels of Clusters, cached for `_CACHE_TTL`; empty if no limit has a selector."""
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
            return {}  # the ledger was edited by hand
        clusters = clusterapi.cluster_resource(await self._served_version())
        try:
            return (await self._client.get(clusters, key.name, namespace=key.namespace)).metadata.labels
        except NotFound:
            return {}

    async def _served_version(self) -> str:
        """Return the served version of Cluster API; raise `KubeError`."""
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
    """Return the permissions of a budget, in addition to those of the controller.

    Slots are in the namespace `namespace`.
    """
    purpose, names = "read and write the slots of the budget across clusters", (ledger_name(LEDGER_NAME),)
    return (
        # RBAC cannot restrict `create` by resourceName.
        Permission(("create",), CONFIG_MAPS.group, CONFIG_MAPS.plural, namespace, purpose),
        Permission(("get", "patch"), CONFIG_MAPS.group, CONFIG_MAPS.plural, namespace, purpose, names=names),
        Permission(("get",), clusterapi.GROUP, "clusters", None, purpose),
    )


def _slot_counter(limit: ClusterLimit, labels: Mapping[str, Labels]) -> Callable[[Slot], bool]:
    def counts(slot: Slot) -> bool:
        cluster_labels = labels.get(slot.name)
        return cluster_labels is None or limit.selects(
            cluster_labels
        )  # labels unknown: the slot was added after they were read

    return counts


def _parse_key(name: str) -> ClusterKey:
    namespace, _, cluster = name.partition("/")
    return ClusterKey(namespace, cluster)


def parse_limit(text: str) -> ClusterLimit:
    """Parse a limit; raise ValueError with what was expected."""
    selector_text, _, number = text.strip().rpartition(":")
    if not _NUMBER.fullmatch(number.strip()):
        raise ValueError(f"expected a number of clusters such as 2, or env=prod:1, found {text!r}")
    if ":" in text and not selector_text.strip():
        raise ValueError(f"expected labels before the colon, as in env=prod:1, found {text!r}")
    try:
        return ClusterLimit(int(number), parse(selector_text))
    except SelectorError as error:
        raise ValueError(
            f"expected labels before the colon, as in env=prod:1, found {selector_text!r}: {error}"
        ) from None


def _join_names(names: Sequence[str]) -> str:
    remaining = len(names) - _MAX_NAMES
    return ", ".join((*names[:_MAX_NAMES], *((f"and {remaining} more",) if remaining > 0 else ())))
