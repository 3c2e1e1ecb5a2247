"""A budget holds whatever fails: a slot is taken by compare-and-swap, and dropped with proof."""

import asyncio
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.ledger import LEDGERS, BadLedger, Ledger, Limit, Slot, ledger_name
from haulout.kube.patches import merge_patch
from haulout.sandbox.apiserver import ApiServer


def a_ledger(api: ApiServer, clock: Clock, who: str = "operator") -> Ledger:
    return Ledger(Client(api.transport(who), clock=clock, random=Random(who)), namespace="haulout")


def a_slot(name: str, clock: Clock) -> Slot:
    return Slot(uid=f"u-{name}", name=name, since=clock.now())


async def held(_: Slot) -> bool:
    return True


async def gone(_: Slot) -> bool:
    return False


async def test_no_more_slots_are_taken_than_there_are(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    taken = [
        await ledger.take("workers", a_slot(f"n{number}", clock), limits=[Limit(most=2)], is_held=held)
        for number in range(4)
    ]
    assert taken == [True, True, False, False]
    await ledger.give_back("workers", "u-n0")
    assert await ledger.take("workers", a_slot("n3", clock), limits=[Limit(most=2)], is_held=held)
    assert sorted(await ledger.slots("workers")) == ["u-n1", "u-n3"]


async def test_who_has_a_slot_has_it(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for _ in range(3):
        assert await ledger.take("workers", a_slot("n1", clock), limits=[Limit(most=1)], is_held=held)


async def test_those_without_a_slot_count_once(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    assert await ledger.take(
        "workers", a_slot("n1", clock), limits=[Limit(most=2, others=frozenset({"u-n9"}))], is_held=held
    )
    assert not await ledger.take(
        "workers", a_slot("n2", clock), limits=[Limit(most=2, others=frozenset({"u-n9", "u-n1"}))], is_held=held
    )


async def test_a_slot_of_the_dead_is_dropped_only_with_proof(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    await ledger.take("workers", a_slot("n1", clock), limits=[Limit(most=1)], is_held=held)
    assert not await ledger.take("workers", a_slot("n2", clock), limits=[Limit(most=1)], is_held=held)
    assert await ledger.take("workers", a_slot("n2", clock), limits=[Limit(most=1)], is_held=gone)
    assert list(await ledger.slots("workers")) == ["u-n2"]


async def test_of_many_who_want_the_last_slot_at_once_one_gets_it(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledgers = [a_ledger(api, clock, f"operator-{number}") for number in range(6)]
    wanted = [
        it.take("workers", a_slot(f"n{number}", clock), limits=[Limit(most=2)], is_held=held)
        for number, it in enumerate(ledgers)
    ]
    assert sum(await asyncio.gather(*wanted)) == 2
    assert len(await ledgers[0].slots("workers")) == 2


async def test_an_answer_that_was_lost_does_not_take_two(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    line = api.transport("operator")
    ledger = Ledger(Client(line, clock=clock, random=Random(1)), namespace="haulout")
    line.faults.after(method="POST", path="configmaps", times=1)
    with pytest.raises(Exception, match="configmaps"):
        await ledger.take("workers", a_slot("n1", clock), limits=[Limit(most=1)], is_held=held)
    assert await ledger.take("workers", a_slot("n1", clock), limits=[Limit(most=1)], is_held=held)
    assert len(await ledger.slots("workers")) == 1


async def test_a_ledger_that_was_written_over_is_told_and_not_guessed_at(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["haulout"])
    ledger = a_ledger(api, clock)
    await ledger.take("workers", a_slot("n1", clock), limits=[Limit(most=1)], is_held=held)
    admin = Client(api.transport("admin"), clock=clock, random=Random(2))
    change = merge_patch({"data": {"slots": "oops"}})
    await admin.patch(LEDGERS, ledger_name("workers"), change, namespace="haulout")
    with pytest.raises(BadLedger, match="ConfigMap haulout/haulout-budget-workers"):
        await ledger.take("workers", a_slot("n2", clock), limits=[Limit(most=9)], is_held=held)


async def test_all_limits_of_a_budget_hold_together(clock: Clock) -> None:
    """At most three in all, and one in each zone; a zone is the first letter of a name here."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)

    async def takes(name: str) -> bool:
        zone = Limit(most=1, counts=lambda slot: slot.name[0] == name[0])
        return await ledger.take("workers", a_slot(name, clock), limits=[Limit(most=3), zone], is_held=held)

    assert [await takes(name) for name in ("a1", "a2", "b1", "c1", "d1")] == [True, False, True, True, False]


async def test_a_slot_is_no_leave_for_ever(clock: Clock) -> None:
    """Who has one and asks again is judged again: the limits may be others by now."""
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for name in ("n1", "n2"):
        assert await ledger.take("workers", a_slot(name, clock), limits=[Limit(most=2)], is_held=held)
    assert not await ledger.take("workers", a_slot("n2", clock), limits=[Limit(most=1)], is_held=held)


async def test_a_slot_is_bound_to_the_version_that_it_was_last_taken_for(clock: Clock) -> None:
    ledger = a_ledger(ApiServer(clock, namespaces=["haulout"]), clock)
    for version in ("5", "5", "9"):
        slot = Slot(uid="u-n1", name="n1", since=clock.now(), version=version)
        assert await ledger.take("workers", slot, limits=[Limit(most=1)], is_held=held)
    assert (await ledger.slots("workers"))["u-n1"].version == "9"


def test_any_text_can_be_the_name_of_a_budget() -> None:
    assert ledger_name("workers") == "haulout-budget-workers"
    odd = ledger_name("Zone=A/ü" * 50)
    assert odd.startswith("haulout-budget-")
    assert len(odd) < 60
    assert odd != ledger_name("Zone=B/ü" * 50)
