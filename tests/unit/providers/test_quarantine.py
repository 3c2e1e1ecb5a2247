"""Messages that make no sense are counted and shown, and forgotten after a while."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.providers.quarantine import Quarantine, excerpt_of


async def test_what_is_put_aside_is_shown_for_an_hour_and_counted_for_ever(clock: Clock) -> None:
    quarantine = Quarantine("oci", clock)
    quarantine.add(where="offset 7", why="expected JSON", what=b"\x00")
    assert quarantine.problems() == ("oci: 1 message could not be read, the latest at offset 7: expected JSON",)
    quarantine.add(where="offset 9", why="expected JSON", what="nonsense")
    assert quarantine.problems() == ("oci: 2 messages could not be read, the latest at offset 9: expected JSON",)
    await clock.sleep(timedelta(hours=1, seconds=1))
    assert not quarantine.problems()
    assert quarantine.count == 2


async def test_the_same_message_again_is_not_counted_again(clock: Clock) -> None:
    quarantine = Quarantine("oci", clock)
    for _ in range(3):
        quarantine.add(where="offset 7", why="expected JSON", what="nonsense")
    assert quarantine.count == 1


async def test_many_messages_that_come_again_and_again_are_counted_and_logged_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    quarantine = Quarantine("aws", clock)
    for _ in range(5):
        for number in range(100):
            quarantine.add(where=f"message {number}", why="expected JSON", what="nonsense")
        await clock.sleep(timedelta(seconds=61))
    assert quarantine.count == 100
    assert len(caplog.records) == 20


async def test_a_message_that_keeps_coming_is_shown_for_as_long_as_it_does(clock: Clock) -> None:
    quarantine = Quarantine("aws", clock)
    for _ in range(3):
        quarantine.add(where="message 7", why="expected JSON", what="nonsense")
        await clock.sleep(timedelta(minutes=50))
    assert quarantine.problems() == ("aws: 1 message could not be read, the latest at message 7: expected JSON",)


def test_what_is_kept_of_a_message_is_short_and_in_one_line() -> None:
    assert excerpt_of("a\nb\x1b[31m") == "a b [31m"
    assert len(excerpt_of("x" * 100_000)) < 400
