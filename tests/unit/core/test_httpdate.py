"""Dates of HTTP headers and clouds."""

from datetime import UTC, datetime

import pytest

from haulout.core import timestamps


@pytest.mark.parametrize(
    "text", ["Thu, 14 May 2026 09:30:00 GMT", "14 May 2026 09:30:00 GMT", " Thu, 14 May 2026 09:30:00 UTC\n"]
)
def test_http_dates_are_parsed(text: str) -> None:
    assert timestamps.parse_http_date(text) == datetime(2026, 5, 14, 9, 30, tzinfo=UTC)


def test_day_of_an_http_date_may_have_one_digit() -> None:
    assert timestamps.parse_http_date("4 Dec 2026 23:59:59 GMT") == datetime(2026, 12, 4, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-05-14T09:30:00Z",
        "Thu, 14 May 2026 09:30:00",  # without a time zone
        "Thu, 14 May 2026 09:30:00 CET",
        "Thu, 14 Mai 2026 09:30:00 GMT",
        "Thu, 31 Feb 2026 09:30:00 GMT",
        "Thu, 14 May 99999 09:30:00 GMT",
        "Thu, \u0661\u0664 May 2026 09:30:00 GMT",
    ],
)
def test_malformed_http_date_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected a date such as Thu, 14 May 2026 09:30:00 GMT"):
        timestamps.parse_http_date(text)
