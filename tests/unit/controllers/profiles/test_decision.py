"""One step of a node: what is looked at in which order, what is kept when something goes wrong, and what wakes it."""

import json
from collections.abc import Mapping
from datetime import timedelta

import pytest

from haulout.budget.unavailable_nodes import is_in_profile_maintenance
from haulout.controllers.profiles.machine.transitions import PENDING_ANNOTATION as BEGUN
from haulout.controllers.profiles.observation import Deferral, NotificationRequest, aggregate_state
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, ProfileStatus, State
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


def a_walk(profiles: str = P, *names: str, annotations: Mapping[str, str] | None = None) -> ProfileNode:
    return ProfileNode(PLUGINS + profiles, labels=on(*(names or ("p",))), annotations=annotations)


def maintained(enter: str, notify: str, way_out: str) -> str:
    """Return how a profile goes on in maintenance."""
    return f"  in-maintenance:\n    enter: {enter}\n    notify: {notify}\n    transitions: [{way_out}]\n"


def required(name: str, *transitions: str, rest: str = "") -> str:
    """Return a profile that is required by c1, and then has these transitions."""
    listed = "".join(f"\n    - {transition}" for transition in transitions)
    start = f"- name: {name}\n  operational:\n    transitions: [{{check: c1, next: maintenance-required}}]\n"
    return f"{start}  maintenance-required:\n    transitions:{listed}\n{rest}"


# A whole round


def test_the_reference_trace() -> None:
    """Section 4.10 of the contract, but without the evaluations that only write down that nothing was to be done."""
    walk = a_walk(annotations={"c1": "yes"})
    first = walk.reconcile()
    assert (walk.state("p"), walk.labels[STATE_LABEL], walk.labels["t1"]) == (REQUIRED, REQUIRED, "1")
    assert first.notifications == ()
    second = walk.reconcile()
    assert second.notifications == (NotificationRequest("told", "p", REQUIRED),)
    idle = walk.data
    for result in walk.reconcile_times(3):
        assert result.notifications == ()
        assert walk.data == idle
    walk.annotate(c2="yes")
    walk.reconcile()
    assert (walk.state("p"), walk.labels[STATE_LABEL], walk.labels["t2"]) == (MAINTAINED, MAINTAINED, "1")
    assert "e" not in walk.labels
    walk.annotate(c1=None, c3="yes")
    walk.reconcile()
    assert (walk.labels["e"], walk.labels["t3"], walk.labels[STATE_LABEL]) == ("1", "1", OPERATIONAL)
    walk.reconcile()
    assert walk.states() == {"p": OPERATIONAL}
    assert [walk.labels[item] for item in ("t1", "t2", "t3", "e")] == ["1"] * 4


def test_the_annotation_is_what_the_go_controller_writes() -> None:
    walk = a_walk(annotations={"c1": "yes"})
    walk.reconcile(elapsed=MINUTE)
    at = "2024-05-01T10:01:00Z"
    entry = {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}
    assert json.loads(walk.data) == {"Profiles": {"p": entry}, "Notifications": {}}
    walk.reconcile()
    assert json.loads(walk.data)["Profiles"]["p"] == {**entry, "Previous": "maintenance-required"}
    assert json.loads(walk.data)["Notifications"] == {"told": "2024-05-01T10:02:00Z"}


def test_previous_is_left_behind_only_where_there_is_something_to_do_on_entering() -> None:
    """Who reads it sees no difference: with neither an enter chain nor notifications nothing hangs on it."""
    walk = a_walk(annotations={"c1": "yes", "c2": "yes", "c3": "yes"})
    seen = []
    for _ in walk.reconcile_times(3):
        entry = json.loads(walk.data)["Profiles"]["p"]
        seen.append((entry["Current"], entry["Previous"]))
    assert seen == [(REQUIRED, OPERATIONAL), (MAINTAINED, REQUIRED), (OPERATIONAL, OPERATIONAL)]


def test_nothing_is_written_while_nothing_changes() -> None:
    walk = a_walk()
    walk.reconcile()
    before = walk.node
    assert walk.reconcile().draft.node == before
    assert walk.node == before


def test_changes_of_a_step_are_seen_by_later_plugins_and_profiles() -> None:
    profiles = P + "- name: q\n  operational:\n    transitions: [{check: marked, next: maintenance-required}]\n"
    walk = a_walk(profiles, "p", "q", annotations={"c1": "yes"})
    walk.reconcile()
    assert walk.states() == {"p": REQUIRED, "q": REQUIRED}
    other = a_walk(profiles, "q", "p", annotations={"c1": "yes"})
    other.reconcile()
    assert other.states() == {"p": REQUIRED, "q": OPERATIONAL}


def test_the_enter_chain_runs_before_the_checks_of_the_state() -> None:
    rest = "  in-maintenance:\n    enter: e\n    transitions: [{check: entered, next: operational}]\n"
    walk = a_walk(required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"})
    assert [walk.state("p") for _ in walk.reconcile_times(3)] == [REQUIRED, MAINTAINED, OPERATIONAL]


# Which profiles


def test_a_node_without_a_label_has_the_default_profile() -> None:
    walk = ProfileNode(PLUGINS + P)
    walk.reconcile()
    assert walk.states() == {"default": OPERATIONAL}
    assert walk.labels[STATE_LABEL] == OPERATIONAL


def test_the_default_profile_can_be_redefined() -> None:
    walk = ProfileNode(PLUGINS + P.replace("name: p", "name: default"), annotations={"c1": "yes"})
    walk.reconcile()
    assert walk.states() == {"default": REQUIRED}


def test_unknown_names_are_ignored_and_bring_no_default_profile() -> None:
    walk = a_walk(P, "nobody", "p", "nothing", annotations={"c1": "yes"})
    walk.reconcile()
    assert walk.states() == {"p": REQUIRED}
    lost = a_walk(P, "nobody")
    lost.reconcile()
    assert (lost.states(), lost.labels[STATE_LABEL]) == ({}, OPERATIONAL)


def test_a_name_that_is_there_twice_counts_once() -> None:
    walk = a_walk(P, "p", "p", annotations={"c1": "yes"})
    assert len(walk.reconcile().reports) == 1
    assert walk.labels["t1"] == "1"


def test_a_new_profile_does_not_enter_and_may_move_at_once() -> None:
    profiles = P.replace("  operational:\n", "  operational:\n    enter: e\n")
    walk = a_walk(profiles, annotations={"c1": "yes"})
    walk.reconcile()
    assert "e" not in walk.labels
    assert walk.state("p") == REQUIRED


def test_a_profile_that_is_taken_off_in_maintenance_is_forgotten_without_a_word() -> None:
    """12.9: profile removal while in maintenance."""
    walk = a_walk(annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    assert walk.labels[STATE_LABEL] == MAINTAINED
    walk.label({PROFILE_LABEL: None})
    result = walk.reconcile()
    assert walk.states() == {"default": OPERATIONAL}
    assert walk.labels[STATE_LABEL] == OPERATIONAL
    assert result.notifications == ()
    assert "t3" not in walk.labels


def test_a_profile_that_is_taken_off_does_not_block_the_others() -> None:
    q = required("q", "{check: c2, next: in-maintenance}")
    walk = a_walk(P + q, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    assert walk.states() == {"p": MAINTAINED, "q": REQUIRED}
    walk.label(dict(on("q")))
    walk.reconcile()
    assert walk.states() == {"q": MAINTAINED}


def test_a_profile_that_is_no_longer_configured_is_frozen_and_does_not_count() -> None:
    walk = a_walk(annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    frozen = walk.data
    walk.set_configuration(PLUGINS + P.replace("name: p", "name: other"))
    walk.reconcile()
    assert (walk.data, walk.labels[STATE_LABEL]) == (frozen, OPERATIONAL)
    walk.set_configuration(PLUGINS + P)
    walk.reconcile()
    assert (walk.data, walk.labels[STATE_LABEL]) == (frozen, MAINTAINED)


@pytest.mark.parametrize("state", ["", "gone", "IN-MAINTENANCE"])
def test_a_state_that_nobody_knows_is_kept_and_told_and_concerns_no_other_profile(state: str) -> None:
    q = required("q", "{check: c2, next: in-maintenance}")
    entry = {"Transition": "2024-05-01T10:00:00Z", "Current": state, "Previous": "operational"}
    text = json.dumps({"Profiles": {"p": entry}, "Notifications": {}})
    walk = a_walk(P + q, "p", "q", annotations={DATA_ANNOTATION: text, "c1": "yes"})
    walk.reconcile()
    assert walk.states() == {"p": state, "q": REQUIRED}
    assert f"{state!r}, expected one of operational, maintenance-required, in-maintenance" in walk.report("p").error


def test_the_state_of_a_node_is_the_worst_of_its_profiles() -> None:
    assert aggregate_state([]) is OPERATIONAL
    assert aggregate_state([OPERATIONAL, REQUIRED]) is REQUIRED
    assert aggregate_state([REQUIRED, MAINTAINED, OPERATIONAL]) is MAINTAINED


# Choosing


def test_the_first_that_passes_wins_and_all_are_looked_at() -> None:
    profile = required("p", "{check: c2, next: operational, trigger: t1}", "{check: c1, next: in-maintenance}")
    walk = a_walk(profile, annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(2))
    assert walk.state("p") == OPERATIONAL
    assert [transition.passed for transition in walk.report("p").transitions] == [True, True]


@pytest.mark.parametrize(("said", "triggers"), [("c2", ["1", "0"]), ("c3", ["0", "1"])])
def test_of_two_transitions_to_the_same_state_each_runs_its_own_trigger(said: str, triggers: list[str]) -> None:
    """12.9: same `next` twice."""
    ways = [f"{{check: c{item}, next: in-maintenance, trigger: t{item}}}" for item in (2, 3)]
    walk = a_walk(required("p", *ways), annotations={"c1": "yes", said: "yes"})
    list(walk.reconcile_times(2))
    assert walk.state("p") == MAINTAINED
    assert [walk.labels.get(item, "0") for item in ("t2", "t3")] == triggers


def test_a_transition_to_the_same_state_runs_no_trigger() -> None:
    walk = a_walk(required("p", "{check: c2, next: maintenance-required, trigger: t2}"), annotations={"c1": "yes"})
    walk.reconcile()
    before = walk.data
    walk.annotate(c2="yes")
    walk.reconcile()
    assert walk.data == before
    assert "t2" not in walk.labels


def test_only_what_passes_without_doubt_passes() -> None:
    profile = required("p", "{check: c2 || c3, next: in-maintenance}", "{check: '!c2', next: operational}")
    walk = a_walk(profile, annotations={"c1": "yes", "c2": "unknown"})
    list(walk.reconcile_times(2))
    assert walk.state("p") == REQUIRED
    assert walk.report("p").error == ""
    walk.annotate(c3="yes")
    walk.reconcile()
    assert walk.state("p") == MAINTAINED


@pytest.mark.parametrize("problem", ["error", "crash"])
def test_an_error_in_any_chain_blocks_all_transitions_of_the_profile_and_no_other(problem: str) -> None:
    profile = required("p", "{check: c3, next: operational}", "{check: c2, next: in-maintenance}")
    q = required("q", "{check: c3, next: in-maintenance}")
    walk = a_walk(profile + q, "p", "q", annotations={"c1": "yes", "c2": problem, "c3": "yes"})
    list(walk.reconcile_times(2))
    assert walk.states() == {"p": REQUIRED, "q": MAINTAINED}
    report = walk.report("p")
    assert (report.failed_part, report.next) == ("At least one check plugin failed", REQUIRED)
    assert report.error == "checks that failed with an error: c2"
    assert len(report.transitions) == 2


def test_a_plugin_that_breaks_is_asked_again_some_time() -> None:
    walk = a_walk(annotations={"c1": "crash"})
    assert walk.reconcile().requeue_at == walk.now + timedelta(minutes=10)
    assert "the plugin says failed: ZeroDivisionError()" in walk.report("p").transitions[0].error


def test_what_has_not_been_read_yet_is_not_known_and_no_error() -> None:
    walk = a_walk(annotations={"c1": "not known"})
    walk.reconcile()
    (report,) = walk.report("p").transitions
    result = report.checks["c1"].result
    assert (result.passed, result.reason, result.error) == (None, "it has not been read yet", "")
    assert (walk.report("p").error, walk.state("p")) == ("", OPERATIONAL)


# One in maintenance


def test_of_two_that_may_enter_maintenance_in_one_step_the_earlier_in_the_label_does() -> None:
    """12.9: two profiles becoming eligible in one reconcile."""
    both = "".join(required(name, "{check: c2, next: in-maintenance}") for name in ("p", "q"))
    for names in (("p", "q"), ("q", "p")):
        walk = a_walk(both, *names, annotations={"c1": "yes", "c2": "yes"})
        list(walk.reconcile_times(4))
        assert walk.states() == {names[0]: MAINTAINED, names[1]: REQUIRED}
        (report,) = walk.report(names[1]).transitions
        assert (report.chain_passed, report.passed) == (True, False)
        assert report.veto == f"profile {names[0]} has the node in maintenance"


def test_who_leaves_maintenance_blocks_the_others_until_the_next_step() -> None:
    rest = "  in-maintenance:\n    transitions: [{check: c3, next: operational}]\n"
    both = "".join(required(name, "{check: c2, next: in-maintenance}", rest=rest) for name in ("p", "q"))
    walk = a_walk(both, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(2))
    walk.annotate(c3="yes", c1=None)
    walk.reconcile()
    assert walk.states() == {"p": OPERATIONAL, "q": REQUIRED}
    walk.reconcile()
    assert walk.states() == {"p": OPERATIONAL, "q": MAINTAINED}


def test_who_is_on_the_way_into_maintenance_blocks_the_others_wherever_it_stands_in_the_label() -> None:
    slow = required("slow", "{check: c2, next: in-maintenance, trigger: drain}")
    quick = required("quick", "{check: c3, next: in-maintenance}")
    walk = a_walk(slow + quick, "quick", "slow", annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    walk.drains = {"slow": DRAINING}
    walk.annotate(c3="yes")
    for _ in walk.reconcile_times(3):
        assert walk.states() == {"quick": REQUIRED, "slow": REQUIRED}
    walk.drains = {"slow": DRAINED}
    list(walk.reconcile_times(2))
    assert walk.states() == {"quick": REQUIRED, "slow": MAINTAINED}


# Claims


def test_what_is_refused_concerns_one_transition() -> None:
    ways = ("{check: room && c2, next: in-maintenance}", "{check: c3, next: operational}")
    walk = a_walk(required("p", *ways), annotations={"c1": "yes", "c2": "yes"})
    walk.reconcile()
    result = walk.reconcile()
    assert result.claimed_transitions == {"p": 0}
    walk = a_walk(required("p", *ways), annotations={"c1": "yes", "c2": "yes"})
    walk.reconcile()
    refused = walk.reconcile(deferred={("p", 0): Deferral("no room")})
    assert (walk.state("p"), walk.report("p").transitions[0].veto) == (REQUIRED, "no room")
    assert refused.requeue_at == walk.now + timedelta(minutes=10)
    walk.annotate(c3="yes")
    walk.reconcile(deferred={("p", 0): Deferral("no room")})
    assert walk.state("p") == OPERATIONAL


def test_only_what_leads_into_maintenance_takes_a_slot_and_only_what_moves_takes_a_lease() -> None:
    profile = required("p", "{check: room && turn && c2, next: operational}")
    walk = a_walk(profile, annotations={"c1": "yes"})
    assert [decision.claims for decision in walk.reconcile_times(2)] == [(), ()]
    walk.annotate(c2="yes")
    ((_, claim),) = walk.reconcile().claims
    assert type(claim).__name__ == "LeaseClaim"


def test_a_transition_whose_trigger_breaks_claims_nothing() -> None:
    profile = required("p", "{check: room && c2, next: in-maintenance, trigger: t2}")
    walk = a_walk(profile, annotations={"c1": "yes"})
    walk.reconcile()
    walk.annotate(c2="yes", crash="yes")
    result = walk.reconcile()
    assert (walk.state("p"), result.claims, result.claimed_transitions) == (REQUIRED, (), {})


# Waiting


DRAIN_IN_TRIGGER = required("p", "{check: c2 && room, next: in-maintenance, trigger: t2 && drain && t3}")
DRAIN_IN_ENTER = required(
    "p",
    "{check: c2, next: in-maintenance}",
    rest=maintained("drain && e", "told", "{check: c3, next: operational}"),
)


def test_a_drain_in_a_trigger_cordons_first_and_holds_up_the_rest_of_the_chain() -> None:
    walk = a_walk(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    walk.reconcile()
    result = walk.reconcile()
    assert (walk.node.spec.unschedulable, result.drains) == (True, {})
    assert walk.report("p").waits_for == "cordoning node n1 before its pods are evicted"
    assert list(walk.reconcile().drains) == ["p"]
    walk.drains = {"p": DRAINING}
    walk.reconcile()
    assert (walk.state("p"), walk.report("p").waits_for) == (REQUIRED, "0 of 2 pods have left")
    assert walk.report("p").failed_part == ""
    walk.drains = {"p": DRAINED}
    walk.reconcile()
    assert (walk.state("p"), walk.labels["t3"]) == (MAINTAINED, "1")
    assert BEGUN not in walk.node.metadata.annotations


def test_what_has_begun_is_brought_to_its_end_though_its_checks_say_no() -> None:
    walk = a_walk(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(2))
    for said in ("no", "error", "crash", "unknown"):
        walk.annotate(c2=said)
        assert walk.reconcile().claims == ()
        assert list(walk.result.drains if walk.result else ()) == ["p"]
    walk.drains = {"p": DRAINED}
    walk.reconcile()
    assert walk.state("p") == MAINTAINED


def test_of_two_ways_to_the_same_state_the_one_that_has_begun_goes_on() -> None:
    ways = [f"{{check: c{item}, next: in-maintenance, trigger: drain && t{item}}}" for item in (2, 3)]
    walk = a_walk(required("p", *ways), annotations={"c1": "yes", "c3": "yes"})
    list(walk.reconcile_times(3))
    walk.annotate(c2="yes", c3=None)
    walk.drains = {"p": DRAINED}
    walk.reconcile()
    assert (walk.state("p"), walk.labels.get("t2"), walk.labels["t3"]) == (MAINTAINED, None, "1")


@pytest.mark.parametrize(
    ("edited", "end"),
    [
        ("{check: c3, next: in-maintenance, trigger: drain}", MAINTAINED),
        ("{check: c3, next: in-maintenance}", MAINTAINED),
        ("{check: c3, next: operational}", REQUIRED),
    ],
)
def test_a_file_that_is_edited_while_a_transition_is_under_way(edited: str, end: str) -> None:
    """It goes on as the file now says; if nothing leads there any more, it is given up."""
    walk = a_walk(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    walk.drains = {"p": DRAINED}
    walk.set_configuration(PLUGINS + required("p", edited))
    walk.reconcile()
    assert walk.state("p") == end
    assert BEGUN not in walk.node.metadata.annotations


def pending_walk(*, calls_off: bool) -> ProfileNode:
    """Return a node of two profiles: `p` drains it for its maintenance, and `q` may not enter maintenance meanwhile.

    If `p` goes by notices, `calls_off`, it may turn back though it has begun.
    """
    turns_back = "{check: turn && c3, next: operational, trigger: t3}"
    first = required("p", turns_back, "{check: c2, next: in-maintenance, trigger: drain}")
    if calls_off:
        first = first.replace("- name: p\n", "- name: p\n  onNotice: true\n")
    second = required("q", "{check: c2 && room, next: in-maintenance}")
    walk = a_walk(first + second, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    assert is_in_profile_maintenance(walk.node), "as budgets see it"
    assert walk.states() == {"p": REQUIRED, "q": REQUIRED}
    if not calls_off:  # the transition that has begun is removed from the file
        walk.set_configuration(PLUGINS + required("p", turns_back) + second)
    return walk


@pytest.mark.parametrize("calls_off", [False, True], ids=["edited", "called off"])
def test_a_transition_that_is_given_up_lets_the_next_one_take_what_it_needs(*, calls_off: bool) -> None:
    walk = pending_walk(calls_off=calls_off)
    walk.annotate(c3="yes")
    result = walk.reconcile()
    assert walk.state("p") == OPERATIONAL
    assert [(name, type(claim).__name__) for name, claim in result.claims if name == "p"] == [("p", "LeaseClaim")]
    assert walk.labels["t3"] == "1"


@pytest.mark.parametrize("calls_off", [False, True], ids=["edited", "called off"])
def test_a_transition_that_is_given_up_makes_way_for_another_profile_in_the_same_step(*, calls_off: bool) -> None:
    walk = pending_walk(calls_off=calls_off)
    walk.annotate(c3="yes")
    result = walk.reconcile()
    assert walk.states() == {"p": OPERATIONAL, "q": MAINTAINED}
    assert "q" in {name for name, _ in result.claims}


def test_a_node_whose_transition_is_no_longer_in_the_file_is_not_out_of_service() -> None:
    walk = pending_walk(calls_off=False)
    walk.annotate(c2=None)  # so that the other profile does not go either
    walk.reconcile()
    assert walk.states() == {"p": REQUIRED, "q": REQUIRED}
    assert not is_in_profile_maintenance(walk.node), "as budgets see it"


def test_a_profile_in_maintenance_blocks_the_others_though_its_way_out_is_no_longer_in_the_file() -> None:
    """Its way out drains the node again, and is removed from the file meanwhile."""
    out = "  in-maintenance:\n    transitions: [{check: c3, next: maintenance-required, trigger: drain}]\n"
    second = required("q", "{check: c2, next: in-maintenance}")
    walk = a_walk(required("p", "{check: c2, next: in-maintenance}", rest=out) + second, "p", "q")
    walk.annotate(c1="yes", c2="yes", c3="yes")
    list(walk.reconcile_times(3))
    assert (walk.states(), BEGUN in walk.node.metadata.annotations) == ({"p": MAINTAINED, "q": REQUIRED}, True)
    walk.set_configuration(PLUGINS + required("p", "{check: c2, next: in-maintenance}") + second)
    list(walk.reconcile_times(2))
    assert walk.states() == {"p": MAINTAINED, "q": REQUIRED}


def test_what_was_begun_before_somebody_else_led_the_node_through_a_round_is_over() -> None:
    """The Go controller knows nothing of our annotation: it must not bring the node into maintenance much later."""
    walk = a_walk(DRAIN_IN_TRIGGER, annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(3))
    assert BEGUN in walk.node.metadata.annotations
    entry = {"Transition": "2024-05-02T10:00:00Z", "Current": REQUIRED, "Previous": REQUIRED}
    walk.annotate(c2=None, **{DATA_ANNOTATION: json.dumps({"Profiles": {"p": entry}, "Notifications": {}})})
    walk.drains = {"p": DRAINED}
    result = walk.reconcile()
    assert (walk.state("p"), result.drains, result.pending) == (REQUIRED, {}, {})


@pytest.mark.parametrize("raw", ["", "{", "[]", '{"p":"in-maintenance"}', '{"p":{"next":"gone"}}', "null", "\\ud800"])
def test_what_somebody_wrote_over_our_word_about_transitions_counts_for_nothing(raw: str) -> None:
    walk = a_walk(annotations={BEGUN: raw, "c1": "yes"})
    walk.reconcile()
    assert walk.state("p") == REQUIRED
    assert BEGUN not in walk.node.metadata.annotations


@pytest.mark.parametrize(
    ("moved", "stays_cordoned"),
    [("2024-05-02T10:00:00.123456789Z", False), ("2024-05-02T10:00:00.123456Z", True)],
    ids=["the Go controller", "a person"],
)
def test_a_cordon_without_a_mark_is_whose_clock_shows_so_many_digits(
    moved: str,
    stays_cordoned: bool,  # noqa: FBT001 - a case
) -> None:
    """The Go controller marks no cordon, and a person does not: but a transition that it made shows nanoseconds."""
    way_out = "{check: c3, next: operational, trigger: uncordon}"
    profile = required("p", "{check: c2, next: in-maintenance}", rest=maintained("drain", "told", way_out))
    walk = a_walk(profile, annotations={"c3": "yes"})
    entry = {"Transition": moved, "Current": MAINTAINED, "Previous": REQUIRED}
    walk.annotate(**{DATA_ANNOTATION: json.dumps({"Profiles": {"p": entry}, "Notifications": {}})})
    walk.cordon()
    walk.drains = {"p": DRAINED}
    list(walk.reconcile_times(2))
    assert (walk.state("p"), walk.node.spec.unschedulable) == (OPERATIONAL, stays_cordoned)


def test_a_drain_on_entering_holds_up_notifications_and_checks() -> None:
    walk = a_walk(DRAIN_IN_ENTER, annotations={"c1": "yes", "c2": "yes", "c3": "yes"})
    list(walk.reconcile_times(2))
    for drains in ({}, {}, {"p": DRAINING}):
        walk.drains = drains
        assert walk.reconcile().notifications == ()
        assert (walk.state("p"), walk.report("p").transitions) == (MAINTAINED, ())
        assert "e" not in walk.labels
    walk.drains = {"p": DRAINED}
    assert len(walk.reconcile().notifications) == 1
    assert (walk.state("p"), walk.labels["e"]) == (OPERATIONAL, "1")


def test_a_state_is_entered_and_told_once_though_its_way_out_takes_long() -> None:
    """W12: what has been done on entering is not repeated while a trigger waits."""
    rest = maintained("e", "told", "{check: c3, next: operational, trigger: drain}")
    walk = a_walk(required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(2))
    walk.annotate(c3="yes")
    walk.drains = {"p": DRAINING}
    sent = [notification for result in walk.reconcile_times(6) for notification in result.notifications]
    assert (len(sent), walk.labels["e"]) == (1, "1")


@pytest.mark.parametrize("problem", ["error", "crash"])
def test_a_state_is_entered_and_told_once_though_its_checks_go_wrong(problem: str) -> None:
    """W01: a check that fails makes nobody's phone ring again and again."""
    rest = maintained("e", "told", "{check: c3, next: operational}")
    walk = a_walk(required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(2))
    walk.annotate(c3=problem)
    sent = [notification for result in walk.reconcile_times(6) for notification in result.notifications]
    assert (len(sent), walk.labels["e"]) == (1, "1")


def test_a_drain_that_has_ended_without_success_is_told_and_begun_again() -> None:
    walk = a_walk(DRAIN_IN_ENTER, annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(4))
    walk.drains = {"p": DRAINED.__class__(is_done=False, message="", problem="pod shop/cart has no controller")}
    result = walk.reconcile()
    report = walk.report("p")
    assert (report.failed_part, report.error) == (
        "Failed to enter state in-maintenance",
        "drain: pod shop/cart has no controller",
    )
    assert (result.drains, result.requeue_at) == ({}, walk.now + timedelta(minutes=10))
    walk.drains = {}
    assert list(walk.reconcile().drains) == ["p"]


# Going wrong


def test_what_fails_on_entering_a_state_leaves_nothing_of_its_chain() -> None:
    rest = maintained("e && misnamed", "told", "{check: c3, next: operational}")
    walk = a_walk(required("p", "{check: c2, next: in-maintenance}", rest=rest), annotations={"c1": "yes", "c2": "yes"})
    list(walk.reconcile_times(4))
    assert (walk.state("p"), walk.report("p").failed_part) == (MAINTAINED, "Failed to enter state in-maintenance")
    assert "e" not in walk.labels


def test_a_trigger_that_breaks_leaves_nothing_of_its_chain() -> None:
    profile = required("p", "{check: c2, next: in-maintenance, trigger: cordon && t2}")
    walk = a_walk(profile, annotations={"c1": "yes", "c2": "yes"})
    walk.reconcile()
    walk.annotate(crash="")
    result = walk.reconcile()
    assert (walk.state("p"), walk.node.spec.unschedulable) == (REQUIRED, False)
    assert walk.report("p").failed_part == "At least one trigger plugin failed"
    assert walk.report("p").error == "t2: the plugin counts failed: ZeroDivisionError()"
    assert result.requeue_at is not None


@pytest.mark.parametrize("trigger", ["misnamed", "misstated", "annotated", "finalized"])
def test_what_the_server_would_refuse_holds_up_only_its_own_profile(trigger: str) -> None:
    ways = (
        f"- name: p\n  operational:\n    transitions: [{{check: c1, next: maintenance-required, trigger: {trigger}}}]\n"
    )
    walk = a_walk(ways + required("q", "{check: c2, next: operational}"), "p", "q", annotations={"c1": "yes"})
    walk.reconcile()
    assert (walk.state("p"), walk.state("q")) == (OPERATIONAL, REQUIRED)
    assert walk.report("p").error.startswith(f"{trigger}: found 'a b', expected ")


def test_what_cannot_be_there_is_taken_off_without_ado() -> None:
    ways = (
        "- name: p\n  operational:\n    transitions: [{check: c1, next: maintenance-required, trigger: misnamed-off}]\n"
    )
    walk = a_walk(ways, annotations={"c1": "yes"})
    walk.reconcile()
    assert walk.state("p") == REQUIRED


def test_a_schedule_that_breaks_is_told_and_holds_up_no_transition() -> None:
    profile = (
        "- name: p\n  operational:\n    notify: broken\n    transitions: [{check: c1, next: maintenance-required}]\n"
    )
    walk = a_walk(profile + required("q", "{check: c2, next: operational}"), "p", "q")
    walk.reconcile()
    report = walk.report("p")
    assert (report.failed_part, report.next) == ("At least one notification plugin failed", OPERATIONAL)
    assert report.error == "broken: the plugin breaks failed: ZeroDivisionError()"
    walk.annotate(c1="yes")
    walk.reconcile()
    assert walk.states() == {"p": REQUIRED, "q": REQUIRED}
    assert (walk.report("p").failed_part, walk.report("p").error) == ("", report.error)


def test_a_hypervisor_that_cannot_be_changed_concerns_its_profile_alone() -> None:
    p = required("p", "{check: c2, next: operational, trigger: hypervisor}")
    q = required("q", "{check: c2, next: in-maintenance}")
    walk = a_walk(p + q, "p", "q", annotations={"c1": "yes", "c2": "yes"})
    walk.reconcile()
    result = walk.reconcile(failed_actions={"p": "hypervisor n1 is not there"})
    assert walk.states() == {"p": REQUIRED, "q": MAINTAINED}
    assert walk.report("p").error == "hypervisor: hypervisor n1 is not there"
    assert result.external_actions == ()


def test_a_mark_that_somebody_wrote_over_concerns_its_profile_alone() -> None:
    p = required("p", "{check: c2, next: operational, trigger: uncordon}")
    q = required("q", "{check: c2, next: in-maintenance}")
    walk = a_walk(p + q, "p", "q", annotations={"c1": "yes", "c2": "yes", "haulout.dev/cordon": "{"})
    list(walk.reconcile_times(2))
    assert walk.states() == {"p": REQUIRED, "q": MAINTAINED}
    assert "haulout.dev/cordon of node n1 is invalid" in walk.report("p").error


# When to look again


def test_it_wakes_at_the_earliest_instant_that_anything_named() -> None:
    walk = a_walk(required("p", "{check: later, next: in-maintenance}"), annotations={"c1": "yes"})
    list(walk.reconcile_times(2))
    assert walk.reconcile().requeue_at == walk.now + timedelta(minutes=5)


def test_notifications_wake_their_node() -> None:
    walk = a_walk(annotations={"c1": "yes"})
    list(walk.reconcile_times(2))
    sent_at = walk.now
    assert walk.reconcile().requeue_at == sent_at + timedelta(hours=1)


def test_an_instant_that_is_over_does_not_make_it_look_without_a_pause() -> None:
    walk = a_walk(required("p", "{check: later, next: in-maintenance}"), annotations={"c1": "yes"})
    walk.set_configuration(
        PLUGINS.replace("again: 5m", "again: -1h") + required("p", "{check: later, next: in-maintenance}")
    )
    list(walk.reconcile_times(2))
    assert walk.reconcile().requeue_at == walk.now + timedelta(seconds=1)


def test_topics_are_those_of_the_checks_of_the_state() -> None:
    walk = a_walk(required("p", "{check: room && semver, next: in-maintenance}"), annotations={"c1": "yes"})
    assert walk.reconcile().topics == frozenset()
    assert {"budget", "label version"} <= walk.reconcile().topics


def test_an_entry_from_before_the_calendar_began_or_after_its_end_harms_nothing() -> None:
    entry = ProfileStatus(current=REQUIRED, previous=REQUIRED, transition=None)
    walk = a_walk()
    result = walk.reconcile(statuses={"p": entry})
    assert result.statuses["p"] == entry
    assert walk.now > NOW
