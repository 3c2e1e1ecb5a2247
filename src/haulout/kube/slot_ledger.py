"""Budgets that hold whatever fails: who has a slot stands in one small object for each budget.

    ledger = Ledger(client, namespace="haulout")
    slot = Slot(uid=node.uid, name=node.name, since=now, version=node.resource_version, by="operator-1")
    refusal = await ledger.take("workers", slot, limits=[Limit(most=2)], is_held=…)     # None: it is ours
    await ledger.give_back("workers", lambda it: it == slot)

A slot is taken by compare-and-swap before a node is touched, on what the server itself says. So not even a deposed
leader with an old copy of everything can exceed a budget: of all who write to one state of the ledger, one succeeds.

One budget may have several limits, each of which counts some of the slots only: so many in all, so many in each zone.
They hold together, or the slot is not taken.

A slot names its node's uid and who took it: several may want the same node, and each has a slot of its own, so that
none gives back another's. The node counts once. A slot is given back when the node has left its maintenance. One that
its owner could not give back, because it died in between, is dropped by the next who looks for room, after the server
has said that the node is gone, or is not in maintenance and cannot come there by this slot any more: with proof, not by
hope. For that, a slot holds the version of the node to which its owner's write is bound; at a later one that write is
refused. `haulout.budget.slots` has the rules.
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
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch

log = logging.getLogger(__name__)

_SLOTS = "slots"
_BUDGET = "budget"
_MAX_ATTEMPTS = 8
_BACKOFF = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=1), jitter=0.5)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Slot(Base, frozen=True):
    """Who has a part of a budget, and since when."""

    uid: str
    name: str
    since: datetime
    version: str = ""  # of the node: its owner writes to no other
    by: str = ""  # its owner

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.uid, self.by


def _every_slot(_: Slot) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimit:
    """How many there may be of those that are counted.

    `unavailable_uids` are uids that count though they may have no slot.
    """

    max_slots: int
    unavailable_uids: frozenset[str] = frozenset()
    counts: Callable[[Slot], bool] = _every_slot

    def has_free_slot(self, uid: str, slots: Iterable[Slot]) -> bool:
        """Tell whether there is room for one more, `uid`, beside these."""
        return (
            len({*self.unavailable_uids, *(slot.uid for slot in slots if self.counts(slot))} - {uid}) < self.max_slots
        )

    def is_affected_by(self, slot: Slot) -> bool:
        """Tell whether there may be more room without a slot."""
        return slot.uid not in self.unavailable_uids and self.counts(slot)


@dataclass(frozen=True, slots=True)
class NoFreeSlot:
    """A slot was not to be had: these are in use. Without any, others were quicker again and again."""

    slots: tuple[Slot, ...] = ()


class CorruptLedger(KubeError):
    """Somebody has written over a ledger, so nobody knows any more who has a slot."""


class _ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=_ConfigMap)


def ledger_name(budget: str) -> str:
    """Return the name of the object that keeps a budget; any text can be the name of a budget."""
    readable = budget if _NAME.fullmatch(budget) else hashlib.sha256(budget.encode()).hexdigest()[:16]
    return f"haulout-budget-{readable}"


class SlotLedger:
    """The budgets of one namespace."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.last_read: dict[str, tuple[Slot, ...]] = {}  # by budget, as they were when we last read or wrote them

    async def slots(self, budget: str) -> tuple[Slot, ...]:
        """Return the slots that are taken right now."""
        return (await self._read(budget))[1]

    async def acquire(
        self, budget: str, slot: Slot, *, limits: Sequence[SlotLimit], is_held: Callable[[Slot], Awaitable[bool]]
    ) -> NoFreeSlot | None:
        """Take a slot, if all limits have room for it; return why it is not ours, None if it is.

        `is_held` asks the server whether the owner of a slot still needs it; it is asked only when there would be no
        room otherwise.
        """
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            found, known = await self._read(budget)
            others = [other for other in known if other.key != slot.key]
            if not _have_free_slot(limits, slot.uid, others):
                others = [other for other in others if not _affects_any(other, limits) or await is_held(other)]
                if not _have_free_slot(limits, slot.uid, others):
                    return NoFreeSlot(tuple(others))
            if any(other.key == slot.key and other.version == slot.version for other in known):
                return None
            try:
                await self._write(budget, found, (*others, slot))
            except (Conflict, AlreadyExists, NotFound):
                await self._client.clock.sleep(_BACKOFF.delay(attempt, self._client.random))
            else:
                return None
        return NoFreeSlot()

    async def release(self, budget: str, is_releasable: Callable[[Slot], bool]) -> None:
        """Give back the slots of which `is_releasable` tells that, if there are any."""
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            found, known = await self._read(budget)
            remaining = [slot for slot in known if not is_releasable(slot)]
            if len(remaining) == len(known):
                return
            try:
                await self._write(budget, found, remaining)
            except (Conflict, NotFound):
                await self._client.clock.sleep(_BACKOFF.delay(attempt, self._client.random))
            else:
                return
        log.warning("a slot in budget %s could not be given back now; the next one sees to it", budget)

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
            preconditions = {"uid": found.uid, "resourceVersion": found.resource_version}
            patch = merge_patch({"metadata": preconditions, "data": data})
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
        problem = f"{_SLOTS} of ConfigMap {found.key} is not what was written there ({error})"
        raise CorruptLedger(f"{problem}; delete it when no node that it was about is in maintenance") from None
