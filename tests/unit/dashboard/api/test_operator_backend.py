"""The timeline, the configuration and the health of a running operator."""

import json
import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.leases import LEADER_LEASE
from haulout.api.maintenancenotice import NoticeStage
from haulout.api.objects import RawObject
from haulout.dashboard.api.backend import HttpError, NodeFilter, TimelineQuery
from haulout.dashboard.api.responses import encode
from haulout.dashboard.api.types import ConfigurationEdit, ConfigurationPreview
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.dashboard.event_stream import WatchedOperator, watched_operator
from support.fakes.external_client import FakeExternalClient
from support.operators.announced_maintenance import AnnouncedMaintenance

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


async def timeline(world: WatchedOperator, **query_fields: object) -> RawObject:
    result: RawObject = json.loads(encode(await world.backend.timeline(TimelineQuery(**query_fields))))  # type: ignore[arg-type]
    return result


def span_rows(row: RawObject) -> list[tuple[str, str, str]]:
    return [(item["kind"], item["title"], item.get("state", "")) for item in row.get("spans", ())]


async def label_nodes(world: WatchedOperator, *nodes: str, **labels: str) -> None:
    for node in nodes:
        keys = {f"example.com/{key}": value for key, value in labels.items()}
        await world.cluster.patch("nodes", node, metadata={"labels": keys})


async def preview(world: WatchedOperator, text: str) -> ConfigurationPreview:
    return await world.backend.check(ConfigurationEdit(text=text))


# The timeline


async def test_timeline_has_the_states_and_drains_of_a_profile(clock: VirtualClock, tmp_path: Path) -> None:
    plan = a_cluster(clock).with_nodes(3, labels=ATTACHED).with_deployment("shop/cart", replicas=6)
    soon = NIGHTLY.replace('"22:00", end: "04:00", acrossMidnight: true', '"09:05", end: "10:00"')
    async with watched_operator(plan, soon, tmp_path) as world:
        began = clock.now()
        await label_nodes(world, "n2", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        result = await timeline(world)
        assert [row["node"] for row in result["rows"]] == ["n2", "n1", "n3"]
        [running] = result["rows"][0]["spans"]
        assert (running["kind"], running["title"], running["state"]) == ("profile", "os", "maintenance-required")
        assert "end" not in running
        await world.cluster.pass_time(minutes=7)
        await label_nodes(world, "n2", reboot="no", done="")
        await world.cluster.pass_time(minutes=1)
        result = await timeline(world, start=began - timedelta(hours=1), end=clock.now() + timedelta(hours=1))
        assert span_rows(result["rows"][0]) == [
            ("profile", "os", "maintenance-required"),
            ("drain", "profile os", "Drained"),
            ("profile", "os", "in-maintenance"),
        ]
        waited, drained, out = result["rows"][0]["spans"]
        assert waited["end"] == out["start"]
        assert waited["start"] < drained["start"] < waited["end"]
        assert re.fullmatch(r"2 pods removed in \ds", drained["message"])
        assert out["end"] <= encoded_time(clock)
        assert "problem" not in result


def encoded_time(clock: VirtualClock) -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_timeline_has_windows_and_blackouts_of_profiles(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        result = await timeline(world, start=clock.now(), end=clock.now() + timedelta(days=3))
        assert [
            (window["kind"], window["title"], window["start"][5:16], window["end"][5:16])
            for window in result["windows"]
        ] == [
            ("window", "os: night", "01-05T22:00", "01-06T04:00"),
            ("window", "os: night", "01-06T22:00", "01-07T00:00"),
            ("window", "os: night", "01-08T00:00", "01-08T04:00"),
            ("blackout", "os: night", "01-07T00:00", "01-08T00:00"),
        ]
        assert result["windows"][-1]["message"] == "fair"


async def test_timeline_has_a_notice_with_its_drain_and_keeps_it_after_the_end(
    clock: VirtualClock,
) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(3)) as world:
        cloud = AnnouncedMaintenance(world.cluster, "n1")
        await cloud.report(start=20, end=40)
        await world.cluster.pass_time(minutes=1)
        result = await timeline(world)
        assert [item["node"] for item in result["rows"]] == ["n1", "n2", "n3"]
        assert [kind for kind, _, _ in span_rows(result["rows"][0])] == ["drain", "notice"]
        assert [state for _, _, state in span_rows(result["rows"][0])] == ["planned", "Planned"]
        await cloud.wait_until_minute(20)
        await cloud.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(21)
        kinds = {(kind, state) for kind, _, state in span_rows((await timeline(world))["rows"][0])}
        assert {("profile", "in-maintenance"), ("notice", "Active")} <= kinds
        await cloud.report(NoticeStage.ENDED)
        await cloud.wait_until_minute(23)
        await world.cluster.pass_time(minutes=1)
        result = await timeline(world)
        kinds = {(kind, state) for kind, _, state in span_rows(result["rows"][0])}
        assert {("profile", "in-maintenance"), ("notice", "Completed")} <= kinds
        assert all("end" in item for item in result["rows"][0]["spans"])


async def test_timeline_has_nodemaintenances(clock: VirtualClock) -> None:
    plan = a_cluster(clock).with_nodes(2).with_deployment("shop/cart", replicas=4, budget=4)
    async with watched_operator(plan) as world:
        await world.create_maintenance("n1")
        await world.cluster.pass_time(minutes=5)
        row = (await timeline(world))["rows"][0]
        assert row["node"] == "n1"
        assert span_rows(row) == [("maintenance", "patch", "Running"), ("drain", "NodeMaintenance patch", "running")]
        assert "0 of 2 pods gone; " in row["spans"][1]["message"]


async def test_timeline_can_be_filtered_and_limited(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(4)) as world:
        result = await timeline(world, limit=2)
        assert (len(result["rows"]), result["total"]) == (2, 4)
        result = await timeline(world, node_filter=NodeFilter(terms=("n3",)))
        assert [row["node"] for row in result["rows"]] == ["n3"]


async def test_timeline_reads_history_only_on_request_and_caches_it(
    clock: VirtualClock,
) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2)) as world:
        await world.create_maintenance("n1")
        await world.cluster.pass_time(minutes=1)
        client = world.backend._client

        def read() -> int:
            return sum(
                call.count for call in client.request_metrics.all() if call.resource == "maintenancerecords.haulout.dev"
            )

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


async def test_timeline_range_that_is_too_long_is_refused(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1)) as world:
        now = clock.now()
        with pytest.raises(HttpError, match="at most 400 days"):
            await timeline(world, start=now - timedelta(days=300), end=now + timedelta(days=300))
        result = await timeline(world, end=now - timedelta(days=90))
        assert result["start"] < result["end"] <= encoded_time(clock)


# The configuration


async def test_configuration_is_served_redacted_and_explained(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        result = await world.backend.configuration()
        assert result.path.endswith("maintenance.yaml")
        assert result.is_in_force
        assert not result.is_default
        assert result.text == NIGHTLY.replace("https://hooks.slack.com/services/T0/B0/quiet", "(hidden)")
        assert "quiet" not in encode(result).decode()
        text = {item.name: item.text for item in result.profiles}["os"]
        assert "    to maintenance-required when wanted" in text
        assert any(item.startswith("notification slack: slack (hook: (hidden), channel: #ops") for item in text)


async def test_invalid_configuration_is_served_with_the_last_valid_version(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        broken = NIGHTLY.replace("check: wanted", "check: wnated")
        (tmp_path / "maintenance.yaml").write_text(broken, encoding="utf-8")
        await world.cluster.pass_time(seconds=10)
        result = await world.backend.configuration()
        assert not result.is_in_force
        assert (result.text.count("wnated"), result.in_force.count("wnated")) == (1, 0)
        assert "quiet" not in encode(result).decode()
        [finding] = [item for item in result.findings if item.level == "critical"]
        assert finding.line == 1 + broken[: broken.index("wnated")].count("\n")
        assert "wnated" in finding.message


async def test_default_configuration_is_served_without_a_file(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1)) as world:
        result = await world.backend.configuration()
        assert result.is_default
        assert "name: notices" in result.text
        assert [profile.name for profile in result.profiles] == ["notices"]


# What if


async def test_edit_preview_lists_nodes_that_would_enter_maintenance(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(4, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        await label_nodes(world, "n1", "n3", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        found = await preview(world, NIGHTLY.replace("check: night", "check: wanted"))
        assert found.is_valid
        assert found.evaluated_nodes == 4
        first = found.changes[0]
        assert (first.profile, first.nodes, first.count) == ("os", ("n1", "n3"), 2)
        now = "with the configuration in force they stay maintenance-required, and wait for night"
        assert first.text == f"would go into maintenance now; {now}"
        [profile] = [item.text for item in found.changes if item.text.startswith("profile os changed: ")]
        assert "now “to in-maintenance when wanted, then drain”" in profile
        await world.cluster.pass_time(minutes=5)
        assert {item.state for item in (await world.backend.fleet()).nodes} == {"idle", "planned"}  # nothing was done


async def test_edit_preview_of_an_equivalent_file_has_no_changes(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        found = await preview(world, "# a comment\n" + NIGHTLY)
        assert (found.is_valid, found.changes, found.findings) == (True, (), ())
        assert found.evaluated_nodes == 2


async def test_edit_preview_lists_nodes_that_gain_or_lose_a_profile(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        await label_nodes(world, "n1", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        more = "- {name: firmware, selector: example.com/reboot=yes}\n"
        found = await preview(world, NIGHTLY.replace("profiles:\n", f"profiles:\n{more}"))
        texts = {change.text: change.nodes for change in found.changes}
        assert texts["would get profile firmware, and stay operational"] == ("n1",)
        found = await preview(world, NIGHTLY.replace("- name: os", "- name: kernel"))
        texts = {change.text: change.nodes for change in found.changes}
        assert texts["would lose profile os while maintenance-required"] == ("n1",)
        assert texts["would lose profile os"] == ("n2",)
        assert {"profile os is removed", "profile kernel is new"} <= set(texts)


async def test_edit_preview_works_without_a_configuration_in_force(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(3, labels=ATTACHED)) as world:
        await label_nodes(world, "n2", reboot="yes")
        await world.cluster.pass_time(minutes=1)
        found = await preview(world, NIGHTLY)
        texts = {change.text: change.nodes for change in found.changes}
        assert texts["would get profile os, and change to maintenance-required now"] == ("n2",)
        assert texts["would get profile os, and stay operational, and wait for wanted"] == ("n1", "n3")


async def test_edit_preview_sends_no_external_queries(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2, labels=ATTACHED), NIGHTLY, tmp_path) as world:
        check = "{name: calm, type: prometheusInstant, config: {url: http://prometheus, query: up, expr: value > 0}}"
        edit = NIGHTLY.replace("  check:\n", f"  check:\n  - {check}\n").replace("check: wanted", "check: calm")
        found = await preview(world, edit)
        assert found.changes[0].text.startswith("would stay operational, and wait for calm (not known); ")
        await world.cluster.pass_time(minutes=5)
        assert world.operator_status.profiles is not None
        assert isinstance(world.operator_status.profiles.outside, FakeExternalClient)
        assert world.operator_status.profiles.outside.requests == []


async def test_edit_preview_reports_errors_with_lines(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        found = await preview(world, NIGHTLY.replace("check: wanted", "check: wnated"))
        assert not found.is_valid
        [finding] = [item for item in found.findings if item.level == "critical"]
        assert (finding.line > 0, "wnated" in finding.message) == (True, True)
        assert found.changes == ()


# Health


async def test_health_has_leases_watches_queues_and_api_calls(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2), NIGHTLY, tmp_path) as world:
        await world.cluster.pass_time(minutes=1)
        async with world.open_page():
            result = await world.backend.health()
        assert (result.identity, result.viewers) == ("operator_1", 1)
        assert result.started <= clock.now() - timedelta(minutes=1)
        assert result.memory_bytes > 10_000_000
        leader = next(item for item in result.leases if item.name == LEADER_LEASE)
        assert leader.holder == "operator_1"
        watches = {item.resource: item for item in result.watches}
        assert (watches["nodes"].is_synced, watches["nodes"].objects) == (True, 2)
        assert watches["nodes"].last_response is not None
        assert "nodemaintenances.nodemaintenance.medik8s.io" in watches
        assert {"profiles", "NodeMaintenance"} <= {item.name for item in result.queues}
        calls = {(item.verb, item.resource): item for item in result.requests}
        assert calls["patch", "leases.coordination.k8s.io"].count >= 2
        assert all(item.is_healthy for item in result.components)


async def test_health_has_recent_warnings_redacted_and_counted(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), NIGHTLY, tmp_path) as world:
        log = logging.getLogger("haulout.test")
        for attempt in range(3):
            case = "https://hooks.slack.com/services/T0/B0/quiet"
            log.warning("attempt %d: posting to %s failed", attempt, case)
        [shown_warning] = [
            warning for warning in (await world.backend.health()).warnings if "posting" in warning.message
        ]
        assert (shown_warning.message, shown_warning.count) == ("attempt 2: posting to (hidden) failed", 3)


async def test_health_and_configuration_are_encodable_as_json(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2), NIGHTLY, tmp_path) as world:
        for result in (await world.backend.health(), await world.backend.configuration()):
            assert json.loads(encode(result))
