from datetime import UTC, datetime, tzinfo
from functools import cache
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core import icalendar, walltime
from haulout.core.icalendar import Calendar
from haulout.errors import ConfigErrors

BERLIN = "Europe/Berlin"
OUTLOOK = """\
BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE"""


def calendar(*lines: str, before: str = "") -> Calendar:
    """Return a calendar with events, each of which begins with its DTSTART."""
    text = ["BEGIN:VCALENDAR", "VERSION:2.0", *before.splitlines()]
    for number, line in enumerate(lines):
        if line.startswith("DTSTART"):
            text += ["END:VEVENT"] * (number > 0) + ["BEGIN:VEVENT"]
        text.append(line)
    text += ["END:VEVENT", "END:VCALENDAR", ""]
    return icalendar.parse("\r\n".join(text).encode(), file="team.ics")


def busy(found: Calendar, *, zone: str = "UTC", first: str = "2026-01-01", last: str = "2029-01-01") -> list[str]:
    """Return the busy periods, in UTC."""
    begin, end = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (first, last))
    spans = sorted((each.start, each.end) for each in found.busy_periods(begin, end, walltime.zone(zone)))
    return [f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}" for start, end in spans]


def days(rule: str, *, start: str = "20260101", number: int = 6) -> list[str]:
    """Return the first days of a recurring all-day event."""
    found = calendar(f"DTSTART;VALUE=DATE:{start}", f"RRULE:{rule}")
    return list(islice((each[: len("2026-01-01")] for each in busy(found, last="2036-01-01")), number))


def problems(*lines: str, before: str = "") -> list[str]:
    with pytest.raises(ConfigErrors) as raised:
        calendar(*lines, before=before)
    return [str(each) for each in raised.value.errors]


# Single events


def test_event_is_busy_from_its_start_to_its_end() -> None:
    assert busy(calendar("DTSTART:20260302T100000Z", "DTEND:20260302T113000Z")) == [
        "2026-03-02 10:00 to 2026-03-02 11:30"
    ]


@pytest.mark.parametrize(
    ("duration", "end"),
    [("PT1H30M", "02 11:30"), ("P1D", "03 10:00"), ("P1W", "09 10:00"), ("P1DT2H", "03 12:00"), ("PT90S", "02 10:01")],
)
def test_an_event_may_have_a_duration(duration: str, end: str) -> None:
    found = calendar("DTSTART:20260302T100000Z", f"DURATION:{duration}")
    assert busy(found) == [f"2026-03-02 10:00 to 2026-03-{end}"]


def test_all_day_events_are_in_the_given_time_zone() -> None:
    found = calendar("DTSTART;VALUE=DATE:20260302", "DTEND;VALUE=DATE:20260304")
    assert busy(found) == ["2026-03-02 00:00 to 2026-03-04 00:00"]
    assert busy(found, zone="America/New_York") == ["2026-03-02 05:00 to 2026-03-04 05:00"]


@pytest.mark.parametrize("end", ["", "DTEND;VALUE=DATE:20260302", "DURATION:P1D"])
def test_all_day_event_without_an_end_lasts_one_day(end: str) -> None:
    found = calendar("DTSTART;VALUE=DATE:20260302", *([end] if end else []))
    assert busy(found) == ["2026-03-02 00:00 to 2026-03-03 00:00"]


def test_floating_times_are_in_the_given_time_zone() -> None:
    found = calendar("DTSTART:20260702T100000", "DTEND:20260702T110000")
    assert busy(found, zone=BERLIN) == ["2026-07-02 08:00 to 2026-07-02 09:00"]


@pytest.mark.parametrize(
    "name", [BERLIN, f'"{BERLIN}"', f"/example.org/20050126_1/{BERLIN}", "W. Europe Standard Time"]
)
def test_tzid_is_an_iana_name_or_a_vtimezone_of_the_file(name: str) -> None:
    found = calendar(
        *(f"DTSTART;TZID={name}:20260114T100000", f"DTEND;TZID={name}:20260114T110000"),
        *(f"DTSTART;TZID={name}:20260714T100000", f"DTEND;TZID={name}:20260714T110000"),
        before=OUTLOOK,
    )
    assert busy(found) == ["2026-01-14 09:00 to 2026-01-14 10:00", "2026-07-14 08:00 to 2026-07-14 09:00"]


@cache
def defined_zone() -> tzinfo:
    (event,) = calendar("DTSTART;TZID=W. Europe Standard Time:20260114T100000", "DURATION:PT1H", before=OUTLOOK).events
    assert event.start.zone is not None
    return event.start.zone


@given(st.datetimes(datetime(1996, 10, 28), datetime(2037, 1, 1)))  # noqa: DTZ001 - wall times have no zone
def test_vtimezone_has_the_same_offsets_as_the_iana_zone(wall: datetime) -> None:
    defined, known = defined_zone(), walltime.zone(BERLIN)
    for last in (False, True):
        assert walltime.instant(wall, defined, last=last) == walltime.instant(wall, known, last=last)
    now = wall.replace(tzinfo=UTC)
    assert now.astimezone(defined).replace(tzinfo=None) == now.astimezone(known).replace(tzinfo=None)
    assert now.astimezone(defined).fold == now.astimezone(known).fold


def test_dtend_may_be_in_another_time_zone_than_dtstart() -> None:
    found = calendar(f"DTSTART;TZID={BERLIN}:20260302T100000", "DTEND;TZID=America/New_York:20260302T100000")
    assert busy(found) == ["2026-03-02 09:00 to 2026-03-02 15:00"]


def test_cancelled_events_are_not_busy_but_transparent_ones_are() -> None:
    found = calendar(
        *("DTSTART;VALUE=DATE:20260302", "STATUS:CANCELLED"), *("DTSTART;VALUE=DATE:20260502", "TRANSP:TRANSPARENT")
    )
    assert busy(found) == ["2026-05-02 00:00 to 2026-05-03 00:00"]


def test_summaries_are_unfolded_and_unescaped() -> None:
    data = (
        "\ufeffBEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20260302\r\n".encode()
        + b"SUMMARY;LANGUAGE=de:Fr\xc3\r\n \xbchling\\, Sommer\\; Herb\r\n\tst\\nund Winter \\\\o/\r\n"
        + b"END:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    (event,) = icalendar.parse(data, file="team.ics").events
    assert event.title == "Frühling, Sommer; Herbst und Winter \\o/"


def test_event_without_a_duration_is_not_busy_and_causes_a_warning() -> None:
    found = calendar("DTSTART:20260302T100000Z", "SUMMARY:Reminder")
    assert busy(found) == []
    assert found.warnings == ("line 3: Reminder has no duration and therefore no effect",)


# Series


@pytest.mark.parametrize(
    ("rule", "start", "expected"),
    [
        ("FREQ=DAILY;INTERVAL=10", "20260101", "01-01 01-11 01-21 01-31 02-10 02-20"),
        ("FREQ=DAILY;BYDAY=SA,SU", "20260103", "01-03 01-04 01-10 01-11 01-17 01-18"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=1,-1", "20260201", "02-01 02-28"),
        ("FREQ=WEEKLY", "20260102", "01-02 01-09 01-16 01-23 01-30 02-06"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=MO;COUNT=4", "20260106", "01-06 01-11 01-20 01-25"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU;COUNT=4", "20260106", "01-06 01-18 01-20 02-01"),
        ("FREQ=MONTHLY", "20260131", "01-31 03-31 05-31 07-31 08-31 10-31"),
        ("FREQ=MONTHLY;BYDAY=2TU", "20260113", "01-13 02-10 03-10 04-14 05-12 06-09"),
        ("FREQ=MONTHLY;BYDAY=-1FR", "20260130", "01-30 02-27 03-27 04-24 05-29 06-26"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1;COUNT=3", "20260131", "01-31 02-28 03-31"),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "20260130", "01-30 02-27 03-31 04-30 05-29 06-30"),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "20260213", "02-13 03-13 11-13"),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20271231", "20261126", "11-26"),
        ("FREQ=YEARLY;BYDAY=1MO;UNTIL=20261231", "20260105", "01-05"),
        ("FREQ=YEARLY;BYMONTH=1,7;UNTIL=20261231", "20260115", "01-15 07-15"),
        ("FREQ=YEARLY;BYMONTHDAY=1;UNTIL=20260301", "20260101", "01-01 02-01 03-01"),
    ],
)
def test_rrule_selects_days(rule: str, start: str, expected: str) -> None:
    in_2026 = [each for each in days(rule, start=start) if each.startswith("2026")]
    assert in_2026 == [f"2026-{each}" for each in expected.split()]


def test_yearly_rule_on_a_leap_day_repeats_every_fourth_year() -> None:
    assert days("FREQ=YEARLY", start="20240229") == ["2028-02-29", "2032-02-29"]


def test_series_that_started_decades_ago_continues() -> None:
    assert days("FREQ=DAILY;INTERVAL=3", start="19700101", number=2) == ["2026-01-01", "2026-01-04"]


def test_dtstart_belongs_to_a_series_even_if_its_rule_does_not_match() -> None:
    assert days("FREQ=WEEKLY;BYDAY=FR;COUNT=3", start="20260101") == ["2026-01-01", "2026-01-02", "2026-01-09"]


def test_series_keeps_its_wall_time_across_dst_changes() -> None:
    found = calendar(
        *(f"DTSTART;TZID={BERLIN}:20260328T220000", f"DTEND;TZID={BERLIN}:20260329T060000"), "RRULE:FREQ=DAILY;COUNT=2"
    )
    assert busy(found) == ["2026-03-28 21:00 to 2026-03-29 04:00", "2026-03-29 20:00 to 2026-03-30 04:00"]


def test_event_at_an_ambiguous_wall_time_covers_both_instants() -> None:
    back = calendar(f"DTSTART;TZID={BERLIN}:20261025T021500", f"DTEND;TZID={BERLIN}:20261025T024500")
    assert busy(back) == ["2026-10-25 00:15 to 2026-10-25 01:45"]
    forward = calendar(f"DTSTART;TZID={BERLIN}:20260329T021500", f"DTEND;TZID={BERLIN}:20260329T024500")
    assert busy(forward) == ["2026-03-29 01:00 to 2026-03-29 01:45"]


@pytest.mark.parametrize(
    ("until", "number"), [("20260103T090000Z", 3), ("20260103T085959Z", 2), ("20260103", 3), ("20260103T100000", 3)]
)
def test_series_ends_with_the_occurrence_at_until(until: str, number: int) -> None:
    found = calendar(f"DTSTART;TZID={BERLIN}:20260101T100000", "DURATION:PT1H", f"RRULE:FREQ=DAILY;UNTIL={until}")
    assert len(busy(found)) == number


def test_exdate_removes_and_rdate_adds_occurrences() -> None:
    found = calendar(
        *(f"DTSTART;TZID={BERLIN}:20260105T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=5"),
        *(f"EXDATE;TZID={BERLIN}:20260106T100000,20260107T100000", "EXDATE:20260108T090000Z"),
        *("RDATE:20260201T120000Z", "RDATE;VALUE=PERIOD:20260301T120000Z/PT3H,20260302T120000Z/20260302T130000Z"),
    )
    assert busy(found) == [
        "2026-01-05 09:00 to 2026-01-05 10:00",
        "2026-01-09 09:00 to 2026-01-09 10:00",
        "2026-02-01 12:00 to 2026-02-01 13:00",
        "2026-03-01 12:00 to 2026-03-01 15:00",
        "2026-03-02 12:00 to 2026-03-02 13:00",
    ]


def test_exdate_may_be_a_day_in_a_series_of_times() -> None:
    found = calendar(
        *("DTSTART:20260105T100000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=2", "EXDATE;VALUE=DATE:20260106")
    )
    assert busy(found) == ["2026-01-05 10:00 to 2026-01-05 11:00"]


def test_recurrence_id_moves_or_cancels_one_occurrence() -> None:
    found = calendar(
        *("DTSTART:20260105T100000Z", "DURATION:PT1H", "UID:a", "RRULE:FREQ=DAILY;COUNT=4"),
        *("DTSTART:20260106T150000Z", "DURATION:PT2H", "UID:a", "RECURRENCE-ID:20260106T100000Z"),
        *("DTSTART:20260107T100000Z", "DURATION:PT1H", "UID:a", "RECURRENCE-ID:20260107T100000Z", "STATUS:CANCELLED"),
        *("DTSTART:20260108T100000Z", "DURATION:PT3H", "UID:b", "RECURRENCE-ID:20260108T100000Z"),
    )
    assert busy(found) == [
        "2026-01-05 10:00 to 2026-01-05 11:00",
        "2026-01-06 15:00 to 2026-01-06 17:00",
        "2026-01-08 10:00 to 2026-01-08 11:00",
        "2026-01-08 10:00 to 2026-01-08 13:00",
    ]


# Errors


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["RRULE:FREQ=HOURLY"], "5: RRULE: expected FREQ to be DAILY, WEEKLY, MONTHLY or YEARLY, found HOURLY"),
        (["RRULE:INTERVAL=2"], "5: RRULE: expected FREQ to be DAILY, WEEKLY, MONTHLY or YEARLY, found none"),
        (["RRULE:FREQ=YEARLY;BYWEEKNO=20"], "5: RRULE: BYWEEKNO is not supported"),
        (["RRULE:FREQ=DAILY;BYHOUR=9"], "5: RRULE: BYHOUR is not supported"),
        (["RRULE:FREQ=DAILY;COUNT=2;UNTIL=20260101"], "5: RRULE: expected COUNT or UNTIL, found both"),
        (["RRULE:FREQ=DAILY;COUNT=0"], "5: RRULE: expected COUNT to be a number from 1 to 1000000, found '0'"),
        (["RRULE:FREQ=DAILY;INTERVAL=x"], "5: RRULE: expected INTERVAL to be a number from 1 to 10000, found 'X'"),
        (["RRULE:FREQ=WEEKLY;BYDAY=1MO"], "5: RRULE: expected BYDAY without numbers in a WEEKLY rule, found 1MO"),
        (["RRULE:FREQ=WEEKLY;BYMONTHDAY=1"], "5: RRULE: expected no BYMONTHDAY in a WEEKLY rule"),
        (["RRULE:FREQ=MONTHLY;BYDAY=XX"], "5: RRULE: expected a weekday such as MO, 1MO or -1FR, found 'XX'"),
        (["RRULE:FREQ=MONTHLY;BYMONTHDAY=0"], "5: RRULE: expected BYMONTHDAY to be a number other than 0"),
        (["RRULE:FREQ=MONTHLY;FREQ=DAILY"], "5: RRULE: expected FREQ once, found it twice"),
        (["RRULE:DAILY"], "5: RRULE: expected parts such as FREQ=DAILY, found 'DAILY'"),
        (["EXRULE:FREQ=DAILY"], "5: EXRULE: it is not supported; expected EXDATE instead"),
        (["RECURRENCE-ID;RANGE=THISANDFUTURE:20260302"], "5: RECURRENCE-ID: RANGE='THISANDFUTURE' is not supported"),
        (["DTEND:20260301T100000Z"], "5: DTEND: the end must not be before the start"),
        (["DTEND;VALUE=DATE:20260303"], "5: DTEND: expected a start and an end that are both days, or both times"),
        (["DTEND:20260302T120000"], "5: DTEND: expected a start and an end that are both with a time zone"),
        (["DTEND:2026-03-02"], "5: DTEND: expected a day or a time such as 20261224 or 20261224T180000Z, found '2026-"),
        (["DTEND:20260230T000000Z"], "5: DTEND: expected a day or a time that exists, found '20260230T000000Z': day"),
        (["DTEND:99990101T000000Z"], "5: DTEND: expected a year from 1900 to 2199, found 9999"),
        (["DURATION:-PT1H"], "5: DURATION: expected a length of 0 to 100 years, found -PT1H"),
        (["DURATION:1h"], "5: DURATION: expected a length such as PT1H30M or P1D, found '1h'"),
        (["DURATION:PT1H", "DTEND:20260302T120000Z"], "5: DURATION: expected DTEND or DURATION, found both"),
        (["DTEND;TZID=Mars/Base:20260302T120000"], "5: DTEND: expected a time zone that is known, or defined by a"),
        (["EXDATE:x"], "5: EXDATE: expected a day or a time"),
        (["RDATE;VALUE=PERIOD:20260302T100000Z"], "5: RDATE: expected a period such as 20261224T180000Z/PT2H"),
        (["SUMMARY without a colon"], "5: expected a line such as SUMMARY:Freeze, found 'SUMMARY without a colon'"),
        (["DURATION:P400D", "RRULE:FREQ=YEARLY"], "3: VEVENT: expected an event that is repeated to last at most 366"),
    ],
)
def test_invalid_or_unsupported_properties_are_reported_with_their_line(lines: list[str], message: str) -> None:
    (problem,) = problems("DTSTART:20260302T100000Z", *lines)
    assert problem.startswith(f"team.ics:{message}")


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        "DTSTART:tomorrow", "DTSTART:20260302T100000Z", "RRULE:FREQ=SECONDLY", "DTSTART;TZID=X:20260302T100000"
    )
    assert [each.split(": ")[0] for each in found] == ["team.ics:4", "team.ics:8", "team.ics:11"]


def test_malformed_vtimezone_is_reported() -> None:
    broken = OUTLOOK.replace("TZOFFSETTO:+0200", "TZOFFSETTO:two")
    (problem,) = problems("DTSTART;TZID=W. Europe Standard Time:20260114T100000", before=broken)
    assert problem == "team.ics:11: DAYLIGHT: expected an offset such as +0100, found 'two'"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "1: expected BEGIN:VCALENDAR, found nothing"),
        (b"<!DOCTYPE html>\n<html>\n", "1: expected a line such as SUMMARY:Freeze, found '<!DOCTYPE html>'"),
        (b"BEGIN:VEVENT\nEND:VEVENT\n", "1: expected BEGIN:VCALENDAR, found BEGIN:'VEVENT'"),
        (b"BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "1: expected END:VCALENDAR for this; the file seems to be cut off"),
        (b"BEGIN:VCALENDAR\nEND:VEVENT\nEND:VCALENDAR\n", "2: expected END:VCALENDAR, found END:VEVENT"),
        (b"BEGIN:VCALENDAR\nVERSION:1.0\nEND:VCALENDAR\n", "2: VERSION: expected 2.0, found '1.0'"),
        (b"BEGIN:VCALENDAR\nBEGIN:VFREEBUSY\nEND:VFREEBUSY\nEND:VCALENDAR\n", "2: VFREEBUSY: it is not supported"),
        (b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VEVENT\nEND:VCALENDAR\n", "2: VEVENT: expected DTSTART, found none"),
        (b"BEGIN:VCALENDAR\nVERSION:\xff\nEND:VCALENDAR\n", "2: expected text in UTF-8, found other bytes"),
        (b"x" * (icalendar.MAX_BYTES + 1), "1: expected at most 1048576 bytes, found 1048577"),
    ],
)
def test_file_that_is_no_calendar_is_rejected(data: bytes, message: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        icalendar.parse(data, file="team.ics")
    assert str(raised.value.errors[0]).startswith(f"team.ics:{message}")


def test_vtodo_entries_are_ignored_with_a_warning() -> None:
    found = calendar("DTSTART;VALUE=DATE:20260302", before="BEGIN:VTODO\nDUE:whenever\nEND:VTODO")
    assert found.warnings == ("VTODO entries are not events: they are ignored",)


def test_calendars_of_equal_files_are_equal() -> None:
    assert calendar("DTSTART;VALUE=DATE:20260302") == calendar("DTSTART;VALUE=DATE:20260302")
    assert calendar("DTSTART;VALUE=DATE:20260302") != calendar("DTSTART;VALUE=DATE:20260303")


# Hostile files


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["DTSTART:20260302T100000Z"] * 20_001, "at most 20000 events"),
        (["DTSTART:20260302T100000Z", "RRULE:FREQ=DAILY"] * 137, "at most 50000 times in a year"),
        (["DTSTART:20260302T100000Z", "RRULE:FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU"] * 137, "at most 50000 times"),
        (["DTSTART:20260302T100000Z", "EXDATE:" + "20260302," * 20_001], "at most 20000 listed dates"),
        (
            ["DTSTART:19000101T100000Z", "RRULE:FREQ=MONTHLY;COUNT=1000000;BYMONTH=2;BYMONTHDAY=30"] * 100,
            "a COUNT that",
        ),
        (["DTSTART:20260302T100000Z", "X:" + "a" * 100_000, "BEGIN:X"] + ["BEGIN:X"] * 1000, "at most 8 components"),
    ],
)
def test_calendar_beyond_the_limits_is_rejected_quickly(lines: list[str], message: str) -> None:
    assert any(message in each for each in problems(*lines))


@given(
    st.lists(
        st.sampled_from(
            [
                *("BEGIN:VCALENDAR", "END:VCALENDAR", "BEGIN:VEVENT", "END:VEVENT", "DTSTART:20260302T100000Z"),
                *(
                    "DTSTART;VALUE=DATE:20260302",
                    "DTEND:20260302T120000Z",
                    "DURATION:P1D",
                    "RRULE:FREQ=MONTHLY;BYDAY=5MO",
                ),
                *("EXDATE:20260302T100000Z", "RDATE:20260402", "RECURRENCE-ID:20260302", "UID:a", "BEGIN:VTIMEZONE"),
                *(
                    "TZID:X",
                    "END:VTIMEZONE",
                    "DTSTART;TZID=X:21991231T235959",
                    "RRULE:FREQ=YEARLY;COUNT=9",
                    " x",
                    ":",
                    ";",
                ),
            ]
        )
        | st.text(max_size=30),
        max_size=25,
    )
)
def test_any_calendar_is_parsed_or_raises_config_errors(lines: list[str]) -> None:
    try:
        found = icalendar.parse("\n".join(lines).encode("utf-8", "surrogatepass"), file="team.ics")
    except ConfigErrors:
        return
    busy(found, last="2031-01-01")
