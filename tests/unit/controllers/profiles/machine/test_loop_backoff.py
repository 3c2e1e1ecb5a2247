"""Backoff of looping profiles; other profiles are not affected."""

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


def waits(backoff: LoopBackoff, *, rounds: int, every: timedelta) -> list[float]:
    """Return the backoff of each loop in seconds."""
    found, now = [], NOW
    for _ in range(rounds):
        slowed = backoff.throttled("n1", now).get(("os", State.OPERATIONAL))
        until = now if slowed is None or slowed.retry_at is None else slowed.retry_at
        found.append((until - now).total_seconds())
        backoff.record("n1", LEFT, until)
        now = until + every
    return found


def test_first_loops_are_free_and_further_ones_back_off() -> None:
    assert waits(LoopBackoff(), rounds=11, every=timedelta()) == [0, 0, 0, 0, 10, 20, 40, 80, 160, 300, 300]


def test_loop_every_five_minutes_never_backs_off() -> None:
    assert set(waits(LoopBackoff(), rounds=50, every=5 * MINUTE)) == {0}


def test_backoff_is_reset_after_a_quiet_period() -> None:
    backoff = LoopBackoff()
    waits(backoff, rounds=8, every=timedelta())
    later = NOW + timedelta(hours=1)
    assert backoff.throttled("n1", later) == {}
    assert backoff._departures == {}


def test_only_transitions_towards_maintenance_back_off_per_profile_and_node() -> None:
    backoff = LoopBackoff()
    back = ProfileReport(name="os", state=State.IN_MAINTENANCE, next=State.OPERATIONAL)
    for _ in range(9):
        backoff.record("n1", back, NOW)
    assert backoff.throttled("n1", NOW) == {}
    for _ in range(9):
        backoff.record("n1", LEFT, NOW)
    assert list(backoff.throttled("n1", NOW)) == [("os", State.OPERATIONAL)]
    assert backoff.throttled("n2", NOW) == {}
    backoff.forget("n1")
    assert backoff.throttled("n1", NOW) == {}


def test_loop_backs_off_once_in_operational_if_it_starts_there() -> None:
    taken = ProfileReport(name="os", state=State.REQUIRED, next=State.IN_MAINTENANCE)
    backoff = LoopBackoff()
    for _ in range(9):
        backoff.record("n1", taken, NOW)
    assert list(backoff.throttled("n1", NOW)) == [("os", State.REQUIRED)]
    for _ in range(9):
        backoff.record("n1", LEFT, NOW)
    assert list(backoff.throttled("n1", NOW)) == [("os", State.OPERATIONAL)]


async def test_looping_profile_drains_its_node_a_few_times_per_hour_and_is_reported(
    clock: VirtualClock,
) -> None:
    plan = a_cluster(clock).with_nodes(2).with_invariants(*invariants())
    controllers: list[ProfilesController] = []
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(CIRCLE, on_started=controllers.append))
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
        event = next(item for item in own_events(cluster, "n1") if item["reason"] == "ProfileTransitionLoop")
        assert (event.get("note") or event["message"]).startswith("profile os loops: it enters and leaves maintenance")
        found = await explain(cluster.admin, load_configuration(CIRCLE), "n1", external=None)
        assert any("profile os loops: it enters and leaves maintenance" in item for item in found.notes)
        known = controllers[0].statuses.get("n1")
        assert known is not None
        [veto] = [way.veto for report in known.reports for way in report.transitions]
        assert re.fullmatch(r"the profile loops: it left operational \d+ times within \S+, so it waits 5m\. .*", veto)
