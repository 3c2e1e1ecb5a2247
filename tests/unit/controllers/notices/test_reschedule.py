"""Reschedules are requested once per planned start, despite crashes."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition
from haulout.api.objects import Condition, Node
from haulout.api.resources import NODES
from haulout.controllers.notices.reschedule import Calendar
from haulout.core.clock import Clock
from haulout.errors import CloudError, RescheduleRefused
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.event_source import ReschedulableSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.event_source import OciEventSource
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.builders.objects import a_node
from support.operators.notices import DAY, HOUR, MINUTE, NoticeCluster, a_notice_cluster

BY = 8 * HOUR  # the suitable start is this much later
UPDATE = "ModifyInstanceEventStartTime"


@dataclass
class Cloud:
    """A cloud that answers reschedule requests."""

    world: NoticeCluster
    requested_times: list[datetime] = field(default_factory=list)
    answers: list[Exception | None] = field(default_factory=list)
    moves: bool = True  # the cloud moves the event after it agreed

    async def reschedule(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Return the configured response."""
        await self.world.step("before move")
        self.requested_times.append(to)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        if self.moves and notice.spec.start != to:
            await self.world.patch_notice(notice.name, start=to, end=to + HOUR)
        await self.world.step("after move")


@asynccontextmanager
async def a_cloud(
    clock: Clock, *, crash_at: int | None = None, by: timedelta = BY
) -> AsyncIterator[tuple[NoticeCluster, Cloud]]:
    """Yield a cluster with a reschedulable notice whose start does not suit."""
    async with a_notice_cluster(clock) as world:
        cloud = Cloud(world)
        world.crash_at = crash_at
        world.reschedulable_sources["ticket"] = cloud
        planned = clock.now().replace(microsecond=0) + DAY
        world.calendar = _later(planned, by)
        await world.announce(start=DAY, reschedulable=True)
        yield world, cloud


def _later(planned: datetime, by: timedelta = BY) -> Calendar:
    return lambda _node, notice: (notice.spec.start or planned) + (by if notice.spec.start == planned else timedelta())


def _unstable_calendar(planned: datetime) -> Calendar:
    """Return a calendar with a different suitable time on each call."""
    times = itertools.count(1)

    def suits(node: Node, notice: MaintenanceNotice) -> datetime | None:
        return _later(planned, next(times) * HOUR)(node, notice)

    return suits


async def rescheduled(world: NoticeCluster, name: str = "m1") -> Condition:
    return await world.condition(NoticeCondition.RESCHEDULED, name)


async def history_messages(world: NoticeCluster) -> list[str]:
    return [entry.message for entry in (await world.notice()).status.history]


async def test_reschedule_is_requested_once_and_recorded_with_its_answer(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        found = await rescheduled(world)
        assert (found.status, found.reason) == ("True", "Accepted")
        await clock.sleep(12 * HOUR)
        assert cloud.requested_times == [datetime.fromisoformat("2026-01-06T17:00:00+00:00")]
        notice = await world.notice()
        assert notice.spec.start == cloud.requested_times[0]
        assert notice.status.reschedule is not None
        assert notice.status.reschedule.to == cloud.requested_times[0]
        messages = await history_messages(world)
        assert (
            "asking ticket to move it to 2026-01-06 17:00 UTC, "
            "since 2026-01-06 09:00 UTC is outside all maintenance windows"
        ) in messages
        assert messages[-1] in (
            "ticket agreed to begin at 2026-01-06 17:00 UTC",
            "ticket moved the maintenance to 2026-01-06 17:00 UTC",
        )


async def test_refused_reschedule_is_final_and_reported_with_the_message_of_the_cloud(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [RescheduleRefused("hardware is about to fail")]
        found = await rescheduled(world)
        assert (found.status, found.reason) == ("False", "Refused")
        assert found.message.endswith("does not move it to 2026-01-06 17:00 UTC: hardware is about to fail")
        await clock.sleep(DAY)
        assert len(cloud.requested_times) == 1


async def test_unanswered_reschedule_is_retried_with_the_same_time_until_it_is_too_late(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        cloud.answers = [CloudError("no answer", doing="moving") for _ in range(1000)]
        assert (await rescheduled(world)).status == "Unknown"
        await clock.sleep(DAY)
        found = await rescheduled(world)
        assert (found.status, found.reason) == ("False", "NoAnswer")
        assert 50 < len(cloud.requested_times) < 300
        assert len(set(cloud.requested_times)) == 1


async def test_start_changed_by_the_cloud_is_rescheduled_a_limited_number_of_times(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        await rescheduled(world)
        world.calendar = lambda _, notice: (notice.spec.start or clock.now()) + HOUR
        for days in range(2, 12):
            planned = clock.now().replace(microsecond=0) + days * DAY
            await world.patch_notice(start=planned, end=planned + HOUR)
            await clock.sleep(5 * MINUTE)
        assert len(cloud.requested_times) == 5


@pytest.mark.parametrize("spec", [{"reschedulable": False}, {"stage": "Started"}, {"source": "mail"}])
async def test_notice_that_cannot_be_rescheduled_is_not_requested(
    clock: Clock, spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with a_notice_cluster(clock) as world:
        cloud = world.reschedulable_sources["ticket"] = Cloud(world)
        world.calendar = lambda _, notice: (notice.spec.start or clock.now()) + HOUR
        await world.announce(start=DAY, **{"reschedulable": True, **spec})
        await clock.sleep(2 * DAY)
        assert cloud.requested_times == []
        assert (await world.notice()).status.reschedule is None
        assert [item.getMessage() for item in caplog.records if item.levelname in ("WARNING", "ERROR")] == []


async def test_suitable_start_is_not_rescheduled(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        cloud = world.reschedulable_sources["ticket"] = Cloud(world)
        world.calendar = lambda _, notice: notice.spec.start
        await world.announce(start=DAY, reschedulable=True)
        await clock.sleep(HOUR)
        world.calendar = lambda *_: None
        await clock.sleep(2 * DAY)
        assert cloud.requested_times == []


async def test_calendar_change_triggers_a_reschedule(clock: Clock) -> None:
    async with a_notice_cluster(clock) as world:
        cloud = world.reschedulable_sources["ticket"] = Cloud(world)
        await world.announce(start=DAY, reschedulable=True)
        await clock.sleep(HOUR)
        world.calendar = lambda _, notice: (notice.spec.start or clock.now()) + HOUR
        await clock.sleep(11 * MINUTE)
        assert len(cloud.requested_times) == 1


async def test_two_leaders_request_the_same_time(clock: Clock) -> None:
    async with a_cloud(clock) as (world, cloud):
        world.start()
        await clock.sleep(HOUR)
        assert len(set(cloud.requested_times)) == 1
        messages = await history_messages(world)
        assert len([item for item in messages if item.startswith("asking")]) == 1
        assert (await rescheduled(world)).reason == "Accepted"


def run_story(crash_at: int | None, *, moves: bool) -> tuple[set[datetime], str, int, list[str]]:
    """Return what was asked for, the answer, how often asking is in the history, and all steps."""

    async def story() -> tuple[set[datetime], str, int, list[str]]:
        clock = VirtualClock()
        async with a_cloud(clock, crash_at=crash_at) as (world, cloud):
            cloud.moves = moves
            world.calendar = _unstable_calendar(clock.now().replace(microsecond=0) + DAY)
            await clock.sleep(HOUR)
            requests = [item for item in await history_messages(world) if item.startswith("asking")]
            return set(cloud.requested_times), (await rescheduled(world)).reason, len(requests), world.steps

    return run_virtual(story())


@pytest.mark.parametrize("moves", [True, False])
def test_reschedule_requests_one_time_after_a_crash_at_any_step(*, moves: bool) -> None:
    _, _, _, steps = run_story(None, moves=moves)
    assert len(steps) > 8
    for number in range(1, len(steps) + 1):
        requested, reason, count, taken = run_story(number, moves=moves)
        assert (len(requested), reason, count) == (1, "Accepted", 1), taken[number - 1]


# With simulated clouds


@asynccontextmanager
async def a_source(
    world: NoticeCluster, source: OciEventSource | AwsEventSource, *running: Coroutine[Any, Any, Any]
) -> AsyncIterator[None]:
    tasks = [world.group.create_task(item) for item in (*running, source.run(NoticeWriter(world.client)))]
    world.reschedulable_sources[source.name] = source
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def only_notice(world: NoticeCluster) -> MaintenanceNotice:
    (found,) = (await world.client.list(MAINTENANCE_NOTICES)).items
    return found


async def test_oci_reschedules_its_maintenance_into_the_window(clock: Clock) -> None:
    async with a_notice_cluster(clock, nodes=()) as world:
        cloud = OciCloud(clock)
        machine = cloud.launch("n1")
        await world.client.create(NODES, a_node("n1").with_spec(providerID=machine))
        planned = clock.now().replace(microsecond=0) + DAY
        world.calendar = _later(planned)
        source = OciEventSource(cloud.compute(), streaming=cloud.streaming(), clock=clock, random=Random(1))
        async with a_source(world, source):
            event = cloud.schedule(machine, start=planned, hard_due_date=planned + 7 * DAY)
            await clock.sleep(10 * MINUTE)
            notice = await only_notice(world)
            assert cloud.compute_service.events[event]["timeWindowStart"].startswith("2026-01-06T17:00:00")
            assert notice.spec.start == planned + BY
            assert (await rescheduled(world, notice.name)).reason == "Accepted"
            assert (await world.node_condition("MaintenancePlanned"))[2].endswith("not before 2026-01-06 17:00 UTC")


async def test_aws_reschedules_its_event_into_the_window_after_failed_requests(clock: Clock) -> None:
    async with a_notice_cluster(clock, nodes=()) as world:
        cloud = AwsCloud(clock)
        machine = cloud.launch()
        await world.client.create(NODES, a_node("n1").with_spec(providerID=f"aws:///eu-west-1a/{machine}"))
        planned = clock.now().replace(microsecond=0) + DAY
        world.calendar = _later(planned)
        nodes: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=as_is)
        source = AwsEventSource(
            ec2=cloud, auto_scaling=cloud, sqs=None, client=world.client, nodes=nodes, settings=AwsSettings()
        )
        cloud.faults.fail(UPDATE, status=503, times=7)
        async with a_source(world, source, nodes.run()):
            cloud.schedule(machine, start=planned, deadline=planned + 7 * DAY)
            await clock.sleep(30 * MINUTE)
            notice = await only_notice(world)
            assert notice.spec.start == planned + BY
            assert (await rescheduled(world, notice.name)).reason == "Accepted"


async def test_refusal_of_aws_is_reported_in_the_notice(clock: Clock) -> None:
    async with a_notice_cluster(clock, nodes=()) as world:
        cloud = AwsCloud(clock)
        machine = cloud.launch()
        await world.client.create(NODES, a_node("n1").with_spec(providerID=f"aws:///eu-west-1a/{machine}"))
        planned = clock.now().replace(microsecond=0) + DAY
        world.calendar = _later(planned, 9 * DAY)
        nodes: Informer[Node] = Informer(world.client, ListWatch(NODES), transform=as_is)
        source = AwsEventSource(
            ec2=cloud, auto_scaling=cloud, sqs=None, client=world.client, nodes=nodes, settings=AwsSettings()
        )
        async with a_source(world, source, nodes.run()):
            cloud.schedule(machine, start=planned, deadline=planned + 7 * DAY)
            await clock.sleep(30 * MINUTE)
            notice = await only_notice(world)
            found = await rescheduled(world, notice.name)
            assert (found.status, found.reason) == ("False", "Refused")
            assert "does not move it beyond its deadline" in found.message
            assert UPDATE not in cloud.faults.calls


def test_oci_and_aws_sources_are_reschedulable() -> None:
    assert isinstance(object.__new__(OciEventSource), ReschedulableSource)
    assert isinstance(object.__new__(AwsEventSource), ReschedulableSource)
