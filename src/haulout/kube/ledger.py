"""Budgets that hold whatever fails: who has a slot stands in one small object for each budget.

    ledger = Ledger(client, namespace="haulout")
    await ledger.take("workers", Slot(uid=node.uid, name=node.name, since=now), limits=[Limit(most=2)], is_held=…)
    await ledger.give_back("workers", uid)

A slot is taken by compare-and-swap before a node is touched, on what the server itself says. So not even a deposed
leader with an old copy of everything can exceed a budget: of all who write to one state of the ledger, one succeeds.

One budget may have several limits, each of which counts some of the slots only: so many in all, so many in each zone.
They hold together, or the slot is not taken.

A slot names its node's uid. It is given back when the node has left its maintenance. One that its owner could not give
back, because it died in between, is dropped by the next who looks for room, after the server has said that the node is
gone, or is not in maintenance and cannot come there by this slot any more: with proof, not by hope. For that, a slot
holds the version of the node to which its owner's write is bound; at a later one that write is refused.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Base, Object, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import Resource

log = logging.getLogger(__name__)

_SLOTS = "slots"
_BUDGET = "budget"
_TRIES = 8
_PAUSE = Backoff(first=timedelta(milliseconds=20), limit=timedelta(seconds=1), jitter=0.5)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Slot(Base, frozen=True):
    """Who has a part of a budget, and since when."""

    uid: str
    name: str
    since: datetime
    version: str = ""  # of the node: its owner writes to no other


def _everybody(_: Slot) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many there may be of those that are counted; `others` are uids that count though they may have no slot."""

    most: int
    others: frozenset[str] = frozenset()
    counts: Callable[[Slot], bool] = _everybody

    def has_room(self, slots: Mapping[str, Slot]) -> bool:
        """Tell whether there is room for one more beside these."""
        return len({*self.others, *(uid for uid, slot in slots.items() if self.counts(slot))}) < self.most


class BadLedger(KubeError):
    """Somebody has written over a ledger, so nobody knows any more who has a slot."""


class _ConfigMap(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


LEDGERS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=_ConfigMap)


def ledger_name(budget: str) -> str:
    """Return the name of the object that keeps a budget; any text can be the name of a budget."""
    readable = budget if _NAME.fullmatch(budget) else hashlib.sha256(budget.encode()).hexdigest()[:16]
    return f"haulout-budget-{readable}"


class Ledger:
    """The budgets of one namespace."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def slots(self, budget: str) -> Mapping[str, Slot]:
        """Return who has a slot right now, by uid."""
        found = await self._read(budget)
        return {} if found is None else _slots(found)

    async def take(
        self, budget: str, slot: Slot, *, limits: Sequence[Limit], is_held: Callable[[Slot], Awaitable[bool]]
    ) -> bool:
        """Take a slot, if all limits have room for it; return whether it is ours.

        `is_held` asks the server whether the owner of a slot still needs it; it is asked only when there would be no
        room otherwise.
        """
        for attempt in range(1, _TRIES + 1):
            found = await self._read(budget)
            slots = {} if found is None else _slots(found)
            own = slots.pop(slot.uid, None)
            if not _have_room(limits, slots):
                slots = {uid: it for uid, it in slots.items() if await is_held(it)}
                if not _have_room(limits, slots):
                    return False
            if own is not None and own.version == slot.version:
                return True
            try:
                await self._write(budget, found, {**slots, slot.uid: slot})
            except (Conflict, AlreadyExists, NotFound):
                await self._client.clock.sleep(_PAUSE.delay(attempt, self._client.random))
            else:
                return True
        return False

    async def give_back(self, budget: str, uid: str) -> None:
        """Give a slot back, if there is one."""
        for attempt in range(1, _TRIES + 1):
            found = await self._read(budget)
            slots = {} if found is None else _slots(found)
            if uid not in slots:
                return
            try:
                await self._write(budget, found, {key: it for key, it in slots.items() if key != uid})
            except (Conflict, NotFound):
                await self._client.clock.sleep(_PAUSE.delay(attempt, self._client.random))
            else:
                return
        log.warning("the slot of %s in budget %s could not be given back now; the next one sees to it", uid, budget)

    async def _read(self, budget: str) -> _ConfigMap | None:
        try:
            return await self._client.get(LEDGERS, ledger_name(budget), namespace=self._namespace)
        except NotFound:
            return None

    async def _write(self, budget: str, found: _ConfigMap | None, slots: Mapping[str, Slot]) -> None:
        name = ledger_name(budget)
        data = {_BUDGET: budget, _SLOTS: msgspec.json.encode(list(slots.values())).decode()}
        if found is None:
            body: RawObject = {"metadata": {"name": name, "namespace": self._namespace}, "data": data}
            body |= {"apiVersion": LEDGERS.api_version, "kind": LEDGERS.kind}
            await self._client.create(LEDGERS, body, namespace=self._namespace)
            return
        basis = {"uid": found.uid, "resourceVersion": found.resource_version}
        patch = merge_patch({"metadata": basis, "data": data})
        await self._client.patch(LEDGERS, name, patch, namespace=self._namespace)


def _have_room(limits: Sequence[Limit], slots: Mapping[str, Slot]) -> bool:
    return all(limit.has_room(slots) for limit in limits)


def _slots(found: _ConfigMap) -> dict[str, Slot]:
    try:
        slots = msgspec.json.decode(found.data.get(_SLOTS, "[]"), type=tuple[Slot, ...])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        problem = f"{_SLOTS} of ConfigMap {found.key} is not what was written there ({error})"
        raise BadLedger(f"{problem}; delete it when no node that it was about is in maintenance") from None
    return {slot.uid: slot for slot in slots}
