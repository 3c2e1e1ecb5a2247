"""Profiles that go in circles: slowed down, told, and nothing of it for those that do not."""

import re
from datetime import timedelta

from haulout.profiles.controller import Controller
from haulout.profiles.pace import Pace
from haulout.profiles.plugin import PROFILE_LABEL, State
from haulout.profiles.steps import ProfileReport
from haulout.profiles.why import judge
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.clusters import a_cluster
from support.profiling import invariants, label, operating, told
from support.scenes import MINUTE, NOW
from support.stepping import loaded

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


def waits(pace: Pace, *, rounds: int, every: timedelta) -> list[float]:
    """Return for how long each round had to wait."""
    found, now = [], NOW
    for _ in range(rounds):
        slowed = pace.slowed("n1", now).get(("os", State.OPERATIONAL))
        until = now if slowed is None or slowed.again_at is None else slowed.again_at
        found.append((until - now).total_seconds())
        pace.note("n1", LEFT, until)
        now = until + every
    return found


def test_the_first_rounds_are_free_and_then_each_waits_longer() -> None:
    assert waits(Pace(), rounds=11, every=timedelta()) == [0, 0, 0, 0, 10, 20, 40, 80, 160, 300, 300]


def test_who_goes_round_every_five_minutes_never_waits() -> None:
    assert set(waits(Pace(), rounds=50, every=5 * MINUTE)) == {0}


def test_after_a_while_of_quiet_the_next_rounds_are_free_again() -> None:
    pace = Pace()
    waits(pace, rounds=8, every=timedelta())
    later = NOW + timedelta(hours=1)
    assert pace.slowed("n1", later) == {}
    assert pace._went == {}


def test_only_what_leads_towards_maintenance_waits_and_each_profile_and_node_by_itself() -> None:
    pace = Pace()
    back = ProfileReport(name="os", state=State.IN_MAINTENANCE, next=State.OPERATIONAL)
    for _ in range(9):
        pace.note("n1", back, NOW)
    assert pace.slowed("n1", NOW) == {}
    for _ in range(9):
        pace.note("n1", LEFT, NOW)
    assert list(pace.slowed("n1", NOW)) == [("os", State.OPERATIONAL)]
    assert pace.slowed("n2", NOW) == {}
    pace.forget("n1")
    assert pace.slowed("n1", NOW) == {}


def test_a_round_waits_once_in_operational_if_it_begins_there() -> None:
    taken = ProfileReport(name="os", state=State.REQUIRED, next=State.IN_MAINTENANCE)
    pace = Pace()
    for _ in range(9):
        pace.note("n1", taken, NOW)
    assert list(pace.slowed("n1", NOW)) == [("os", State.REQUIRED)]
    for _ in range(9):
        pace.note("n1", LEFT, NOW)
    assert list(pace.slowed("n1", NOW)) == [("os", State.OPERATIONAL)]


async def test_a_profile_that_contradicts_itself_drains_its_node_a_few_times_an_hour_and_says_so(
    clock: VirtualClock,
) -> None:
    plan = a_cluster(clock).with_nodes(2).upholding(*invariants())
    seen: list[Controller] = []
    async with plan.on_the_sandbox() as cluster:
        cluster.run(operating(CIRCLE, seen=seen.append))
        await label(cluster, "n1", {PROFILE_LABEL: "os", "wanted": "yes"})
        await clock.sleep(timedelta(hours=1))
        cordons = [
            it
            for it in cluster.history
            if it.kind.plural == "nodes"
            and it.key == "n1"
            and it.after
            and it.after["spec"].get("unschedulable")
            and not (it.before or {"spec": {}})["spec"].get("unschedulable")
        ]
        assert 8 <= len(cordons) <= 20
        said = next(it for it in told(cluster, "n1") if it["reason"] == "MaintenanceGoesInCircles")
        assert (said.get("note") or said["message"]).startswith("profile os goes in circles")
        found = await judge(cluster.me, loaded(CIRCLE), "n1", outside=None)
        assert any("profile os goes in circles" in it for it in found.notes)
        known = seen[0].info.get("n1")
        assert known is not None
        [veto] = [way.veto for report in known.reports for way in report.transitions]
        assert re.fullmatch(r"it goes in circles: it left operational \d+ times within \S+, so it waits 5m\. .*", veto)
