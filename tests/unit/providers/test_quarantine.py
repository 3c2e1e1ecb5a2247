"""Unreadable messages are counted and shown, and expire."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.providers.quarantine import Quarantine, excerpt_of


async def test_quarantined_message_is_shown_for_an_hour_and_counted_permanently(clock: Clock) -> None:
    quarantine = Quarantine("oci", clock)
    quarantine.add(where="offset 7", why="expected JSON", what=b"\x00")
    assert quarantine.problems() == ("oci: 1 message could not be read, the latest at offset 7: expected JSON",)
    quarantine.add(where="offset 9", why="expected JSON", what="nonsense")
    assert quarantine.problems() == ("oci: 2 messages could not be read, the latest at offset 9: expected JSON",)
    await clock.sleep(timedelta(hours=1, seconds=1))
    assert not quarantine.problems()
    assert quarantine.count == 2


async def test_repeated_message_is_counted_once(clock: Clock) -> None:
    quarantine = Quarantine("oci", clock)
    for _ in range(3):
        quarantine.add(where="offset 7", why="expected JSON", what="nonsense")
    assert quarantine.count == 1


async def test_many_repeated_messages_are_counted_and_logged_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    quarantine = Quarantine("aws", clock)
    for _ in range(5):
        for number in range(100):
            quarantine.add(where=f"message {number}", why="expected JSON", what="nonsense")
        await clock.sleep(timedelta(seconds=61))
    assert quarantine.count == 100
    assert len(caplog.records) == 20


async def test_repeated_message_is_shown_while_it_repeats(clock: Clock) -> None:
    quarantine = Quarantine("aws", clock)
    for _ in range(3):
        quarantine.add(where="message 7", why="expected JSON", what="nonsense")
        await clock.sleep(timedelta(minutes=50))
    assert quarantine.problems() == ("aws: 1 message could not be read, the latest at message 7: expected JSON",)


def test_excerpt_of_a_message_is_short_and_one_line() -> None:
    assert excerpt_of("a\nb\x1b[31m") == "a b [31m"
    assert len(excerpt_of("x" * 100_000)) < 400
