"""Faults against the runtime itself, with the controller of docs/contributing/a-new-controller.md as its user.

Crashes at each write are in that page's own tests. Here: two processes that both believe to lead, stale caches,
conflicts, errors of the API server, jumps of the clock.
"""

import asyncio
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.docs.page_modules import import_module, save_listings
from support.faults.named_faults import FAULTS, Fault, fault_mixture
from support.invariants.object_fields import is_cordoned
from support.operators.components import run_component

LONG = timedelta(hours=4)  # a clock may have been three hours ahead when the quarantine started
PAGE = Path(__file__).parents[3] / "docs/contributing/a-new-controller.md"


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    files = save_listings(PAGE, tmp_path_factory.mktemp("page"))
    return import_module("quarantine", files["quarantine"])


def cordoned(cluster: SandboxCluster) -> list[str]:
    return [name for name, node in cluster.by_key("nodes").items() if is_cordoned(node)]


async def quarantine_two_nodes(cluster: SandboxCluster, label: str) -> None:
    """Put two nodes into quarantine, one of which a person has cordoned before."""
    await cluster.cordon("n2")
    for name in ("n1", "n2"):
        await cluster.patch("nodes", name, metadata={"labels": {label: "10m"}})


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_nodes_return_whatever_fails(clock: Clock, quarantine: ModuleType, fault: Fault) -> None:
    async def program(client: Client) -> None:
        await run_component(client, quarantine.Quarantine())

    async with a_cluster(clock).with_nodes(3).on_the_sandbox() as cluster:
        cluster.run(program)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault))
            await quarantine_two_nodes(cluster, quarantine.LABEL)
        await cluster.eventually(lambda: cordoned(cluster), becomes=["n2"], within=LONG)


@pytest.mark.parametrize("seed", range(6))
async def test_two_processes_that_both_act_do_no_harm(clock: Clock, quarantine: ModuleType, seed: int) -> None:
    async def program(client: Client) -> None:
        await run_component(client, quarantine.Quarantine())

    async with a_cluster(clock).with_nodes(3).on_the_sandbox() as cluster:
        for name in ("a", "b"):
            cluster.run(program, name=name)
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(fault_mixture(seed), seed=seed, process="a"))
            await quarantine_two_nodes(cluster, quarantine.LABEL)
        await cluster.eventually(lambda: cordoned(cluster), becomes=["n2"], within=LONG)
        states = [
            is_cordoned(write.after) for write in cluster.history if write.key == "n1" and write.after is not None
        ]
        changes = [after for before, after in pairwise([False, *states]) if before != after]
        assert changes == [True, False], "the node is cordoned once and uncordoned once"
