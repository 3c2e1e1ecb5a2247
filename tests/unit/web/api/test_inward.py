"""What the operator tells of time, of its configuration and of itself, while the whole of it works."""

import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.app.names import LEADER_LEASE
from haulout.kinds.notice import Stage
from haulout.kube.objects import RawObject
from haulout.web.api.answering import encoded
from haulout.web.api.narrowing import Narrowing
from haulout.web.api.shapes import Edit, WhatIf
from haulout.web.api.source import Stretch, Unanswerable
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.clusters import a_cluster
from support.forewarned import Cloud
from support.outside import FakeOutside
from support.watched import World, watched

ATTACHED = {"cloud.sap/maintenance-profile": "os"}
NIGHTLY = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: example.com/reboot, value: "yes"}}
  - {name: night, type: timeWindow, config: {start: "22:00", end: "04:00", acrossMidnight: true,
      weekdays: [mon, tue, wed, thu, fri], blackouts: [{start: 2026-01-07, end: 2026-01-07, reason: fair}]}}
  - {name: done, type: hasLabel, config: {key: example.com/done}}
  notify:
  - {name: slack, type: slack, config: {hook: "https://hooks.slack.com/services/T0/B0/quiet", channel: "#ops",
      message: m}, schedule: {type: oneshot, config: {}}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: night, next: in-maintenance, trigger: drain}]
  in-maintenance:
    notify: slack
    transitions: [{check: done, next: operational, trigger: uncordon}]
"""
# It is a Monday, 09:00.


async def timeline(world: World, **wanted: object) -> RawObject:
    found: RawObject = json.loads(encoded(await world.source.timeline(Stretch(**wanted))))  # type: ignore[arg-type]
    return found


def bars(row: RawObject) -> list[tuple[str, str, str]]:
    return [(it["kind"], it["title"], it.get("state", "")) for it in row.get("spans", ())]


async def want(world: World, *nodes: str, **labels: str) -> None:
    for node in nodes:
        keys = {f"example.com/{key}": value for key, value in labels.items()}
        await world.cluster.change("nodes", node, metadata={"labels": keys})


async def what_if(world: World, text: str) -> WhatIf:
    return await world.source.check(Edit(text=text))


# The timeline


async def test_maintenance_by_a_profile_is_on_the_timeline_from_when_it_is_wanted(
    clock: VirtualClock, tmp_path: Path
) -> None:
    plan = a_cluster(clock).with_nodes(3, labels=ATTACHED).with_deployment("shop/cart", replicas=6)
    soon = NIGHTLY.replace('"22:00", end: "04:00", acrossMidnight: true', '"09:05", end: "10:00"')
    async with watched(plan, soon, tmp_path) as world:
        began = clock.now()
        await want(world, "n2", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        told = await timeline(world)
        assert [it["node"] for it in told["rows"]] == ["n2", "n1", "n3"]
        [running] = told["rows"][0]["spans"]
        assert (running["kind"], running["title"], running["state"]) == ("profile", "os", "maintenance-required")
        assert "end" not in running
        await world.cluster.pass_time(minutes=7)
        await want(world, "n2", reboot="no", done="")
        await world.cluster.pass_time(minutes=1)
        told = await timeline(world, start=began - timedelta(hours=1), end=clock.now() + timedelta(hours=1))
        assert bars(told["rows"][0]) == [
            ("profile", "os", "maintenance-required"),
            ("drain", "profile os", "Drained"),
            ("profile", "os", "in-maintenance"),
        ]
        waited, drained, out = told["rows"][0]["spans"]
        assert waited["end"] == out["start"]
        assert waited["start"] < drained["start"] < waited["end"]
        assert drained["why"] == "2 pods left in 3s"
        assert out["end"] <= encoded_time(clock)
        assert "problem" not in told


def encoded_time(clock: VirtualClock) -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_windows_and_blackouts_of_profiles_stand_behind_the_timeline(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        told = await timeline(world, start=clock.now(), end=clock.now() + timedelta(days=3))
        assert [(it["kind"], it["title"], it["start"][5:16], it["end"][5:16]) for it in told["windows"]] == [
            ("window", "os: night", "01-05T22:00", "01-06T04:00"),
            ("window", "os: night", "01-06T22:00", "01-07T00:00"),
            ("window", "os: night", "01-08T00:00", "01-08T04:00"),
            ("blackout", "os: night", "01-07T00:00", "01-08T00:00"),
        ]
        assert told["windows"][-1]["why"] == "fair"


async def test_what_is_announced_is_on_the_timeline_with_its_drain_and_stays_when_it_is_over(
    clock: VirtualClock,
) -> None:
    async with watched(a_cluster(clock).with_nodes(3)) as world:
        cloud = Cloud(world.cluster, "n1")
        await cloud.say(start=20, end=40)
        await world.cluster.pass_time(minutes=1)
        told = await timeline(world)
        assert [it["node"] for it in told["rows"]] == ["n1", "n2", "n3"]
        assert [kind for kind, _, _ in bars(told["rows"][0])] == ["drain", "notice"]
        assert [state for _, _, state in bars(told["rows"][0])] == ["planned", "Planned"]
        await cloud.until(20)
        await cloud.say(Stage.STARTED)
        await cloud.until(21)
        kinds = {(kind, state) for kind, _, state in bars((await timeline(world))["rows"][0])}
        assert {("profile", "in-maintenance"), ("notice", "Active")} <= kinds
        await cloud.say(Stage.ENDED)
        await cloud.until(23)
        await world.cluster.pass_time(minutes=1)
        told = await timeline(world)
        kinds = {(kind, state) for kind, _, state in bars(told["rows"][0])}
        assert {("profile", "in-maintenance"), ("notice", "Completed")} <= kinds
        assert all("end" in it for it in told["rows"][0]["spans"])


async def test_an_order_is_on_the_timeline(clock: VirtualClock) -> None:
    plan = a_cluster(clock).with_nodes(2).with_deployment("shop/cart", replicas=4, budget=4)
    async with watched(plan) as world:
        await world.order("n1")
        await world.cluster.pass_time(minutes=5)
        row = (await timeline(world))["rows"][0]
        assert row["node"] == "n1"
        assert bars(row) == [("order", "patch", "Running"), ("drain", "NodeMaintenance patch", "running")]
        assert "0 of 2 pods gone; " in row["spans"][1]["why"]


async def test_a_timeline_can_be_narrowed_and_is_not_longer_than_asked_for(clock: VirtualClock) -> None:
    async with watched(a_cluster(clock).with_nodes(4)) as world:
        told = await timeline(world, limit=2)
        assert (len(told["rows"]), told["total"]) == (2, 4)
        told = await timeline(world, narrowing=Narrowing(words=("n3",)))
        assert [it["node"] for it in told["rows"]] == ["n3"]


async def test_nothing_is_read_for_the_timeline_unless_somebody_asks_and_not_twice_in_a_moment(
    clock: VirtualClock,
) -> None:
    async with watched(a_cluster(clock).with_nodes(2)) as world:
        await world.order("n1")
        await world.cluster.pass_time(minutes=1)
        client = world.source._client

        def read() -> int:
            return sum(it.count for it in client.calls.all() if it.resource == "maintenancerecords.haulout.dev")

        before = read()
        await world.cluster.pass_time(minutes=5)
        assert read() == before
        await timeline(world)
        once = read()
        assert once > before
        await timeline(world)
        assert read() == once
        await world.cluster.pass_time(minutes=1)
        await timeline(world)
        assert read() > once


async def test_a_range_without_end_is_refused(clock: VirtualClock) -> None:
    async with watched(a_cluster(clock).with_nodes(1)) as world:
        now = clock.now()
        with pytest.raises(Unanswerable, match="at most 400 days"):
            await timeline(world, start=now - timedelta(days=300), end=now + timedelta(days=300))
        told = await timeline(world, end=now - timedelta(days=90))
        assert told["start"] < told["end"] <= encoded_time(clock)


# The configuration


async def test_the_file_is_shown_without_its_secrets_and_in_words(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        told = await world.source.configuration()
        assert told.path.endswith("maintenance.yaml")
        assert told.is_in_force
        assert not told.is_default
        assert told.text == NIGHTLY.replace("https://hooks.slack.com/services/T0/B0/quiet", "(hidden)")
        assert "quiet" not in encoded(told).decode()
        words = {it.name: it.text for it in told.profiles}["os"]
        assert "    to maintenance-required when wanted" in words
        assert any(it.startswith("notification slack: slack (hook: (hidden), channel: #ops") for it in words)


async def test_while_the_file_is_broken_the_last_good_one_is_shown_beside_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with watched(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        broken = NIGHTLY.replace("check: wanted", "check: wnated")
        (tmp_path / "maintenance.yaml").write_text(broken, encoding="utf-8")
        await world.cluster.pass_time(seconds=10)
        told = await world.source.configuration()
        assert not told.is_in_force
        assert (told.text.count("wnated"), told.in_force.count("wnated")) == (1, 0)
        assert "quiet" not in encoded(told).decode()
        [finding] = [it for it in told.findings if it.level == "critical"]
        assert finding.line == 1 + broken[: broken.index("wnated")].count("\n")
        assert "wnated" in finding.message


async def test_without_a_file_the_default_is_shown(clock: VirtualClock) -> None:
    async with watched(a_cluster(clock).with_nodes(1)) as world:
        told = await world.source.configuration()
        assert told.is_default
        assert "name: notices" in told.text
        assert [it.name for it in told.profiles] == ["notices"]


# What if


async def test_an_edit_tells_which_nodes_would_go_into_maintenance(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(4, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        await want(world, "n1", "n3", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        found = await what_if(world, NIGHTLY.replace("check: night", "check: wanted"))
        assert found.is_good
        assert found.looked_at == 4
        first = found.changes[0]
        assert (first.profile, first.nodes, first.count) == ("os", ("n1", "n3"), 2)
        now = "by what is in force they stay maintenance-required, and wait for night"
        assert first.text == f"would go into maintenance now; {now}"
        [profile] = [it.text for it in found.changes if it.text.startswith("profile os changed: ")]
        assert "now “to in-maintenance when wanted, then drain”" in profile
        await world.cluster.pass_time(minutes=5)
        assert {it.state for it in (await world.source.fleet()).nodes} == {"idle", "planned"}  # nothing was done


async def test_an_edit_that_says_the_same_changes_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        found = await what_if(world, "# a comment\n" + NIGHTLY)
        assert (found.is_good, found.changes, found.findings) == (True, (), ())
        assert found.looked_at == 2


async def test_an_edit_tells_who_gets_and_loses_a_profile(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        await want(world, "n1", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        more = "- {name: firmware, selector: example.com/reboot=yes}\n"
        found = await what_if(world, NIGHTLY.replace("profiles:\n", f"profiles:\n{more}"))
        texts = {it.text: it.nodes for it in found.changes}
        assert texts["would get profile firmware, and stay operational"] == ("n1",)
        found = await what_if(world, NIGHTLY.replace("- name: os", "- name: kernel"))
        texts = {it.text: it.nodes for it in found.changes}
        assert texts["would lose profile os while maintenance-required"] == ("n1",)
        assert texts["would lose profile os"] == ("n2",)
        assert {"profile os is gone", "profile kernel is new"} <= set(texts)


async def test_the_first_configuration_of_a_cluster_can_be_tried(clock: VirtualClock) -> None:
    async with watched(a_cluster(clock).with_nodes(3, labels=ATTACHED)) as world:
        await want(world, "n2", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        found = await what_if(world, NIGHTLY)
        texts = {it.text: it.nodes for it in found.changes}
        assert texts["would get profile os, and go on to maintenance-required now"] == ("n2",)
        assert texts["would get profile os, and stay operational, and wait for wanted"] == ("n1", "n3")


async def test_nobody_outside_is_asked_what_an_edit_asks(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        asking = "{name: calm, type: prometheusInstant, config: {url: http://prometheus, query: up, expr: value > 0}}"
        edit = NIGHTLY.replace("  check:\n", f"  check:\n  - {asking}\n").replace("check: wanted", "check: calm")
        found = await what_if(world, edit)
        assert found.changes[0].text.startswith("would stay operational, and wait for calm (not known); ")
        await world.cluster.pass_time(minutes=5)
        assert world.vitals.profiles is not None
        assert isinstance(world.vitals.profiles.outside, FakeOutside)
        assert world.vitals.profiles.outside.requests == []


async def test_what_is_wrong_with_an_edit_is_told_by_line(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        found = await what_if(world, NIGHTLY.replace("check: wanted", "check: wnated"))
        assert not found.is_good
        [finding] = [it for it in found.findings if it.level == "critical"]
        assert (finding.line > 0, "wnated" in finding.message) == (True, True)
        assert found.changes == ()


# Health


async def test_the_health_page_tells_of_leases_watches_queues_and_calls(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(2), NIGHTLY, tmp_path) as world:
        await world.cluster.pass_time(minutes=1)
        async with world.looking():
            told = await world.source.health()
        assert (told.identity, told.viewers) == ("operator_1", 1)
        assert told.started <= clock.now() - timedelta(minutes=1)
        assert told.memory_bytes > 10_000_000
        leader = next(it for it in told.leases if it.name == LEADER_LEASE)
        assert leader.holder == "operator_1"
        watches = {it.resource: it for it in told.watches}
        assert (watches["nodes"].is_synced, watches["nodes"].objects) == (True, 2)
        assert watches["nodes"].heard is not None
        assert "nodemaintenances.nodemaintenance.medik8s.io" in watches
        assert {"profiles", "NodeMaintenance"} <= {it.name for it in told.queues}
        calls = {(it.verb, it.resource): it for it in told.calls}
        assert calls["patch", "leases.coordination.k8s.io"].count >= 2
        assert all(it.is_well for it in told.parts)


async def test_what_was_logged_is_on_the_health_page_once_and_without_secrets(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with watched(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        log = logging.getLogger("haulout.test")
        for attempt in range(3):
            where = "https://hooks.slack.com/services/T0/B0/quiet"
            log.warning("attempt %d: posting to %s failed", attempt, where)
        [trouble] = [it for it in (await world.source.health()).troubles if "posting" in it.text]
        assert (trouble.text, trouble.count) == ("attempt 2: posting to (hidden) failed", 3)


async def test_all_is_told_in_shapes_that_json_can_hold(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched(a_cluster(clock).with_nodes(2), NIGHTLY, tmp_path) as world:
        for told in (await world.source.health(), await world.source.configuration()):
            assert json.loads(encoded(told))
