"""The model of a stream of OCI: offsets of groups, reservations, cursors that expire."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.oci.streaming import Stream

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def a_stream(clock: Clock, *messages: str, partitions: int = 1) -> Stream:
    stream = Stream("s", clock, partitions=partitions)
    publish(stream, *messages)
    return stream


def publish(stream: Stream, *messages: str) -> None:
    stream.put_messages([{"key": None, "value": message} for message in messages])


def join_group(
    stream: Stream, instance: str = "a", *, cursor_type: str = "TRIM_HORIZON", commit_on_get: bool = False
) -> str:
    return stream.create_group_cursor(
        {"type": cursor_type, "groupName": "g", "instanceName": instance, "commitOnGet": commit_on_get}
    )


def read_messages(stream: Stream, cursor: str, limit: int = 100) -> tuple[list[str], str]:
    messages, next_cursor = stream.get_messages(cursor, limit)
    return [message["value"] for message in messages], next_cursor


async def test_what_is_not_committed_comes_again_and_what_is_does_not(clock: Clock) -> None:
    stream = a_stream(clock, "1", "2", "3")
    found, cursor = read_messages(stream, join_group(stream), 2)
    assert found == ["1", "2"]
    assert read_messages(stream, cursor)[0] == ["3"]
    assert read_messages(stream, join_group(stream))[0] == ["1", "2", "3"]
    stream.commit(read_messages(stream, join_group(stream), 2)[1])
    assert read_messages(stream, join_group(stream))[0] == ["3"]


async def test_with_commit_on_get_a_read_commits_what_was_read_before(clock: Clock) -> None:
    stream = a_stream(clock, "1", "2")
    _, cursor = read_messages(stream, join_group(stream, commit_on_get=True), 1)
    assert read_messages(stream, join_group(stream, commit_on_get=True), 1)[0] == ["1"]
    _, cursor = read_messages(stream, join_group(stream, commit_on_get=True), 1)
    read_messages(stream, cursor, 1)
    assert read_messages(stream, join_group(stream))[0] == ["2"]


async def test_the_kind_of_a_cursor_counts_only_for_a_new_group(clock: Clock) -> None:
    stream = a_stream(clock, "1")
    assert read_messages(stream, join_group(stream, cursor_type="LATEST"))[0] == []
    publish(stream, "2")
    assert read_messages(stream, join_group(stream, cursor_type="TRIM_HORIZON"))[0] == ["2"]


async def test_a_cursor_lasts_five_minutes(clock: Clock) -> None:
    stream = a_stream(clock, "1")
    cursor = join_group(stream)
    await clock.sleep(5 * MINUTE)
    _, cursor = read_messages(stream, cursor)
    await clock.sleep(5 * MINUTE + SECOND)
    with pytest.raises(CloudError, match="expired"):
        read_messages(stream, cursor)


async def test_a_partition_is_read_by_one_and_passes_on_when_that_one_goes_silent(clock: Clock) -> None:
    stream = a_stream(clock, "1")
    _, first = read_messages(stream, join_group(stream, "a"))
    second = join_group(stream, "b")
    found, second = read_messages(stream, second)
    assert found == []
    await clock.sleep(20 * SECOND)
    first = stream.heartbeat(first)
    await clock.sleep(20 * SECOND)
    second = stream.heartbeat(second)
    assert read_messages(stream, second)[0] == []
    await clock.sleep(11 * SECOND)
    assert read_messages(stream, second)[0] == ["1"]
    with pytest.raises(CloudError, match="reserved for another"):
        stream.commit(first)


async def test_partitions_are_shared_among_those_who_are_there(clock: Clock) -> None:
    stream = a_stream(clock, partitions=4)
    read_messages(stream, join_group(stream, "a"))
    held = [reservation["reservedInstance"] for reservation in stream.get_group("g")["reservations"]]
    assert held == ["a"] * 4
    cursor = join_group(stream, "b")
    read_messages(stream, join_group(stream, "a"))
    read_messages(stream, cursor)
    held = [reservation["reservedInstance"] for reservation in stream.get_group("g")["reservations"]]
    assert sorted(map(str, held)) == ["a", "a", "b", "b"]


async def test_offsets_grow_and_are_not_dense(clock: Clock) -> None:
    stream = a_stream(clock, *map(str, range(12)))
    found, _ = stream.get_messages(join_group(stream), 100)
    offsets = [item["offset"] for item in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] > 11


async def test_more_than_five_reads_a_second_are_too_many(clock: Clock) -> None:
    stream = a_stream(clock)
    cursor = join_group(stream)
    for _ in range(5):
        _, cursor = read_messages(stream, cursor)
    with pytest.raises(CloudError) as busy:
        read_messages(stream, cursor)
    assert busy.value.status == 429
    await clock.sleep(SECOND)
    read_messages(stream, cursor)


async def test_messages_are_kept_for_a_week(clock: Clock) -> None:
    stream = a_stream(clock, "old")
    await clock.sleep(timedelta(days=4))
    publish(stream, "new")
    await clock.sleep(timedelta(days=4))
    assert read_messages(stream, join_group(stream))[0] == ["new"]
