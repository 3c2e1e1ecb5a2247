import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haulout.core import duration
from haulout.core.duration import DurationError

MOST = 2**63 - 1
LEAST = -(2**63)

# The results of Go 1.26 for each input: the nanoseconds and their format, or the error.
GO: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "go_durations.json").read_text())
GO_ACCEPTS = [row for row in GO if "error" not in row]
GO_REFUSES = [row for row in GO if "error" in row]

EXPECTED = "expected numbers with units (ns, us, ms, s, m, h), such as 90s, 1.5h or 1h30m"
EXPECTED_LESS = "a duration is at most about 292 years, 2562047h47m16.854775807s"

int64 = st.integers(LEAST, MOST)


def refusal(text: str) -> DurationError | None:
    try:
        duration.parse_nanoseconds(text)
    except DurationError as error:
        return error
    return None


def problem(text: str) -> str:
    error = refusal(text)
    return error.problem if error else "accepted"


def test_durations_parse_to_the_same_nanoseconds_as_in_go() -> None:
    assert len(GO_ACCEPTS) > 300
    parsed = {row["input"]: duration.parse_nanoseconds(row["input"]) for row in GO_ACCEPTS}
    assert parsed == {row["input"]: row["ns"] for row in GO_ACCEPTS}


def test_nanoseconds_are_formatted_as_in_go() -> None:
    written = {row["ns"]: duration.format_nanoseconds(row["ns"]) for row in GO_ACCEPTS}
    assert written == {row["ns"]: row["formatted"] for row in GO_ACCEPTS}


def test_durations_that_go_rejects_are_rejected_with_the_same_message() -> None:
    assert len(GO_REFUSES) > 150
    problems = {row["input"]: problem(row["input"]) for row in GO_REFUSES}
    assert problems == {row["input"]: row["error"] for row in GO_REFUSES}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1d", f'time: unknown unit "d" in duration "1d": {EXPECTED}'),
        ("5", f'time: missing unit in duration "5": {EXPECTED}'),
        ("", f'time: invalid duration "": {EXPECTED}'),
        ("3000000h", f'time: invalid duration "3000000h": {EXPECTED_LESS}'),
    ],
)
def test_duration_error_names_the_expected_format(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        duration.parse(text)


@given(int64)
@example(MOST)
@example(LEAST)
@example(LEAST + 1)
def test_formatted_durations_parse_to_the_same_value(nanoseconds: int) -> None:
    assert duration.parse_nanoseconds(duration.format_nanoseconds(nanoseconds)) == nanoseconds


@given(st.integers(-(MOST // 1_000), MOST // 1_000))
def test_formatted_timedelta_parses_to_the_same_value(microseconds: int) -> None:
    span = timedelta(microseconds=microseconds)
    assert duration.parse(duration.format(span)) == span


@given(int64)
def test_negative_durations_are_formatted_like_positive_ones_with_a_sign(nanoseconds: int) -> None:
    assert duration.format_nanoseconds(-abs(nanoseconds)).removeprefix("-") == duration.format_nanoseconds(
        abs(nanoseconds)
    )


@given(st.text(alphabet="0123456789.+-nuµμmsh ", max_size=12) | st.text(max_size=12))
@example("\ud800")  # no text that can be encoded, but a Python string
def test_any_text_is_a_duration_or_a_duration_error(text: str) -> None:
    error = refusal(text)
    if error:
        assert str(error).isprintable() or "\x7f" in text  # which Go does not escape
    else:
        assert LEAST <= duration.parse_nanoseconds(text) <= MOST


@given(
    whole=st.integers(0, 1_000),
    digits=st.text(alphabet="0123456789", min_size=1, max_size=9),
    sign=st.sampled_from(["", "+", "-"]),
)
def test_a_fraction_of_a_second_is_exact_to_the_nanosecond(whole: int, digits: str, sign: str) -> None:
    """Up to nine digits floats lose less than a nanosecond; they are cut like Go's, so one may be missing."""
    exact = whole * 10**9 + int(digits.ljust(9, "0"))
    parsed = abs(duration.parse_nanoseconds(f"{sign}{whole}.{digits}s"))
    assert exact - 1 <= parsed <= exact


def test_durations_with_thousands_of_digits_are_parsed() -> None:
    """Python itself refuses to convert so many at once."""
    zeros = "0" * 5_000
    assert duration.parse(f"{zeros}1s") == timedelta(seconds=1)
    assert duration.parse(f"1.{zeros}1s") == timedelta(seconds=1)
    with pytest.raises(DurationError):
        duration.parse(f"1{zeros}s")


def test_sum_that_overflows_64_bits_is_rejected() -> None:
    """Go parses this sum, 1 << 64, as zero."""
    with pytest.raises(DurationError):
        duration.parse_nanoseconds(f"{2**63}ns{2**63}ns")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("-1.5h", timedelta(hours=-1.5)),
        ("1999ns", timedelta(microseconds=1)),
        ("-1999ns", timedelta(microseconds=-1)),
        ("999ns", timedelta()),
        ("-999ns", timedelta()),
    ],
)
def test_fractions_of_a_microsecond_are_truncated_towards_zero(text: str, span: timedelta) -> None:
    assert duration.parse(text) == span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(microseconds=1), "1µs"),
        (timedelta(milliseconds=-1.5), "-1.5ms"),
        (timedelta(minutes=1), "1m0s"),
        (timedelta(days=1), "24h0m0s"),
        (timedelta(days=1_000_000), "24000000h0m0s"),
    ],
)
def test_timedelta_is_formatted_as_in_go(span: timedelta, text: str) -> None:
    """The last value is more than a Go duration can hold, but a person can read it."""
    assert duration.format(span) == text
