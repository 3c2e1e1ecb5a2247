"""A budget holds whatever fails: a slot is taken by compare-and-swap, and dropped with proof."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.slot_ledger import CONFIG_MAPS, CorruptLedger, Slot, SlotLedger, SlotLimit, ledger_name
from haulout_sandbox.apiserver import ApiServer


def a_ledger(api: ApiServer, clock: Clock, who: str = "operator") -> SlotLedger:
    return SlotLedger(Client(api.transport(who), clock=clock, random=Random(who)), namespace="haulout")


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


async def test_no_more_slots_are_taken_than_there_are(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    taken = [
        await acquires(ledger, a_slot(f"n{number}", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
        for number in range(4)
    ]
    assert taken == [True, True, False, False]
    await ledger.release("workers", lambda slot: slot.name == "n0")
    assert await acquires(ledger, a_slot("n3", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
    assert await uids(ledger) == ["u-n1", "u-n3"]


async def test_who_has_a_slot_has_it(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for _ in range(3):
        assert await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_those_without_a_slot_count_once(clock: Clock) -> None:
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


async def test_a_slot_of_the_dead_is_dropped_only_with_proof(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_never_held)
    assert await uids(ledger) == ["u-n2"]


async def test_of_many_who_want_the_last_slot_at_once_one_gets_it(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledgers = [a_ledger(api, clock, f"operator-{number}") for number in range(6)]
    wanted = [
        acquires(ledger, a_slot(f"n{number}", clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
        for number, ledger in enumerate(ledgers)
    ]
    assert sum(await asyncio.gather(*wanted)) == 2
    assert len(await ledgers[0].slots("workers")) == 2


async def test_an_answer_that_was_lost_does_not_take_two(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    line = api.transport("operator")
    ledger = SlotLedger(Client(line, clock=clock, random=Random(1)), namespace="haulout")
    line.faults.fail_after_effect(method="POST", path="configmaps", times=1)
    with pytest.raises(Exception, match="configmaps"):
        await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert len(await ledger.slots("workers")) == 1


async def test_a_ledger_that_was_written_over_is_told_and_not_guessed_at(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledger = a_ledger(api, clock)
    await acquires(ledger, a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    admin = Client(api.transport("admin"), clock=clock, random=Random(2))
    change = merge_patch({"data": {"slots": "oops"}})
    await admin.patch(CONFIG_MAPS, ledger_name("workers"), change, namespace="haulout")
    with pytest.raises(CorruptLedger, match="ConfigMap haulout/haulout-budget-workers"):
        await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=9)], is_held=is_always_held)


async def test_all_limits_of_a_budget_hold_together(clock: Clock) -> None:
    """At most three in all, and one in each zone; a zone is the first letter of a name here."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)

    async def is_taken(name: str) -> bool:
        zone = SlotLimit(max_slots=1, counts=lambda slot: slot.name[0] == name[0])
        return await acquires(
            ledger, a_slot(name, clock), limits=[SlotLimit(max_slots=3), zone], is_held=is_always_held
        )

    assert [await is_taken(name) for name in ("a1", "a2", "b1", "c1", "d1")] == [True, False, True, True, False]


async def test_a_slot_is_no_leave_for_ever(clock: Clock) -> None:
    """Who has one and asks again is judged again: the limits may be others by now."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for name in ("n1", "n2"):
        assert await acquires(ledger, a_slot(name, clock), limits=[SlotLimit(max_slots=2)], is_held=is_always_held)
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_a_slot_is_bound_to_the_version_that_it_was_last_taken_for(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for version in ("5", "5", "9"):
        slot = Slot(uid="u-n1", name="n1", since=clock.now(), version=version)
        assert await acquires(ledger, slot, limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    assert [found.version for found in await ledger.slots("workers")] == ["9"]


async def test_two_who_want_one_node_have_a_slot_each_and_it_counts_once(clock: Clock) -> None:
    """What one of them gives back is not the other's."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for by in ("one", "other"):
        slot = Slot(uid="u-n1", name="n1", since=clock.now(), version="5", by=by)
        assert await acquires(ledger, slot, limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    await ledger.release("workers", lambda taken: taken.by == "one")
    assert [taken.by for taken in await ledger.slots("workers")] == ["other"]
    assert not await acquires(ledger, a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)


async def test_who_is_refused_hears_by_whom(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    await ledger.acquire("workers", a_slot("n1", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held)
    refusal = await ledger.acquire(
        "workers", a_slot("n2", clock), limits=[SlotLimit(max_slots=1)], is_held=is_always_held
    )
    assert refusal is not None
    assert [slot.name for slot in refusal.slots] == ["n1"]


def test_any_text_can_be_the_name_of_a_budget() -> None:
    assert ledger_name("workers") == "haulout-budget-workers"
    odd = ledger_name("Zone=A/ü" * 50)
    assert odd.startswith("haulout-budget-")
    assert len(odd) < 60
    assert odd != ledger_name("Zone=B/ü" * 50)
