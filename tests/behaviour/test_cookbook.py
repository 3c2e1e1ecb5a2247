"""Recipes of the cookbook that take minutes, on the sandbox and on a real cluster."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeCondition, definition
from haulout.api.objects import NodeConditionType
from haulout.api.resources import NODES
from haulout.cli.cordon.node_changes import uncordon_node
from haulout.controllers.profiles.plugin import PROFILE_LABEL
from haulout.core.timestamps import whole_seconds
from haulout.errors import AlreadyExists
from haulout.kube.patches import merge_patch
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.docs.cookbook import (
    drainable_pods,
    explain_node,
    is_cordoned,
    label,
    operate,
    recipe,
    running_actors,
    set_label,
    with_recipe_invariants,
    with_short_ready_time,
    worker,
)
from support.fakes.external_client import FakeExternalClient
from support.operators.profiles import annotate, annotation, set_profiles, state, states

OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"
ROUND = [REQUIRED, IN_MAINTENANCE, OPERATIONAL]
MAINTENANCE_LABEL, WORK_NOW, APPROVED = (
    "example.com/maintenance",
    "example.com/maintenance-now",
    "example.com/approved-by",
)
UPGRADE, SKIP = "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/gpu-driver-upgrade.skip"
GPU = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "A100", SKIP: "true"}

Recipes = Callable[[str], Path]


@pytest.fixture
def recipes(request: pytest.FixtureRequest, tmp_path: Path) -> Recipes:
    """Return a function that finds recipes, with short ready times on a real cluster."""
    on_real_time = request.config.getoption("--backend") == "real"
    return lambda name: with_short_ready_time(recipe(name), tmp_path) if on_real_time else recipe(name)


def with_shop(plan: ClusterPlan) -> ClusterPlan:
    return plan.with_deployment("shop/cart", replicas=2, budget=1).with_daemon_set("infra/agent")


async def wait_ready_time(cluster: LiveCluster) -> None:
    """Let a node be ready for longer than its recipe requires."""
    await cluster.pass_time(seconds=90 if isinstance(cluster, SandboxCluster) else 3)


async def wait_for_state(cluster: LiveCluster, node: str, wanted: str) -> None:
    await cluster.eventually(lambda: state(cluster, node), becomes=wanted)


def last_states(cluster: LiveCluster, node: str) -> list[str]:
    return states(cluster, node)[-len(ROUND) :]


# Approval


async def test_approval_allows_one_maintenance_of_one_node(a_cluster: PlanFactory, recipes: Recipes) -> None:
    file, external_client = recipes("approval"), FakeExternalClient()
    plan = with_recipe_invariants(
        with_shop(a_cluster().with_nodes(3)), max_unavailable=1, own_metadata=[WORK_NOW, APPROVED]
    )
    async with plan.running() as cluster:

        async def work(node: str) -> None:
            await set_label(cluster, node, MAINTENANCE_LABEL, None)

        operate(cluster, file, external_client)
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "approval")
            await set_label(cluster, node, MAINTENANCE_LABEL, "wanted")
            await wait_for_state(cluster, node, REQUIRED)
        async with running_actors(worker(cluster, WORK_NOW, work)):
            await annotate(cluster, "n1", APPROVED, "ada")
            await cluster.eventually(lambda: last_states(cluster, "n1"), becomes=ROUND)
            assert not is_cordoned(cluster, "n1")
            assert (annotation(cluster, "n1", APPROVED), label(cluster, "n1", WORK_NOW)) == (None, None)
            assert "approved       hasAnnotation does not pass" in await explain_node(cluster, file, "n2")
            await set_label(cluster, "n1", MAINTENANCE_LABEL, "wanted")
            await wait_for_state(cluster, "n1", REQUIRED)
            await wait_ready_time(cluster)
            assert state(cluster, "n1") == REQUIRED, "an approval is good for once"
            await set_label(cluster, "n2", MAINTENANCE_LABEL, None)
            await wait_for_state(cluster, "n2", OPERATIONAL)
        assert IN_MAINTENANCE not in states(cluster, "n2")
        notified_nodes = [str(request.json["text"]).split()[0] for request in external_client.requests]
        assert sorted(notified_nodes) == ["n1", "n1", "n2"]


async def test_removed_profile_label_releases_the_node(a_cluster: PlanFactory, recipes: Recipes) -> None:
    async with with_recipe_invariants(
        with_shop(a_cluster().with_nodes(2)), own_metadata=[WORK_NOW, APPROVED]
    ).running() as cluster:
        operate(cluster, recipes("approval"))
        await set_profiles(cluster, "n1", "approval")
        await annotate(cluster, "n1", APPROVED, "ada")
        await set_label(cluster, "n1", MAINTENANCE_LABEL, "wanted")
        await wait_for_state(cluster, "n1", IN_MAINTENANCE)
        await cluster.eventually(lambda: label(cluster, "n1", WORK_NOW), becomes="true")
        refused = await uncordon_node(cluster.admin, await cluster.admin.get(NODES, "n1"))
        assert "it is held by profile approval since" in refused.problem
        await set_label(cluster, "n1", PROFILE_LABEL, None)
        await wait_for_state(cluster, "n1", OPERATIONAL)
        assert is_cordoned(cluster, "n1")
        await uncordon_node(cluster.admin, await cluster.admin.get(NODES, "n1"))
        await wait_ready_time(cluster)
        assert not is_cordoned(cluster, "n1")


# GPU drivers


async def gpu_operator(cluster: LiveCluster, *, fails_on: set[str]) -> None:
    """Upgrade the drivers of nodes as NVIDIA's GPU Operator does, those that are to be skipped left out."""
    while True:
        for name in list(cluster.by_key("nodes")):
            if label(cluster, name, UPGRADE) == "upgrade-required" and label(cluster, name, SKIP) != "true":
                assert drainable_pods(cluster, name) == []
                was_cordoned = is_cordoned(cluster, name)
                for step in ("cordon-required", "pod-restart-required", "validation-required"):
                    await set_label(cluster, name, UPGRADE, step)
                    await cluster.pass_time(seconds=1)
                if name in fails_on:
                    await set_label(cluster, name, UPGRADE, "upgrade-failed")
                    continue
                if not was_cordoned:
                    await cluster.uncordon(name)
                await set_label(cluster, name, UPGRADE, "upgrade-done")
        await cluster.pass_time(seconds=1)


async def test_gpu_driver_upgrade_waits_for_training_and_for_a_failed_node(
    a_cluster: PlanFactory, recipes: Recipes
) -> None:
    file, external_client, broken = recipes("gpu-driver"), FakeExternalClient(), {"gpu1", "gpu2"}
    training = a_pod("ml/train", on="gpu1", labels={"example.com/kind": "training"}, behaviour={"run-seconds": "40"})
    plan = a_cluster().with_nodes(2, named="gpu", labels=GPU).with_nodes(1)
    plan = with_recipe_invariants(plan.with_daemon_set("infra/agent"), max_unavailable=1, own_metadata=[SKIP])
    async with plan.with_objects(training.with_spec(restartPolicy="Never")).running() as cluster:
        operate(cluster, file, external_client)
        async with running_actors(gpu_operator(cluster, fails_on=broken)):
            await set_label(cluster, "gpu1", UPGRADE, "upgrade-required")
            await wait_for_state(cluster, "gpu1", IN_MAINTENANCE)
            assert (label(cluster, "gpu1", SKIP), drainable_pods(cluster, "gpu1")) == ("true", ["train"])
            await cluster.eventually(lambda: label(cluster, "gpu1", UPGRADE), becomes="upgrade-failed")
            await set_label(cluster, "gpu2", UPGRADE, "upgrade-required")
            await wait_for_state(cluster, "gpu2", REQUIRED)
            await wait_ready_time(cluster)
            assert (state(cluster, "gpu1"), state(cluster, "gpu2")) == (IN_MAINTENANCE, REQUIRED)
            broken.clear()
            await set_label(cluster, "gpu1", UPGRADE, "upgrade-required")
            for node in ("gpu1", "gpu2"):
                await cluster.eventually(partial(last_states, cluster, node), becomes=ROUND)
                assert (label(cluster, node, SKIP), is_cordoned(cluster, node)) == ("true", False)
        assert states(cluster, "n1") == [OPERATIONAL]
        assert {request.json["node"] for request in external_client.requests} == {"gpu1", "gpu2"}
        assert all("webhook-signature" in request.headers for request in external_client.requests)


# A cloud's notice


async def announce(cluster: LiveCluster, **spec: Any) -> None:
    """Announce a maintenance of n1, or change its notice."""
    spec_fields = {"nodeName": "n1", "source": "me", "noticeID": "1", "kind": "Reboot", "stage": "Scheduled", **spec}
    body = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind, "spec": spec_fields}
    with suppress(AlreadyExists):
        await cluster.admin.create(MAINTENANCE_NOTICES, {**body, "metadata": {"name": "me-1"}})
    await cluster.admin.patch(MAINTENANCE_NOTICES, "me-1", merge_patch({"spec": spec_fields}))


def instant_in(cluster: LiveCluster, **duration: float) -> str:
    """Return an instant relative to now."""
    return whole_seconds(cluster.clock.now() + timedelta(**duration))


def with_announced_maintenance(plan: ClusterPlan, file: Path) -> ClusterPlan:
    """Return a plan with MaintenanceNotices and the permissions of a configuration file."""
    return with_recipe_invariants(plan, file, own_metadata=(*NoticeCondition, *NodeConditionType)).with_crd(
        definition()
    )


async def test_node_is_drained_for_a_cloud_notice_and_returned_after_its_end(
    a_cluster: PlanFactory, recipes: Recipes
) -> None:
    file, external_client = recipes("cloud-notice"), FakeExternalClient()
    async with with_announced_maintenance(with_shop(a_cluster().with_nodes(2)), file).running() as cluster:
        operate(cluster, file, external_client)
        await announce(cluster, start=instant_in(cluster, days=30))
        await wait_for_state(cluster, "n1", OPERATIONAL)
        await announce(cluster, start=instant_in(cluster, minutes=5))
        await wait_for_state(cluster, "n1", IN_MAINTENANCE)
        assert drainable_pods(cluster, "n1") == []
        await announce(cluster, start=instant_in(cluster, hours=20))  # the cloud has moved it to another day
        await wait_for_state(cluster, "n1", OPERATIONAL)
        assert not is_cordoned(cluster, "n1")
        await announce(cluster, stage="Started")
        await wait_for_state(cluster, "n1", IN_MAINTENANCE)
        cluster.reboot("n1", duration=timedelta(seconds=2))
        await cluster.pass_time(seconds=4)
        await announce(cluster, stage="Ended")
        await cluster.eventually(lambda: (is_cordoned(cluster, "n1"), state(cluster, "n1")), becomes=(False, ""))
        assert {"node": "n1", "state": IN_MAINTENANCE} in [
            json.loads(request.body) for request in external_client.requests
        ]
        assert states(cluster, "n2") == []


async def test_cancelled_notice_leaves_a_user_cordon_in_place(a_cluster: PlanFactory, recipes: Recipes) -> None:
    file = recipes("cloud-notice")
    async with with_announced_maintenance(a_cluster().with_nodes(1), file).running() as cluster:
        operate(cluster, file)
        await cluster.cordon("n1")  # by a person, who has their reasons
        await announce(cluster, start=instant_in(cluster, minutes=5))
        await wait_for_state(cluster, "n1", IN_MAINTENANCE)
        await announce(cluster, stage="Cancelled")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="")
        assert is_cordoned(cluster, "n1"), "who has cordoned it is to uncordon it"
