"""Chains and states as the SAP maintenance-controller tests them, one step at a time."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.machine.data_annotation import DataError, NodeData
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from haulout.controllers.profiles.plugins.notifications._common import render
from haulout.controllers.profiles.status import NodeProfilesStatus, NodeStatuses, as_json
from haulout.errors import ConfigErrors
from support.fakes.cluster_view import NOW
from support.fakes.external_client import a_message
from support.fakes.profile_node import DRAINED, DRAINING, ProfileNode, load_configuration

OPERATIONAL, REQUIRED, MAINTAINED = State

INSTANCES = """
intervals: {requeue: 10m}
instances:
  check:
  - {name: "True", type: says, config: {about: "true"}}
  - {name: "False", type: says, config: {about: "false"}}
  - {name: Error, type: says, config: {about: error}}
  - {name: own, type: clusterSemver, config: {key: version}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 1h}}
  - name: too
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 1h}}
  - name: broken
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: breaks, config: {}}
  trigger:
  - {name: one, type: counts, config: {label: one}}
  - {name: two, type: counts, config: {label: two}}
  - {name: bad, type: eviction, config: {action: uncordon}}
  - {name: drain, type: eviction, config: {action: drain}}
"""
RESULTS = {"true": "yes", "false": "no", "error": "error"}
STATES = pytest.mark.parametrize("state", list(State))


def a_profile_node(
    *, state: State = OPERATIONAL, previous: str = "", annotations: Mapping[str, str] | None = None, **has: Any
) -> ProfileNode:
    """Return a node whose profile `p` is in a state with these YAML keys."""
    lines = "".join(f"    {key}: {value}\n" for key, value in has.items())
    entry = {"Transition": "2024-05-01T09:00:00Z", "Current": state, "Previous": previous or state}
    known = {DATA_ANNOTATION: json.dumps({"Profiles": {"p": entry}, "Notifications": {}})}
    return ProfileNode(
        f"{INSTANCES}profiles:\n- name: p\n  {state}:\n{lines or '    enter:'}",
        labels={PROFILE_LABEL: "p"},
        annotations={**RESULTS, **known, **(annotations or {})},
    )


def another(state: State) -> State:
    return OPERATIONAL if state is not OPERATIONAL else REQUIRED


def transition(check: str, state: State = OPERATIONAL, *, trigger: str = "") -> str:
    return f"[{{check: {json.dumps(check)}, next: {another(state)}, trigger: {trigger or '~'}}}]"


# Chains of checks


@pytest.mark.parametrize(
    ("chain", "passes"),
    [
        pytest.param("True && True && True", True, id="P02"),
        pytest.param("True && False && True && False", False, id="P03"),
        pytest.param("True || True || True", True, id="P04"),
        pytest.param("True || False", True, id="P05"),
        pytest.param("False || True", True, id="P05 the other way"),
        pytest.param("!True", False, id="P06"),
        pytest.param("!False", True, id="P06 the other way"),
    ],
)
def test_check_chain_evaluates_all_members(chain: str, passes: bool) -> None:  # noqa: FBT001 - a table
    """P02, P03, P04, P05, P06, P08: all members are evaluated; equal ones are evaluated once."""
    profile_node = a_profile_node(transitions=transition(chain))
    profile_node.reconcile()
    (report,) = profile_node.report("p").transitions
    assert (report.chain_passed, profile_node.state("p")) == (passes, REQUIRED if passes else OPERATIONAL)
    assert set(report.checks) == set(chain.replace("!", "").replace("&&", " ").replace("||", " ").split())
    assert {name: check.result.passed for name, check in report.checks.items()} == {
        name: name == "True" for name in report.checks
    }


@pytest.mark.parametrize("chain", ["Error && True", "Error || True", "True || Error", "!Error"])
def test_error_in_a_check_chain_is_reported_and_the_other_members_are_evaluated(chain: str) -> None:
    """P07, P19: the error names the instance and its problem."""
    profile_node = a_profile_node(transitions=transition(chain))
    profile_node.reconcile()
    (report,) = profile_node.report("p").transitions
    assert (profile_node.state("p"), report.chain_passed) == (OPERATIONAL, False)
    assert report.error == "Error: it could not be asked"
    assert ("True" in report.checks) == ("True" in chain)
    assert all(check.result.passed for name, check in report.checks.items() if name == "True")
    assert profile_node.report("p").failed_part == "At least one check plugin failed"


def test_info_is_kept_on_an_error() -> None:
    """P08."""
    profile_node = a_profile_node(transitions=transition("own || True"))
    profile_node.label({"version": "latest"})
    profile_node.reconcile()
    infos = as_json(
        [NodeProfilesStatus("n1", {}, profile_node.result.reports if profile_node.result else (), NOW, None)],
        label_filter=(),
    )
    info = infos[0]["profiles"][0]["applied"]["transitions"][0]["chain"]["info"]
    assert info["True"] == {"id": "says", "passed": True, "info": {}}
    assert (info["own"]["id"], info["own"]["passed"]) == ("clusterSemver", False)
    assert info["own"]["info"]["error"].startswith("label version of node n1: 'latest' is no semantic version")


@pytest.mark.parametrize("key", ["enter", "notify"])
def test_chains_may_be_empty_except_checks(key: str) -> None:
    """P01, P09, P12, P25; but for checks: a transition without any would happen at once, and is refused."""
    for text in ("", '""', "~"):
        has: dict[str, Any] = {key: text}
        profile_node = a_profile_node(**has)
        profile_node.reconcile()
        assert (profile_node.report("p").error, profile_node.state("p")) == ("", OPERATIONAL)
    with pytest.raises(ConfigErrors, match="expected a text, found an empty text"):
        a_profile_node(transitions=transition(""))


# Chains of triggers and notifications


def test_all_members_of_a_trigger_chain_run() -> None:
    """P10."""
    profile_node = a_profile_node(transitions=transition("True", trigger="one && two && one"))
    profile_node.reconcile()
    assert (profile_node.labels["one"], profile_node.labels["two"]) == ("2", "1")


def test_trigger_chain_stops_at_its_first_error_without_changes() -> None:
    """P11, P19."""
    profile_node = a_profile_node(
        transitions=transition("True", trigger="one && bad && two"), annotations={"haulout.dev/cordon": "{"}
    )
    profile_node.reconcile()
    assert profile_node.state("p") == OPERATIONAL
    assert not {"one", "two"} & set(profile_node.labels)
    assert profile_node.report("p").error.startswith("bad: annotation haulout.dev/cordon of node n1 is invalid")


@pytest.mark.parametrize("chain", ["drain", "one && drain && two"])
def test_pending_action_is_no_error_at_any_place_of_a_chain(chain: str) -> None:
    """P20; 12.9: retry signal in enter and trigger through the whole controller (see test_suite)."""
    in_trigger = a_profile_node(transitions=transition("True", trigger=chain))
    on_entering = a_profile_node(
        state=REQUIRED, previous=OPERATIONAL, enter=chain, transitions=transition("True", REQUIRED)
    )
    for profile_node in (in_trigger, on_entering):
        profile_node.reconcile()
        profile_node.drains = {"p": DRAINING}
        before = profile_node.state("p")
        profile_node.reconcile()
        report = profile_node.report("p")
        assert (report.waits_for, report.error, report.failed_part) == ("0 of 2 pods have left", "", "")
        assert (profile_node.state("p"), "two" in profile_node.labels) == (before, False)
        profile_node.drains = {"p": DRAINED}
        profile_node.reconcile()
        assert profile_node.state("p") != before
        assert ("two" in profile_node.labels) == ("two" in chain)


def test_notification_chain_sends_all_and_reports_a_failing_schedule() -> None:
    """P12; W01, W02: in Go the chain stopped there. What is due is sent all the same, and once."""
    profile_node = a_profile_node(state=REQUIRED, previous=OPERATIONAL, notify="told && too")
    assert [notification.instance for notification in profile_node.reconcile().notifications] == ["told", "too"]
    profile_node = a_profile_node(state=REQUIRED, previous=OPERATIONAL, notify="told && broken && too")
    sent = [
        notification.instance for result in profile_node.reconcile_times(4) for notification in result.notifications
    ]
    assert sent == ["told", "too"]
    assert profile_node.report("p").failed_part == "At least one notification plugin failed"


def test_template_renders_the_state() -> None:
    """P13."""
    assert render("message", "{{.State}}", a_message(state=REQUIRED)) == REQUIRED


def test_profile_has_the_plugins_of_its_chains() -> None:
    """C09."""
    profile = """profiles:
- name: count
  operational:
    transitions: [{check: "True", next: maintenance-required, trigger: one}]
  maintenance-required:
    transitions: [{check: "True && False", next: in-maintenance}]
  in-maintenance:
    enter: one
    transitions: [{check: "True && False && True", next: operational}]
"""
    states = load_configuration(INSTANCES + profile).profiles["count"].states
    numbers = [
        [(len(transition.check.members), len(transition.trigger)) for transition in states[each].transitions]
        for each in State
    ]
    assert numbers == [[(1, 1)], [(2, 0)], [(3, 0)]]
    assert [len(states[each].enter) for each in State] == [0, 0, 1]
    assert not any(states[each].notify for each in State)


# States


@STATES
def test_state_without_transitions_stays(state: State) -> None:
    """S01, S02."""
    profile_node = a_profile_node(state=state)
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.labels[STATE_LABEL]) == (state, state)
    assert profile_node.report("p").transitions == ()


@STATES
def test_trigger_runs_before_the_transition(state: State) -> None:
    """S03."""
    profile_node = a_profile_node(state=state, transitions=transition("True", state, trigger="one"))
    profile_node.reconcile()
    assert (profile_node.labels["one"], profile_node.state("p")) == ("1", another(state))


@STATES
@pytest.mark.parametrize("target", ["", "gone", "Operational", "operational "])
def test_invalid_target_state_is_refused(state: State, target: str) -> None:
    """S03, S12."""
    with pytest.raises(ConfigErrors, match=r"next: expected (a text|operational, maintenance-required or)"):
        a_profile_node(state=state, transitions=f'[{{check: "True", next: "{target}", trigger: one}}]')


@STATES
def test_entering_a_state_notifies_and_runs_its_enter_chain(state: State) -> None:
    """S04, S06, S10."""
    profile_node = a_profile_node(state=state, previous=another(state), notify="told", enter="one")
    sent = [item for result in profile_node.reconcile_times(3) for item in result.notifications]
    assert [(item.instance, item.state) for item in sent] == [("told", state)]
    assert profile_node.labels["one"] == "1"


@STATES
@pytest.mark.parametrize(
    ("check", "moves", "error"), [("True", True, ""), ("False", False, ""), ("Error", False, "Error")]
)
def test_check_passes_blocks_or_fails_a_transition(state: State, check: str, moves: bool, error: str) -> None:  # noqa: FBT001 - a table
    """S05."""
    profile_node = a_profile_node(state=state, transitions=transition(check, state))
    profile_node.reconcile()
    report = profile_node.report("p")
    assert profile_node.state("p") == (another(state) if moves else state)
    assert bool(report.error) == bool(error)
    assert error in report.error
    assert len(report.transitions) == 1
    assert len(report.transitions[0].checks) == 1


def test_periodic_notification_while_operational_is_sent_only_after_a_state_change() -> None:
    """S07."""
    changed = a_profile_node(previous=MAINTAINED, notify="told")
    assert [len(decision.notifications) for decision in changed.reconcile_times(3)] == [1, 0, 0]
    same = a_profile_node(notify="told")
    assert [len(same.reconcile(elapsed=timedelta(hours=5)).notifications) for _ in range(3)] == [0, 0, 0]


def test_each_notification_of_a_chain_is_sent_once_per_interval() -> None:
    """S08."""
    profile_node = a_profile_node(state=REQUIRED, previous=OPERATIONAL, notify="told && too")
    assert len(profile_node.reconcile().notifications) == 2
    assert len(profile_node.reconcile(elapsed=timedelta(minutes=59)).notifications) == 0
    assert [
        notification.instance for notification in profile_node.reconcile(elapsed=timedelta(minutes=1)).notifications
    ] == [
        "told",
        "too",
    ]


@pytest.mark.parametrize(
    ("has", "transitions"),
    [
        ({"notify": "broken", "transitions": transition("False")}, 1),
        ({"transitions": transition("Error")}, 1),
        ({"transitions": transition("True", trigger="bad")}, 1),
    ],
)
def test_failure_keeps_the_state_and_reports_an_error(has: dict[str, Any], transitions: int) -> None:
    """S09; but a failing notification blocks no transition (W02), so transitions are evaluated."""
    profile_node = a_profile_node(annotations={"haulout.dev/cordon": "{"}, **has)
    profile_node.reconcile()
    report = profile_node.report("p")
    assert (report.state, report.next, len(report.transitions)) == (OPERATIONAL, OPERATIONAL, transitions)
    assert report.error


def test_data_may_be_empty_and_must_be_json() -> None:
    """S11."""
    assert data_annotation.parse("{}") == NodeData(profiles={}, notifications={})
    with pytest.raises(DataError):
        data_annotation.parse("{{}")


# Node statuses


def test_latest_status_of_each_node_is_kept_with_the_filtered_labels() -> None:
    """K01, N01, N02."""
    info, labels = NodeStatuses(), {"n1": {"zone": "a", "pool": "b"}, "n2": {}}
    for name, minute in (("n1", 0), ("n2", 1), ("n1", 2)):
        info.store(NodeProfilesStatus(name, labels[name], (), NOW + timedelta(minutes=minute), None))
    infos = {item["node"]: item for item in as_json(info.all(), label_filter=("zone", "rack"))}
    assert {name: item["labels"] for name, item in infos.items()} == {"n1": {"zone": "a"}, "n2": {}}
    assert infos["n1"]["updated"].startswith("2024-05-01T10:02:00")
    assert [item["labels"] for item in as_json(info.all(), label_filter=())] == [{}, {}]
    info.forget("n1")
    assert [item["node"] for item in as_json(info.all(), label_filter=())] == ["n2"]
