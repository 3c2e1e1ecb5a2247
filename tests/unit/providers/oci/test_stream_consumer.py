"""The consumer of the stream: it loses no messages, does not stop, and reports its problems."""

from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import NoticePhase
from haulout.core.clock import Clock
from haulout.errors import CloudError, RescheduleRefused
from support.clouds.oci import DAY, HOUR, MINUTE, SECOND, OciWorld, an_oci_world, source_connection
from support.expectations.eventually import eventually

GROUP = "wd-group"


def an_event(world: OciWorld, name: str = "w") -> str:
    return world.cloud.schedule(world.cloud.launch(name), start=world.clock.now() + DAY)


def committed(world: OciWorld) -> int:
    """Return the committed offset of the first partition plus one, gaps included."""
    reservation = world.cloud.stream.get_group(GROUP)["reservations"][0]
    return int(reservation["committedOffset"]) + 1


def problems_of(world: OciWorld) -> str:
    assert world.source is not None
    return "\n".join(world.source.problems())


async def test_case_11_an_idle_stream_is_read_about_every_six_seconds(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        await clock.sleep(10 * MINUTE)
        reads = [call for call in world.cloud.faults.calls if call == "GetMessages"]
        assert 95 <= len(reads) <= 105
        assert "ConsumerCommit" not in world.cloud.faults.calls
        assert not problems_of(world)


async def test_case_18_message_is_committed_only_after_its_notice_is_written(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        await clock.sleep(MINUTE)
        source_connection(world).cut()
        event = an_event(world)
        await clock.sleep(5 * MINUTE)
        assert committed(world) == 0
        assert f"MaintenanceNotice oci-{event} cannot be written" in problems_of(world)
        source_connection(world).mend()
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=MINUTE)
        await eventually(clock, lambda: committed(world), becomes=1)
        await eventually(clock, lambda: problems_of(world), becomes="")


async def test_heartbeats_keep_the_partition_while_writes_are_slow(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        await clock.sleep(MINUTE)
        source_connection(world).cut()
        an_event(world)
        await clock.sleep(10 * MINUTE)
        held = world.cloud.stream.get_group(GROUP)["reservations"][0]
        assert held["reservedInstance"] == "pod-1"
        assert "ConsumerHeartbeat" in world.cloud.faults.calls
        calls = world.cloud.faults.calls.count("CreateGroupCursor")
        source_connection(world).mend()
        await eventually(clock, lambda: committed(world), becomes=1)
        assert world.cloud.faults.calls.count("CreateGroupCursor") == calls == 1


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"hello", id="no JSON"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[" * 50_000, id="nested deeply"),
        pytest.param(
            b'{"eventType": "com.oraclecloud.computeapi.instancemaintenance", "source": "ComputeApi"}', id="empty"
        ),
    ],
)
async def test_case_10_unreadable_message_is_quarantined_and_the_stream_continues(clock: Clock, content: bytes) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        before = an_event(world, "before")
        world.cloud.publish_bytes(content)
        after = an_event(world, "after")
        await world.wait_for_phase(before, NoticePhase.PLANNED)
        await world.wait_for_phase(after, NoticePhase.PLANNED)
        assert world.source is not None
        assert world.source.quarantine.count == 1
        assert "1 message could not be read, the latest at partition 0, offset 1: expected" in problems_of(world)
        await eventually(clock, lambda: committed(world), becomes=3)


async def test_notice_rejected_by_the_api_server_is_quarantined(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        strange = an_event(world)
        document = world.cloud.event_document(strange)
        document["data"]["resourceId"] = "ocid1.instancemaintenanceevent.oc1..UPPER/case?\u007e"
        world.cloud.publish(document)
        await clock.sleep(MINUTE)
        assert len(await world.notices()) == 2
        assert committed(world) == 2


async def test_cases_8_and_9_unrelated_messages_are_ignored(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        world.cloud.publish({"eventType": "com.oraclecloud.computeapi.launchinstance.end", "source": "ComputeApi"})
        world.cloud.publish({"eventType": "com.oraclecloud.computeapi.instancemaintenance", "source": "Elsewhere"})
        event = an_event(world)
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        assert not problems_of(world)
        await eventually(clock, lambda: committed(world), becomes=3)


FAULTS = {
    "throttled": {"status": 429, "code": "TooManyRequests"},
    "internal error": {"status": 500},
    "unavailable": {"status": 503},
    "no answer": {"status": 0},
    "credentials expired": {"status": 401, "code": "NotAuthenticated"},
    "clock skew": {"status": 401, "code": "NotAuthenticated", "message": "Date is too far from now"},
    "not allowed": {"status": 404, "code": "NotAuthorizedOrNotFound"},
    "cursor of no use": {"status": 400, "code": "InvalidParameter"},
    "conflict": {"status": 409, "code": "IncorrectState"},
}
CALLS = ("CreateGroupCursor", "GetMessages", "ConsumerCommit")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after the effect"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_case_27_all_notices_are_written_once_a_fault_is_over(
    clock: Clock, fault: str, call: str, *, after: bool
) -> None:
    async with an_oci_world(clock) as world:
        rule = world.cloud.faults.fail(call, **FAULTS[fault], times=None, after=after)  # type: ignore[arg-type]  # a table
        event = an_event(world)
        world.start()
        await clock.sleep(10 * MINUTE)
        if not (call == "ConsumerCommit" and after):  # then nothing is left to commit, and nothing fails
            assert "the stream cannot be read, retrying" in problems_of(world)
            assert 3 <= world.cloud.faults.calls.count("CreateGroupCursor") <= 80
        world.cloud.faults.remove(rule)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=30 * SECOND)
        await eventually(clock, lambda: committed(world), becomes=1, within=30 * SECOND, every=SECOND)
        await eventually(clock, lambda: problems_of(world), becomes="", within=MINUTE)
        assert len(await world.notices()) == 1


@pytest.mark.parametrize("call", CALLS)
async def test_hanging_streaming_call_times_out(clock: Clock, call: str) -> None:
    async with an_oci_world(clock) as world:
        world.cloud.faults.hang(call)
        event = an_event(world)
        world.start()
        await clock.sleep(3 * MINUTE)
        await world.wait_for_phase(event, NoticePhase.PLANNED)
        await eventually(clock, lambda: committed(world), becomes=1)


@pytest.mark.parametrize("outage", ["it says when it will be back", "nothing answers"])
async def test_stream_is_read_within_30_seconds_after_an_outage_of_an_hour(clock: Clock, outage: str) -> None:
    async with an_oci_world(clock) as world:
        world.start()
        await clock.sleep(MINUTE)
        faults = world.cloud.faults
        if outage == "nothing answers":
            rules = [faults.hang(call, times=None) for call in CALLS]
        else:
            rules = [faults.fail(call, status=503, retry_after=HOUR, times=None) for call in CALLS]
        await clock.sleep(HOUR)
        for rule in rules:
            faults.remove(rule)
        event = an_event(world)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=30 * SECOND)


async def test_case_32_expired_cursor_is_replaced_without_a_problem(clock: Clock) -> None:
    async with an_oci_world(clock, idle_pause=6 * MINUTE) as world:
        world.start()
        await clock.sleep(7 * MINUTE)
        event = an_event(world)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=10 * MINUTE)
        assert world.cloud.faults.calls.count("CreateGroupCursor") > 1
        assert not problems_of(world)


async def test_retry_after_longer_than_the_backoff_is_honoured(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        world.cloud.faults.fail("GetMessages", status=429, retry_after=timedelta(minutes=7))
        world.start()
        await clock.sleep(6 * MINUTE)
        assert world.cloud.faults.calls.count("GetMessages") == 1
        await clock.sleep(2 * MINUTE)
        assert world.cloud.faults.calls.count("GetMessages") > 1


async def test_case_31_of_two_consumers_the_second_takes_over_when_the_first_dies(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        first = world.start()
        await clock.sleep(MINUTE)
        world.tasks.create_task(_replace_later(world))
        await clock.sleep(MINUTE)
        assert world.source is not first
        event = an_event(world)
        await world.wait_for_phase(event, NoticePhase.PLANNED, within=MINUTE)
        assert len(await world.notices()) == 1


async def _replace_later(world: OciWorld) -> None:
    old = world._running
    world._running = None
    world.start()
    await world.clock.sleep(30 * SECOND)
    assert old is not None
    old.cancel()


async def test_consumers_share_partitions_and_lose_no_messages_on_a_change(clock: Clock) -> None:
    async with an_oci_world(clock, partitions=3) as world:
        world.start()
        events = [an_event(world, f"w{item}") for item in range(20)]
        await clock.sleep(10 * SECOND)
        task = world.tasks.create_task(_replace_later(world))
        for _ in range(20):
            events.append(an_event(world))
            await clock.sleep(3 * SECOND)
        await task
        await clock.sleep(2 * MINUTE)
        assert {item.spec.notice_id for item in await world.notices()} == set(events)


async def test_thousands_of_messages_are_processed_within_a_minute(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        machine = world.cloud.launch("w")
        events = [world.cloud.schedule(machine, start=clock.now() + DAY, silent=True) for _ in range(20)]
        for number in range(2_000):
            world.cloud.publish(world.cloud.event_document(events[number % 20]))
        world.start()
        await clock.sleep(MINUTE)
        assert world.source is not None
        assert world.source._consumer is not None
        assert world.source._consumer.messages_processed == 2_000
        assert len(await world.notices()) == 20


# Rescheduling


async def test_repeated_reschedule_calls_oci_once_and_updates_the_notice(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        source = world.start()
        event = an_event(world)
        notice = await world.wait_for_phase(event, NoticePhase.PLANNED)
        to = clock.now() + 3 * DAY
        await source.reschedule(notice, to)
        await source.reschedule(notice, to)
        assert world.cloud.faults.calls.count("UpdateInstanceMaintenanceEvent") == 1
        await eventually(clock, lambda: world.start_time_of(event), becomes=to, every=SECOND)


async def test_reschedule_can_be_retried_after_a_lost_response(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        source = world.start()
        event = an_event(world)
        notice = await world.wait_for_phase(event, NoticePhase.PLANNED)
        world.cloud.faults.fail("UpdateInstanceMaintenanceEvent", status=0, after=True)
        to = clock.now() + 3 * DAY
        with pytest.raises(CloudError):
            await source.reschedule(notice, to)
        await source.reschedule(notice, to)
        assert world.cloud.faults.calls.count("UpdateInstanceMaintenanceEvent") == 1


async def test_impossible_reschedule_is_refused_with_the_reason(clock: Clock) -> None:
    async with an_oci_world(clock) as world:
        source = world.start()
        machine = world.cloud.launch("w")
        soon = clock.now() + DAY
        fixed = world.cloud.schedule(machine, start=soon, can_reschedule=False)
        due = world.cloud.schedule(machine, start=soon, hard_due_date=soon + DAY)
        started = world.cloud.schedule(machine, start=soon)
        world.cloud.start_maintenance(started)
        await world.wait_for_phase(started, NoticePhase.ACTIVE)
        for event, why in (
            (fixed, "OCI does not let it be moved"),
            (due, "it has to begin by 2026-01-07 09:00 UTC"),
            (started, "it is STARTED"),
        ):
            with pytest.raises(RescheduleRefused, match=why):
                await source.reschedule(await world.notice(event), soon + 2 * DAY)
        past = world.cloud.schedule(machine, start=soon)
        await world.wait_for_phase(past, NoticePhase.PLANNED)
        with pytest.raises(RescheduleRefused, match="OCI refuses: timeWindowStart is out of range"):
            await source.reschedule(await world.notice(past), clock.now() - HOUR)
