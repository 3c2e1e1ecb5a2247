"""`haulout status`: cordon owners, progress and blockers of nodes."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from haulout.api.maintenancenotice import definition as notice_definition
from haulout.api.nodemaintenance import custom_resource_definition
from haulout.api.resources import NODES
from haulout.cli.status.node_status import StatusReport, read_status
from haulout.cli.status.status_text import detail_lines, table, to_json
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, STATE_LABEL
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import CORDON_ANNOTATION, CordonRequest
from haulout.errors import Forbidden, KubeError
from haulout.kube.patches import merge_patch
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster

BLOCKER = {
    "kind": "DisruptionBudget",
    "pod": "shop/cart-0",
    "object": "PodDisruptionBudget shop/cart",
    "reason": "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2",
    "remedy": "run more replicas",
}


def put_maintenance(cluster: DrainCluster, name: str, node: str, **status: Any) -> None:
    """Put a NodeMaintenance with this status."""
    cluster.api.put(custom_resource_definition())
    cluster.api.put(
        {
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "kind": "NodeMaintenance",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "reason": "new firmware"},
            "status": status,
        }
    )


async def hold(cluster: DrainCluster, owner: str, node: str) -> None:
    found = await cluster.client.get(NODES, node)
    change = cordon.acquire(found, owner, CordonRequest(), now=cluster.clock.now())
    assert change is not None
    await cluster.client.patch(NODES, node, merge_patch(change))


def lease(cluster: DrainCluster, node: str, holder: str, *, renewed: datetime) -> None:
    cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}})
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.000000Z}"}
    cluster.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"node-{node}", "namespace": "medik8s-leases"},
            "spec": spec,
        }
    )


def details_by_title(found: StatusReport) -> Mapping[str, str]:
    """Return the details of the only node, by title."""
    lines = [click.unstyle(line) for line in detail_lines(found.nodes[0], found.now)]
    return {line[: line.index("  ", 2)].strip(): line[line.index("  ", 2) :].strip() for line in lines}


async def test_status_lists_cordoned_nodes_without_an_operator(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        await cluster.cordon("n2")
        found = await read_status(cluster.client)
        assert table(found, include_all=False) == [
            "NODE   STATE      CORDONED BY                SINCE   DRAINED   BLOCKED BY   NEXT RECONCILE",
            "n2     cordoned   a person or another tool   -       -         -            -",
            "",
            "2 other nodes are in service.",
        ]
        assert found.notes == ("NodeMaintenances: not installed in this cluster, so the operator is not installed",)
        assert [line.split()[0] for line in table(found, include_all=True)] == ["NODE", "n1", "n2", "n3"]


async def test_status_reports_when_all_nodes_are_in_service(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        assert table(await read_status(cluster.client), include_all=False) == ["All 2 nodes are in service."]


async def test_maintenance_is_shown_with_progress_blockers_and_next_reconcile(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        since = f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"
        next_look = f"{clock.now() + timedelta(minutes=2, seconds=30):%Y-%m-%dT%H:%M:%SZ}"
        put_maintenance(
            cluster,
            "patch-n1",
            "n1",
            phase="Running",
            drainProgress=62,
            lastError="one pod is left",
            pendingPods=["cart-0"],
            pendingPodsRefs=[{"namespace": "shop", "name": "cart-0"}],
            nextReconcile=next_look,
            blockers=[{**BLOCKER, "since": since}],
            drain={"startTime": since, "removed": 8, "terminating": 1, "deadline": next_look},
        )
        await hold(cluster, "NodeMaintenance/patch-n1", "n1")
        lease(cluster, "n1", "node-maintenance", renewed=clock.now())
        await clock.sleep(timedelta(minutes=2))
        await cluster.run_pods("web", 1, on="n1")
        found = await read_status(cluster.client)
        row = table(found, include_all=False)[1]
        assert row.split("   ")[:1] == ["n1"]
        for part in ("draining", "NodeMaintenance patch-n1", "2m0s", "62%", "PodDisruptionBudget shop/cart", "in 29s"):
            assert part in row
        details = details_by_title(await read_status(cluster.client, "n1"))
        assert details["State"] == "draining"
        assert details["Cordoned"].startswith("yes, since ")
        assert details["Held by"].endswith("to end that: kubectl delete nm patch-n1")
        assert details["Maintenance"].startswith("patch-n1: Running, 62% drained, created ")
        assert details["Reason"] == "new firmware"
        assert details["Last error"] == "one pod is left"
        assert details["Lease"].startswith("held by node-maintenance until ")
        assert details["Blocked by"].endswith("(for 2m0s); run more replicas")
        assert details["Next reconcile"].endswith("UTC (in 29s)")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "waiting for the operator"),
        ({"phase": "Running"}, "draining"),
        ({"phase": "Succeeded"}, "in maintenance"),
        ({"phase": "Failed"}, "failed"),
    ],
)
async def test_each_phase_has_a_state_text(clock: Clock, status: dict[str, Any], state: str) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.cordon("n1")
        put_maintenance(cluster, "patch", "n1", **status)
        assert (await read_status(cluster.client)).nodes[0].state == state


async def test_maintenance_of_an_uncordoned_node_is_marked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster, "patch", "n1", phase="Succeeded")
        assert (await read_status(cluster.client)).nodes[0].state == "in maintenance, not cordoned"


async def test_node_in_maintenance_by_a_profile_is_shown(clock: Clock) -> None:
    entry = {"Transition": "2026-01-05T09:00:00Z", "Current": "in-maintenance", "Previous": "in-maintenance"}
    annotations = {DATA_ANNOTATION: json.dumps({"Profiles": {"os": entry}, "Notifications": {}})}
    labels = {STATE_LABEL: "in-maintenance"}
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster, "profile/os", "n1")
        await cluster.client.patch(
            NODES, "n1", merge_patch({"metadata": {"annotations": annotations, "labels": labels}})
        )
        details = details_by_title(await read_status(cluster.client, "n1"))
        assert details["State"] == "in maintenance"
        assert details["Held by"].endswith("to end that: haulout why n1, which shows what it waits for")


async def test_maintenance_that_waits_for_the_budget_is_shown(clock: Clock) -> None:
    condition = {"type": "WithinBudget", "status": "False", "reason": "BudgetExhausted"}
    reason = "the budget is used up: 1 of at most 1 node in the whole cluster out of service: n9"
    blocker = {"kind": "Budget", "object": "budget: n9", "reason": reason, "remedy": "it begins by itself"}
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster, "patch", "n1", phase="Running", conditions=[condition], blockers=[blocker])
        found = await read_status(cluster.client, "n1")
        assert found.nodes[0].state == "waiting for the budget"
        assert details_by_title(found)["Blocked by"] == f"{reason}; it begins by itself"
        assert "budget: n9" in table(found, include_all=False)[1]


async def test_cordon_of_a_deleted_owner_is_shown_with_the_repair_command(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster, "NodeMaintenance/gone", "n1")
        found = await read_status(cluster.client, "n1")
        details = details_by_title(found)
        assert details["State"] == "left cordoned"
        assert "which no longer exists, since" in details["Held by"]
        assert details["To repair"] == "haulout uncordon n1"
        assert "NodeMaintenance gone (deleted)" in table(found, include_all=False)[1]


async def test_lease_of_another_holder_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        lease(cluster, "n1", "NodeHealthCheck-workers", renewed=clock.now())
        lease(cluster, "n2", "NodeHealthCheck-workers", renewed=clock.now() - timedelta(hours=2))
        found = await read_status(cluster.client)
        assert "lease of NodeHealthCheck-workers" in table(found, include_all=False)[1]
        assert "1 other node is in service." in table(found, include_all=False)
        assert details_by_title(await read_status(cluster.client, "n2"))["Lease"] == (
            "expired; last held by NodeHealthCheck-workers"
        )


async def test_invalid_cordon_annotation_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "?"}}}))
        assert (
            f"annotation {CORDON_ANNOTATION} of node n1 is invalid"
            in details_by_title(await read_status(cluster.client, "n1"))["Mark"]
        )


async def test_maintenance_of_a_missing_node_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster, "patch", "gone", phase="Failed")
        found = await read_status(cluster.client)
        assert [(it.name, it.state) for it in found.nodes] == [("gone", "no such node"), ("n1", "in service")]
        assert (await read_status(cluster.client, "gone")).nodes[0].maintenances[0].name == "patch"


async def test_forbidden_resources_are_named_and_the_rest_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster, "NodeMaintenance/patch", "n1")
        for path in ("/nodemaintenances", "/leases", "/pods"):
            cluster.transport.faults.fail_before_effect(path=path, response=403, times=None)
        found = await read_status(cluster.client, "n1")
        assert [note.partition(":")[0] for note in found.notes] == [
            "NodeMaintenances",
            "leases in medik8s-leases",
            "pods",
        ]
        assert "which you are not allowed to read, since" in details_by_title(found)["Held by"]


async def test_forbidden_nodes_are_an_error(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.transport.faults.fail_before_effect(path="/nodes", response=403, times=None)
        with pytest.raises(Forbidden):
            await read_status(cluster.client)


async def test_unknown_node_is_an_error(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        with pytest.raises(KubeError, match='nodes "n7" not found, and no NodeMaintenance names it'):
            await read_status(cluster.client, "n7")


async def test_json_has_the_same_content(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        put_maintenance(
            cluster, "patch", "n1", phase="Running", drainProgress=5, blockers=[BLOCKER], pendingPods=["cart-0"]
        )
        await hold(cluster, "NodeMaintenance/patch", "n1")
        lease(cluster, "n1", "node-maintenance", renewed=datetime(2020, 1, 1, tzinfo=UTC))
        document = json.loads(to_json(await read_status(cluster.client), include_all=False))
        (node,) = document["nodes"]
        assert (node["node"], node["state"], node["cordoned"], node["cordonedBefore"]) == (
            "n1",
            "draining",
            True,
            False,
        )
        assert node["cordonOwners"][0]["presence"] == "Present"
        assert node["lease"] == {"holder": "node-maintenance", "until": None}
        assert node["maintenances"][0]["blockers"][0]["object"] == "PodDisruptionBudget shop/cart"
        assert node["maintenances"][0]["pendingPods"] == ["cart-0"]
        assert len(json.loads(to_json(await read_status(cluster.client), include_all=True))["nodes"]) == 2


def put_notice(cluster: DrainCluster, name: str, node: str, *, start: timedelta, **spec: str) -> None:
    """Put a notice."""
    cluster.api.put(notice_definition())
    at = f"{cluster.clock.now() + start:%Y-%m-%dT%H:%M:%SZ}"
    cluster.api.put(
        {
            "apiVersion": "haulout.dev/v1alpha1",
            "kind": "MaintenanceNotice",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "kind": "Reboot", "start": at, **spec},
        }
    )


async def test_notices_of_the_next_day_are_listed_below_the_table(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        put_notice(cluster, "soon", "n1", start=timedelta(hours=23), reason="bmc")
        put_notice(cluster, "later", "n1", start=timedelta(hours=25))
        put_notice(cluster, "over", "n1", start=timedelta(hours=2), stage="Cancelled")
        put_notice(cluster, "begun", "n2", start=timedelta(minutes=-5))
        put_notice(cluster, "frozen", "n2", start=timedelta(minutes=5), kind="Freeze")
        found = await read_status(cluster.client)
        first, empty, title, *lines = table(found, include_all=False)
        assert (first, empty, title) == ("All 2 nodes are in service.", "", "Announced:")
        assert [line.split()[0] for line in lines] == ["n1", "n2", "n2"]
        assert lines[0].startswith("  n1  Reboot (bmc) at ")
        assert ", drain due from " in lines[0]
        assert lines[0].endswith("; notice soon")
        assert lines[1].startswith("  n2  Reboot since ")
        assert lines[1].endswith("(5m0s ago); notice begun")
        assert lines[2].endswith(", by default not drained; notice frozen")


async def test_notices_are_shown_in_details_and_json(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        put_notice(cluster, "soon", "n1", start=timedelta(hours=23))
        put_notice(cluster, "waits", "n9", start=timedelta(hours=1))
        assert details_by_title(await read_status(cluster.client, "n1"))["Announced"].endswith("; notice soon")
        assert details_by_title(await read_status(cluster.client, "n9"))["State"] == "no such node"
        (node,) = json.loads(to_json(await read_status(cluster.client), include_all=False))["nodes"]
        assert (node["node"], node["notices"][0]["name"], node["notices"][0]["phase"]) == ("n1", "soon", "Planned")


async def test_missing_notice_definition_is_silent_and_forbidden_notices_are_named(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        found = await read_status(cluster.client)
        assert not any("MaintenanceNotice" in it for it in found.notes)
        put_notice(cluster, "soon", "n1", start=timedelta(hours=1), reason="x")
        put_notice(cluster, "bad", "n1", start=timedelta(hours=1))
        cluster.api.put(
            {
                **cluster.api.objects("maintenancenotices")[0],
                "spec": {"nodeName": "n1", "start": "0000-01-01T00:00:00Z"},
            }
        )
        found = await read_status(cluster.client)
        assert len(found.nodes[0].notices) == 1
        assert any(it.startswith("MaintenanceNotice bad cannot be read") for it in found.notes)
        cluster.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        assert any(
            it.startswith("MaintenanceNotices: you are not allowed to read them")
            for it in (await read_status(cluster.client)).notes
        )
