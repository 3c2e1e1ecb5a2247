"""Live updates of the dashboard with a running operator, with and without viewers."""

from datetime import timedelta
from pathlib import Path

import pytest

from haulout.dashboard.api.nodes import state, summary
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.nodes.state import NodeAssessment
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.dashboard.event_stream import watched_operator
from support.operators.announced_maintenance import AnnouncedMaintenance

ROLLING = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: example.com/reboot, value: "yes"}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved}}
  - {name: done, type: hasLabel, config: {key: example.com/done}}
  - {name: well, type: recovered, config: {readyFor: 2m}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: approved, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: done && well, next: operational, trigger: uncordon}]
"""


async def test_nodemaintenance_is_streamed_from_creation_to_end(clock: VirtualClock) -> None:
    plan = a_cluster(clock).with_nodes(3, zones=3).with_deployment("shop/cart", replicas=6, budget=6)
    async with watched_operator(plan) as world:
        cluster = world.cluster
        async with world.open_page(node="n1") as page:
            assert page.tiles["n1"]["zone"] == "z2"
            await world.create_maintenance("n1")
            await page.wait_until(lambda: page.tiles["n1"]["state"] == "blocked")
            node_tile = page.tiles["n1"]
            assert "PodDisruptionBudget shop/cart needs 6 healthy pods and has 6" in node_tile["message"]
            assert (node_tile["maintenance"], node_tile["isCordoned"], node_tile["progress"]) == ("patch", True, 0)
            [drain] = page.node["drains"]
            assert {item["object"] for item in drain["blockers"]} == {"PodDisruptionBudget shop/cart"}
            assert "kubectl -n shop describe pdb cart" in [item["command"] for item in page.node["commands"]]
            await cluster.patch("poddisruptionbudgets", "shop/cart", spec={"minAvailable": 1})
            await page.wait_until(lambda: page.tiles["n1"]["state"] == "in-maintenance")
            assert page.summary["counts"] == {"idle": 2, "in-maintenance": 1}
            assert page.tiles["n1"]["message"] == "NodeMaintenance patch: a new kernel"
            await cluster.delete("nodemaintenances", "patch")
            await page.wait_until(lambda: page.tiles["n1"]["state"] == "idle")
        states = page.states("n1")
        # Whether the page sees the drain go on depends on how long the pods take to stop.
        assert [item for item in states if item != "draining"][:3] == ["idle", "blocked", "in-maintenance"]
        assert states[1] == "draining"
        assert "isCordoned" not in page.tiles["n1"]
        assert page.summary["counts"] == {"idle": 3}
        assert [item["object"] for item in page.node["history"]] != []


async def test_profile_maintenance_is_streamed_from_start_to_end(clock: VirtualClock, tmp_path: Path) -> None:
    plan = a_cluster(clock).with_nodes(3, labels={"cloud.sap/maintenance-profile": "os"})
    plan = plan.with_deployment("shop/cart", replicas=6, budget=6)
    async with watched_operator(plan, ROLLING, tmp_path) as world, world.open_page(node="n1") as page:
        cluster = world.cluster
        await cluster.patch("nodes", "n1", metadata={"labels": {"example.com/reboot": "yes"}})
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "planned")
        assert page.tiles["n1"]["message"] == "os: node n1 has no annotation example.com/approved"
        commands = {item["command"]: item for item in (await world.detail("n1"))["commands"]}
        approving = commands["kubectl annotate node n1 example.com/approved=true"]
        assert approving["action"] == {"action": "approve", "node": "n1", "profile": "os", "check": "approved"}
        await cluster.patch("nodes", "n1", metadata={"annotations": {"example.com/approved": "me"}})
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "blocked")
        assert "PodDisruptionBudget shop/cart" in page.tiles["n1"]["message"]
        await page.wait_until(lambda: page.node.get("drains"))
        [drain] = page.node["drains"]
        assert (drain["owner"], len(drain["pendingPods"]), len(drain["blockers"])) == ("profile/os", 2, 2)
        await cluster.patch("poddisruptionbudgets", "shop/cart", spec={"minAvailable": 1})
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "in-maintenance")
        cluster.reboot("n1", duration=timedelta(minutes=1))
        await cluster.pass_time(minutes=1)
        await cluster.patch("nodes", "n1", metadata={"labels": {"example.com/done": ""}})
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "recovering")
        assert "Ready" in page.tiles["n1"]["message"]
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "idle")
        states = page.states("n1")
        assert [item for item in states if item != "draining"] == [
            "idle", "planned", "blocked", "in-maintenance", "recovering", "idle",
        ]  # fmt: skip
        assert "draining" in states
        [profile] = page.node["profiles"]
        assert [(item["source"], item["target"], item.get("isCurrent", False)) for item in profile["transitions"]] == [
            ("operational", "maintenance-required", True),
            ("maintenance-required", "in-maintenance", False),
            ("in-maintenance", "operational", False),
        ]


async def test_tiles_are_not_computed_without_viewers(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2)) as world:
        await world.create_maintenance("n1")
        await world.cluster.pass_time(minutes=5)
        summary_cache = world.backend.summary_cache
        assert summary_cache.computed == 0
        async with world.open_page() as page:
            assert page.tiles["n1"]["state"] == "in-maintenance"
            assert summary_cache.computed == 2
            await world.cluster.pass_time(minutes=3)  # in which kubelets say that all is well
            assert summary_cache.computed == 2
        await world.cluster.pass_time(minutes=1)
        assert (summary_cache.tiles, summary_cache.is_in_use) == ({}, False)
        await world.cluster.delete("nodemaintenances", "patch")
        await world.cluster.pass_time(minutes=1)
        assert summary_cache.computed == 2


async def test_slow_viewer_is_reset_and_the_operator_continues(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(3)) as world:
        world.backend.broadcaster._backlog = 2000  # so that a few events are too many
        async with world.backend.subscribe() as slow:
            for number in range(30):
                await world.cluster.patch("nodes", "n1", metadata={"labels": {"pool": f"p{number}"}})
                await world.cluster.pass_time(seconds=1)
            assert await slow.next() == b"event: reset\ndata: {}\n\n"
            assert await slow.next() is None
        assert (await world.backend.fleet()).nodes[0].pool == "p29"


async def test_reconnected_viewer_resumes_after_its_last_event(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2)) as world:
        async with world.open_page() as page:
            await world.cluster.cordon("n1")
            await page.wait_until(lambda: page.tiles["n1"].get("isCordoned"))
        await world.cluster.cordon("n2")
        await world.cluster.pass_time(seconds=20)
        async with world.backend.subscribe(since=page.ids[-1]) as viewer:
            page.feed(await viewer.next() or b"")
        assert page.tiles["n2"]["isCordoned"]
        assert not page.is_reset
        await world.cluster.pass_time(minutes=2)
        async with world.backend.subscribe(since=page.ids[-1]) as viewer:
            page.feed(await viewer.next() or b"")
        assert page.is_reset


async def test_changes_are_batched(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(20)) as world, world.open_page() as page:
        page.events.clear()
        began = clock.monotonic()
        for number in range(1, 21):
            await world.cluster.cordon(f"n{number}")
        await page.wait_until(lambda: all(tile.get("isCordoned") for tile in page.tiles.values()))
        batches = [data for kind, data in page.events if kind == "nodes"]
        assert len(batches) <= 1 + (clock.monotonic() - began) * 4


async def test_failure_to_assess_one_node_affects_only_its_tile(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = state.assess_node

    def picky(observation: NodeSnapshot) -> NodeAssessment:
        if observation.node.name == "n2":
            raise RuntimeError("odd")
        return real(observation)

    async with watched_operator(a_cluster(clock).with_nodes(3)) as world:
        monkeypatch.setattr(summary, "assess_node", picky)
        fleet = await world.backend.fleet()
        assert [node.state for node in fleet.nodes] == ["idle", "blocked", "idle"]
        assert "internal error in the operator" in fleet.nodes[1].message
        assert (await world.backend.summary()).counts == {"blocked": 1, "idle": 2}


async def test_node_with_invalid_data_is_blocked_with_a_repair_command(clock: VirtualClock, tmp_path: Path) -> None:
    odd = {"cloud.sap/maintenance-data": "{", "haulout.dev/transitions": "[]"}
    async with watched_operator(a_cluster(clock).with_nodes(2), ROLLING, tmp_path) as world, world.open_page() as page:
        await world.cluster.patch("nodes", "n1", metadata={"annotations": odd})
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "blocked")
        commands = [command["command"] for command in (await world.detail("n1"))["commands"]]
        assert commands[0] == "kubectl annotate node n1 cloud.sap/maintenance-data-"
        assert page.tiles["n2"]["state"] == "idle"


async def test_announced_maintenance_makes_the_node_planned(clock: VirtualClock) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(2)) as world, world.open_page() as page:
        cloud = AnnouncedMaintenance(world.cluster, "n1")
        await cloud.report(start=120, end=180)
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "planned")
        assert page.tiles["n1"]["message"].startswith("Reboot (EVACUATION) announced by oci: it begins at")
        assert page.tiles["n1"]["notices"] == 1
        assert "notices" in [kind for kind, _ in page.events]
        assert [notice["node"] for notice in (await world.detail("n1"))["notices"]] == ["n1"]
        assert page.summary["hasNotices"]


async def test_nodes_of_profiles_that_wait_for_the_budget_are_listed(clock: VirtualClock, tmp_path: Path) -> None:
    budget = "budget: [{max: 1}]\n" + ROLLING
    labels = {"cloud.sap/maintenance-profile": "os", "example.com/reboot": "yes"}
    async with (
        watched_operator(a_cluster(clock).with_nodes(2, labels=labels), budget, tmp_path) as world,
        world.open_page() as page,
    ):
        for name in ("n1", "n2"):
            await world.cluster.patch("nodes", name, metadata={"annotations": {"example.com/approved": "me"}})
        await page.wait_until(lambda: page.summary["counts"] == {"in-maintenance": 1, "planned": 1})
        waiting = next(name for name, tile in page.tiles.items() if tile["state"] == "planned")
        assert "the budget is used up" in page.tiles[waiting]["message"]
        await page.wait_until(lambda: page.summary["budgets"][0].get("waiting") == [waiting])


async def test_budget_holders_and_waiting_nodes_are_listed(clock: VirtualClock, tmp_path: Path) -> None:
    budget = "budget: [{max: 1}]\n" + ROLLING
    async with watched_operator(a_cluster(clock).with_nodes(3), budget, tmp_path) as world, world.open_page() as page:
        await world.create_maintenance("n1", name="a")
        await page.wait_until(lambda: page.tiles["n1"]["state"] == "in-maintenance")
        await world.create_maintenance("n2", name="b")
        await page.wait_until(
            lambda: page.tiles["n2"]["state"] == "planned" and "waits for a budget slot" in page.tiles["n2"]["message"]
        )
        await page.wait_until(lambda: page.summary["budgets"][0].get("waiting"))
        assert page.summary["budgets"] == [
            {
                "name": "the whole cluster",
                "used": 1,
                "limit": 1,
                "text": "at most 1 node in the whole cluster",
                "holders": ["n1"],
                "waiting": ["n2"],
            }
        ]


async def test_invalid_configuration_has_a_banner(clock: VirtualClock, tmp_path: Path) -> None:
    async with watched_operator(a_cluster(clock).with_nodes(1), ROLLING, tmp_path) as world, world.open_page() as page:
        (tmp_path / "maintenance.yaml").write_text("profiles: nonsense", encoding="utf-8")
        await page.wait_until(lambda: page.summary.get("banners"))
        [banner] = page.summary["banners"]
        assert (banner["level"], banner["page"]) == ("warning", "configuration")
        assert "is invalid, and the last valid version stays in force: line 1: " in banner["message"]
