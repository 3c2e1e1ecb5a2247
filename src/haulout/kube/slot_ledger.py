"""The slot ledger: one ConfigMap per budget that records which nodes hold its slots.

    ledger = SlotLedger(client, namespace="haulout")
    slot = Slot(uid=node.uid, name=node.name, since=now, version=node.resource_version, by="operator-1")
    refusal = await ledger.acquire("workers", slot, limits=[SlotLimit(max_slots=2)], is_held=…)     # None: acquired
    await ledger.release("workers", lambda it: it == slot)

A slot is acquired by compare-and-swap before a node is touched, against the server's current state. So not even a
deposed leader with stale caches can exceed a budget: of all writes to one version of the ledger, one succeeds.

A budget may have several limits, each of which counts only some of the slots: a total, and one per zone. A slot is
acquired only if all limits allow it.

A slot contains its node's UID and its owner. Several owners may want the same node, and each has its own slot, so that
none releases another's. The node counts once. A slot is released when the node has left its maintenance. If its owner
dies before that, the next `acquire` that finds no free slot drops it, but only with proof from the server: the node
does not exist, or is not in maintenance and cannot enter it with this slot any more. For that, a slot holds the node's
resourceVersion to which its owner's write is bound; at a later version that write is rejected. `haulout.budget.slots`
has the rules.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.objects import Base, Object, RawObject
from haulout.api.resources import Resource
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch

log = logging.getLogger(__name__)

_SLOTS = "slots"
_BUDGET = "budget"
_MAX_ATTEMPTS = 8
_BACKOFF = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=1), jitter=0.5)
# Up to 40 characters of a budget's name are shown in the ConfigMap's name, where they are valid there.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Slot(Base, frozen=True):
    """One slot of a budget: the node that holds it, its owner, and since when."""

    uid: str
    name: str
    since: datetime
    version: str = ""  # resourceVersion of the node: the owner's write is bound to it
    by: str = ""  # the owner

    @property
    def key(self) -> tuple[str, str]:
        """The identity of a slot within a ledger: a node may have one slot for each owner."""
        return self.uid, self.by


def _every_slot(_: Slot) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimit:
    """The maximum number of slots among those that `counts` selects.

    `unavailable_uids` are the UIDs of nodes that count even without a slot.
    """

    max_slots: int
    unavailable_uids: frozenset[str] = frozenset()
    counts: Callable[[Slot], bool] = _every_slot

    def has_free_slot(self, uid: str, slots: Iterable[Slot]) -> bool:
        """Return whether the node `uid` may get a slot besides these `slots`."""
        return (
            len({*self.unavailable_uids, *(slot.uid for slot in slots if self.counts(slot))} - {uid}) < self.max_slots
        )

    def is_affected_by(self, slot: Slot) -> bool:
        """Return whether the release of `slot` may free capacity."""
        return slot.uid not in self.unavailable_uids and self.counts(slot)


@dataclass(frozen=True, slots=True)
class NoFreeSlot:
    """No slot was free: `slots` are in use. If empty, every attempt lost a write conflict."""

    slots: tuple[Slot, ...] = ()


class CorruptLedger(KubeError):
    """A ledger's ConfigMap was overwritten, so the holders of its slots are unknown."""


class _ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=_ConfigMap)


def ledger_name(budget: str) -> str:
    """Return the ConfigMap name for a budget. The name of a budget may be any text."""
    readable = budget if _NAME.fullmatch(budget) else hashlib.sha256(budget.encode()).hexdigest()[:16]
    return f"haulout-budget-{readable}"


class SlotLedger:
    """The ledgers of all budgets in one namespace. Safe to use from several processes at once."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.last_read: dict[str, tuple[Slot, ...]] = {}  # by budget, as last read or written by this process

    async def slots(self, budget: str) -> tuple[Slot, ...]:
        return (await self._read(budget))[1]

    async def acquire(
        self, budget: str, slot: Slot, *, limits: Sequence[SlotLimit], is_held: Callable[[Slot], Awaitable[bool]]
    ) -> NoFreeSlot | None:
        """Acquire a slot if all limits allow it. Return None, or why it was not acquired.

        `is_held` asks the server whether the owner of a slot still needs it. It is called only if no slot is free
        otherwise.
        """
        retry = Retry(self._client.clock, self._client.random, _BACKOFF)
        while retry.failures < _MAX_ATTEMPTS:
            found, known = await self._read(budget)
            others = [other for other in known if other.key != slot.key]
            # The server is asked about the holders only when the budget is exhausted: each costs a read.
            if not _have_free_slot(limits, slot.uid, others):
                others = [other for other in others if not _affects_any(other, limits) or await is_held(other)]
                if not _have_free_slot(limits, slot.uid, others):
                    return NoFreeSlot(tuple(others))
            # We already have this very slot, for example after a restart: no write is needed. A slot with an older
            # version is written anew, or it could be dropped as abandoned.
            if any(other.key == slot.key and other.version == slot.version for other in known):
                return None
            try:
                await self._write(budget, found, (*others, slot))
            except (Conflict, AlreadyExists, NotFound) as error:
                await retry.wait(error)
            else:
                return None
        return NoFreeSlot()

    async def release(self, budget: str, is_releasable: Callable[[Slot], bool]) -> None:
        """Release all slots that `is_releasable` selects. Give up with a warning after several write conflicts."""
        retry = Retry(self._client.clock, self._client.random, _BACKOFF)
        while retry.failures < _MAX_ATTEMPTS:
            found, known = await self._read(budget)
            remaining = [slot for slot in known if not is_releasable(slot)]
            if len(remaining) == len(known):
                return
            try:
                await self._write(budget, found, remaining)
            except (Conflict, NotFound) as error:
                await retry.wait(error)
            else:
                return
        log.warning("budget %s: a slot could not be released now; the next write to the budget releases it", budget)

    async def _read(self, budget: str) -> tuple[_ConfigMap | None, tuple[Slot, ...]]:
        found: _ConfigMap | None = None
        with suppress(NotFound):
            found = await self._client.get(CONFIG_MAPS, ledger_name(budget), namespace=self._namespace)
        self.last_read[budget] = () if found is None else _slots(found)
        return found, self.last_read[budget]

    async def _write(self, budget: str, found: _ConfigMap | None, slots: Sequence[Slot]) -> None:
        name = ledger_name(budget)
        data = {_BUDGET: budget, _SLOTS: msgspec.json.encode(slots).decode()}
        if found is None:
            body: RawObject = {"metadata": {"name": name, "namespace": self._namespace}, "data": data}
            body |= {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind}
            await self._client.create(CONFIG_MAPS, body, namespace=self._namespace)
        else:
            # The UID, too: a ledger that was deleted and created again starts empty, and must be read again.
            patch = merge_patch({"metadata": found.preconditions, "data": data})
            await self._client.patch(CONFIG_MAPS, name, patch, namespace=self._namespace)
        self.last_read[budget] = tuple(slots)


def _have_free_slot(limits: Sequence[SlotLimit], uid: str, slots: Sequence[Slot]) -> bool:
    return all(limit.has_free_slot(uid, slots) for limit in limits)


def _affects_any(slot: Slot, limits: Sequence[SlotLimit]) -> bool:
    return any(limit.is_affected_by(slot) for limit in limits)


def _slots(found: _ConfigMap) -> tuple[Slot, ...]:
    try:
        return msgspec.json.decode(found.data.get(_SLOTS, "[]"), type=tuple[Slot, ...])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        # Not treated as empty: that would free every slot of nodes that are in maintenance.
        problem = f"{_SLOTS} of ConfigMap {found.key} cannot be decoded ({error})"
        raise CorruptLedger(f"{problem}; delete the ConfigMap when none of its nodes is in maintenance") from None
