"""Drain durations are read from the history only while a notice needs a prediction."""

import tracemalloc
from datetime import timedelta

import msgspec

from haulout.api.maintenancenotice import NoticeStage
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS as RECORDS
from haulout.controllers.notices.drain_prediction import DrainDurations, RecordedDrains, drain_durations
from haulout.core.clock import Clock
from support.operators.notices import HOUR, MINUTE, SECOND, NoticeCluster, a_notice_cluster

POOL = "eks.amazonaws.com/nodegroup"


def reads_history(request: str) -> bool:
    return "maintenancerecords" in request


async def predicted(world: NoticeCluster, name: str = "m1") -> timedelta:
    await world.clock.sleep(2 * SECOND)
    return timedelta(seconds=(await world.notice(name)).status.predicted_drain_seconds)


async def test_long_recorded_drain_starts_the_next_one_earlier_with_a_reason(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.create_record("n1", 2520)
        await world.announce(start=3 * HOUR)
        assert await predicted(world) == 53 * MINUTE
        notice = await world.notice()
        assert notice.spec.start is not None
        assert notice.status.drain_at == notice.spec.start - 53 * MINUTE
        (note,) = await world.node_event_notes("DrainStartsEarlier")
        assert note.endswith("begins 53m before the maintenance, instead of 15m: draining node n1 took 42m last time")


async def test_node_without_drains_is_predicted_from_its_node_pool(clock: Clock) -> None:
    async with a_notice_cluster(clock, nodes=(), history=True) as world:
        for name in ("n1", "n2", "n3", "n4"):
            await world.create_node(name, **{POOL: "blue"})
        await world.create_node("other", **{POOL: "green"})
        for name in ("n2", "n3", "n4"):
            await world.create_record(name, 1800)
        await world.create_record("other", *[60] * 5)
        await world.announce(start=3 * HOUR)
        await world.announce("m2", node="other", start=3 * HOUR)
        assert await predicted(world) == 38 * MINUTE
        assert await predicted(world, "m2") == 2 * MINUTE


async def test_history_is_read_only_while_there_are_open_notices(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.create_record("n1", 2520)
        await clock.sleep(HOUR)
        assert world.count_requests(reads_history) == 0
        await world.announce(start=3 * HOUR, stage=NoticeStage.SCHEDULED)
        assert await predicted(world) == 53 * MINUTE
        await world.patch_notice(stage=NoticeStage.CANCELLED)
        await clock.sleep(MINUTE)
        before = world.count_requests(reads_history)
        await clock.sleep(3 * HOUR)
        assert world.count_requests(reads_history) == before


async def test_longer_recorded_drain_changes_the_prediction(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.create_record("n1", 600)
        await world.announce(start=2 * HOUR)
        before = await predicted(world)
        await world.client.delete(RECORDS, "n1")
        await world.create_record("n1", 2520)
        assert await predicted(world) == 53 * MINUTE > before


async def test_first_recorded_drain_of_a_node_changes_the_prediction(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.announce(start=2 * HOUR)
        assert await predicted(world) == timedelta()
        await world.create_record("n1", 2520)
        assert await predicted(world) == 53 * MINUTE


async def test_nothing_is_predicted_without_a_history(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        await world.announce(start=3 * HOUR)
        assert await predicted(world) == timedelta()
        assert await world.on_time() == ("True", "Planned")


async def test_successor_that_has_not_read_the_history_changes_nothing(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.create_record("n1", 2520)
        await world.announce(start=3 * HOUR)
        await predicted(world)
        before = (await world.notice()).resource_version
        await world.stop()
        world.start()
        await clock.sleep(HOUR)
        assert (await world.notice()).resource_version == before


async def test_shorter_drain_does_not_make_a_due_notice_planned_again(clock: Clock) -> None:
    async with a_notice_cluster(clock, history=True) as world:
        await world.create_record("n1", 2520)
        await world.announce(start=HOUR)
        await clock.sleep(10 * MINUTE)
        assert (await world.notice()).status.phase == "Due"
        await world.client.delete(RECORDS, "n1")
        await world.create_record("n1", 5)
        await clock.sleep(MINUTE)
        assert (await world.notice()).status.phase == "Due"
        assert await predicted(world) == 53 * MINUTE


def test_drains_without_pods_and_refused_drains_are_ignored() -> None:
    record = {
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"},
        "entries": [
            {"time": "2026-01-01T00:00:00Z", "result": "Drained", "drain": {"seconds": 0.1, "pods": 0}},
            {"time": "2026-01-01T00:00:00Z", "result": "Refused", "drain": {"seconds": 1, "pods": 2}},
            *(
                {"time": "2026-01-01T00:00:00Z", "result": "Drained", "drain": {"seconds": n, "pods": 2}}
                for n in range(7)
            ),
            {"time": "2026-01-01T00:00:00Z", "result": "TimedOut", "drain": {"seconds": 900, "pods": 1}},
            {"time": "2026-01-01T00:00:00Z", "to": "operational"},
        ],
    }
    found = drain_durations(msgspec.convert(record, RecordedDrains))
    assert found == DrainDurations("n1", "u", "1", (3.0, 4.0, 5.0, 6.0, 900.0))


def test_drain_durations_of_five_thousand_nodes_take_a_few_megabytes() -> None:
    body = msgspec.json.encode(
        {
            "metadata": {"name": "node-0000", "uid": "0" * 36, "resourceVersion": "123456"},
            "entries": [
                {"time": "2026-01-01T00:00:00Z", "what": "w" * 50, "why": "y" * 200, "result": "Drained"}
                | {"drain": {"seconds": 1234.5, "pods": 3}}
                for _ in range(20)
            ],
        }
    )
    tracemalloc.start()
    kept = [drain_durations(msgspec.json.decode(body, type=RecordedDrains)) for _ in range(5000)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 5000
    assert size < 6_000_000
