"""Failures of AWS: they are reported, retried, and lose no events."""

from datetime import datetime, timedelta

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout.core.clock import Clock
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.aws.sqs_messages import SqsMessage, parse_message
from support.clouds.aws import an_aws_world

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
DAY = 24 * HOUR


async def test_hundreds_of_instances_are_polled_in_a_few_calls(clock: Clock) -> None:
    """MMO acceptance case 24: 250 machines, three calls."""
    async with an_aws_world(clock, has_queue=False) as world:
        for number in range(250):
            await world.join_node(f"n{number}")
        world.start()
        await clock.sleep(MINUTE)
        assert world.cloud.faults.calls.count("DescribeInstanceStatus") == 3


async def test_all_pages_of_a_response_are_read(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        world.cloud.ec2_instances.page_size = 2
        for number in range(5):
            world.cloud.schedule(await world.join_node(f"n{number}"), start=clock.now() + DAY)
        world.start()
        await clock.sleep(MINUTE)
        assert len(await world.notices()) == 5


async def test_throttled_poll_is_retried_after_a_backoff(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        world.cloud.schedule(await world.join_node("n1"), start=clock.now() + DAY)
        world.cloud.faults.fail("DescribeInstanceStatus", status=503, code="RequestLimitExceeded", times=3)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=20 * SECOND)
        assert world.source is not None
        assert list(world.source.problems()) == []


async def test_failing_batch_does_not_prevent_polling_other_instances(clock: Clock) -> None:
    async with an_aws_world(clock, has_queue=False) as world:
        for number in range(150):
            instance = await world.join_node(f"n{number}")
        world.cloud.schedule(instance, start=clock.now() + DAY)
        world.cloud.faults.fail("DescribeInstanceStatus", status=400, code="InvalidParameterValue", times=1)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=SECOND)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "the IAM policy does not allow it"),
        (400, "ExpiredToken", "the credentials have expired"),
        (403, "SignatureDoesNotMatch", "the secret key or the clock of this machine is wrong"),
        (400, "AWS.SimpleQueueService.NonExistentQueue", "there is no such queue in this region"),
        (503, "ServiceUnavailable", "503 ServiceUnavailable"),
        (0, "", "told to fail"),
    ],
)
async def test_queue_error_is_reported_with_advice_and_retried(
    clock: Clock, status: int, code: str, message: str
) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        rule = world.cloud.faults.fail("ReceiveMessage", status=status, code=code, times=None)
        world.start()
        world.cloud.interrupt_spot(instance)
        await clock.sleep(5 * MINUTE)
        assert world.source is not None
        assert message in "".join(world.source.problems())
        world.cloud.faults.remove(rule)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert list(world.source.problems()) == []


async def test_hanging_call_does_not_stop_the_event_source(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.faults.hang("ReceiveMessage")
        world.cloud.faults.hang("DescribeInstanceStatus")
        world.start()
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)


async def test_visibility_timeout_is_extended_while_a_message_is_processed(clock: Clock) -> None:
    """Weakness 5 of aws-node-termination-handler: a message was redelivered after the visibility timeout."""
    async with an_aws_world(clock, settings=AwsSettings(managed_tag="ours")) as world:
        instance = await world.join_node("n1", ours="")
        world.start()
        await clock.sleep(SECOND)
        world.cloud.faults.delay("DescribeInstances", duration=55 * SECOND)
        world.cloud.interrupt_spot(instance)
        await clock.sleep(50 * SECOND)
        assert await world.cloud.receive(max_messages=10, wait=timedelta(), visibility_timeout=MINUTE) == []
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=2 * MINUTE)
        await clock.sleep(SECOND)
        assert world.cloud.queue.messages == []
        assert world.cloud.faults.calls.count("DescribeInstances") == 1


async def test_message_redelivered_after_a_failed_delete_changes_nothing(clock: Clock) -> None:
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.faults.fail("DeleteMessage", status=400, code="ReceiptHandleIsInvalid", times=3)
        world.start()
        world.cloud.interrupt_spot(instance)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        before = (await world.only_notice()).resource_version
        await clock.sleep(2 * MINUTE)
        assert world.cloud.queue.messages == []
        assert world.cloud.faults.calls.count("DeleteMessage") == 4
        assert (await world.only_notice()).resource_version == before


async def test_only_instances_with_the_managed_tag_are_processed(clock: Clock) -> None:
    async with an_aws_world(clock, settings=AwsSettings(managed_tag="aws-node-termination-handler/managed")) as world:
        ours = world.cloud.launch(tags={"aws-node-termination-handler/managed": ""})
        other = world.cloud.launch(tags={"team": "x"})
        world.start()
        for instance in (other, ours, "i-0123456789abcdef0"):
            world.cloud.interrupt_spot(instance)
        await clock.sleep(MINUTE)
        assert [notice.spec.provider_id for notice in (await world.notices()).values()] == [ours]
        assert world.cloud.queue.messages == []


async def test_message_waits_while_the_tags_of_its_instance_are_unknown(clock: Clock) -> None:
    async with an_aws_world(clock, settings=AwsSettings(managed_tag="ours")) as world:
        instance = await world.join_node("n1", ours="yes")
        rule = world.cloud.faults.fail("DescribeInstances", status=500, code="InternalError", times=None)
        world.start()
        world.cloud.interrupt_spot(instance)
        await clock.sleep(5 * MINUTE)
        assert len(world.cloud.queue.messages) == 1
        world.cloud.faults.remove(rule)
        await world.wait_for_stage(NoticeStage.SCHEDULED)


async def test_ec2_is_polled_at_the_start_and_at_each_poll_interval(clock: Clock) -> None:
    """MMO polls at the start and every 60 minutes."""
    async with an_aws_world(clock, has_queue=False, settings=AwsSettings(poll_interval=HOUR)) as world:
        await world.join_node("n1")
        world.start()
        await clock.sleep(SECOND)
        assert world.cloud.faults.calls.count("DescribeInstanceStatus") == 1
        await clock.sleep(3 * HOUR)
        assert world.cloud.faults.calls.count("DescribeInstanceStatus") == 4


async def test_message_that_raises_is_quarantined_and_others_are_processed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(body: str, *, now: datetime, message_id: str) -> SqsMessage:
        if "poison" in body:
            raise ZeroDivisionError("a defect of ours")
        return parse_message(body, now=now, message_id=message_id)

    monkeypatch.setattr("haulout.providers.aws.sqs_reader.parse_message", fragile)
    async with an_aws_world(clock) as world:
        instance = await world.join_node("n1")
        world.cloud.queue.send("poison")
        world.cloud.interrupt_spot(instance)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED, within=5 * SECOND)
        await clock.sleep(5 * MINUTE)
        assert world.source is not None
        assert "a defect of ours" in "".join(world.source.problems())
        assert [message.body for message in world.cloud.queue.messages] == ["poison"]


FAULTS = {
    "throttled": (400, "ThrottlingException"),
    "internal error": (500, "InternalError"),
    "unavailable": (503, "Unavailable"),
    "no answer": (0, ""),
    "credentials expired": (403, "ExpiredTokenException"),
    "clock skew": (403, "RequestExpired"),
    "not allowed": (403, "UnauthorizedOperation"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after the effect"])
@pytest.mark.parametrize("call", ["DescribeInstanceStatus", "ReceiveMessage", "DeleteMessage"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_all_notices_are_written_once_a_fault_is_over(
    clock: Clock, fault: str, call: str, *, after: bool
) -> None:
    async with an_aws_world(clock) as world:
        planned, taken = await world.join_node("n1"), await world.join_node("n2")
        status, code = FAULTS[fault]
        rule = world.cloud.faults.fail(call, status=status, code=code, times=None, after=after)
        world.cloud.schedule(planned, start=clock.now() + DAY, silent=True)
        world.cloud.interrupt_spot(taken)
        world.start()
        await clock.sleep(10 * MINUTE)
        assert world.source is not None
        assert world.source.problems() or (call == "DeleteMessage" and after)  # then no problem is left
        assert world.cloud.faults.calls.count(call) <= 100
        world.cloud.faults.remove(rule)
        await clock.sleep(10 * MINUTE)
        assert {notice.spec.provider_id for notice in (await world.notices()).values()} == {planned, taken}
        assert len(await world.notices()) == 2
        assert list(world.source.problems()) == []
        assert world.cloud.queue.messages == []
