"""The loop of all controllers: conflicts, failures, circles, flapping keys, leadership."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import (
    Conflict,
    HauloutError,
    LeadershipHandover,
    LeadershipLost,
    NotFound,
    ObservationStale,
    ReconcileLoop,
    Unreachable,
)
from haulout.kube.client import Client
from haulout.runtime import flapping_guard
from haulout.runtime.controller import BACKOFF, CONFLICT_DELAY, MAX_CONFLICTS, WATCH_DELAY, Controller, ReconcileRunner
from haulout.runtime.handover import Handover
from haulout.runtime.reconciler import Reconciler
from support.fakes.scripted_transport import ScriptedTransport

SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Decision:
    """Act while the counter is below its target."""

    is_done: bool
    requeue_at: datetime | None = None


@dataclass
class Counters(Reconciler[str, int, Decision]):
    """Raises the counter of each key to its target, one per action; `errors` are raised by the next actions."""

    targets: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    report_errors: list[Exception] = field(default_factory=list)
    requeue_at: datetime | None = None
    report_at: datetime | None = None
    can_refresh: bool = True
    observed: list[str] = field(default_factory=list)
    refreshed: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    async def observe(self, key: str) -> int | None:
        self.observed.append(key)
        return self.values.get(key, 0) - self.targets[key] if key in self.targets else None

    def decide(self, observation: int) -> Decision:
        return Decision(observation >= 0, self.requeue_at)

    async def act(self, observation: int, decision: Decision) -> bool | Decision:
        del observation
        if decision.is_done:
            return False
        if self.errors:
            raise self.errors.pop(0)
        self.values[self.observed[-1]] = self.values.get(self.observed[-1], 0) + 1
        return True

    async def report(self, observation: int, decision: Decision) -> datetime | None:
        del observation, decision
        if self.report_errors:
            raise self.report_errors.pop(0)
        self.reported.append(self.observed[-1])
        return self.report_at

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        self.refreshed.append(key)
        return self.can_refresh

    async def report_failure(
        self, key: str, observation: int | None, decision: Decision | None, error: Exception
    ) -> None:
        del key, observation, decision
        self.failures.append(error)

    async def forget(self, key: str) -> datetime | None:
        self.forgotten.append(key)
        return None


def conflict() -> Exception:
    return Conflict("the object has been modified", code=409)


@pytest.fixture
def client(clock: Clock) -> Client:
    return Client(ScriptedTransport([]), clock=clock, random=Random(7))


def a_controller(client: Client, reconciler: Counters, **options: Any) -> Controller[str, int, Decision]:
    return Controller(reconciler, client, name="Counter", **options)


@asynccontextmanager
async def started(controller: Controller[str, int, Decision]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(controller.run())  # noqa: TID251 - awaited below
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_reconcile_acts_until_the_decision_has_no_action_and_then_reports(client: Client) -> None:
    counters = Counters(targets={"a": 3})
    assert await a_controller(client, counters).reconcile("a") is None
    assert counters.values == {"a": 3}
    assert counters.reported == ["a"]


async def test_decision_that_replaces_a_refused_one_is_reported(client: Client, clock: Clock) -> None:
    reported: list[Decision] = []
    without_slot = Decision(is_done=True, requeue_at=clock.now() + SECOND)

    class Refused(Counters):
        async def act(self, observation: int, decision: Decision) -> bool | Decision:
            del observation, decision
            return without_slot

        async def report(self, observation: int, decision: Decision) -> datetime | None:
            reported.append(decision)
            return await super().report(observation, decision)

    controller = a_controller(client, Refused(targets={"a": 1}))
    for _ in range(2 * flapping_guard.MAX_CHANGES):  # nothing has changed, so the key is not paused
        assert await controller.reconcile("a") == clock.now() + SECOND
    assert set(reported) == {without_slot}


async def test_earlier_of_decision_and_report_is_the_requeue_time(client: Client, clock: Clock) -> None:
    counters = Counters(targets={"a": 0}, requeue_at=clock.now() + 5 * SECOND, report_at=clock.now() + SECOND)
    assert await a_controller(client, counters).reconcile("a") == clock.now() + SECOND


async def test_runner_reconciles_without_a_queue(client: Client, clock: Clock) -> None:
    """It has the same safeguards, and leaves the next attempt after a failure to its caller."""
    counters = Counters(targets={"a": 2}, errors=[conflict()], requeue_at=clock.now() + SECOND)
    runner = ReconcileRunner(counters, client, name="Counter")
    assert await runner.reconcile("a") == clock.now() + SECOND
    assert (counters.values, counters.refreshed) == ({"a": 2}, ["a"])
    counters.targets["a"], counters.errors = 3, [HauloutError("no answer")]
    with pytest.raises(HauloutError):
        await runner.reconcile("a")
    assert [str(error) for error in counters.failures] == ["no answer"]


async def test_object_that_does_not_exist_is_forgotten(client: Client) -> None:
    counters = Counters()
    assert await a_controller(client, counters).reconcile("a") is None
    assert (counters.forgotten, counters.reported) == (["a"], [])


@pytest.mark.parametrize(
    "error", [conflict(), NotFound("not found", code=404), ObservationStale("its node has changed")], ids=repr
)
async def test_stale_observation_is_refreshed_and_tried_again_at_once(client: Client, error: Exception) -> None:
    counters = Counters(targets={"a": 1}, errors=[error])
    await a_controller(client, counters).reconcile("a")
    assert (counters.values, counters.refreshed, counters.failures) == ({"a": 1}, ["a"], [])


async def test_conflict_of_the_status_write_is_tried_again_at_once(client: Client) -> None:
    counters = Counters(targets={"a": 1}, report_errors=[conflict()])
    await a_controller(client, counters).reconcile("a")
    assert (counters.refreshed, counters.reported) == (["a"], ["a"])


async def test_conflicts_without_end_are_reported_as_a_failure(client: Client) -> None:
    counters = Counters(targets={"a": 1}, errors=[conflict() for _ in range(100)])
    with pytest.raises(Conflict):
        await a_controller(client, counters).reconcile("a")
    assert len(counters.refreshed) == MAX_CONFLICTS - 1
    assert [type(error) for error in counters.failures] == [Conflict]


async def test_key_that_only_the_watch_can_refresh_is_requeued(client: Client, clock: Clock) -> None:
    counters = Counters(targets={"a": 1}, errors=[conflict()], can_refresh=False)
    controller = a_controller(client, counters)
    assert await controller.reconcile("a") == clock.now() + CONFLICT_DELAY
    assert counters.failures == []
    assert await controller.reconcile("a") is None
    assert counters.values == {"a": 1}


async def test_key_that_stays_stale_is_reported_as_a_failure(client: Client) -> None:
    counters = Counters(targets={"a": 1}, errors=[conflict() for _ in range(100)], can_refresh=False)
    controller = a_controller(client, counters)
    for _ in range(MAX_CONFLICTS - 1):
        await controller.reconcile("a")
    with pytest.raises(Conflict):
        await controller.reconcile("a")
    assert len(counters.failures) == 1


async def test_object_whose_deletion_only_the_watch_can_deliver_waits_without_a_failure(
    client: Client, clock: Clock
) -> None:
    errors: list[Exception] = [ObservationStale("it is gone") for _ in range(3 * MAX_CONFLICTS)]
    counters = Counters(targets={"a": 1}, errors=errors, can_refresh=False)
    controller = a_controller(client, counters)
    for _ in range(2 * MAX_CONFLICTS):
        assert await controller.reconcile("a") == clock.now() + WATCH_DELAY
    assert counters.failures == []


async def test_failure_is_reported_and_the_key_tried_again_with_backoff(client: Client, clock: Clock) -> None:
    counters = Counters(targets={"a": 1}, errors=[Unreachable("connection refused", sent=False) for _ in range(3)])
    controller = a_controller(client, counters)
    async with started(controller):
        controller.queue.add("a")
        await clock.sleep(3 * BACKOFF.limit)
    assert counters.values == {"a": 1}
    assert len(counters.failures) == 3


async def test_failure_of_one_key_does_not_delay_the_others(client: Client, clock: Clock) -> None:
    counters = Counters(targets={"a": 1, "b": 1}, errors=[HauloutError("not now")])
    controller = a_controller(client, counters, workers=1)
    async with started(controller):
        controller.queue.add("a")
        controller.queue.add("b")
        await clock.sleep(SECOND / 10)
        assert counters.values == {"b": 1}


async def test_decisions_that_go_in_circles_fail_and_name_the_last_decision(client: Client) -> None:
    counters = Counters(targets={"a": 1000})
    with pytest.raises(ReconcileLoop, match=r"Counter a is not settled after 7 actions .*is_done=False"):
        await a_controller(client, counters, max_actions=7).reconcile("a")
    assert len(counters.failures) == 1


async def test_key_that_changes_again_and_again_is_paused(
    client: Client, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    counters = Counters(targets={"a": 0, "b": 0})
    controller = a_controller(client, counters)
    for _ in range(flapping_guard.MAX_CHANGES):
        counters.targets["a"] += 1
        assert await controller.reconcile("a") is None
    counters.targets["a"] += 1
    with caplog.at_level(logging.WARNING):
        paused_until = await controller.reconcile("a")
    assert paused_until == clock.now() + flapping_guard.INTERVAL
    assert "Counter a changes too often" in caplog.text
    assert counters.values["a"] == flapping_guard.MAX_CHANGES
    assert await controller.reconcile("b") is None
    await clock.sleep(flapping_guard.INTERVAL)
    assert await controller.reconcile("a") is None
    assert counters.values["a"] == flapping_guard.MAX_CHANGES + 1


@pytest.mark.parametrize("error", [LeadershipLost("deposed"), LeadershipHandover("n1")], ids=repr)
async def test_lost_leadership_is_not_reported_as_a_failure_of_the_object(client: Client, error: Exception) -> None:
    counters = Counters(targets={"a": 1}, errors=[error])
    with pytest.raises(type(error)):
        await a_controller(client, counters).reconcile("a")
    assert counters.failures == []


async def test_controller_ends_with_a_handover_before_its_own_node_is_drained(client: Client) -> None:
    handover = Handover("n1")
    controller = a_controller(client, Counters(), handover=handover)
    handover.before_drain("n2")
    with pytest.raises(LeadershipHandover):
        handover.before_drain("n1")
    with pytest.raises(LeadershipHandover, match="node n1"):
        await controller.run()


async def test_stop_is_called_while_the_background_still_runs(client: Client, clock: Clock) -> None:
    events: list[str] = []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("background ended")

    async def stop() -> None:
        events.append("stop")

    handover = Handover("n1")
    controller = a_controller(client, Counters(), handover=handover)
    running = asyncio.ensure_future(controller.run(background=(background,), stop=stop))  # noqa: TID251 - awaited below
    await clock.sleep(SECOND)
    with pytest.raises(LeadershipHandover):
        handover.before_drain("n1")
    with pytest.raises(LeadershipHandover):
        await running
    assert events == ["stop", "background ended"]


async def test_subscriptions_end_with_the_controller(client: Client, clock: Clock) -> None:
    ended: list[str] = []

    async def start(stack: ExitStack) -> None:
        stack.callback(ended.append, "subscription")

    task = asyncio.ensure_future(a_controller(client, Counters()).run(start=start))  # noqa: TID251 - awaited below
    await clock.sleep(SECOND)
    assert ended == []
    task.cancel()
    await asyncio.wait([task])
    assert ended == ["subscription"]


async def test_success_ends_the_count_of_stale_runs(client: Client) -> None:
    counters = Counters(targets={"a": 0}, can_refresh=False)
    controller = a_controller(client, counters)
    for _ in range(2):
        counters.targets["a"] += 1
        counters.errors = [conflict() for _ in range(MAX_CONFLICTS - 1)]
        for _ in range(MAX_CONFLICTS):
            await controller.reconcile("a")
    assert counters.values == {"a": 2}
    assert counters.failures == []


async def test_object_created_again_under_a_name_is_not_paused(client: Client) -> None:
    counters = Counters(targets={"a": flapping_guard.MAX_CHANGES})
    controller = a_controller(client, counters, max_actions=flapping_guard.MAX_CHANGES + 1)
    await controller.reconcile("a")
    del counters.targets["a"], counters.values["a"]
    await controller.reconcile("a")
    counters.targets["a"] = 1
    assert await controller.reconcile("a") is None
    assert counters.values == {"a": 1}


async def test_nothing_is_reconciled_after_a_handover_while_stop_runs(client: Client, clock: Clock) -> None:
    counters = Counters(targets={"a": 1})
    handover = Handover("n1")
    controller = a_controller(client, counters, handover=handover)

    async def stop() -> None:
        controller.queue.add("a")
        await clock.sleep(SECOND)

    running = asyncio.ensure_future(controller.run(stop=stop))  # noqa: TID251 - awaited below
    await clock.sleep(SECOND)
    with pytest.raises(LeadershipHandover):
        handover.before_drain("n1")
    with pytest.raises(LeadershipHandover):
        await running
    assert counters.values == {}


async def test_exclusive_lock_is_held_during_a_reconcile(client: Client) -> None:
    lock = asyncio.Lock()
    was_locked: list[bool] = []

    class Exclusive(Counters):
        def exclusive(self, key: str) -> asyncio.Lock:
            del key
            return lock

        async def observe(self, key: str) -> int | None:
            was_locked.append(lock.locked())
            return await super().observe(key)

    await a_controller(client, Exclusive(targets={"a": 0})).reconcile("a")
    assert was_locked == [True]
    assert not lock.locked()
