"""Durations of ISO 8601."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.providers.oci import maintenance_events


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT2H", timedelta(hours=2)),
        ("P1D", timedelta(days=1)),
        ("P5D", timedelta(days=5)),
        ("P2W", timedelta(weeks=2)),
        ("P1DT12H30M", timedelta(days=1, hours=12, minutes=30)),
        ("PT0S", timedelta()),
        ("PT1.5S", timedelta(seconds=1.5)),
        ("PT0,5H", timedelta(minutes=30)),
        ("pt90m", timedelta(minutes=90)),
        (" PT1M ", timedelta(minutes=1)),
        ("P1M", timedelta(days=31)),
        ("P1Y", timedelta(days=366)),
    ],
)
def test_iso_durations_are_parsed(text: str, expected: timedelta) -> None:
    assert maintenance_events.parse_iso_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1D", "P-1D", "-P1D", "PT2H1D", "P1S", "2h", "P999999Y", "P1D\x00"]
)
def test_malformed_iso_duration_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        maintenance_events.parse_iso_duration(text)


@given(st.text(alphabet="PTYMWDHS0123456789.,-+ ", max_size=30))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        assert maintenance_events.parse_iso_duration(text) >= timedelta()
    except ValueError as error:
        assert "expected a duration" in str(error)  # noqa: PT017 - most texts are refused, some are not
