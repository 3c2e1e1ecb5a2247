"""Times as people type them."""

from datetime import UTC, datetime, timedelta

import pytest

from haulout.cli.times import format_instant, format_relative, format_timestamp, parse_instant, parse_span

NOW = datetime(2026, 11, 15, 23, 0, 0, 250_000, tzinfo=UTC)
SECOND = NOW.replace(microsecond=0)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", SECOND),
        (" NOW ", SECOND),
        ("+20m", SECOND + timedelta(minutes=20)),
        ("+1h30m", SECOND + timedelta(minutes=90)),
        ("+2d", SECOND + timedelta(days=2)),
        ("+1w2d3h", SECOND + timedelta(days=9, hours=3)),
        ("+0s", SECOND),
        ("2026-12-01T03:00:00Z", datetime(2026, 12, 1, 3, tzinfo=UTC)),
        ("2026-12-01t03:00z", datetime(2026, 12, 1, 3, tzinfo=UTC)),
        ("2026-12-01 03:00 +01:00", datetime(2026, 12, 1, 2, tzinfo=UTC)),
        ("2026-12-01T03:00:00-0530", datetime(2026, 12, 1, 8, 30, tzinfo=UTC)),
        ("2026-12-01T03:00:00.5Z", datetime(2026, 12, 1, 3, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_an_instant_is_told_or_counted_from_now(text: str, meant: datetime) -> None:
    assert parse_instant(text, now=NOW) == meant
    assert parse_instant(text, now=NOW).tzinfo is UTC


@pytest.mark.parametrize("text", ["2026-12-01 03:00", "2026-12-01T03:00:00"])
def test_a_time_without_a_zone_is_refused_with_how_to_add_one(text: str) -> None:
    stamp = text.replace(" ", "T")
    with pytest.raises(ValueError, match=r"the time zone of .* is missing; add Z for UTC, or an offset") as refused:
        parse_instant(text, now=NOW)
    assert str(refused.value).endswith(f"{stamp}Z, {stamp}+01:00")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-12-01", "the time of day is missing"),
        ("2026-12-01Z", "the time of day is missing"),
        ("2026-13-01T03:00Z", "'2026-13-01T03:00Z' is not a valid time"),
        ("2026-12-01T24:30Z", "'2026-12-01T24:30Z' is not a valid time"),
        ("0001-01-01T00:00+05:00", "'0001-01-01T00:00+05:00' is not a valid time"),
        ("9999-12-31T23:59-05:00", "'9999-12-31T23:59-05:00' is not a valid time"),
        ("tomorrow", "expected a time such as"),
        ("", "expected a time such as"),
        ("+", "expected a time such as"),
        ("+5", "expected a time such as"),
        ("+-5m", "expected a time such as"),
        ("-5m", "expected a time such as"),
        ("20m", "expected a time such as"),
        ("1764558000", "expected a time such as"),
        ("2026-12-01T03:00:00Z\n2026", "expected a time such as"),
    ],
)
def test_what_is_no_time_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expected") as refused:
        parse_instant(text, now=NOW)
    assert str(refused.value).startswith(says)


def test_the_longest_span_ahead_is_a_time() -> None:
    assert parse_instant("+9999w99999d2562047h", now=NOW).year > 2700


def test_times_are_told_in_utc_and_with_how_far_away_they_are() -> None:
    assert format_instant(SECOND + timedelta(minutes=20), now=SECOND) == "2026-11-15 23:20 UTC (in 20m0s)"
    assert format_instant(SECOND - timedelta(seconds=5), now=SECOND) == "2026-11-15 22:59:55 UTC (5s ago)"
    assert format_relative(SECOND, now=SECOND) == "0s ago"
    assert format_timestamp(parse_instant("2026-12-01T03:00+01:00", now=NOW)) == "2026-12-01 02:00"


def test_spans_are_those_of_history() -> None:
    assert parse_span("1w2d3h") == timedelta(days=9, hours=3)
    with pytest.raises(ValueError, match="expected a duration such as 90m, 12h, 7d or 2w, found 'soon'"):
        parse_span("soon")
