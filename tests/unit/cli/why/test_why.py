"""`haulout why`: why a node is where it is, and what would have to change."""

import json
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from haulout.api import clusterapi, nodemaintenance
from haulout.api.maintenancenotice import definition
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.resources import NODES
from haulout.cli.output import ASCII_MARKS, UNICODE_MARKS
from haulout.cli.why import why_text
from haulout.cli.why.explanation import (
    LoadedConfiguration,
    configuration_from_config_map,
    configuration_from_file,
    list_ordered_maintenances,
    list_other_cordon_owners,
    parse_configuration,
)
from haulout.controllers.esx.labels import CORDON_OWNER as ESX
from haulout.controllers.kubernikus.labels import CORDON_OWNER as DELETE_NODE
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.explain.explanation import NodeExplanation, explain, parse_node_info
from haulout.controllers.profiles.explain.remedies import RequiredResult
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL
from haulout.controllers.profiles.view import topics
from haulout.core.clock import Clock
from haulout.core.timestamps import micro_time
from haulout.drain.cordon import CORDON_ANNOTATION, Cordon, CordonOwnership
from haulout.errors import Forbidden, HauloutError, KubeError, UsageError
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.cli.command_runner import RunCommand, command_runner
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster
from support.fakes.cluster_view import ScriptedExternalClient

FILE = b"""
intervals: {requeue: 30s}
instances:
  check:
  - {name: needed, type: hasLabel, config: {key: needed}}
  - {name: few, type: maxMaintenance, config: {max: 1}}
  - {name: urgent, type: hasLabel, config: {key: urgent}}
  - {name: rested, type: wait, config: {duration: 10m}}
  - {name: turn, type: stagger, config: {duration: 30m, leaseName: turn, leaseNamespace: shop}}
  - {name: calm, type: prometheusInstant, config: {url: http://prometheus.example, query: up, expr: value > 0}}
  trigger:
  - {name: empty, type: eviction, config: {action: drain}}
profiles:
- name: os
  operational:
    transitions:
    - {check: "needed && (few || urgent)", next: maintenance-required}
  maintenance-required:
    transitions:
    - {check: rested, next: in-maintenance, trigger: empty}
- name: metrics
  operational:
    transitions: [{check: calm, next: maintenance-required}]
- name: staggered
  operational:
    transitions: [{check: turn, next: maintenance-required}]
"""
DOCUMENTED = b"""
intervals: {requeue: 30s}
instances:
  check:
  - name: open
    type: timeWindow
    config: {weekdays: [mon, tue, wed, thu, fri, sat, sun], start: "00:00", end: "23:00"}
  - {name: one_at_a_time, type: maxMaintenance, config: {max: 1}}
  - {name: urgent, type: hasLabel, config: {key: example.com/urgent}}
profiles:
- name: os
  maintenance-required:
    transitions:
    - {check: "open && (one_at_a_time || urgent)", next: in-maintenance}
"""
CONFIGURATION = parse_configuration(FILE, "maintenance.yaml", {}).configuration


async def change(town: DrainCluster, node: str, **metadata: Any) -> None:
    await town.client.patch(NODES, node, merge_patch({"metadata": metadata}))


async def stand(town: DrainCluster, node: str, state: str, *, since: datetime) -> None:
    """Let the profile `os` of a node stand in a state."""
    entry = {"Transition": f"{since:%Y-%m-%dT%H:%M:%SZ}", "Current": state, "Previous": state}
    written = json.dumps({"Profiles": {"os": entry}, "Notifications": {}})
    await change(town, node, annotations={DATA_ANNOTATION: written}, labels={STATE_LABEL: state, PROFILE_LABEL: "os"})


@asynccontextmanager
async def two_nodes(clock: Clock) -> AsyncIterator[DrainCluster]:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await change(town, "n1", labels={PROFILE_LABEL: "os"})
        yield town


def text(found: NodeExplanation) -> str:
    return click.unstyle("\n".join(why_text.text_lines(found, marks=ASCII_MARKS)))


async def test_the_page_shows_what_it_says(clock: Clock) -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "why.md").read_text()
    shown = textwrap.dedent(page.split("--config maintenance.yaml\n")[1].split("The mark in front")[0])
    async with a_drain_cluster(clock, "general-01", "general-04") as town:
        await stand(town, "general-04", "in-maintenance", since=clock.now())
        await stand(town, "general-01", "maintenance-required", since=clock.now() - timedelta(hours=8, minutes=50))
        configuration = parse_configuration(DOCUMENTED, "maintenance.yaml", {}).configuration
        found = await explain(town.client, configuration, "general-01", external=None)
        lines = why_text.text_lines(found, marks=UNICODE_MARKS)
        assert click.unstyle("\n".join(lines)) == shown.strip()


async def test_each_check_is_told_with_its_reason_and_what_would_have_to_change(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await stand(town, "n2", "in-maintenance", since=clock.now())
        await change(town, "n1", labels={"needed": ""})
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        [profile] = found.profiles
        [way] = profile.transitions
        assert (profile.name, profile.state, way.target, way.passed) == (
            "os",
            "operational",
            "maintenance-required",
            False,
        )
        assert [(it.name, it.passed) for it in way.checks] == [("needed", True), ("few", False), ("urgent", False)]
        assert way.remedies == ((RequiredResult("few", True),), (RequiredResult("urgent", True),))
        shown = text(found)
        assert "  NO to maintenance-required when needed && (few || urgent)" in shown
        assert "      ok needed  hasLabel passes" in shown
        assert "      -- urgent  hasLabel does not pass: node n1 has no label urgent" in shown
        assert "      it would pass if few passed\n      or if urgent passed" in shown
        assert "  - the node itself changes" in shown
        assert "  - a node leaves maintenance" in shown


async def test_a_budget_that_is_used_up_is_told_with_who_uses_it(clock: Clock) -> None:
    file = DOCUMENTED.replace(b"(one_at_a_time || urgent)", b"!urgent") + b"budget: [{max: 1}]\n"
    configuration = parse_configuration(file, "maintenance.yaml", {}).configuration
    async with two_nodes(clock) as town:
        await stand(town, "n1", "maintenance-required", since=clock.now())
        found = await explain(town.client, configuration, "n1", external=None)
        assert found.profiles[0].next == "in-maintenance"
        await stand(town, "n2", "in-maintenance", since=clock.now())
        shown = text(await explain(town.client, configuration, "n1", external=None))
        used = "1 of at most 1 node in the whole cluster out of service: n2 (in maintenance by a profile)"
        assert f"      NO the budget is used up: {used}" in shown
        assert "  - a node becomes available, or a waiting request is withdrawn" in shown


async def test_what_time_alone_changes_is_told_with_its_instant(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        since = clock.now().replace(microsecond=0)
        await stand(town, "n1", "maintenance-required", since=since)
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert isinstance(found.next_reconcile, datetime)
        assert timedelta(minutes=10) <= found.next_reconcile - since < timedelta(minutes=10, seconds=1)
        assert found.profiles[0].since == since
        assert f"Next reconcile: {since + timedelta(minutes=10):%Y-%m-%d %H:%M:%S} UTC, in 9m5" in text(found)


async def test_looking_changes_nothing(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await change(town, "n1", labels={"needed": ""})
        before = town.api.objects("nodes")
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert found.profiles[0].next == "maintenance-required"
        assert "ok it moves to maintenance-required at the next reconcile" in text(found)
        assert town.api.objects("nodes") == before


async def test_a_drain_that_is_under_way_is_told_with_what_is_left(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await stand(town, "n1", "maintenance-required", since=clock.now() - timedelta(hours=1))
        await town.run_pods("web", 3, on="n1")
        await town.cordon("n1")
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert "?? in transition: 3 pods have still to leave the node: shop/web" in text(found)


async def test_a_profile_that_is_not_in_the_file_is_named(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await change(town, "n1", labels={PROFILE_LABEL: "os--gone"})
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert [(it.name, it.configured) for it in found.profiles] == [("os", True), ("gone", False)]
        assert "profile gone: not in the configuration, so nothing happens" in text(found)


async def test_data_that_cannot_be_read_is_why_nothing_happens(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await change(town, "n1", annotations={DATA_ANNOTATION: "{nonsense"})
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert found.problem.startswith("Haulout does not manage this node: expected JSON in annotation")
        assert found.profiles == ()
        assert "Next reconcile" not in text(found)


async def test_an_unknown_node_is_an_error(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        with pytest.raises(KubeError, match='nodes "n9" not found'):
            await explain(town.client, CONFIGURATION, "n9", external=None)


async def test_the_outside_is_asked_once(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await change(town, "n1", labels={PROFILE_LABEL: "metrics"})
        sample = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}'
        stranger = ScriptedExternalClient().reply_with(200, sample)
        found = await explain(town.client, CONFIGURATION, "n1", external=stranger)
        assert found.profiles[0].transitions[0].checks[0].passed is True
        assert len(stranger.requests) == 1
        assert "- the answer of an external service changes (queried every 30s)" in text(found)


async def test_without_asking_it_cannot_be_told(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        await change(town, "n1", labels={PROFILE_LABEL: "metrics"})
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert "?? calm  prometheusInstant is unknown" in text(found)


async def test_what_may_not_be_seen_is_a_note(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes(clock) as town:
        allowed = Client.list

        async def listing(self: Client, resource: Any, **more: Any) -> Any:
            if resource.plural == "leases":
                raise Forbidden("no leases for you", code=403)
            return await allowed(self, resource, **more)

        monkeypatch.setattr(Client, "list", listing)
        await change(town, "n1", labels={PROFILE_LABEL: "staggered"})
        found = await explain(town.client, CONFIGURATION, "n1", external=None)
        assert "Note: leases.coordination.k8s.io: you may not see them (no leases for you)" in text(found)


async def test_programs_get_all_of_it(clock: Clock) -> None:
    async with two_nodes(clock) as town:
        found = json.loads(why_text.to_json(await explain(town.client, CONFIGURATION, "n1", external=None)))
        [way] = found["profiles"][0]["transitions"]
        assert way["chainPassed"] is False
        assert way["remedies"] == [[{"name": "needed", "passed": True}]]
        assert way["checks"][0] | {"changesAt": None} == {
            "name": "needed",
            "type": "hasLabel",
            "passed": False,
            "reason": "node n1 has no label needed",
            "error": "",
            "changesAt": None,
        }


# The file


async def test_the_file_can_be_in_a_config_map(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        meta = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "profiles", "namespace": "shop"}}
        town.put({**meta, "data": {"maintenance.yaml": FILE.decode()}})
        assert await configuration_from_config_map(town.client, "shop/profiles", {}) == LoadedConfiguration(
            CONFIGURATION
        )
        town.put({**meta, "data": {"other.yaml": ""}})
        with pytest.raises(HauloutError, match="ConfigMap shop/profiles has no"):
            await configuration_from_config_map(town.client, "shop/profiles", {})
        with pytest.raises(UsageError, match="expected NAMESPACE/NAME, found 'profiles'"):
            await configuration_from_config_map(town.client, "profiles", {})


def test_variables_that_are_set_elsewhere_are_a_note() -> None:
    known = parse_configuration(FILE.replace(b"key: urgent", b"key: '${URGENT_LABEL}'"), "maintenance.yaml", {})
    assert known.notes[0].startswith("not set here: URGENT_LABEL; ")


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Return a way to run a command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command_runner(capsys)


@pytest.mark.usefixtures("haulout")
def test_without_a_file_it_judges_by_the_default_and_says_how_to_name_one() -> None:
    known = configuration_from_file(None, {})
    assert set(known.configuration.profiles) == {"notices"}
    assert len(known.notes) == 1
    assert known.notes[0].startswith(
        "there is no config/maintenance.yaml here, so the default configuration was used (haulout check"
    )
    assert "name it with --config, or its ConfigMap with --config-map" in known.notes[0]


async def test_what_is_announced_is_told_and_when_which_profile_acts(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.put(definition())
        start = clock.now() + timedelta(hours=2)
        spec = {"nodeName": "n1", "source": "oci", "noticeID": "1", "kind": "Reboot", "start": micro_time(start)}
        town.put({"apiVersion": "haulout.dev/v1alpha1", "kind": "MaintenanceNotice", **named("oci-1"), "spec": spec})
        shown = await judged_by_default(town, "n1")
        assert f"announced: Reboot, notice oci-1, Planned: it begins at {start:%Y-%m-%d %H:%M} UTC" in shown
        assert "profile notices: operational" in shown
        assert "to maintenance-required when due" in shown
        assert f"may change at {start - timedelta(minutes=15):%Y-%m-%d %H:%M}" in shown
        assert "No profile matches the node: nothing is done" in await judged_by_default(town, "n2")


async def test_what_somebody_ordered_is_told_whatever_profiles_say(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        judged = await explain(town.client, default_profile.configuration(), "n1", external=None)
        assert await list_ordered_maintenances(town.client, "n1") == ()  # such orders are not installed
        town.put(nodemaintenance.custom_resource_definition())
        kind = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        blocked = {"phase": "Running", "blockers": [{"pod": "shop/db-0", "reason": "budget shop/db allows none"}]}
        town.put({**kind, **named("a"), "spec": {"nodeName": "n1", "reason": "a fan"}, "status": blocked})
        town.put({**kind, **named("b"), "spec": {"nodeName": "n2"}})

        shown = text(msgspec.structs.replace(judged, maintenances=await list_ordered_maintenances(town.client, "n1")))

        assert (
            "ordered: NodeMaintenance a (a fan), Running: budget shop/db allows none; more: haulout status n1" in shown
        )
        assert "nothing is done about it" not in shown
        assert "NodeMaintenance b" not in shown


async def test_what_its_machine_asks_for_is_told_with_the_label_that_it_waits_for(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        noted = {clusterapi.MACHINE_OF_NODE: "m1", clusterapi.NAMESPACE_OF_NODE: "team-a"}
        asked = {clusterapi.MACHINE_DELETED: "true", clusterapi.MACHINE_MAINTENANCE: "true"}
        approved = {clusterapi.APPROVE_MAINTENANCE: "true", clusterapi.APPROVE_DELETION: "yes"}
        metadata = {"labels": asked | approved, "annotations": noted}
        await town.client.patch(NODES, "n1", merge_patch({"metadata": metadata}))

        shown = await judged_by_default(town, "n1")

        label = "label runtime-extension-maintenance-controller.cloud.sap/approve"
        assert f"asked: Machine team-a/m1 is being deleted, and waits for {label}-deletion=true on this node\n" in shown
        assert (
            f"asked: Machine team-a/m1 requests maintenance, and has {label}-maintenance=true on this node\n" in shown
        )


async def test_who_holds_a_node_without_an_object_is_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        judged = await explain(town.client, default_profile.configuration(), "n1", external=None)
        owners = {owner: CordonOwnership(since=clock.now()) for owner in (ESX, DELETE_NODE, "profile/os")}
        mark = msgspec.json.encode(Cordon(owners=owners)).decode()
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: mark}}}))

        shown = text(msgspec.structs.replace(judged, cordon_owners=await list_other_cordon_owners(town.client, "n1")))

        assert (
            f"held: Kubernikus delete-node, since {clock.now():%Y-%m-%d %H:%M:%S} UTC (0s ago): because of label"
            in shown
        )
        assert "held: ESX, since" in shown
        assert "profile os" not in shown
        assert "nothing is done about it" not in shown
        assert await list_other_cordon_owners(town.client, "n2") == ()
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "{"}}}))
        assert await list_other_cordon_owners(town.client, "n1") == ()


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def judged_by_default(town: DrainCluster, node: str) -> str:
    found = await explain(town.client, default_profile.configuration(), node, external=None)
    return click.unstyle("\n".join(why_text.text_lines(found, marks=ASCII_MARKS)))


def test_a_broken_file_is_told_before_any_cluster_is_asked(haulout: RunCommand) -> None:
    Path("config").mkdir()
    Path("config/maintenance.yaml").write_text("intervals: {requeue: soon}")
    code, _, err = haulout("why", "n1")
    assert code == 2
    assert err.startswith("haulout: config/maintenance.yaml:1: intervals.requeue: expected a duration")


def test_one_way_to_know_is_enough(haulout: RunCommand) -> None:
    code, _, err = haulout("why", "n1", "--config", "a.yaml", "--from", "http://127.0.0.1:1")
    assert code == 2
    assert "give one" in err


@pytest.mark.real_time
def test_an_operator_that_does_not_answer_is_told(haulout: RunCommand) -> None:
    code, out, err = haulout("why", "n1", "--from", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err == "haulout: http://127.0.0.1:1: connection refused\n"


# What an operator says

INFO = b"""[{"node":"n1",
  "profiles":[{"applied":{"next":"operational",
                          "transitions":[{"passed":false,"target":"maintenance-required",
                                          "chain":{"passed":false,
                                                   "info":{"reboot_needed":{"id":"hasAnnotation","passed":false,
                                                                            "info":{"reason":"there is none"}}},
                                                   "expression":"reboot_needed"},
                                          "error":""}],
                          "error":""},
               "name":"flatcar","state":"operational"}],
  "labels":{"kubernetes.io/os":"linux"},
  "updated":"2024-05-01T10:00:00.123456789Z"}]"""


def test_what_a_controller_says_about_a_node_is_told_likewise() -> None:
    found = parse_node_info(INFO, "n1")
    assert found is not None
    assert found.time == datetime(2024, 5, 1, 10, 0, 0, 123457, tzinfo=UTC)
    shown = text(found)
    assert "profile flatcar: operational\n  NO to maintenance-required when reboot_needed\n" in shown
    assert "      -- reboot_needed  hasAnnotation does not pass: there is none\n" in shown
    assert "      it would pass if reboot_needed passed" in shown
    assert "Next reconcile" not in shown  # the Go controller does not tell
    assert "nextReconcile" not in json.loads(why_text.to_json(found))


def told(body: bytes) -> str:
    """Return what is shown of what an operator says about n1."""
    found = parse_node_info(body, "n1")
    assert found is not None
    return text(found)


def test_what_our_operator_says_beside_is_told_too() -> None:
    profile = b'{"name":"os","state":"operational","waitingFor":"2 of 3 pods have left","applied":{"transitions":['
    way = b'{"passed":false,"target":"in-maintenance","veto":"no room","chain":{"passed":true,"expression":"a"}}'
    more = b'"updated":"2024-05-01T10:00:00Z","nextReconcile":NEXT,"requeueOn":["budget"],"queryInterval":"30s"'
    body = b'[{"node":"n1","profiles":[' + profile + way + b"]}}]," + more + b"}]"
    shown = told(body.replace(b"NEXT", b'"2024-05-01T11:00:00Z"'))
    assert "  ?? in transition: 2 of 3 pods have left\n" in shown
    assert "      NO no room\n" in shown
    assert "Next reconcile: 2024-05-01 11:00:00 UTC, in 1h0m, or earlier when\n  - the node itself changes\n" in shown
    assert "  - a node leaves maintenance\n  - the answer of an external service changes (queried every 30s)" in shown
    assert "Next reconcile: when\n  - the node itself changes\n" in told(body.replace(b"NEXT", b"null"))


def test_a_node_that_our_operator_leaves_alone_is_told_with_the_reason() -> None:
    body = b'[{"node":"n1","profiles":[],"updated":"2024-05-01T10:00:00Z","nextReconcile":null,"problem":"foreign"}]'
    assert told(body) == "Node n1, as of 2024-05-01 10:00:00 UTC\nforeign"


@pytest.mark.parametrize("body", [INFO, b"null", b"[]"])
def test_a_node_that_nobody_speaks_of_is_unknown(body: bytes) -> None:
    assert parse_node_info(body, "n9") is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": "x"}', b'[{"node": 1}]'])
def test_what_makes_no_sense_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|expected|Expected|truncated|malformed|Input"):
        parse_node_info(body, "n1")


def test_a_null_where_go_writes_one_is_nothing() -> None:
    found = parse_node_info(
        b'[{"node":"n1","profiles":[{"name":"os","applied":{"transitions":null}}],"updated":null}]', "n1"
    )
    assert found is not None
    assert "no transition leads out of this state" in text(found)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (topics.NODE_COUNT, "a node is created or deleted"),
        (topics.label("a/b"), "label a/b of any node changes"),
        (topics.lease("ns", "x"), "lease ns/x changes"),
        ("moon", "moon changes"),
    ],
)
def test_topics_are_told_in_words(topic: str, words: str) -> None:
    assert topics.describe(topic) == words
