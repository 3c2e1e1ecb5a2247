"""The decision about a node: order of evaluation, behaviour on failures, and requeue times."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancefreeze import MaintenanceFreeze, MaintenanceFreezeSpec
from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec
from haulout.api.objects import ObjectMeta
from haulout.budget.unavailable_nodes import is_in_profile_maintenance
from haulout.controllers.profiles.machine.transitions import PENDING_ANNOTATION as PENDING
from haulout.controllers.profiles.observation import Deferral, NotificationRequest, aggregate_state
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, ProfileStatus, State
from haulout.runtime.freezes import Freezes, parse_freeze
from support.fakes.cluster_view import MINUTE, NOW
from support.fakes.profile_node import DRAINED, DRAINING, ProfileNode

OPERATIONAL, REQUIRED, MAINTAINED = State

PLUGINS = """
intervals: {requeue: 10m}
instances:
  check:
  - {name: c1, type: says, config: {about: c1}}
  - {name: c2, type: says, config: {about: c2}}
  - {name: c3, type: says, config: {about: c3}}
  - {name: later, type: says, config: {about: later, again: 5m}}
  - {name: marked, type: hasLabel, config: {key: t1}}
  - {name: entered, type: hasLabel, config: {key: e}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: turn, type: stagger, config: {duration: 1h, leaseName: turn, leaseNamespace: haulout}}
  - {name: semver, type: clusterSemver, config: {key: version}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 1h}}
  - name: broken
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: breaks, config: {}}
  trigger:
  - {name: t1, type: counts, config: {label: t1}}
  - {name: t2, type: counts, config: {label: t2}}
  - {name: t3, type: counts, config: {label: t3}}
  - {name: e, type: counts, config: {label: e}}
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: cordon, type: eviction, config: {action: cordon}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
  - {name: hypervisor, type: alterHypervisor, config: {reboot: true}}
  - {name: misnamed, type: alterLabel, config: {key: a b}}
  - {name: misstated, type: alterLabel, config: {key: a, value: a b}}
  - {name: annotated, type: alterAnnotation, config: {key: a b}}
  - {name: finalized, type: alterFinalizer, config: {key: a b}}
  - {name: misnamed-off, type: alterLabel, config: {key: a b, remove: true}}
profiles:
"""

P = """
- name: p
  operational:
    transitions: [{check: c1, next: maintenance-required, trigger: t1}]
  maintenance-required:
    notify: told
    transitions: [{check: c2, next: in-maintenance, trigger: t2}]
  in-maintenance:
    enter: e
    transitions: [{check: c3, next: operational, trigger: t3}]
"""


def on(*profiles: str) -> dict[str, str]:
    return {PROFILE_LABEL: "--".join(profiles)}


def a_profile_node(profiles: str = P, *names: str, annotations: Mapping[str, str] | None = None) -> ProfileNode:
    return ProfileNode(PLUGINS + profiles, labels=on(*(names or ("p",))), annotations=annotations)


def maintenance_state(enter: str, notify: str, way_out: str) -> str:
    """Return the YAML of the state in-maintenance."""
    return f"  in-maintenance:\n    enter: {enter}\n    notify: {notify}\n    transitions: [{way_out}]\n"


def required(name: str, *transitions: str, rest: str = "") -> str:
    """Return a profile that enters maintenance-required by c1 and has these transitions there."""
    listed = "".join(f"\n    - {transition}" for transition in transitions)
    start = f"- name: {name}\n  operational:\n    transitions: [{{check: c1, next: maintenance-required}}]\n"
    return f"{start}  maintenance-required:\n    transitions:{listed}\n{rest}"


# A full cycle


def test_reference_trace_of_the_contract() -> None:
    """Section 4.10 of the contract, without the evaluations that change nothing."""
    profile_node = a_profile_node(annotations={"c1": "yes"})
    first = profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.labels[STATE_LABEL], profile_node.labels["t1"]) == (
        REQUIRED,
        REQUIRED,
        "1",
    )
    assert first.notifications == ()
    second = profile_node.reconcile()
    assert second.notifications == (NotificationRequest("told", "p", REQUIRED),)
    idle = profile_node.data
    for result in profile_node.reconcile_times(3):
        assert result.notifications == ()
        assert profile_node.data == idle
    profile_node.annotate(c2="yes")
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.labels[STATE_LABEL], profile_node.labels["t2"]) == (
        MAINTAINED,
        MAINTAINED,
        "1",
    )
    assert "e" not in profile_node.labels
    profile_node.annotate(c1=None, c3="yes")
    profile_node.reconcile()
    assert (profile_node.labels["e"], profile_node.labels["t3"], profile_node.labels[STATE_LABEL]) == (
        "1",
        "1",
        OPERATIONAL,
    )
    profile_node.reconcile()
    assert profile_node.states() == {"p": OPERATIONAL}
    assert [profile_node.labels[item] for item in ("t1", "t2", "t3", "e")] == ["1"] * 4


def test_data_annotation_equals_that_of_the_go_controller() -> None:
    profile_node = a_profile_node(annotations={"c1": "yes"})
    profile_node.reconcile(elapsed=MINUTE)
    at = "2024-05-01T10:01:00Z"
    entry = {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}
    assert json.loads(profile_node.data) == {"Profiles": {"p": entry}, "Notifications": {}}
    profile_node.reconcile()
    assert json.loads(profile_node.data)["Profiles"]["p"] == {**entry, "Previous": "maintenance-required"}
    assert json.loads(profile_node.data)["Notifications"] == {"told": "2024-05-01T10:02:00Z"}


def test_previous_lags_behind_only_with_an_enter_chain_or_notifications() -> None:
    """Without an enter chain and notifications `Previous` has no effect."""
    profile_node = a_profile_node(annotations={"c1": "yes", "c2": "yes", "c3": "yes"})
    observed = []
    for _ in profile_node.reconcile_times(3):
        entry = json.loads(profile_node.data)["Profiles"]["p"]
        observed.append((entry["Current"], entry["Previous"]))
    assert observed == [(REQUIRED, OPERATIONAL), (MAINTAINED, REQUIRED), (OPERATIONAL, OPERATIONAL)]


def test_nothing_is_written_while_nothing_changes() -> None:
    profile_node = a_profile_node()
    profile_node.reconcile()
    before = profile_node.node
    assert profile_node.reconcile().draft.node == before
    assert profile_node.node == before


def test_changes_of_a_step_are_visible_to_later_plugins_and_profiles() -> None:
    profiles = P + "- name: q\n  operational:\n    transitions: [{check: marked, next: maintenance-required}]\n"
    profile_node = a_profile_node(profiles, "p", "q", annotations={"c1": "yes"})
    profile_node.reconcile()
    assert profile_node.states() == {"p": REQUIRED, "q": REQUIRED}
    other = a_profile_node(profiles, "q", "p", annotations={"c1": "yes"})
    other.reconcile()
    assert other.states() == {"p": REQUIRED, "q": OPERATIONAL}


def test_enter_chain_runs_before_the_checks_of_the_state() -> None:
    rest = "  in-maintenance:\n    enter: e\n    transitions: [{check: entered, next: operational}]\n"
    profile_node = a_profile_node(
        required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"}
    )
    assert [profile_node.state("p") for _ in profile_node.reconcile_times(3)] == [REQUIRED, MAINTAINED, OPERATIONAL]


# Which profiles


def test_node_without_a_label_has_the_default_profile() -> None:
    profile_node = ProfileNode(PLUGINS + P)
    profile_node.reconcile()
    assert profile_node.states() == {"default": OPERATIONAL}
    assert profile_node.labels[STATE_LABEL] == OPERATIONAL


def test_default_profile_can_be_redefined() -> None:
    profile_node = ProfileNode(PLUGINS + P.replace("name: p", "name: default"), annotations={"c1": "yes"})
    profile_node.reconcile()
    assert profile_node.states() == {"default": REQUIRED}


def test_unknown_profile_names_are_ignored_without_the_default_profile() -> None:
    profile_node = a_profile_node(P, "nobody", "p", "nothing", annotations={"c1": "yes"})
    profile_node.reconcile()
    assert profile_node.states() == {"p": REQUIRED}
    lost = a_profile_node(P, "nobody")
    lost.reconcile()
    assert (lost.states(), lost.labels[STATE_LABEL]) == ({}, OPERATIONAL)


def test_duplicate_profile_name_counts_once() -> None:
    profile_node = a_profile_node(P, "p", "p", annotations={"c1": "yes"})
    assert len(profile_node.reconcile().reports) == 1
    assert profile_node.labels["t1"] == "1"


def test_new_profile_runs_no_enter_chain_and_may_change_its_state_at_once() -> None:
    profiles = P.replace("  operational:\n", "  operational:\n    enter: e\n")
    profile_node = a_profile_node(profiles, annotations={"c1": "yes"})
    profile_node.reconcile()
    assert "e" not in profile_node.labels
    assert profile_node.state("p") == REQUIRED


def test_profile_removed_in_maintenance_is_dropped_without_actions() -> None:
    """12.9: profile removal while in maintenance."""
    profile_node = a_profile_node(annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    assert profile_node.labels[STATE_LABEL] == MAINTAINED
    profile_node.label({PROFILE_LABEL: None})
    result = profile_node.reconcile()
    assert profile_node.states() == {"default": OPERATIONAL}
    assert profile_node.labels[STATE_LABEL] == OPERATIONAL
    assert result.notifications == ()
    assert "t3" not in profile_node.labels


def test_removed_profile_does_not_block_others() -> None:
    q = required("q", "{check: c2, next: in-maintenance}")
    profile_node = a_profile_node(P + q, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    assert profile_node.states() == {"p": MAINTAINED, "q": REQUIRED}
    profile_node.label(dict(on("q")))
    profile_node.reconcile()
    assert profile_node.states() == {"q": MAINTAINED}


def test_unconfigured_profile_is_kept_and_does_not_count() -> None:
    profile_node = a_profile_node(annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    frozen = profile_node.data
    profile_node.set_configuration(PLUGINS + P.replace("name: p", "name: other"))
    profile_node.reconcile()
    assert (profile_node.data, profile_node.labels[STATE_LABEL]) == (frozen, OPERATIONAL)
    profile_node.set_configuration(PLUGINS + P)
    profile_node.reconcile()
    assert (profile_node.data, profile_node.labels[STATE_LABEL]) == (frozen, MAINTAINED)


@pytest.mark.parametrize("state", ["", "gone", "IN-MAINTENANCE"])
def test_unknown_state_is_kept_and_reported_and_affects_no_other_profile(state: str) -> None:
    q = required("q", "{check: c2, next: in-maintenance}")
    entry = {"Transition": "2024-05-01T10:00:00Z", "Current": state, "Previous": "operational"}
    text = json.dumps({"Profiles": {"p": entry}, "Notifications": {}})
    profile_node = a_profile_node(P + q, "p", "q", annotations={DATA_ANNOTATION: text, "c1": "yes"})
    profile_node.reconcile()
    assert profile_node.states() == {"p": state, "q": REQUIRED}
    assert (
        f"{state!r}, expected one of operational, maintenance-required, in-maintenance"
        in profile_node.report("p").error
    )


def test_state_of_a_node_is_the_worst_of_its_profiles() -> None:
    assert aggregate_state([]) is OPERATIONAL
    assert aggregate_state([OPERATIONAL, REQUIRED]) is REQUIRED
    assert aggregate_state([REQUIRED, MAINTAINED, OPERATIONAL]) is MAINTAINED


# Choice of a transition


def test_first_passing_transition_wins_and_all_are_evaluated() -> None:
    profile = required("p", "{check: c2, next: operational, trigger: t1}", "{check: c1, next: in-maintenance}")
    profile_node = a_profile_node(profile, annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(2))
    assert profile_node.state("p") == OPERATIONAL
    assert [transition.passed for transition in profile_node.report("p").transitions] == [True, True]


@pytest.mark.parametrize(("passing", "triggers"), [("c2", ["1", "0"]), ("c3", ["0", "1"])])
def test_each_of_two_transitions_to_the_same_state_runs_its_own_trigger(passing: str, triggers: list[str]) -> None:
    """12.9: same `next` twice."""
    ways = [f"{{check: c{item}, next: in-maintenance, trigger: t{item}}}" for item in (2, 3)]
    profile_node = a_profile_node(required("p", *ways), annotations={"c1": "yes", passing: "yes"})
    list(profile_node.reconcile_times(2))
    assert profile_node.state("p") == MAINTAINED
    assert [profile_node.labels.get(item, "0") for item in ("t2", "t3")] == triggers


def test_transition_to_the_same_state_runs_no_trigger() -> None:
    profile_node = a_profile_node(
        required("p", "{check: c2, next: maintenance-required, trigger: t2}"), annotations={"c1": "yes"}
    )
    profile_node.reconcile()
    before = profile_node.data
    profile_node.annotate(c2="yes")
    profile_node.reconcile()
    assert profile_node.data == before
    assert "t2" not in profile_node.labels


def test_unknown_check_result_does_not_pass() -> None:
    profile = required("p", "{check: c2 || c3, next: in-maintenance}", "{check: '!c2', next: operational}")
    profile_node = a_profile_node(profile, annotations={"c1": "yes", "c2": "unknown"})
    list(profile_node.reconcile_times(2))
    assert profile_node.state("p") == REQUIRED
    assert profile_node.report("p").error == ""
    profile_node.annotate(c3="yes")
    profile_node.reconcile()
    assert profile_node.state("p") == MAINTAINED


@pytest.mark.parametrize("problem", ["error", "crash"])
def test_error_in_any_check_chain_blocks_all_transitions_of_its_profile_only(problem: str) -> None:
    profile = required("p", "{check: c3, next: operational}", "{check: c2, next: in-maintenance}")
    q = required("q", "{check: c3, next: in-maintenance}")
    profile_node = a_profile_node(profile + q, "p", "q", annotations={"c1": "yes", "c2": problem, "c3": "yes"})
    list(profile_node.reconcile_times(2))
    assert profile_node.states() == {"p": REQUIRED, "q": MAINTAINED}
    report = profile_node.report("p")
    assert (report.failed_part, report.next) == ("At least one check plugin failed", REQUIRED)
    assert report.error == "checks that failed with an error: c2"
    assert len(report.transitions) == 2


def test_failing_plugin_is_evaluated_again_later() -> None:
    profile_node = a_profile_node(annotations={"c1": "crash"})
    assert profile_node.reconcile().requeue_at == profile_node.now + timedelta(minutes=10)
    assert "the plugin says failed: ZeroDivisionError()" in profile_node.report("p").transitions[0].error


def test_informer_not_synced_is_unknown_and_no_error() -> None:
    profile_node = a_profile_node(annotations={"c1": "not known"})
    profile_node.reconcile()
    (report,) = profile_node.report("p").transitions
    result = report.checks["c1"].result
    assert (result.passed, result.reason, result.error) == (None, "it has not been read yet", "")
    assert (profile_node.report("p").error, profile_node.state("p")) == ("", OPERATIONAL)


# One profile in maintenance


def test_first_profile_in_the_label_enters_maintenance_when_two_may() -> None:
    """12.9: two profiles becoming eligible in one reconcile."""
    both = "".join(required(name, "{check: c2, next: in-maintenance}") for name in ("p", "q"))
    for names in (("p", "q"), ("q", "p")):
        profile_node = a_profile_node(both, *names, annotations={"c1": "yes", "c2": "yes"})
        list(profile_node.reconcile_times(4))
        assert profile_node.states() == {names[0]: MAINTAINED, names[1]: REQUIRED}
        (report,) = profile_node.report(names[1]).transitions
        assert (report.chain_passed, report.passed) == (True, False)
        assert report.veto == f"profile {names[0]} has the node in maintenance"


def test_profile_leaving_maintenance_blocks_others_until_the_next_step() -> None:
    rest = "  in-maintenance:\n    transitions: [{check: c3, next: operational}]\n"
    both = "".join(required(name, "{check: c2, next: in-maintenance}", rest=rest) for name in ("p", "q"))
    profile_node = a_profile_node(both, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(2))
    profile_node.annotate(c3="yes", c1=None)
    profile_node.reconcile()
    assert profile_node.states() == {"p": OPERATIONAL, "q": REQUIRED}
    profile_node.reconcile()
    assert profile_node.states() == {"p": OPERATIONAL, "q": MAINTAINED}


def test_profile_on_its_way_into_maintenance_blocks_others_whatever_their_order() -> None:
    slow = required("slow", "{check: c2, next: in-maintenance, trigger: drain}")
    quick = required("quick", "{check: c3, next: in-maintenance}")
    profile_node = a_profile_node(slow + quick, "quick", "slow", annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    profile_node.drains = {"slow": DRAINING}
    profile_node.annotate(c3="yes")
    for _ in profile_node.reconcile_times(3):
        assert profile_node.states() == {"quick": REQUIRED, "slow": REQUIRED}
    profile_node.drains = {"slow": DRAINED}
    list(profile_node.reconcile_times(2))
    assert profile_node.states() == {"quick": REQUIRED, "slow": MAINTAINED}


# Claims


def test_deferred_claim_affects_only_its_transition() -> None:
    ways = ("{check: room && c2, next: in-maintenance}", "{check: c3, next: operational}")
    profile_node = a_profile_node(required("p", *ways), annotations={"c1": "yes", "c2": "yes"})
    profile_node.reconcile()
    result = profile_node.reconcile()
    assert result.claimed_transitions == {"p": 0}
    profile_node = a_profile_node(required("p", *ways), annotations={"c1": "yes", "c2": "yes"})
    profile_node.reconcile()
    refused = profile_node.reconcile(deferred={("p", 0): Deferral("no room")})
    assert (profile_node.state("p"), profile_node.report("p").transitions[0].veto) == (REQUIRED, "no room")
    assert refused.requeue_at == profile_node.now + timedelta(minutes=10)
    profile_node.annotate(c3="yes")
    profile_node.reconcile(deferred={("p", 0): Deferral("no room")})
    assert profile_node.state("p") == OPERATIONAL


def test_only_transitions_into_maintenance_claim_a_slot_and_only_passing_ones_a_lease() -> None:
    profile = required("p", "{check: room && turn && c2, next: operational}")
    profile_node = a_profile_node(profile, annotations={"c1": "yes"})
    assert [decision.claims for decision in profile_node.reconcile_times(2)] == [(), ()]
    profile_node.annotate(c2="yes")
    ((_, claim),) = profile_node.reconcile().claims
    assert type(claim).__name__ == "LeaseClaim"


def test_transition_with_a_failing_trigger_claims_nothing() -> None:
    profile = required("p", "{check: room && c2, next: in-maintenance, trigger: t2}")
    profile_node = a_profile_node(profile, annotations={"c1": "yes"})
    profile_node.reconcile()
    profile_node.annotate(c2="yes", crash="yes")
    result = profile_node.reconcile()
    assert (profile_node.state("p"), result.claims, result.claimed_transitions) == (REQUIRED, (), {})


# Waiting


DRAIN_IN_TRIGGER = required("p", "{check: c2 && room, next: in-maintenance, trigger: t2 && drain && t3}")
DRAIN_IN_ENTER = required(
    "p",
    "{check: c2, next: in-maintenance}",
    rest=maintenance_state("drain && e", "told", "{check: c3, next: operational}"),
)


def test_drain_in_a_trigger_cordons_first_and_delays_the_rest_of_the_chain() -> None:
    profile_node = a_profile_node(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    profile_node.reconcile()
    result = profile_node.reconcile()
    assert (profile_node.node.spec.unschedulable, result.drains) == (True, {})
    assert profile_node.report("p").waits_for == "cordoning node n1 before its pods are evicted"
    assert list(profile_node.reconcile().drains) == ["p"]
    profile_node.drains = {"p": DRAINING}
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.report("p").waits_for) == (REQUIRED, "0 of 2 pods have left")
    assert profile_node.report("p").failed_part == ""
    profile_node.drains = {"p": DRAINED}
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.labels["t3"]) == (MAINTAINED, "1")
    assert PENDING not in profile_node.node.metadata.annotations


def test_pending_transition_is_completed_although_its_checks_no_longer_pass() -> None:
    profile_node = a_profile_node(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(2))
    for result_text in ("no", "error", "crash", "unknown"):
        profile_node.annotate(c2=result_text)
        assert profile_node.reconcile().claims == ()
        assert list(profile_node.result.drains if profile_node.result else ()) == ["p"]
    profile_node.drains = {"p": DRAINED}
    profile_node.reconcile()
    assert profile_node.state("p") == MAINTAINED


def test_pending_one_of_two_transitions_to_the_same_state_continues() -> None:
    ways = [f"{{check: c{item}, next: in-maintenance, trigger: drain && t{item}}}" for item in (2, 3)]
    profile_node = a_profile_node(required("p", *ways), annotations={"c1": "yes", "c3": "yes"})
    list(profile_node.reconcile_times(3))
    profile_node.annotate(c2="yes", c3=None)
    profile_node.drains = {"p": DRAINED}
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.labels.get("t2"), profile_node.labels["t3"]) == (
        MAINTAINED,
        None,
        "1",
    )


@pytest.mark.parametrize(
    ("edited", "end"),
    [
        ("{check: c3, next: in-maintenance, trigger: drain}", MAINTAINED),
        ("{check: c3, next: in-maintenance}", MAINTAINED),
        ("{check: c3, next: operational}", REQUIRED),
    ],
)
def test_edited_configuration_applies_to_a_pending_transition(edited: str, end: str) -> None:
    """It continues by the edited file; it is abandoned if no transition leads there any more."""
    profile_node = a_profile_node(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    profile_node.drains = {"p": DRAINED}
    profile_node.set_configuration(PLUGINS + required("p", edited))
    profile_node.reconcile()
    assert profile_node.state("p") == end
    assert PENDING not in profile_node.node.metadata.annotations


def a_pending_profile_node(*, calls_off: bool) -> ProfileNode:
    """Return a node of two profiles: `p` drains it, and `q` may not enter maintenance meanwhile.

    With `calls_off`, `p` has `onNotice` and may abandon its pending transition.
    """
    turns_back = "{check: turn && c3, next: operational, trigger: t3}"
    first = required("p", turns_back, "{check: c2, next: in-maintenance, trigger: drain}")
    if calls_off:
        first = first.replace("- name: p\n", "- name: p\n  onNotice: true\n")
    second = required("q", "{check: c2 && room, next: in-maintenance}")
    profile_node = a_profile_node(first + second, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    assert is_in_profile_maintenance(profile_node.node), "as budgets see it"
    assert profile_node.states() == {"p": REQUIRED, "q": REQUIRED}
    if not calls_off:  # the transition that has begun is removed from the file
        profile_node.set_configuration(PLUGINS + required("p", turns_back) + second)
    return profile_node


@pytest.mark.parametrize("calls_off", [False, True], ids=["edited", "called off"])
def test_abandoned_transition_frees_the_claims_of_the_next_one(*, calls_off: bool) -> None:
    profile_node = a_pending_profile_node(calls_off=calls_off)
    profile_node.annotate(c3="yes")
    result = profile_node.reconcile()
    assert profile_node.state("p") == OPERATIONAL
    assert [(name, type(claim).__name__) for name, claim in result.claims if name == "p"] == [("p", "LeaseClaim")]
    assert profile_node.labels["t3"] == "1"


@pytest.mark.parametrize("calls_off", [False, True], ids=["edited", "called off"])
def test_abandoned_transition_frees_maintenance_for_another_profile_in_the_same_step(*, calls_off: bool) -> None:
    profile_node = a_pending_profile_node(calls_off=calls_off)
    profile_node.annotate(c3="yes")
    result = profile_node.reconcile()
    assert profile_node.states() == {"p": OPERATIONAL, "q": MAINTAINED}
    assert "q" in {name for name, _ in result.claims}


def test_node_whose_transition_was_removed_is_available() -> None:
    profile_node = a_pending_profile_node(calls_off=False)
    profile_node.annotate(c2=None)  # so that the other profile does not enter maintenance either
    profile_node.reconcile()
    assert profile_node.states() == {"p": REQUIRED, "q": REQUIRED}
    assert not is_in_profile_maintenance(profile_node.node), "as budgets see it"


def test_profile_in_maintenance_blocks_others_although_its_exit_was_removed() -> None:
    """Its exit transition drains the node again, and is removed from the file meanwhile."""
    out = "  in-maintenance:\n    transitions: [{check: c3, next: maintenance-required, trigger: drain}]\n"
    second = required("q", "{check: c2, next: in-maintenance}")
    profile_node = a_profile_node(required("p", "{check: c2, next: in-maintenance}", rest=out) + second, "p", "q")
    profile_node.annotate(c1="yes", c2="yes", c3="yes")
    list(profile_node.reconcile_times(3))
    assert (profile_node.states(), PENDING in profile_node.node.metadata.annotations) == (
        {"p": MAINTAINED, "q": REQUIRED},
        True,
    )
    profile_node.set_configuration(PLUGINS + required("p", "{check: c2, next: in-maintenance}") + second)
    list(profile_node.reconcile_times(2))
    assert profile_node.states() == {"p": MAINTAINED, "q": REQUIRED}


def test_pending_transition_is_dropped_after_another_controller_completed_a_cycle() -> None:
    """The Go controller ignores our annotation, which must not start a maintenance much later."""
    profile_node = a_profile_node(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(3))
    assert PENDING in profile_node.node.metadata.annotations
    entry = {"Transition": "2024-05-02T10:00:00Z", "Current": REQUIRED, "Previous": REQUIRED}
    profile_node.annotate(c2=None, **{DATA_ANNOTATION: json.dumps({"Profiles": {"p": entry}, "Notifications": {}})})
    profile_node.drains = {"p": DRAINED}
    result = profile_node.reconcile()
    assert (profile_node.state("p"), result.drains, result.pending) == (REQUIRED, {}, {})


@pytest.mark.parametrize("raw", ["", "{", "[]", '{"p":"in-maintenance"}', '{"p":{"next":"gone"}}', "null", "\\ud800"])
def test_invalid_pending_transitions_annotation_is_ignored(raw: str) -> None:
    profile_node = a_profile_node(annotations={PENDING: raw, "c1": "yes"})
    profile_node.reconcile()
    assert profile_node.state("p") == REQUIRED
    assert PENDING not in profile_node.node.metadata.annotations


@pytest.mark.parametrize(
    ("moved", "stays_cordoned"),
    [("2024-05-02T10:00:00.123456789Z", False), ("2024-05-02T10:00:00.123456Z", True)],
    ids=["the Go controller", "a person"],
)
def test_owner_of_a_cordon_without_annotation_is_derived_from_the_transition_time_format(
    moved: str,
    stays_cordoned: bool,  # noqa: FBT001 - a case
) -> None:
    """Neither the Go controller nor a user annotates a cordon, but transition times of the former have nanoseconds."""
    way_out = "{check: c3, next: operational, trigger: uncordon}"
    profile = required("p", "{check: c2, next: in-maintenance}", rest=maintenance_state("drain", "told", way_out))
    profile_node = a_profile_node(profile, annotations={"c3": "yes"})
    entry = {"Transition": moved, "Current": MAINTAINED, "Previous": REQUIRED}
    profile_node.annotate(**{DATA_ANNOTATION: json.dumps({"Profiles": {"p": entry}, "Notifications": {}})})
    profile_node.cordon()
    profile_node.drains = {"p": DRAINED}
    list(profile_node.reconcile_times(2))
    assert (profile_node.state("p"), profile_node.node.spec.unschedulable) == (OPERATIONAL, stays_cordoned)


def test_drain_on_entering_delays_notifications_and_checks() -> None:
    profile_node = a_profile_node(DRAIN_IN_ENTER, annotations={"c1": "yes", "c2": "yes", "c3": "yes"})
    list(profile_node.reconcile_times(2))
    for drains in ({}, {}, {"p": DRAINING}):
        profile_node.drains = drains
        assert profile_node.reconcile().notifications == ()
        assert (profile_node.state("p"), profile_node.report("p").transitions) == (MAINTAINED, ())
        assert "e" not in profile_node.labels
    profile_node.drains = {"p": DRAINED}
    assert len(profile_node.reconcile().notifications) == 1
    assert (profile_node.state("p"), profile_node.labels["e"]) == (OPERATIONAL, "1")


def test_state_is_entered_and_notified_once_during_a_long_exit() -> None:
    """W12: what has been done on entering is not repeated while a trigger waits."""
    rest = maintenance_state("e", "told", "{check: c3, next: operational, trigger: drain}")
    profile_node = a_profile_node(
        required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"}
    )
    list(profile_node.reconcile_times(2))
    profile_node.annotate(c3="yes")
    profile_node.drains = {"p": DRAINING}
    sent = [notification for result in profile_node.reconcile_times(6) for notification in result.notifications]
    assert (len(sent), profile_node.labels["e"]) == (1, "1")


@pytest.mark.parametrize("problem", ["error", "crash"])
def test_state_is_entered_and_notified_once_although_its_checks_fail(problem: str) -> None:
    """W01: a failing check causes no repeated notifications."""
    rest = maintenance_state("e", "told", "{check: c3, next: operational}")
    profile_node = a_profile_node(
        required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"}
    )
    list(profile_node.reconcile_times(2))
    profile_node.annotate(c3=problem)
    sent = [notification for result in profile_node.reconcile_times(6) for notification in result.notifications]
    assert (len(sent), profile_node.labels["e"]) == (1, "1")


def test_failed_drain_is_reported_and_restarted() -> None:
    profile_node = a_profile_node(DRAIN_IN_ENTER, annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(4))
    profile_node.drains = {"p": DRAINED.__class__(is_done=False, message="", problem="pod shop/cart has no controller")}
    result = profile_node.reconcile()
    report = profile_node.report("p")
    assert (report.failed_part, report.error) == (
        "Failed to enter state in-maintenance",
        "drain: pod shop/cart has no controller",
    )
    assert (result.drains, result.requeue_at) == ({}, profile_node.now + timedelta(minutes=10))
    profile_node.drains = {}
    assert list(profile_node.reconcile().drains) == ["p"]


# Failures of plugins


def test_failing_enter_chain_changes_nothing() -> None:
    rest = maintenance_state("e && misnamed", "told", "{check: c3, next: operational}")
    profile_node = a_profile_node(
        required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"}
    )
    list(profile_node.reconcile_times(4))
    assert (profile_node.state("p"), profile_node.report("p").failed_part) == (
        MAINTAINED,
        "Failed to enter state in-maintenance",
    )
    assert "e" not in profile_node.labels


def test_failing_trigger_chain_changes_nothing() -> None:
    profile = required("p", "{check: c2, next: in-maintenance, trigger: cordon && t2}")
    profile_node = a_profile_node(profile, annotations={"c1": "yes", "c2": "yes"})
    profile_node.reconcile()
    profile_node.annotate(crash="")
    result = profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.node.spec.unschedulable) == (REQUIRED, False)
    assert profile_node.report("p").failed_part == "At least one trigger plugin failed"
    assert profile_node.report("p").error == "t2: the plugin counts failed: ZeroDivisionError()"
    assert result.requeue_at is not None


@pytest.mark.parametrize("trigger", ["misnamed", "misstated", "annotated", "finalized"])
def test_change_the_server_would_refuse_blocks_only_its_own_profile(trigger: str) -> None:
    ways = (
        f"- name: p\n  operational:\n    transitions: [{{check: c1, next: maintenance-required, trigger: {trigger}}}]\n"
    )
    profile_node = a_profile_node(
        ways + required("q", "{check: c2, next: operational}"), "p", "q", annotations={"c1": "yes"}
    )
    profile_node.reconcile()
    assert (profile_node.state("p"), profile_node.state("q")) == (OPERATIONAL, REQUIRED)
    assert profile_node.report("p").error.startswith(f"{trigger}: found 'a b', expected ")


def test_removing_an_invalid_key_succeeds() -> None:
    ways = (
        "- name: p\n  operational:\n    transitions: [{check: c1, next: maintenance-required, trigger: misnamed-off}]\n"
    )
    profile_node = a_profile_node(ways, annotations={"c1": "yes"})
    profile_node.reconcile()
    assert profile_node.state("p") == REQUIRED


def test_failing_schedule_is_reported_and_blocks_no_transition() -> None:
    profile = (
        "- name: p\n  operational:\n    notify: broken\n    transitions: [{check: c1, next: maintenance-required}]\n"
    )
    profile_node = a_profile_node(profile + required("q", "{check: c2, next: operational}"), "p", "q")
    profile_node.reconcile()
    report = profile_node.report("p")
    assert (report.failed_part, report.next) == ("At least one notification plugin failed", OPERATIONAL)
    assert report.error == "broken: the plugin breaks failed: ZeroDivisionError()"
    profile_node.annotate(c1="yes")
    profile_node.reconcile()
    assert profile_node.states() == {"p": REQUIRED, "q": REQUIRED}
    assert (profile_node.report("p").failed_part, profile_node.report("p").error) == ("", report.error)


def test_failed_hypervisor_patch_affects_only_its_profile() -> None:
    p = required("p", "{check: c2, next: operational, trigger: hypervisor}")
    q = required("q", "{check: c2, next: in-maintenance}")
    profile_node = a_profile_node(p + q, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    profile_node.reconcile()
    result = profile_node.reconcile(failed_actions={"p": "hypervisor n1 is not there"})
    assert profile_node.states() == {"p": REQUIRED, "q": MAINTAINED}
    assert profile_node.report("p").error == "hypervisor: hypervisor n1 is not there"
    assert result.external_actions == ()


def test_invalid_cordon_annotation_affects_only_its_profile() -> None:
    p = required("p", "{check: c2, next: operational, trigger: uncordon}")
    q = required("q", "{check: c2, next: in-maintenance}")
    profile_node = a_profile_node(p + q, "p", "q", annotations={"c1": "yes", "c2": "yes", "haulout.dev/cordon": "{"})
    list(profile_node.reconcile_times(2))
    assert profile_node.states() == {"p": REQUIRED, "q": MAINTAINED}
    assert "haulout.dev/cordon of node n1 is invalid" in profile_node.report("p").error


# Requeue times


def test_decision_requeues_at_the_earliest_requested_time() -> None:
    profile_node = a_profile_node(required("p", "{check: later, next: in-maintenance}"), annotations={"c1": "yes"})
    list(profile_node.reconcile_times(2))
    assert profile_node.reconcile().requeue_at == profile_node.now + timedelta(minutes=5)


def test_notification_schedule_requeues_the_node() -> None:
    profile_node = a_profile_node(annotations={"c1": "yes"})
    list(profile_node.reconcile_times(2))
    sent_at = profile_node.now
    assert profile_node.reconcile().requeue_at == sent_at + timedelta(hours=1)


def test_requeue_time_in_the_past_does_not_cause_a_hot_loop() -> None:
    profile_node = a_profile_node(required("p", "{check: later, next: in-maintenance}"), annotations={"c1": "yes"})
    profile_node.set_configuration(
        PLUGINS.replace("again: 5m", "again: -1h") + required("p", "{check: later, next: in-maintenance}")
    )
    list(profile_node.reconcile_times(2))
    assert profile_node.reconcile().requeue_at == profile_node.now + timedelta(seconds=1)


def test_topics_are_those_of_the_checks_of_the_state() -> None:
    profile_node = a_profile_node(
        required("p", "{check: room && semver, next: in-maintenance}"), annotations={"c1": "yes"}
    )
    assert profile_node.reconcile().topics == frozenset()
    assert {"budget", "label version"} <= profile_node.reconcile().topics


def test_status_without_a_transition_time_is_kept() -> None:
    entry = ProfileStatus(current=REQUIRED, previous=REQUIRED, transition=None)
    profile_node = a_profile_node()
    result = profile_node.reconcile(statuses={"p": entry})
    assert result.statuses["p"] == entry
    assert profile_node.now > NOW


# Freezes

FOLLOWS_NOTICE = """
intervals: {requeue: 10m}
instances:
  check:
  - {name: due, type: notice, config: {when: due}}
  - {name: over, type: notice, config: {when: over}}
  - {name: c1, type: says, config: {about: c1}}
  - {name: c2, type: says, config: {about: c2}}
profiles:
- name: p
  operational:
    transitions: [{check: due || c1, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: c2, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: over && !c2, next: operational}]
"""


def a_freeze(**spec: Any) -> Freezes:
    metadata = ObjectMeta(name="black-friday")
    return Freezes((parse_freeze(MaintenanceFreeze(metadata=metadata, spec=MaintenanceFreezeSpec(**spec))),))


def test_freeze_keeps_a_profile_out_of_maintenance_until_it_ends() -> None:
    profile_node = a_profile_node(annotations={"c1": "yes", "c2": "yes"})
    freezes = a_freeze(until=NOW + 5 * MINUTE, by="alice")
    profile_node.reconcile(freezes=freezes)
    assert profile_node.state("p") == REQUIRED  # that is no maintenance yet
    result = profile_node.reconcile(freezes=freezes)
    assert profile_node.state("p") == REQUIRED
    assert result.reports[0].transitions[0].veto == "frozen by alice until 2024-05-01 10:05 UTC"
    assert result.requeue_at == NOW + 5 * MINUTE
    profile_node.reconcile(freezes=freezes, elapsed=3 * MINUTE)
    assert profile_node.state("p") == MAINTAINED


def test_freeze_does_not_keep_a_profile_in_maintenance() -> None:
    profile_node = a_profile_node(annotations={"c1": "yes", "c2": "yes"})
    list(profile_node.reconcile_times(2))
    assert profile_node.state("p") == MAINTAINED
    profile_node.annotate(c3="yes")
    profile_node.reconcile(freezes=a_freeze())
    assert profile_node.state("p") == OPERATIONAL


@pytest.mark.parametrize(
    ("has_notice", "spec", "expected"),
    [
        pytest.param(True, {}, MAINTAINED, id="for a notice"),
        pytest.param(True, {"except_": ()}, REQUIRED, id="for a notice, which the freeze holds"),
        pytest.param(False, {}, REQUIRED, id="for another reason"),
    ],
)
def test_profile_that_maintains_a_node_for_a_notice_enters_maintenance(
    has_notice: bool,  # noqa: FBT001 - a table
    spec: dict[str, Any],
    expected: State,
) -> None:
    profile_node = ProfileNode(FOLLOWS_NOTICE, labels=on("p"), annotations={"c1": "yes", "c2": "yes"})
    if has_notice:
        notice_spec = MaintenanceNoticeSpec(node_name="n1", kind="Reboot", start=NOW)
        notice = MaintenanceNotice(metadata=ObjectMeta(name="n"), spec=notice_spec)
        profile_node.cluster.announced_notices.append(notice)
    for _ in range(3):
        profile_node.reconcile(freezes=a_freeze(**spec))
    assert profile_node.state("p") == expected
