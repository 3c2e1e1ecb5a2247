"""Profiles that go in circles: slowed down, told, and nothing of it for those that do not."""

import re
from datetime import timedelta

from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.explain.explanation import explain
from haulout.controllers.profiles.machine.loop_backoff import LoopBackoff
from haulout.controllers.profiles.observation import ProfileReport
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.fakes.cluster_view import MINUTE, NOW
from support.fakes.profile_node import load_configuration
from support.operators.profiles_controller import invariants, own_events, profiles_controller, set_labels

CIRCLE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: always, type: hasLabel, config: {key: wanted}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: always, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: always, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: always, next: operational, trigger: uncordon}]
"""
LEFT = ProfileReport(name="os", state=State.OPERATIONAL, next=State.REQUIRED)


def waits(pace: LoopBackoff, *, rounds: int, every: timedelta) -> list[float]:
    """Return for how long each round had to wait."""
    found, now = [], NOW
    for _ in range(rounds):
        slowed = pace.throttled("n1", now).get(("os", State.OPERATIONAL))
        until = now if slowed is None or slowed.retry_at is None else slowed.retry_at
        found.append((until - now).total_seconds())
        pace.record("n1", LEFT, until)
        now = until + every
    return found


def test_the_first_rounds_are_free_and_then_each_waits_longer() -> None:
    assert waits(LoopBackoff(), rounds=11, every=timedelta()) == [0, 0, 0, 0, 10, 20, 40, 80, 160, 300, 300]


def test_who_goes_round_every_five_minutes_never_waits() -> None:
    assert set(waits(LoopBackoff(), rounds=50, every=5 * MINUTE)) == {0}


def test_after_a_while_of_quiet_the_next_rounds_are_free_again() -> None:
    pace = LoopBackoff()
    waits(pace, rounds=8, every=timedelta())
    later = NOW + timedelta(hours=1)
    assert pace.throttled("n1", later) == {}
    assert pace._departures == {}


def test_only_what_leads_towards_maintenance_waits_and_each_profile_and_node_by_itself() -> None:
    pace = LoopBackoff()
    back = ProfileReport(name="os", state=State.IN_MAINTENANCE, next=State.OPERATIONAL)
    for _ in range(9):
        pace.record("n1", back, NOW)
    assert pace.throttled("n1", NOW) == {}
    for _ in range(9):
        pace.record("n1", LEFT, NOW)
    assert list(pace.throttled("n1", NOW)) == [("os", State.OPERATIONAL)]
    assert pace.throttled("n2", NOW) == {}
    pace.forget("n1")
    assert pace.throttled("n1", NOW) == {}


def test_a_round_waits_once_in_operational_if_it_begins_there() -> None:
    taken = ProfileReport(name="os", state=State.REQUIRED, next=State.IN_MAINTENANCE)
    pace = LoopBackoff()
    for _ in range(9):
        pace.record("n1", taken, NOW)
    assert list(pace.throttled("n1", NOW)) == [("os", State.REQUIRED)]
    for _ in range(9):
        pace.record("n1", LEFT, NOW)
    assert list(pace.throttled("n1", NOW)) == [("os", State.OPERATIONAL)]


async def test_a_profile_that_contradicts_itself_drains_its_node_a_few_times_an_hour_and_says_so(
    clock: VirtualClock,
) -> None:
    plan = a_cluster(clock).with_nodes(2).with_invariants(*invariants())
    seen: list[ProfilesController] = []
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(CIRCLE, on_started=seen.append))
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os", "wanted": "yes"})
        await clock.sleep(timedelta(hours=1))
        cordons = [
            item
            for item in cluster.history
            if item.kind.plural == "nodes"
            and item.key == "n1"
            and item.after
            and item.after["spec"].get("unschedulable")
            and not (item.before or {"spec": {}})["spec"].get("unschedulable")
        ]
        assert 8 <= len(cordons) <= 20
        said = next(item for item in own_events(cluster, "n1") if item["reason"] == "ProfileTransitionLoop")
        assert (said.get("note") or said["message"]).startswith("profile os loops: it enters and leaves maintenance")
        found = await explain(cluster.admin, load_configuration(CIRCLE), "n1", external=None)
        assert any("profile os loops: it enters and leaves maintenance" in item for item in found.notes)
        known = seen[0].statuses.get("n1")
        assert known is not None
        [veto] = [way.veto for report in known.reports for way in report.transitions]
        assert re.fullmatch(r"the profile loops: it left operational \d+ times within \S+, so it waits 5m\. .*", veto)
