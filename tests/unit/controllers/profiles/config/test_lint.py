"""Lint of profiles that enter and leave maintenance for the same notice."""

import pytest

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.lint import transition_loops
from support.fakes.profile_node import load_configuration, registries_with_test_plugins

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: soon, type: notice, config: {when: due, leadTime: 168h}}
  - {name: due, type: notice, config: {when: due, leadTime: 40m}}
  - {name: near, type: notice, config: {when: due}}
  - {name: active, type: notice, config: {when: active}}
  - {name: over, type: notice, config: {when: over, leadTime: 1m}}
  - {name: over_aws, type: notice, config: {when: over, sources: [aws]}}
  - {name: due_aws, type: notice, config: {when: due, leadTime: 40m, sources: [aws]}}
  - {name: due_stop, type: notice, config: {when: due, leadTime: 40m, kinds: [Stop]}}
  - {name: ready, type: condition, config: {type: Ready, status: "True"}}
profiles:
- name: os
  operational:
    transitions: [{check: FIRST, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: CANCELLED, next: operational}, {check: SECOND, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: BACK, next: operational}]
"""


def loops_of(first: str, second: str, back: str, cancelled: str = "over", *, text: str = FILE) -> list[tuple[str, str]]:
    for name, chain in {"FIRST": first, "SECOND": second, "BACK": back, "CANCELLED": cancelled}.items():
        text = text.replace(f"check: {name},", f'check: "{chain}",')
    return [
        (contradiction.state, contradiction.reason.partition(" it passes")[0])
        for contradiction in transition_loops(load_configuration(text).profiles["os"])
    ]


@pytest.mark.parametrize(
    ("first", "second", "back"),
    [
        pytest.param("due", "due", "over", id="over reads the maintenance as due does"),
        pytest.param("due", "due", "!due && ready", id="the same check"),
        pytest.param("soon", "near", "!near", id="required a week ahead, maintenance later"),
        pytest.param("soon", "near && ready", "!near && ready", id="and with others"),
        pytest.param("near", "near", "!due", id="back looks further ahead"),
        pytest.param("ready", "ready", "!near", id="maintenance does not depend on the notice"),
        pytest.param("due", "due", "over_aws", id="over of one source alone"),
        pytest.param("due_aws", "due_aws", "!due", id="maintenance for one source, kept for all"),
    ],
)
def test_consistent_notice_checks_are_no_loop(first: str, second: str, back: str) -> None:
    assert loops_of(first, second, back) == []


@pytest.mark.parametrize(
    ("first", "second", "back", "when"),
    [
        pytest.param("due", "due", "!near", "40m before a maintenance (Reboot)", id="another lead time"),
        pytest.param("due", "ready", "!near || ready", "40m before a maintenance (Reboot)", id="beside others"),
        pytest.param("soon", "near || ready", "!near", "168h before a maintenance (Reboot)", id="a way around"),
        pytest.param("near", "near", "!active", "15m before a maintenance (Reboot)", id="before it begins"),
        pytest.param("due", "due", "!due_aws", "40m before a maintenance (Reboot)", id="of another source"),
        pytest.param("due", "due", "!due_stop", "40m before a maintenance (Reboot)", id="of another kind"),
    ],
)
def test_contradicting_notice_checks_are_a_loop_with_the_time_it_starts(
    first: str, second: str, back: str, when: str
) -> None:
    assert loops_of(first, second, back) == [("in-maintenance", when)]


def test_cancellation_before_maintenance_can_contradict() -> None:
    assert loops_of("soon", "near", "over", cancelled="!near") == [
        ("maintenance-required", "168h before a maintenance (Reboot)")
    ]


def test_transition_to_the_same_state_is_no_contradiction() -> None:
    unchanged_state = FILE.replace("check: BACK, next: operational", "check: BACK, next: in-maintenance")
    assert loops_of("due", "due", "!near", text=unchanged_state) == []


def test_loader_reports_the_key_of_a_contradiction() -> None:
    text = FILE.replace("check: BACK,", 'check: "!near",').replace("FIRST", "due").replace("SECOND", "due")
    [warning] = loader.load(text.replace("CANCELLED", "over").encode(), registries_with_test_plugins(), {}).warnings[
        -1:
    ]
    assert warning.key == "profiles[0].in-maintenance.transitions[0].check"
    assert warning.problem.endswith(
        "the node would go back and forth. A notice check with `when: over` waits for the end of the maintenance"
    )
