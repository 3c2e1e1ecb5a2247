"""The data annotation shared with the Go controller, compared with Go's encoding/json."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.data_annotation import DataError, NodeData, ProfileData
from haulout.controllers.profiles.plugin import ProfileStatus
from haulout.core import timestamps
from haulout.core.timestamps import GO_ZERO_TIME

# What Go 1.26 makes of each annotation with the controller's struct and DisallowUnknownFields, and writes again.
GO: list[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "data" / "go_annotations.json").read_text())
# An empty annotation is never given to Go's reader, and the old layout is one that we still understand.
OURS = {"", '{"LastTransition":"2024-05-01T10:00:00Z"}'}
READ = [row for row in GO if "output" in row]
REFUSED = [row["input"] for row in GO if "refused" in row and row["input"] not in OURS]

instants = st.datetimes(timezones=st.timezones()).filter(lambda at: 2 < at.year < 9998).map(timestamps.go_time_of)
profiles = st.builds(ProfileData, transition=instants, current=st.text(), previous=st.text())
anything = st.builds(
    NodeData, profiles=st.dictionaries(st.text(), profiles), notifications=st.dictionaries(st.text(), instants)
)


def refusal(text: str) -> str:
    with pytest.raises(DataError) as caught:
        data_annotation.parse(text)
    return str(caught.value)


def test_data_is_parsed_like_in_go() -> None:
    assert len(READ) > 55
    for row in READ:
        assert data_annotation.parse(row["input"]) == data_annotation.parse(row["output"]), row["input"]


def test_data_is_written_like_in_go() -> None:
    written_by_go = [row["output"] for row in READ if ":null" not in row["output"]]
    assert [data_annotation.write(data_annotation.parse(text)) for text in written_by_go] == written_by_go


def test_input_refused_by_go_is_refused() -> None:
    assert len(REFUSED) > 70
    for text in REFUSED:
        assert refusal(text)


def test_missing_annotation_is_empty_data() -> None:
    assert data_annotation.parse(None) == data_annotation.parse("") == NodeData()
    assert data_annotation.write(NodeData()) == '{"Profiles":{},"Notifications":{}}'


def test_unchanged_times_keep_their_text() -> None:
    entry = '{"Transition":"2024-05-01T10:00:00.120+02:00","Current":"a","Previous":"b"}'
    text = f'{{"Profiles":{{"p":{entry}}},"Notifications":{{}}}}'
    assert data_annotation.write(data_annotation.parse(text)) == text


def test_unchanged_entries_are_written_as_before() -> None:
    before = (
        '{"Profiles":{"p":{"Transition":"2024-05-01T10:00:00.123456789Z","Current":"operational",'
        '"Previous":"operational"}},"Notifications":{"n":"2024-05-01T12:00:00.5+02:00","o":"0001-01-01T00:00:00Z"}}'
    )
    entries, notified = data_annotation.statuses_of(before), data_annotation.last_sent_of(before)
    assert entries["p"].transition == datetime(2024, 5, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert notified["o"] is None
    assert data_annotation.updated(before, entries, notified) == before


def test_changed_entries_are_written_anew() -> None:
    moved = ProfileStatus(
        current="in-maintenance", previous="operational", transition=datetime(2024, 5, 1, 10, 0, 1, 500, tzinfo=UTC)
    )
    assert data_annotation.updated("", {"p": moved}, {"n": None}) == (
        '{"Profiles":{"p":{"Transition":"2024-05-01T10:00:01.0005Z","Current":"in-maintenance",'
        '"Previous":"operational"}},"Notifications":{"n":"0001-01-01T00:00:00Z"}}'
    )


def test_unreadable_annotation_is_never_overwritten() -> None:
    with pytest.raises(DataError):
        data_annotation.updated('{"Owner":"me"}', {}, {})


def test_null_profile_is_absent() -> None:
    assert data_annotation.parse('{"Profiles":{"p":null,"q":{}}}').profiles == {"q": ProfileData()}


def test_layout_before_mid_2023_is_supported() -> None:
    text = (
        '{"LastTransition":"2022-05-01T10:00:00Z","LastNotificationTimes":{"n":"2022-05-02T10:00:00Z"},'
        '"ProfileStates":{"p":"in-maintenance","q":"operational"},"PreviousStates":{"p":"maintenance-required"}}'
    )
    last = timestamps.parse_go_time("2022-05-01T10:00:00Z")
    assert data_annotation.parse(text) == NodeData(
        profiles={
            "p": ProfileData(transition=last, current="in-maintenance", previous="maintenance-required"),
            "q": ProfileData(transition=last, current="operational", previous="operational"),
        },
        notifications={"n": timestamps.parse_go_time("2022-05-02T10:00:00Z")},
    )


def test_mixed_layouts_are_refused() -> None:
    assert "found 'ProfileStates'" in refusal('{"Profiles":{},"ProfileStates":{}}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"Profiles":{"p":{"Owner":"me"}}}', "expected Transition or Current or Previous in Profiles.p of"),
        (
            '{"Profiles":{"p":{"Transition":"soon"}}}',
            "Profiles.p.Transition in cloud.sap/maintenance-data: expected",
        ),
        ('{"Profiles":[]}', "expected an object as Profiles in cloud.sap/maintenance-data, found a list"),
        ("{", "expected JSON in annotation cloud.sap/maintenance-data"),
    ],
)
def test_data_error_states_problem_and_path(text: str, message: str) -> None:
    assert message in refusal(text)


@given(anything)
def test_data_round_trips(found: NodeData) -> None:
    assert data_annotation.parse(data_annotation.write(found)) == found


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,nul0 PNabZT-')))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        found = data_annotation.parse(text)
    except DataError:
        return
    assert data_annotation.parse(data_annotation.write(found)) == found


def test_deeply_nested_data_is_refused() -> None:
    assert refusal("[" * 100_000)


def test_missing_members_are_empty() -> None:
    assert data_annotation.parse('{"Profiles":{"p":{"Current":"a"}}}').profiles["p"] == ProfileData(
        transition=GO_ZERO_TIME, current="a", previous=""
    )
