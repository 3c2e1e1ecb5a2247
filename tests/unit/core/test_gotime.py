"""Instants in the format of Go."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core import timestamps
from haulout.core.timestamps import GO_ZERO_TIME

aware = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=7))])
)


def test_parsed_instants_keep_nanoseconds_and_their_text() -> None:
    early, late = (
        timestamps.parse_go_time("2024-05-01T10:00:00.123456788Z"),
        timestamps.parse_go_time("2024-05-01T10:00:00.123456789Z"),
    )
    assert early < late
    assert str(late) == "2024-05-01T10:00:00.123456789Z"
    assert late.instant == datetime(2024, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)


def test_equal_instants_in_other_formats_are_equal() -> None:
    assert timestamps.parse_go_time("2024-05-01T12:00:00+02:00") == timestamps.parse_go_time("2024-05-01T10:00:00.000Z")
    assert (
        len({timestamps.parse_go_time("2024-05-01T12:00:00+02:00"), timestamps.parse_go_time("2024-05-01T10:00:00Z")})
        == 1
    )


def test_never_is_the_zero_time_of_go() -> None:
    assert GO_ZERO_TIME.is_never
    assert str(GO_ZERO_TIME) == "0001-01-01T00:00:00Z"
    assert not timestamps.parse_go_time("2024-05-01T10:00:00Z").is_never


@pytest.mark.parametrize("text", ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
def test_instants_outside_the_range_of_datetime_are_clamped(text: str) -> None:
    assert timestamps.parse_go_time(text).instant.year in {1, 9999}


@pytest.mark.parametrize(
    "text", ["", "2024-05-01", "2024-02-30T00:00:00Z", "2024-05-01T10:00:00", "2024-05-01T10:00:00+24:00"]
)
def test_malformed_instants_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected an instant such as"):
        timestamps.parse_go_time(text)


@given(aware)
def test_formatted_instant_parses_to_the_same_value(instant: datetime) -> None:
    if instant.utctimetuple().tm_year in range(1, 10_000):
        written = timestamps.go_time_of(instant)
        assert timestamps.parse_go_time(written.text) == written
        assert written.instant == instant
        assert not written.text.endswith(("0Z", ".Z")) or "." not in written.text
