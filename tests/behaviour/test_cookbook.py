"""The recipes of the cookbook, played from beginning to end: what their pages promise happens, and nothing else."""

import asyncio
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from support.clusters import Plans
from support.cookbook import (
    BERLIN,
    acting,
    all_over,
    at,
    berlin,
    comes_true,
    guests,
    is_cordoned,
    label,
    maintenances,
    most_at_once,
    operate,
    reboot,
    recipe,
    set_label,
    set_labels,
    upheld,
    why,
    worker,
)
from support.live import LiveCluster
from support.outside import FakeOutside
from support.profiled import attach, state

OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"


@pytest.fixture(autouse=True)
def _sandbox_only(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--backend") == "real" and "a_cluster" not in request.fixturenames:
        pytest.skip("its story takes hours, which only the sandbox can skip")


async def test_os_patching_works_by_night_one_node_of_a_zone_and_two_in_all() -> None:
    file, outside = recipe("os-patching"), FakeOutside()
    plan = upheld(at(berlin("2026-01-05 21:30")).with_nodes(6, zones=3), most=2, ours=["example.com/patch-now"])
    plan = plan.with_deployment("shop/cart", replicas=6, budget=5).with_daemon_set("infra/agent")
    async with plan.running() as cluster:

        async def patch(node: str) -> None:
            await reboot(cluster, node)
            await set_label(cluster, node, "example.com/patches", None)

        operate(cluster, file, outside)
        nodes = list(cluster.all("nodes"))
        for node in nodes:
            await attach(cluster, node, "os-patching")
        await set_labels(cluster, nodes, "example.com/patches", "pending")
        async with acting(worker(cluster, "example.com/patch-now", "true", patch)):
            await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
            assert "timeWindow does not pass" in await why(cluster, file, "n1")
            await comes_true(cluster, lambda: all_over(cluster, nodes, "example.com/patches"), hours=6)
        stays = maintenances(cluster)
        assert stays[0].since.astimezone(BERLIN).strftime("%H:%M") == "22:00"
        assert most_at_once(stays) == 2
        assert not any(is_cordoned(cluster, node) or label(cluster, node, "example.com/patch-now") for node in nodes)
        assert cluster.ready("shop/cart") == 6
