"""The model of AWS keeps AWS's rules."""

from datetime import timedelta

import pytest
from aiohttp import ClientSession

from haulout.core.clock import Clock, RealClock
from haulout.errors import CloudError
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.server import serve

DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


async def test_a_message_comes_again_unless_it_is_deleted_by_its_latest_receipt(clock: Clock) -> None:
    cloud = AwsCloud(clock)
    cloud.queue.send("hello")
    (first,) = await cloud.receive(max_messages=10, wait=SECOND, visibility_timeout=20 * SECOND)
    assert await cloud.receive(max_messages=10, wait=10 * SECOND, visibility_timeout=20 * SECOND) == []
    (redelivered,) = await cloud.receive(max_messages=10, wait=20 * SECOND, visibility_timeout=20 * SECOND)
    assert (redelivered["Body"], redelivered["Attributes"]["ApproximateReceiveCount"]) == ("hello", "2")
    with pytest.raises(CloudError, match="ReceiptHandleIsInvalid"):
        await cloud.delete(first["ReceiptHandle"])
    await cloud.delete(redelivered["ReceiptHandle"])
    assert await cloud.receive(max_messages=10, wait=HOUR, visibility_timeout=SECOND) == []


async def test_a_long_poll_returns_as_soon_as_there_is_something(clock: Clock) -> None:
    cloud = AwsCloud(clock)
    started_at = clock.now()
    clock.call_at(started_at + 3 * SECOND, lambda: cloud.queue.send("x"))
    assert len(await cloud.receive(max_messages=1, wait=20 * SECOND, visibility_timeout=SECOND)) == 1
    assert clock.now() - started_at < 4 * SECOND


@pytest.mark.parametrize(
    ("start", "deadline", "by", "code"),
    [
        (DAY, None, 2 * DAY, "UnsupportedOperation"),
        (DAY, 7 * DAY, 8 * DAY, "InvalidParameterValue"),
        (DAY, 7 * DAY, 30 * MINUTE, "InvalidParameterValue"),
        (4 * MINUTE, 7 * DAY, 2 * DAY, "InvalidParameterValue"),
    ],
)
async def test_events_are_moved_only_as_ec2_allows(
    clock: Clock, start: timedelta, deadline: timedelta | None, by: timedelta, code: str
) -> None:
    cloud, now = AwsCloud(clock), clock.now()
    instance = cloud.launch()
    event = cloud.schedule(instance, start=now + start, deadline=None if deadline is None else now + deadline)
    with pytest.raises(CloudError) as refused:
        await cloud.move_event(instance, event, to=now + by)
    assert refused.value.code == code


async def test_a_move_is_shown_a_little_later_with_its_end(clock: Clock) -> None:
    cloud, now = AwsCloud(clock), clock.now()
    instance = cloud.launch()
    event = cloud.schedule(instance, start=now + DAY, deadline=now + 7 * DAY, duration=HOUR)
    await cloud.move_event(instance, event, to=now + 2 * DAY)
    shown = []
    for _ in range(2):
        ((status,), _) = await cloud.statuses([instance])
        shown.append(status["Events"][0]["NotBefore"])
        await clock.sleep(MINUTE / 2)
    assert shown == [now + DAY, now + DAY]
    ((status,), _) = await cloud.statuses([instance])
    assert (status["Events"][0]["NotBefore"], status["Events"][0]["NotAfter"]) == (now + 2 * DAY, now + 2 * DAY + HOUR)


async def test_unknown_instances_spoil_a_call_and_are_named(clock: Clock) -> None:
    cloud = AwsCloud(clock)
    with pytest.raises(CloudError, match="The instance IDs 'i-0a, i-0b' do not exist"):
        await cloud.statuses([cloud.launch(), "i-0a", "i-0b"])
    with pytest.raises(CloudError, match="at most 100"):
        await cloud.statuses([cloud.launch() for _ in range(101)])


async def test_auto_scaling_waits_for_heartbeats_and_not_for_ever(clock: Clock) -> None:
    cloud = AwsCloud(clock)
    instance = cloud.launch()
    action = cloud.start_lifecycle_action(instance)
    names = {"group": "workers", "hook": "drain", "token": action.token}
    for _ in range(3):
        await clock.sleep(MINUTE)
        await cloud.heartbeat(instance, **names)
    await clock.sleep(3 * MINUTE)
    with pytest.raises(CloudError, match="No active Lifecycle Action found"):
        await cloud.heartbeat(instance, **names)
    assert cloud.auto_scaling.expired == [action.token]
    ((status,), _) = await cloud.statuses([instance])
    assert status["InstanceState"]["Name"] == "terminated"


async def test_heartbeats_do_not_prolong_it_beyond_the_longest(clock: Clock) -> None:
    cloud = AwsCloud(clock)
    instance = cloud.launch()
    action = cloud.start_lifecycle_action(instance)
    names = {"group": "workers", "hook": "drain", "token": action.token}
    while clock.now() < action.latest_end:
        await cloud.heartbeat(instance, **names)
        await clock.sleep(MINUTE)
    with pytest.raises(CloudError, match="No active Lifecycle Action found"):
        await cloud.heartbeat(instance, **names)


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("headers", "body", "status", "response_body"),
    [
        ({}, "Action=DescribeInstances&Version=2016-11-15", 403, "MissingAuthenticationToken"),
        ({"Authorization": "AWS4-HMAC-SHA256 x"}, "Action=Explode&Version=2016-11-15", 400, "InvalidAction"),
        ({"Authorization": "AWS4-HMAC-SHA256 x"}, "Action=CompleteLifecycleAction", 400, "ValidationError"),
        (
            {"Authorization": "AWS4-HMAC-SHA256 x", "X-Amz-Target": "AmazonSQS.DeleteMessage"},
            "{}",
            400,
            "ValidationError",
        ),
        (
            {"Authorization": "AWS4-HMAC-SHA256 x", "X-Amz-Target": "AmazonSQS.DeleteMessage"},
            "{",
            400,
            "ValidationError",
        ),
    ],
)
async def test_invalid_requests_are_refused_over_http(
    headers: dict[str, str], body: str, status: int, response_body: str
) -> None:
    async with serve(AwsCloud(RealClock()), host="127.0.0.1") as port, ClientSession() as session:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=form | headers) as answer:
            assert answer.status == status
            assert response_body in await answer.text()
