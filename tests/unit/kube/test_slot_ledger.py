"""The slot ledger of a budget: a slot is acquired by compare-and-swap, and dropped only if is_held returns false."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.slot_ledger import CONFIG_MAPS, CorruptLedger, Slot, SlotLedger, SlotLimit, ledger_name
from haulout_sandbox.apiserver import ApiServer


def a_ledger(api: ApiServer, clock: Clock, name: str = "operator") -> SlotLedger:
    return SlotLedger(Client(api.transport(name), clock=clock, random=Random(name)), namespace="haulout")


def a_slot(name: str, clock: Clock) -> Slot:
    return Slot(uid=f"u-{name}", name=name, since=clock.now())


async def is_always_held(_: Slot) -> bool:
    return True


async def is_never_held(_: Slot) -> bool:
    return False


async def acquires(
    ledger: SlotLedger, slot: Slot, *, limits: list[SlotLimit], is_held: Callable[[Slot], Awaitable[bool]]
) -> bool:
    return await ledger.acquire("workers", slot, limits=limits, is_held=is_held) is None


async def uids(ledger: SlotLedger) -> list[str]:
    return sorted(slot.uid for slot in await ledger.slots("workers"))


async def test_ledger_grants_at_most_max_slots(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    taken = [
        await acquires(ledger, a_slot(f"n{number}", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
        for number in range(4)
    ]
    assert taken == [True, True, False, False]
    await ledger.release("workers", lambda slot: slot.name == "n0")
    assert await acquires(ledger, a_slot("n3", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
    assert await uids(ledger) == ["u-n1", "u-n3"]


async def test_acquire_is_idempotent_for_the_holder_of_a_slot(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for _ in range(3):
        assert await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_unavailable_nodes_count_once_against_the_limit(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    assert await acquires(
        ledger,
        a_slot("n1", clock),
        limits=[SlotLimit(max_slots=2, unavailable_uids=frozenset({"u-n9"}))],
        is_held=is_always_held,
    )
    assert not await acquires(
        ledger,
        a_slot("n2", clock),
        limits=[SlotLimit(max_slots=2, unavailable_uids=frozenset({"u-n9", "u-n1"}))],
        is_held=is_always_held,
    )


async def test_slot_is_dropped_only_if_is_held_returns_false(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_never_held)
    assert await uids(ledger) == ["u-n2"]


async def test_concurrent_acquires_grant_at_most_max_slots(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledgers = [a_ledger(api, clock, f"operator-{number}") for number in range(6)]
    acquisitions = [
        acquires(ledger, a_slot(f"n{number}", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
        for number, ledger in enumerate(ledgers)
    ]
    assert sum(await asyncio.gather(*acquisitions)) == 2
    assert len(await ledgers[0].slots("workers")) == 2


async def test_acquire_after_a_lost_response_takes_no_second_slot(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    transport = api.transport("operator")
    ledger = SlotLedger(Client(transport, clock=clock, random=Random(1)), namespace="haulout")
    transport.faults.fail_after_effect(method="POST", path="configmaps", times=1)
    with pytest.raises(Exception, match="configmaps"):
        await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert len(await ledger.slots("workers")) == 1


async def test_overwritten_ledger_raises_corrupt_ledger(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledger = a_ledger(api, clock)
    await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    admin = Client(api.transport("admin"), clock=clock, random=Random(2))
    change = merge_patch({"data": {"slots": "oops"}})
    await admin.patch(CONFIG_MAPS, ledger_name("workers"), change, namespace="haulout")
    with pytest.raises(CorruptLedger, match="ConfigMap haulout/haulout-budget-workers"):
        await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=9)], is_held=is_always_held)


async def test_all_limits_of_a_budget_apply_together(clock: Clock) -> None:
    """At most three in all, and one in each zone; a zone is the first letter of a name here."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)

    async def is_taken(name: str) -> bool:
        zone = SlotLimit(max_slots=1, counts=lambda slot: slot.name[0] == name[0])
        return await acquires(
            ledger, a_slot(name, clock), limits=[SlotLimit(max_slots=3), zone], is_held=is_always_held
        )

    assert [await is_taken(name) for name in ("a1", "a2", "b1", "c1", "d1")] == [True, False, True, True, False]


async def test_holder_of_a_slot_is_checked_against_the_current_limits_again(clock: Clock) -> None:
    """A holder that acquires again is checked again, because the limits may have changed."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for name in ("n1", "n2"):
        assert await acquires(ledger, a_slot(name, clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_slot_has_the_version_of_its_last_acquire(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for version in ("5", "5", "9"):
        slot = Slot(uid="u-n1", name="n1", since=clock.now(), version=version)
        assert await acquires(ledger, slot, limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert [found.version for found in await ledger.slots("workers")] == ["9"]


async def test_two_slots_for_one_node_count_once_and_are_released_separately(clock: Clock) -> None:
    """A release by one holder does not release the slot of the other."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for by in ("one", "other"):
        slot = Slot(uid="u-n1", name="n1", since=clock.now(), version="5", by=by)
        assert await acquires(ledger, slot, limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    await ledger.release("workers", lambda taken: taken.by == "one")
    assert [taken.by for taken in await ledger.slots("workers")] == ["other"]
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_refusal_lists_the_slots_that_hold_the_budget(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    await ledger.acquire("workers", a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    refusal = await ledger.acquire(
        "workers", a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held
    )
    assert refusal is not None
    assert [slot.name for slot in refusal.slots] == ["n1"]


def test_ledger_name_is_valid_for_any_budget_name() -> None:
    assert ledger_name("workers") == "haulout-budget-workers"
    odd = ledger_name("Zone=A/ü" * 50)
    assert odd.startswith("haulout-budget-")
    assert len(odd) < 60
    assert odd != ledger_name("Zone=B/ü" * 50)
