"""`haulout status`: who holds which node, how far it is, and what it waits for."""

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


def order(town: DrainCluster, name: str, node: str, **status: Any) -> None:
    """Have a NodeMaintenance with this status."""
    town.api.put(custom_resource_definition())
    town.api.put(
        {
            "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
            "kind": "NodeMaintenance",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "reason": "new firmware"},
            "status": status,
        }
    )


async def hold(town: DrainCluster, owner: str, node: str) -> None:
    found = await town.client.get(NODES, node)
    change = cordon.acquire(found, owner, CordonRequest(), now=town.clock.now())
    assert change is not None
    await town.client.patch(NODES, node, merge_patch(change))


def lease(town: DrainCluster, node: str, holder: str, *, renewed: datetime) -> None:
    town.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "medik8s-leases"}})
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.000000Z}"}
    town.put(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": f"node-{node}", "namespace": "medik8s-leases"},
            "spec": spec,
        }
    )


def in_detail(found: StatusReport) -> Mapping[str, str]:
    """Return what is said of the one node, by what it is about."""
    lines = [click.unstyle(line) for line in detail_lines(found.nodes[0], found.now)]
    return {line[: line.index("  ", 2)].strip(): line[line.index("  ", 2) :].strip() for line in lines}


async def test_without_the_operator_it_tells_what_is_cordoned(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        await town.cordon("n2")
        found = await read_status(town.client)
        assert table(found, include_all=False) == [
            "NODE   STATE      CORDONED BY                SINCE   DRAINED   BLOCKED BY   NEXT RECONCILE",
            "n2     cordoned   a person or another tool   -       -         -            -",
            "",
            "2 other nodes are in service.",
        ]
        assert found.notes == ("NodeMaintenances: not installed in this cluster, so the operator is not installed",)
        assert [line.split()[0] for line in table(found, include_all=True)] == ["NODE", "n1", "n2", "n3"]


async def test_when_all_is_well_it_says_so(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        assert table(await read_status(town.client), include_all=False) == ["All 2 nodes are in service."]


async def test_a_maintenance_is_shown_with_progress_blockers_and_next_look(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        since = f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"
        next_look = f"{clock.now() + timedelta(minutes=2, seconds=30):%Y-%m-%dT%H:%M:%SZ}"
        order(
            town,
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
        await hold(town, "NodeMaintenance/patch-n1", "n1")
        lease(town, "n1", "node-maintenance", renewed=clock.now())
        await clock.sleep(timedelta(minutes=2))
        await town.run_pods("web", 1, on="n1")
        found = await read_status(town.client)
        row = table(found, include_all=False)[1]
        assert row.split("   ")[:1] == ["n1"]
        for part in ("draining", "NodeMaintenance patch-n1", "2m0s", "62%", "PodDisruptionBudget shop/cart", "in 29s"):
            assert part in row
        shown = in_detail(await read_status(town.client, "n1"))
        assert shown["State"] == "draining"
        assert shown["Cordoned"].startswith("yes, since ")
        assert shown["Held by"].endswith("to end that: kubectl delete nm patch-n1")
        assert shown["Maintenance"].startswith("patch-n1: Running, 62% drained, created ")
        assert shown["Reason"] == "new firmware"
        assert shown["Last error"] == "one pod is left"
        assert shown["Lease"].startswith("held by node-maintenance until ")
        assert shown["Blocked by"].endswith("(for 2m0s); run more replicas")
        assert shown["Next reconcile"].endswith("UTC (in 29s)")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "waiting for the operator"),
        ({"phase": "Running"}, "draining"),
        ({"phase": "Succeeded"}, "in maintenance"),
        ({"phase": "Failed"}, "failed"),
    ],
)
async def test_each_phase_has_a_word(clock: Clock, status: dict[str, Any], state: str) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.cordon("n1")
        order(town, "patch", "n1", **status)
        assert (await read_status(town.client)).nodes[0].state == state


async def test_a_maintenance_whose_node_is_not_cordoned_is_conspicuous(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town, "patch", "n1", phase="Succeeded")
        assert (await read_status(town.client)).nodes[0].state == "in maintenance, not cordoned"


async def test_a_node_that_a_profile_has_in_maintenance_is_told_so(clock: Clock) -> None:
    entry = {"Transition": "2026-01-05T09:00:00Z", "Current": "in-maintenance", "Previous": "in-maintenance"}
    said = {DATA_ANNOTATION: json.dumps({"Profiles": {"os": entry}, "Notifications": {}})}
    labels = {STATE_LABEL: "in-maintenance"}
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town, "profile/os", "n1")
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": said, "labels": labels}}))
        shown = in_detail(await read_status(town.client, "n1"))
        assert shown["State"] == "in maintenance"
        assert shown["Held by"].endswith("to end that: haulout why n1, which shows what it waits for")


async def test_a_maintenance_that_waits_for_the_budget_says_so(clock: Clock) -> None:
    told = {"type": "WithinBudget", "status": "False", "reason": "BudgetExhausted"}
    why = "the budget is used up: 1 of at most 1 node in the whole cluster out of service: n9"
    blocker = {"kind": "Budget", "object": "budget: n9", "reason": why, "remedy": "it begins by itself"}
    async with a_drain_cluster(clock, "n1") as town:
        order(town, "patch", "n1", phase="Running", conditions=[told], blockers=[blocker])
        found = await read_status(town.client, "n1")
        assert found.nodes[0].state == "waiting for the budget"
        assert in_detail(found)["Blocked by"] == f"{why}; it begins by itself"
        assert "budget: n9" in table(found, include_all=False)[1]


async def test_an_orphan_is_offered_for_clean_up(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town, "NodeMaintenance/gone", "n1")
        found = await read_status(town.client, "n1")
        shown = in_detail(found)
        assert shown["State"] == "left cordoned"
        assert "which no longer exists, since" in shown["Held by"]
        assert shown["To repair"] == "haulout uncordon n1"
        assert "NodeMaintenance gone (deleted)" in table(found, include_all=False)[1]


async def test_what_somebody_else_holds_by_a_lease_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        lease(town, "n1", "NodeHealthCheck-workers", renewed=clock.now())
        lease(town, "n2", "NodeHealthCheck-workers", renewed=clock.now() - timedelta(hours=2))
        found = await read_status(town.client)
        assert "lease of NodeHealthCheck-workers" in table(found, include_all=False)[1]
        assert "1 other node is in service." in table(found, include_all=False)
        assert in_detail(await read_status(town.client, "n2"))["Lease"] == (
            "expired; last held by NodeHealthCheck-workers"
        )


async def test_a_mark_that_nobody_can_read_is_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "?"}}}))
        assert (
            f"annotation {CORDON_ANNOTATION} of node n1 is invalid"
            in in_detail(await read_status(town.client, "n1"))["Mark"]
        )


async def test_a_maintenance_of_a_node_that_is_not_there_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town, "patch", "gone", phase="Failed")
        found = await read_status(town.client)
        assert [(it.name, it.state) for it in found.nodes] == [("gone", "no such node"), ("n1", "in service")]
        assert (await read_status(town.client, "gone")).nodes[0].maintenances[0].name == "patch"


async def test_what_may_not_be_seen_is_named_and_the_rest_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town, "NodeMaintenance/patch", "n1")
        for path in ("/nodemaintenances", "/leases", "/pods"):
            town.transport.faults.fail_before_effect(path=path, response=403, times=None)
        found = await read_status(town.client, "n1")
        assert [note.partition(":")[0] for note in found.notes] == [
            "NodeMaintenances",
            "leases in medik8s-leases",
            "pods",
        ]
        assert "which you are not allowed to read, since" in in_detail(found)["Held by"]


async def test_who_may_not_even_see_nodes_gets_an_error(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.transport.faults.fail_before_effect(path="/nodes", response=403, times=None)
        with pytest.raises(Forbidden):
            await read_status(town.client)


async def test_an_unknown_node_is_an_error(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        with pytest.raises(KubeError, match='nodes "n7" not found, and no NodeMaintenance names it'):
            await read_status(town.client, "n7")


async def test_programs_get_the_same(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        order(town, "patch", "n1", phase="Running", drainProgress=5, blockers=[BLOCKER], pendingPods=["cart-0"])
        await hold(town, "NodeMaintenance/patch", "n1")
        lease(town, "n1", "node-maintenance", renewed=datetime(2020, 1, 1, tzinfo=UTC))
        told = json.loads(to_json(await read_status(town.client), include_all=False))
        (node,) = told["nodes"]
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
        assert len(json.loads(to_json(await read_status(town.client), include_all=True))["nodes"]) == 2


def announce(town: DrainCluster, name: str, node: str, *, start: timedelta, **spec: str) -> None:
    """Have a notice."""
    town.api.put(notice_definition())
    at = f"{town.clock.now() + start:%Y-%m-%dT%H:%M:%SZ}"
    town.api.put(
        {
            "apiVersion": "haulout.dev/v1alpha1",
            "kind": "MaintenanceNotice",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "kind": "Reboot", "start": at, **spec},
        }
    )


async def test_what_is_announced_for_the_next_day_has_a_line_below(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        announce(town, "soon", "n1", start=timedelta(hours=23), reason="bmc")
        announce(town, "later", "n1", start=timedelta(hours=25))
        announce(town, "over", "n1", start=timedelta(hours=2), stage="Cancelled")
        announce(town, "begun", "n2", start=timedelta(minutes=-5))
        announce(town, "frozen", "n2", start=timedelta(minutes=5), kind="Freeze")
        found = await read_status(town.client)
        first, empty, title, *lines = table(found, include_all=False)
        assert (first, empty, title) == ("All 2 nodes are in service.", "", "Announced:")
        assert [line.split()[0] for line in lines] == ["n1", "n2", "n2"]
        assert lines[0].startswith("  n1  Reboot (bmc) at ")
        assert ", to be drained from " in lines[0]
        assert lines[0].endswith("; notice soon")
        assert lines[1].startswith("  n2  Reboot since ")
        assert lines[1].endswith("(5m0s ago); notice begun")
        assert lines[2].endswith(", by default not drained; notice frozen")


async def test_what_is_announced_is_among_the_details_and_for_programs(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        announce(town, "soon", "n1", start=timedelta(hours=23))
        announce(town, "waits", "n9", start=timedelta(hours=1))
        assert in_detail(await read_status(town.client, "n1"))["Announced"].endswith("; notice soon")
        assert in_detail(await read_status(town.client, "n9"))["State"] == "no such node"
        (node,) = json.loads(to_json(await read_status(town.client), include_all=False))["nodes"]
        assert (node["node"], node["notices"][0]["name"], node["notices"][0]["phase"]) == ("n1", "soon", "Planned")


async def test_without_notices_nothing_is_said_and_what_may_not_be_seen_is_named(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        found = await read_status(town.client)
        assert not any("MaintenanceNotice" in it for it in found.notes)
        announce(town, "soon", "n1", start=timedelta(hours=1), reason="x")
        announce(town, "bad", "n1", start=timedelta(hours=1))
        town.api.put(
            {**town.api.objects("maintenancenotices")[0], "spec": {"nodeName": "n1", "start": "0000-01-01T00:00:00Z"}}
        )
        found = await read_status(town.client)
        assert len(found.nodes[0].notices) == 1
        assert any(it.startswith("MaintenanceNotice bad cannot be read") for it in found.notes)
        town.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        assert any(
            it.startswith("MaintenanceNotices: you are not allowed to read them")
            for it in (await read_status(town.client)).notes
        )
