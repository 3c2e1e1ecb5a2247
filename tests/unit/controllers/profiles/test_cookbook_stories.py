"""Recipes of the cookbook whose scenarios take hours do what their pages promise.

Scenarios that take minutes also run on a real cluster: see `tests/behaviour/test_cookbook.py`.
"""

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, definition
from haulout.api.objects import RawObject
from haulout.core.timestamps import whole_seconds
from haulout.errors import ExternalError
from haulout_sandbox.nodes import Machine
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster
from support.docs.cookbook import (
    BERLIN,
    all_done,
    berlin_time,
    cluster_at,
    drainable_pods,
    explain_node,
    is_cordoned,
    label,
    maintenance_periods,
    max_concurrent,
    reboot,
    recipe,
    run_profiles_program,
    running_actors,
    set_label,
    set_labels,
    wait_until,
    with_recipe_invariants,
    worker,
)
from support.fakes.external_client import FakeExternalClient, FakeReply, FakeSlack, SentRequest
from support.operators.nodemaintenance import with_blocking_pods
from support.operators.profiles import set_profiles, state

REQUIRED, IN_MAINTENANCE = "maintenance-required", "in-maintenance"
PATCHES, PATCH_NOW = "example.com/patches", "example.com/patch-now"
WANTED, WORK_NOW = "example.com/maintenance", "example.com/maintenance-now"
NOTICES = definition()


def nodes_in_maintenance(cluster: LiveCluster) -> list[str]:
    return [name for name in cluster.by_key("nodes") if state(cluster, name) == IN_MAINTENANCE]


def berlin_clock_time(instant: datetime) -> str:
    return instant.astimezone(BERLIN).strftime("%H:%M")


async def assign_profile(cluster: LiveCluster, profile: str) -> list[str]:
    """Give the profile to all nodes."""
    nodes = list(cluster.by_key("nodes"))
    for node in nodes:
        await set_profiles(cluster, node, profile)
    return nodes


def with_zones(plan: ClusterPlan, zones: str, *, of: int) -> ClusterPlan:
    """Add machines per zone: `a1` and `a2` are in `eu-1a`."""
    names = [(zone, number) for zone in zones for number in range(1, of + 1)]
    machines = tuple(Machine(name=f"{zone}{number}", zone=f"eu-1{zone}") for zone, number in names)
    return replace(plan, machines=machines)


def assert_released(cluster: LiveCluster, nodes: list[str], permit: str) -> None:
    assert [node for node in nodes if is_cordoned(cluster, node) or label(cluster, node, permit)] == []


# OS patching


async def test_os_patching_runs_at_night_on_one_node_per_zone_and_two_in_total() -> None:
    file, external = recipe("os-patching"), FakeExternalClient()
    plan = with_zones(
        with_recipe_invariants(
            cluster_at(berlin_time("2026-01-05 21:50")), file, max_unavailable=2, own_metadata=[PATCH_NOW]
        ),
        "ab",
        of=2,
    )
    plan = plan.with_deployment("shop/cart", replicas=6, budget=5).with_daemon_set("infra/agent")
    async with plan.running() as cluster:

        async def patch(node: str) -> None:
            await reboot(cluster, node)
            await set_label(cluster, node, PATCHES, None)

        run_profiles_program(cluster, file, external)
        nodes = await assign_profile(cluster, "os-patching")
        await set_labels(cluster, nodes, PATCHES, "pending")
        async with running_actors(worker(cluster, PATCH_NOW, patch)):
            await cluster.eventually(lambda: state(cluster, "a1"), becomes=REQUIRED)
            assert "night             timeWindow does not pass" in await explain_node(cluster, file, "a1")
            await wait_until(cluster, lambda: all_done(cluster, nodes, PATCHES), hours=5)
        periods = maintenance_periods(cluster)
        assert (berlin_clock_time(periods[0].since), len(periods), max_concurrent(periods)) == ("22:00", 4, 2)
        assert [max_concurrent([item for item in periods if item.node.startswith(zone)]) for zone in "ab"] == [1, 1]
        assert_released(cluster, nodes, PATCH_NOW)
        assert cluster.ready_pod_count("shop/cart") == 6
        messages = [json.dumps(item.json) for item in external.requests]
        assert len([item for item in messages if "a1 is now in-maintenance" in item]) == 1
        assert len([item for item in messages if "a1 is now operational" in item]) == 1


async def test_os_patching_does_not_patch_a_node_before_its_pods_have_left() -> None:
    file = recipe("os-patching")
    plan = with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 03:55")).with_nodes(3), file, own_metadata=[PATCH_NOW]
    )
    async with plan.with_deployment("shop/cart", replicas=1, budget=1).running() as cluster:

        async def patch(node: str) -> None:
            await set_label(cluster, node, PATCHES, None)

        run_profiles_program(cluster, file)
        nodes = await assign_profile(cluster, "os-patching")
        (held,) = {str(pod["spec"]["nodeName"]) for pod in cluster.pods_of("shop/cart")}
        await set_label(cluster, held, PATCHES, "pending")
        async with running_actors(worker(cluster, PATCH_NOW, patch)):
            await cluster.eventually(lambda: state(cluster, held), becomes=IN_MAINTENANCE)
            await cluster.pass_time(minutes=20)
            await set_labels(cluster, nodes, PATCHES, "pending")
            await cluster.pass_time(minutes=1)
            assert (
                nodes_in_maintenance(cluster),
                label(cluster, held, PATCH_NOW),
                len(drainable_pods(cluster, held)),
            ) == (
                [held],
                None,
                1,
            )
            assert "1 pod has still to leave the node: shop/cart-" in await explain_node(cluster, file, held)
            await cluster.scale("shop/cart", 2)
            await wait_until(cluster, lambda: state(cluster, held) == "operational", minutes=10)
            assert len(maintenance_periods(cluster)) == 1, (
                "after the window the running maintenance is finished and no other starts"
            )
            assert state(cluster, next(node for node in nodes if node != held)) == REQUIRED


# Kernel reboots


class Prometheus:
    """A fake Prometheus that also accepts all other requests."""

    def __init__(self) -> None:
        self.firing = 0

    def __call__(self, request: SentRequest) -> FakeReply:
        """Return the configured response."""
        if not request.url.startswith("http://prometheus.monitoring:9090/api/v1/query"):
            return 200, b"ok"
        sample = {"metric": {}, "value": [0, str(self.firing)]}
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": [sample]}}).encode()


async def test_kernel_reboots_stop_at_a_node_that_does_not_return() -> None:
    needed, permit = "example.com/reboot-required", "example.com/reboot-ok"
    file, prometheus = recipe("kernel-reboot"), Prometheus()
    external = FakeExternalClient(reply_to=prometheus)
    plan = with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 00:58")).with_nodes(3), file, max_unavailable=1, own_metadata=[permit]
    )
    plan = plan.with_deployment("shop/cart", replicas=3, budget=2).with_daemon_set("infra/agent")
    async with plan.running() as cluster:
        lost: list[str] = []
        found = asyncio.Event()

        async def obey(node: str) -> None:
            if len(maintenance_periods(cluster)) == 2:
                lost.append(node)
                cluster.stop_kubelet(node)
                await found.wait()
            await reboot(cluster, node)
            await set_label(cluster, node, needed, None)

        run_profiles_program(cluster, file, external)
        nodes = await assign_profile(cluster, "kernel-reboot")
        await set_labels(cluster, nodes, needed, "true")
        prometheus.firing = 2
        async with running_actors(worker(cluster, permit, obey)):
            await cluster.pass_time(minutes=5)
            assert nodes_in_maintenance(cluster) == []
            assert "no_alert       prometheusInstant does not pass" in await explain_node(cluster, file, "n1", external)
            prometheus.firing = 0
            await wait_until(cluster, lambda: bool(lost), minutes=30)
            await cluster.pass_time(minutes=35)
            assert nodes_in_maintenance(cluster) == lost, "no node starts while one is unavailable"
            alarms = [request.json["text"] for request in external.requests if "slack" in request.url]
            assert alarms == [f"{lost[0]} has been rebooting for 30 minutes; no other node starts before it is back"]
            cluster.start_kubelet(lost[0])
            found.set()
            await wait_until(cluster, lambda: all_done(cluster, nodes, needed), hours=1)
        assert (len(maintenance_periods(cluster)), max_concurrent(maintenance_periods(cluster))) == (3, 1)
        assert_released(cluster, nodes, permit)


# Kubelet upgrades


async def test_kubelet_upgrades_start_with_one_node_and_continue_an_hour_after_it_recovered() -> None:
    version, upgrade = "example.com/kubelet-version", "example.com/upgrade"
    file, slack = recipe("kubelet-upgrade"), FakeSlack()
    pools = {"web": 4, "database": 2}
    plan = with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 10:00")), file, own_metadata=[upgrade, "example.com/upgrade-first"]
    )
    for pool, count in pools.items():
        plan = plan.with_nodes(count, named=pool, labels={"example.com/pool": pool, version: "1.35.2"})
    async with plan.with_deployment("shop/cart", replicas=6, budget=4).running() as cluster:

        async def work(node: str) -> None:
            await reboot(cluster, node)
            await cluster.patch("nodes", node, metadata={"labels": {version: "1.36.3", upgrade: "done"}})

        run_profiles_program(cluster, file, FakeExternalClient(reply_to=slack))
        nodes = await assign_profile(cluster, "kubelet-upgrade")
        await cluster.pass_time(minutes=5)
        assert nodes_in_maintenance(cluster) == []
        await set_label(cluster, "web1", "example.com/upgrade-first", "true")
        async with running_actors(worker(cluster, upgrade, work, value="now")):
            await wait_until(cluster, lambda: state(cluster, "web2") == REQUIRED, hours=1)
            (first,) = maintenance_periods(cluster)
            assert (first.node, state(cluster, "web1"), is_cordoned(cluster, "web1")) == ("web1", "operational", False)
            await cluster.pass_time(minutes=50)
            await set_label(cluster, "web3", "example.com/stop-upgrades", "")
            await cluster.pass_time(minutes=20)
            assert len(maintenance_periods(cluster)) == 1, "upgrades are stopped by the label"
            assert "stopped              anyLabel passes" in await explain_node(cluster, file, "web2")
            await set_label(cluster, "web3", "example.com/stop-upgrades", None)
            await wait_until(cluster, lambda: {label(cluster, item, version) for item in nodes} == {"1.36.3"}, hours=4)
            await wait_until(cluster, lambda: not nodes_in_maintenance(cluster), hours=1)
        periods = maintenance_periods(cluster)
        assert first.until is not None
        assert all(item.since - first.until > timedelta(hours=1) for item in periods[1:])
        for pool in pools:
            assert max_concurrent([item for item in periods if item.node.startswith(pool)]) == 1
        assert max_concurrent(periods) == 2
        assert slack.titles == ["Kubelet upgrade"]
        assert_released(cluster, nodes, upgrade)


# Zone by zone


async def test_zone_waits_until_the_zones_before_it_are_done() -> None:
    file = recipe("zone-by-zone")
    plan = with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 10:00")),
        file,
        max_unavailable=1,
        own_metadata=[WORK_NOW, "example.com/busy-zone"],
    )
    plan = with_zones(plan, "abc", of=3).with_deployment("shop/cart", replicas=6, budget=5)
    async with plan.running() as cluster:
        lost: list[str] = []
        found = asyncio.Event()

        async def work(node: str) -> None:
            if len(maintenance_periods(cluster)) == 3:  # the last one of the first zone
                lost.append(node)
                cluster.stop_kubelet(node)
                await found.wait()
            await reboot(cluster, node, duration=timedelta(minutes=1))
            await set_label(cluster, node, WANTED, None)

        run_profiles_program(cluster, file)
        nodes = sorted(cluster.by_key("nodes"), reverse=True)
        await set_labels(cluster, nodes, WANTED, "wanted")
        async with running_actors(worker(cluster, WORK_NOW, work)):
            await wait_until(cluster, lambda: bool(lost), hours=1)
            await cluster.pass_time(minutes=15)
            assert nodes_in_maintenance(cluster) == lost
            assert "zone_a_is_busy       anyLabel passes" in await explain_node(cluster, file, "b1")
            cluster.start_kubelet(lost[0])
            found.set()
            await wait_until(cluster, lambda: all_done(cluster, nodes, WANTED), hours=3)
        assert "".join(maintenance.node[0] for maintenance in maintenance_periods(cluster)) == "aaabbbccc"
        assert_released(cluster, nodes, WORK_NOW)
        assert not any(label(cluster, node, "example.com/busy-zone") for node in nodes)


# Business hours


async def test_business_hours_start_a_node_every_half_hour_after_lunch() -> None:
    file, external = recipe("business-hours"), FakeExternalClient()
    plan = with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 12:50")).with_nodes(3), file, max_unavailable=2, own_metadata=[WORK_NOW]
    )
    async with plan.with_deployment("shop/cart", replicas=3, budget=2).running() as cluster:

        async def work(node: str) -> None:
            await reboot(cluster, node)
            await set_label(cluster, node, WANTED, None)

        run_profiles_program(cluster, file, external)
        nodes = await assign_profile(cluster, "business-hours")
        await set_labels(cluster, nodes, WANTED, "wanted")
        async with running_actors(worker(cluster, WORK_NOW, work)):
            await wait_until(cluster, lambda: all_done(cluster, nodes, WANTED), hours=4)
        assert [berlin_clock_time(maintenance.since) for maintenance in maintenance_periods(cluster)] == [
            "13:00",
            "13:30",
            "14:00",
        ]
        assert len(external.mails) == 3, "one mail per node on the day it waits"
        assert_released(cluster, nodes, WORK_NOW)


@pytest.mark.parametrize(
    ("when", "why_not"),
    [
        ("2026-01-09 13:30", "opens Mon 2026-01-12 09:00"),  # a Friday
        ("2026-11-24 10:00", "Black Friday"),
        ("2026-12-31 10:00", "year-end freeze"),
        ("2026-05-01 10:00", "May 1"),
    ],
)
async def test_business_hours_exclude_weekends_holidays_and_freezes(when: str, why_not: str) -> None:
    file = recipe("business-hours")
    async with with_recipe_invariants(cluster_at(berlin_time(when)).with_nodes(1), file).running() as cluster:
        run_profiles_program(cluster, file)
        await assign_profile(cluster, "business-hours")
        await set_label(cluster, "n1", WANTED, "wanted")
        await cluster.pass_time(minutes=5)
        assert state(cluster, "n1") == REQUIRED
        assert why_not in await explain_node(cluster, file, "n1")


# Missing approval


async def test_missing_approval_is_reminded_and_nothing_else_happens(tmp_path: Path) -> None:
    """Half an hour stands for the reminder interval of one day."""
    file, external = tmp_path / "approval.yaml", FakeExternalClient(replies=[ExternalError("slack is away")])
    file.write_text(recipe("approval").read_text().replace("interval: 24h", "interval: 30m"))
    async with with_recipe_invariants(
        cluster_at(berlin_time("2026-01-06 10:00")).with_nodes(1), file
    ).running() as cluster:
        run_profiles_program(cluster, file, external)
        await assign_profile(cluster, "approval")
        await set_label(cluster, "n1", WANTED, "wanted")
        await cluster.pass_time(minutes=35)
        assert (state(cluster, "n1"), is_cordoned(cluster, "n1")) == (REQUIRED, False)
        messages = [request.json["text"] for request in external.requests]
        command = "n1 waits for approval: kubectl annotate node n1 example.com/approved-by=YOU"
        assert messages == [command] * 3, "a refused message, its retry and a reminder"


# Cloud notices


def announced(cluster: LiveCluster, kind: str, **ahead: float) -> RawObject:
    """Return a notice for n1."""
    start = whole_seconds(cluster.clock.now() + timedelta(**ahead))
    spec = {"nodeName": "n1", "source": "me", "noticeID": "1", "kind": kind, "start": start, "stage": "Scheduled"}
    head = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    return {**head, "metadata": {"name": "me-1"}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "hour", "ahead", "leaves"),
    [
        pytest.param("Reboot", 4, 6, False, id="a reboot by day is not hurried by night"),
        pytest.param("Reboot", 10, 6, True, id="a reboot by night is prepared while people are there"),
        pytest.param("Terminate", 4, 20, True, id="a terminated machine is drained a day before"),
        pytest.param("Freeze", 10, 0.1, False, id="a freeze of seconds is waited out"),
    ],
)
async def test_cloud_notice_drains_depending_on_kind_and_hour(
    kind: str,
    hour: int,
    ahead: float,
    leaves: bool,  # noqa: FBT001 - a case
) -> None:
    file = recipe("cloud-notice")
    plan = with_recipe_invariants(cluster_at(berlin_time(f"2026-01-06 {hour:02}:00")).with_nodes(2), file).with_crd(
        NOTICES
    )
    async with plan.running() as cluster:
        run_profiles_program(cluster, file)
        await cluster.admin.create(MAINTENANCE_NOTICES, announced(cluster, kind, hours=ahead))
        await cluster.pass_time(minutes=2)
        assert (state(cluster, "n1") == IN_MAINTENANCE, is_cordoned(cluster, "n1")) == (leaves, leaves)


async def test_cloud_notice_drains_the_node_in_time_despite_a_pdb() -> None:
    file = recipe("cloud-notice")
    plan = with_recipe_invariants(cluster_at(berlin_time("2026-01-06 20:00")).with_nodes(2), file).with_crd(NOTICES)
    async with with_blocking_pods(plan, "n1").running() as cluster:
        run_profiles_program(cluster, file)
        await cluster.admin.create(MAINTENANCE_NOTICES, announced(cluster, "Reboot", minutes=15))
        await cluster.pass_time(minutes=9)
        assert len(drainable_pods(cluster, "n1")) == 1
        await cluster.pass_time(minutes=4)
        assert drainable_pods(cluster, "n1") == []
