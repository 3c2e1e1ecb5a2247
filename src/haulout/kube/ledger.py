"""Budgets that hold whatever fails: who has a slot stands in one small object for each budget.

    ledger = Ledger(client, namespace="haulout")
    await ledger.take("workers", Slot(uid=node.uid, name=node.name, since=now), limit=2, others=…, is_held=…)
    await ledger.give_back("workers", uid)

A slot is taken by compare-and-swap before a node is touched, on what the server itself says. So not even a deposed
leader with an old copy of everything can exceed a budget: of all who write to one state of the ledger, one succeeds.

A slot names its node's uid. It is given back when the node has left its maintenance. One that its owner could not give
back, because it died in between, is dropped by the next who looks for room, after the server has said that the node is
gone or is not in maintenance: with proof, not by hope.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
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
        self,
        budget: str,
        slot: Slot,
        *,
        limit: int,
        others: Collection[str],
        is_held: Callable[[Slot], Awaitable[bool]],
    ) -> bool:
        """Take a slot, unless as many as `limit` are taken; return whether it is ours.

        `others` are uids that count though they may have no slot. `is_held` asks the server whether the owner of a
        slot still needs it; it is asked only when there would be no room otherwise.
        """
        for attempt in range(1, _TRIES + 1):
            found = await self._read(budget)
            slots = {} if found is None else _slots(found)
            if slot.uid in slots:
                return True
            if len({*slots, *others}) >= limit:
                kept = {uid: it for uid, it in slots.items() if uid in others or await is_held(it)}
                if len({*kept, *others}) >= limit:
                    return False
                slots = kept
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


def _slots(found: _ConfigMap) -> dict[str, Slot]:
    try:
        slots = msgspec.json.decode(found.data.get(_SLOTS, "[]"), type=tuple[Slot, ...])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        problem = f"{_SLOTS} of ConfigMap {found.key} is not what was written there ({error})"
        raise BadLedger(f"{problem}; delete it when no node that it was about is in maintenance") from None
    return {slot.uid: slot for slot in slots}
