"""Rescheduling events of EC2."""

from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout.core.clock import Clock
from haulout.errors import CloudError, RescheduleRefused
from support.clouds.aws import AwsWorld, an_aws_world

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


async def a_notice(world: AwsWorld, *, start: timedelta = DAY, deadline: timedelta | None = 7 * DAY) -> None:
    now = world.clock.now()
    instance = await world.join_node("n1")
    world.cloud.schedule(instance, start=now + start, deadline=None if deadline is None else now + deadline)
    world.start()
    await world.wait_for_stage(NoticeStage.SCHEDULED)


async def reschedule(world: AwsWorld, by: timedelta) -> None:
    assert world.source is not None
    await world.source.reschedule(await world.only_notice(), (world.clock.now() + by).replace(microsecond=0))


async def test_rescheduled_maintenance_has_its_new_start(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        await a_notice(world)
        to = (clock.now() + 3 * DAY).replace(microsecond=0)
        await reschedule(world, 3 * DAY)
        await clock.sleep(10 * MINUTE)
        notice = await world.only_notice()
        assert notice.spec.start == to
        await reschedule(world, 3 * DAY - 10 * MINUTE)
        assert world.cloud.faults.calls.count("ModifyInstanceEventStartTime") <= 2


@pytest.mark.parametrize(
    ("start", "deadline", "by", "why"),
    [
        (DAY, None, 2 * DAY, "no deadline"),
        (DAY, 7 * DAY, 8 * DAY, "beyond its deadline"),
        (DAY, 7 * DAY, 59 * MINUTE, "at least 60 minutes ahead"),
        (4 * MINUTE, 7 * DAY, 2 * HOUR, "in the last 5 minutes"),
    ],
)
async def test_reschedule_not_allowed_by_ec2_is_refused_without_a_call(
    clock: Clock, start: timedelta, deadline: timedelta | None, by: timedelta, why: str
) -> None:
    async with an_aws_world(clock) as world:
        await a_notice(world, start=start, deadline=deadline)
        with pytest.raises(RescheduleRefused, match=why):
            await reschedule(world, by)
        assert "ModifyInstanceEventStartTime" not in world.cloud.faults.calls


async def test_only_scheduled_events_can_be_rescheduled(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.interrupt_spot(instance)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        with pytest.raises(RescheduleRefused, match="only scheduled events"):
            await reschedule(world, DAY)


async def test_refusal_of_ec2_is_reported_with_its_message(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        await a_notice(world)
        world.cloud.faults.fail(
            "ModifyInstanceEventStartTime", status=400, code="UnsupportedOperation", message="no way"
        )
        with pytest.raises(RescheduleRefused, match="no way"):
            await reschedule(world, 2 * DAY)


async def test_reschedule_is_retried_after_a_lost_response(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        await a_notice(world)
        world.cloud.faults.fail("ModifyInstanceEventStartTime", status=0, after=True)
        await reschedule(world, 2 * DAY)
        world.cloud.faults.fail("ModifyInstanceEventStartTime", status=403, code="UnauthorizedOperation")
        with pytest.raises(CloudError, match="UnauthorizedOperation"):
            await reschedule(world, 3 * DAY)
