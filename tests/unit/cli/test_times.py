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
def test_instant_is_absolute_or_relative_to_now(text: str, meant: datetime) -> None:
    assert parse_instant(text, now=NOW) == meant
    assert parse_instant(text, now=NOW).tzinfo is UTC


@pytest.mark.parametrize("text", ["2026-12-01 03:00", "2026-12-01T03:00:00"])
def test_time_without_a_zone_is_refused_with_a_remedy(text: str) -> None:
    stamp = text.replace(" ", "T")
    with pytest.raises(ValueError, match=r"the time zone of .* is missing; add Z for UTC, or an offset") as refused:
        parse_instant(text, now=NOW)
    assert str(refused.value).endswith(f"{stamp}Z, {stamp}+01:00")


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_invalid_time_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=r"expected|Expected") as refused:
        parse_instant(text, now=NOW)
    assert str(refused.value).startswith(expected)


def test_largest_relative_duration_is_accepted() -> None:
    assert parse_instant("+9999w99999d2562047h", now=NOW).year > 2700


def test_instants_are_formatted_in_utc_with_the_distance_from_now() -> None:
    assert format_instant(SECOND + timedelta(minutes=20), now=SECOND) == "2026-11-15 23:20 UTC (in 20m0s)"
    assert format_instant(SECOND - timedelta(seconds=5), now=SECOND) == "2026-11-15 22:59:55 UTC (5s ago)"
    assert format_relative(SECOND, now=SECOND) == "0s ago"
    assert format_timestamp(parse_instant("2026-12-01T03:00+01:00", now=NOW)) == "2026-12-01 02:00"


def test_span_accepts_weeks_and_days() -> None:
    assert parse_span("1w2d3h") == timedelta(days=9, hours=3)
    with pytest.raises(ValueError, match="expected a duration such as 90m, 12h, 7d or 2w, found 'soon'"):
        parse_span("soon")
