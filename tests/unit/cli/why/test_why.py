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


async def change(cluster: DrainCluster, node: str, **metadata: Any) -> None:
    await cluster.client.patch(NODES, node, merge_patch({"metadata": metadata}))


async def set_profile_state(cluster: DrainCluster, node: str, state: str, *, since: datetime) -> None:
    """Set the state of the profile `os` of a node."""
    entry = {"Transition": f"{since:%Y-%m-%dT%H:%M:%SZ}", "Current": state, "Previous": state}
    written = json.dumps({"Profiles": {"os": entry}, "Notifications": {}})
    await change(
        cluster, node, annotations={DATA_ANNOTATION: written}, labels={STATE_LABEL: state, PROFILE_LABEL: "os"}
    )


@asynccontextmanager
async def two_nodes(clock: Clock) -> AsyncIterator[DrainCluster]:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await change(cluster, "n1", labels={PROFILE_LABEL: "os"})
        yield cluster


def text(found: NodeExplanation) -> str:
    return click.unstyle("\n".join(why_text.text_lines(found, marks=ASCII_MARKS)))


async def test_documented_example_matches_the_output(clock: Clock) -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "why.md").read_text()
    documented = textwrap.dedent(page.split("--config maintenance.yaml\n")[1].split("The mark in front")[0])
    async with a_drain_cluster(clock, "general-01", "general-04") as cluster:
        await set_profile_state(cluster, "general-04", "in-maintenance", since=clock.now())
        await set_profile_state(
            cluster, "general-01", "maintenance-required", since=clock.now() - timedelta(hours=8, minutes=50)
        )
        configuration = parse_configuration(DOCUMENTED, "maintenance.yaml", {}).configuration
        found = await explain(cluster.client, configuration, "general-01", external=None)
        lines = why_text.text_lines(found, marks=UNICODE_MARKS)
        assert click.unstyle("\n".join(lines)) == documented.strip()


async def test_each_check_is_shown_with_its_reason_and_the_remedies(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await set_profile_state(cluster, "n2", "in-maintenance", since=clock.now())
        await change(cluster, "n1", labels={"needed": ""})
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        [profile] = found.profiles
        [transition] = profile.transitions
        assert (profile.name, profile.state, transition.target, transition.passed) == (
            "os",
            "operational",
            "maintenance-required",
            False,
        )
        assert [(it.name, it.passed) for it in transition.checks] == [
            ("needed", True),
            ("few", False),
            ("urgent", False),
        ]
        assert transition.remedies == ((RequiredResult("few", True),), (RequiredResult("urgent", True),))
        output = text(found)
        assert "  NO to maintenance-required when needed && (few || urgent)" in output
        assert "      ok needed  hasLabel passes" in output
        assert "      -- urgent  hasLabel does not pass: node n1 has no label urgent" in output
        assert "      it would pass if few passed\n      or if urgent passed" in output
        assert "  - the node itself changes" in output
        assert "  - a node leaves maintenance" in output


async def test_exhausted_budget_is_shown_with_its_holders(clock: Clock) -> None:
    file = DOCUMENTED.replace(b"(one_at_a_time || urgent)", b"!urgent") + b"budget: [{max: 1}]\n"
    configuration = parse_configuration(file, "maintenance.yaml", {}).configuration
    async with two_nodes(clock) as cluster:
        await set_profile_state(cluster, "n1", "maintenance-required", since=clock.now())
        found = await explain(cluster.client, configuration, "n1", external=None)
        assert found.profiles[0].next == "in-maintenance"
        await set_profile_state(cluster, "n2", "in-maintenance", since=clock.now())
        output = text(await explain(cluster.client, configuration, "n1", external=None))
        used = "1 of at most 1 node in the whole cluster out of service: n2 (in maintenance by a profile)"
        assert f"      NO the budget is used up: {used}" in output
        assert "  - a node becomes available, or a waiting request is withdrawn" in output


async def test_next_reconcile_is_shown_for_time_based_checks(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        since = clock.now().replace(microsecond=0)
        await set_profile_state(cluster, "n1", "maintenance-required", since=since)
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert isinstance(found.next_reconcile, datetime)
        assert timedelta(minutes=10) <= found.next_reconcile - since < timedelta(minutes=10, seconds=1)
        assert found.profiles[0].since == since
        assert f"Next reconcile: {since + timedelta(minutes=10):%Y-%m-%d %H:%M:%S} UTC, in 9m5" in text(found)


async def test_why_writes_nothing(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await change(cluster, "n1", labels={"needed": ""})
        before = cluster.api.objects("nodes")
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert found.profiles[0].next == "maintenance-required"
        assert "ok it moves to maintenance-required at the next reconcile" in text(found)
        assert cluster.api.objects("nodes") == before


async def test_drain_in_progress_is_shown_with_remaining_pods(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await set_profile_state(cluster, "n1", "maintenance-required", since=clock.now() - timedelta(hours=1))
        await cluster.run_pods("web", 3, on="n1")
        await cluster.cordon("n1")
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert "?? in transition: 3 pods have still to leave the node: shop/web" in text(found)


async def test_profile_missing_from_the_configuration_is_named(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await change(cluster, "n1", labels={PROFILE_LABEL: "os--gone"})
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert [(it.name, it.configured) for it in found.profiles] == [("os", True), ("gone", False)]
        assert "profile gone: not in the configuration, so nothing happens" in text(found)


async def test_unreadable_node_data_is_given_as_the_reason(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await change(cluster, "n1", annotations={DATA_ANNOTATION: "{nonsense"})
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert found.problem.startswith("Haulout does not manage this node: expected JSON in annotation")
        assert found.profiles == ()
        assert "Next reconcile" not in text(found)


async def test_unknown_node_is_an_error(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        with pytest.raises(KubeError, match='nodes "n9" not found'):
            await explain(cluster.client, CONFIGURATION, "n9", external=None)


async def test_external_service_is_queried_once(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await change(cluster, "n1", labels={PROFILE_LABEL: "metrics"})
        sample = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}'
        external_client = ScriptedExternalClient().reply_with(200, sample)
        found = await explain(cluster.client, CONFIGURATION, "n1", external=external_client)
        assert found.profiles[0].transitions[0].checks[0].passed is True
        assert len(external_client.requests) == 1
        assert "- the answer of an external service changes (queried every 30s)" in text(found)


async def test_external_check_is_unknown_without_queries(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        await change(cluster, "n1", labels={PROFILE_LABEL: "metrics"})
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert "?? calm  prometheusInstant is unknown" in text(found)


async def test_forbidden_resource_is_a_note(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_nodes(clock) as cluster:
        allowed = Client.list

        async def listing(self: Client, resource: Any, **more: Any) -> Any:
            if resource.plural == "leases":
                raise Forbidden("no leases for you", code=403)
            return await allowed(self, resource, **more)

        monkeypatch.setattr(Client, "list", listing)
        await change(cluster, "n1", labels={PROFILE_LABEL: "staggered"})
        found = await explain(cluster.client, CONFIGURATION, "n1", external=None)
        assert "Note: leases.coordination.k8s.io: you are not allowed to read them (no leases for you)" in text(found)


async def test_machine_readable_output_has_all_fields(clock: Clock) -> None:
    async with two_nodes(clock) as cluster:
        found = json.loads(why_text.to_json(await explain(cluster.client, CONFIGURATION, "n1", external=None)))
        [transition] = found["profiles"][0]["transitions"]
        assert transition["chainPassed"] is False
        assert transition["remedies"] == [[{"name": "needed", "passed": True}]]
        assert transition["checks"][0] | {"changesAt": None} == {
            "name": "needed",
            "type": "hasLabel",
            "passed": False,
            "reason": "node n1 has no label needed",
            "error": "",
            "changesAt": None,
        }


# The file


async def test_configuration_is_read_from_a_config_map(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        meta = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "profiles", "namespace": "shop"}}
        cluster.put({**meta, "data": {"maintenance.yaml": FILE.decode()}})
        assert await configuration_from_config_map(cluster.client, "shop/profiles", {}) == LoadedConfiguration(
            CONFIGURATION
        )
        cluster.put({**meta, "data": {"other.yaml": ""}})
        with pytest.raises(HauloutError, match="ConfigMap shop/profiles has no"):
            await configuration_from_config_map(cluster.client, "shop/profiles", {})
        with pytest.raises(UsageError, match="expected NAMESPACE/NAME, found 'profiles'"):
            await configuration_from_config_map(cluster.client, "profiles", {})


def test_unset_variables_are_a_note() -> None:
    known = parse_configuration(FILE.replace(b"key: urgent", b"key: '${URGENT_LABEL}'"), "maintenance.yaml", {})
    assert known.notes[0].startswith("not set here: URGENT_LABEL; ")


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Return a way to run a command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return command_runner(capsys)


@pytest.mark.usefixtures("haulout")
def test_default_configuration_is_used_with_a_note_when_there_is_no_file() -> None:
    known = configuration_from_file(None, {})
    assert set(known.configuration.profiles) == {"notices"}
    assert len(known.notes) == 1
    assert known.notes[0].startswith(
        "there is no config/maintenance.yaml here, so the default configuration was used (haulout check"
    )
    assert "name it with --config, or its ConfigMap with --config-map" in known.notes[0]


async def test_notice_is_shown_with_the_drain_time_of_the_profile(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.put(definition())
        start = clock.now() + timedelta(hours=2)
        spec = {"nodeName": "n1", "source": "oci", "noticeID": "1", "kind": "Reboot", "start": micro_time(start)}
        cluster.put({"apiVersion": "haulout.dev/v1alpha1", "kind": "MaintenanceNotice", **named("oci-1"), "spec": spec})
        output = await explain_with_default(cluster, "n1")
        assert f"announced: Reboot, notice oci-1, Planned: it begins at {start:%Y-%m-%d %H:%M} UTC" in output
        assert "profile notices: operational" in output
        assert "to maintenance-required when due" in output
        assert f"may change at {start - timedelta(minutes=15):%Y-%m-%d %H:%M}" in output
        assert "No profile matches the node: nothing is done" in await explain_with_default(cluster, "n2")


async def test_nodemaintenances_are_listed_independently_of_profiles(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        explanation = await explain(cluster.client, default_profile.configuration(), "n1", external=None)
        assert await list_ordered_maintenances(cluster.client, "n1") == ()  # such orders are not installed
        cluster.put(nodemaintenance.custom_resource_definition())
        kind = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        blocked = {"phase": "Running", "blockers": [{"pod": "shop/db-0", "reason": "budget shop/db allows none"}]}
        cluster.put({**kind, **named("a"), "spec": {"nodeName": "n1", "reason": "a fan"}, "status": blocked})
        cluster.put({**kind, **named("b"), "spec": {"nodeName": "n2"}})

        output = text(
            msgspec.structs.replace(explanation, maintenances=await list_ordered_maintenances(cluster.client, "n1"))
        )

        assert (
            "ordered: NodeMaintenance a (a fan), Running: budget shop/db allows none; more: haulout status n1" in output
        )
        assert "nothing is done about it" not in output
        assert "NodeMaintenance b" not in output


async def test_machine_requests_are_shown_with_the_approval_label(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        node_annotations = {clusterapi.MACHINE_OF_NODE: "m1", clusterapi.NAMESPACE_OF_NODE: "team-a"}
        requests = {clusterapi.MACHINE_DELETED: "true", clusterapi.MACHINE_MAINTENANCE: "true"}
        approved = {clusterapi.APPROVE_MAINTENANCE: "true", clusterapi.APPROVE_DELETION: "yes"}
        metadata = {"labels": requests | approved, "annotations": node_annotations}
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": metadata}))

        output = await explain_with_default(cluster, "n1")

        label = "label runtime-extension-maintenance-controller.cloud.sap/approve"
        assert (
            f"asked: Machine team-a/m1 is being deleted, and waits for {label}-deletion=true on this node\n" in output
        )
        assert (
            f"asked: Machine team-a/m1 requests maintenance, and has {label}-maintenance=true on this node\n" in output
        )


async def test_cordon_owners_without_an_object_are_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        explanation = await explain(cluster.client, default_profile.configuration(), "n1", external=None)
        owners = {owner: CordonOwnership(since=clock.now()) for owner in (ESX, DELETE_NODE, "profile/os")}
        mark = msgspec.json.encode(Cordon(owners=owners)).decode()
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: mark}}}))

        output = text(
            msgspec.structs.replace(explanation, cordon_owners=await list_other_cordon_owners(cluster.client, "n1"))
        )

        assert (
            f"held: Kubernikus delete-node, since {clock.now():%Y-%m-%d %H:%M:%S} UTC (0s ago): because of label"
            in output
        )
        assert "held: ESX, since" in output
        assert "profile os" not in output
        assert "nothing is done about it" not in output
        assert await list_other_cordon_owners(cluster.client, "n2") == ()
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "{"}}}))
        assert await list_other_cordon_owners(cluster.client, "n1") == ()


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


async def explain_with_default(cluster: DrainCluster, node: str) -> str:
    found = await explain(cluster.client, default_profile.configuration(), node, external=None)
    return click.unstyle("\n".join(why_text.text_lines(found, marks=ASCII_MARKS)))


def test_invalid_configuration_is_reported_before_any_request(haulout: RunCommand) -> None:
    Path("config").mkdir()
    Path("config/maintenance.yaml").write_text("intervals: {requeue: soon}")
    code, _, err = haulout("why", "n1")
    assert code == 2
    assert err.startswith("haulout: config/maintenance.yaml:1: intervals.requeue: expected a duration")


def test_config_and_from_flags_are_exclusive(haulout: RunCommand) -> None:
    code, _, err = haulout("why", "n1", "--config", "a.yaml", "--from", "http://127.0.0.1:1")
    assert code == 2
    assert "give one" in err


@pytest.mark.real_time
def test_unreachable_operator_is_a_one_line_error(haulout: RunCommand) -> None:
    code, out, err = haulout("why", "n1", "--from", "http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err == "haulout: http://127.0.0.1:1: connection refused\n"


# The info of an operator

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


def test_node_info_of_the_go_controller_is_shown() -> None:
    found = parse_node_info(INFO, "n1")
    assert found is not None
    assert found.time == datetime(2024, 5, 1, 10, 0, 0, 123457, tzinfo=UTC)
    output = text(found)
    assert "profile flatcar: operational\n  NO to maintenance-required when reboot_needed\n" in output
    assert "      -- reboot_needed  hasAnnotation does not pass: there is none\n" in output
    assert "      it would pass if reboot_needed passed" in output
    assert "Next reconcile" not in output  # the Go controller does not tell
    assert "nextReconcile" not in json.loads(why_text.to_json(found))


def explanation_of(body: bytes) -> str:
    """Return the explanation of n1 from the info of an operator."""
    found = parse_node_info(body, "n1")
    assert found is not None
    return text(found)


def test_additional_fields_of_the_haulout_operator_are_shown() -> None:
    profile = b'{"name":"os","state":"operational","waitingFor":"2 of 3 pods have left","applied":{"transitions":['
    transition = b'{"passed":false,"target":"in-maintenance","veto":"no room","chain":{"passed":true,"expression":"a"}}'
    more = b'"updated":"2024-05-01T10:00:00Z","nextReconcile":NEXT,"requeueOn":["budget"],"queryInterval":"30s"'
    body = b'[{"node":"n1","profiles":[' + profile + transition + b"]}}]," + more + b"}]"
    output = explanation_of(body.replace(b"NEXT", b'"2024-05-01T11:00:00Z"'))
    assert "  ?? in transition: 2 of 3 pods have left\n" in output
    assert "      NO no room\n" in output
    assert "Next reconcile: 2024-05-01 11:00:00 UTC, in 1h0m, or earlier when\n  - the node itself changes\n" in output
    assert "  - a node leaves maintenance\n  - the answer of an external service changes (queried every 30s)" in output
    assert "Next reconcile: when\n  - the node itself changes\n" in explanation_of(body.replace(b"NEXT", b"null"))


def test_node_that_the_operator_does_not_manage_is_shown_with_the_reason() -> None:
    body = b'[{"node":"n1","profiles":[],"updated":"2024-05-01T10:00:00Z","nextReconcile":null,"problem":"foreign"}]'
    assert explanation_of(body) == "Node n1, as of 2024-05-01 10:00:00 UTC\nforeign"


@pytest.mark.parametrize("body", [INFO, b"null", b"[]"])
def test_node_missing_from_the_info_is_unknown(body: bytes) -> None:
    assert parse_node_info(body, "n9") is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": "x"}', b'[{"node": 1}]'])
def test_invalid_info_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|expected|Expected|truncated|malformed|Input"):
        parse_node_info(body, "n1")


def test_null_in_go_json_is_treated_as_empty() -> None:
    found = parse_node_info(
        b'[{"node":"n1","profiles":[{"name":"os","applied":{"transitions":null}}],"updated":null}]', "n1"
    )
    assert found is not None
    assert "no transition leads out of this state" in text(found)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        (topics.NODE_COUNT, "a node is created or deleted"),
        (topics.label("a/b"), "label a/b of any node changes"),
        (topics.lease("ns", "x"), "lease ns/x changes"),
        ("moon", "moon changes"),
    ],
)
def test_topics_are_described_in_words(topic: str, expected: str) -> None:
    assert topics.describe(topic) == expected
