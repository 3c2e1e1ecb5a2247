"""The cluster budget: a maximum of clusters in maintenance whatever fails, and every cluster gets a slot."""

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

import pytest

from haulout.api.clusterapi import ENABLED, MAINTENANCE, PRE_DRAIN_HOOK, PRE_DRAIN_HOOK_OWNER, REQUESTED
from haulout.controllers.clusterapi.cluster_budget import (
    LEDGER_NAME,
    LimitedClusterBudget,
    LimitUsage,
    UnlimitedClusterBudget,
    parse_limit,
)
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout.kube.slot_ledger import ledger_name
from haulout_sandbox.apiserver import ApiServer, Write
from support.builders.objects import a_namespace
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.end_state import IGNORED_KINDS, end_state
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.platforms.cluster_budget import (
    MACHINES,
    NAMESPACE,
    STARTED,
    ClustersWithinBudget,
    a_cluster_budget,
    a_cluster_object,
    a_hub,
    a_machine,
    a_management_cluster,
    parse_key,
    serve_cluster_api_kinds,
)

A, B, C = (f"team-{it}/prod" for it in "abc")


def three_clusters(clock: Clock) -> ApiServer:
    return a_management_cluster(clock, *(a_cluster_object(name) for name in (A, B, C)))


async def admitted(budget: LimitedClusterBudget, *clusters: str) -> list[bool]:
    return [not await budget.acquire(parse_key(cluster)) for cluster in clusters]


async def slot_holders(budget: LimitedClusterBudget) -> list[str]:
    return list((await budget.usage())[0].holders)


def write_over(api: ApiServer, slots: str) -> None:
    metadata = {"name": ledger_name(LEDGER_NAME), "namespace": NAMESPACE}
    api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"slots": slots}})


async def test_unlimited_cluster_budget_admits_every_cluster() -> None:
    assert await UnlimitedClusterBudget().acquire(parse_key(A)) == ""
    await UnlimitedClusterBudget().release(parse_key(A))


async def test_cluster_budget_admits_up_to_its_limit_and_names_the_slot_holders(clock: Clock) -> None:
    budget = a_cluster_budget(three_clusters(clock), clock, "2")
    assert await admitted(budget, A, B) == [True, True]
    assert await budget.acquire(parse_key(C)) == "2 of 2 clusters are in maintenance: team-a/prod, team-b/prod"
    assert await budget.usage() == (LimitUsage(limit=parse_limit("2"), holders=(A, B), waiting=(C,)),)
    await budget.release(parse_key(A))
    assert await admitted(budget, C) == [True]
    assert await budget.usage() == (LimitUsage(limit=parse_limit("2"), holders=(B, C)),)


async def test_running_clusters_keep_their_slots_when_the_limit_is_lowered(clock: Clock) -> None:
    """Otherwise each would wait for the other to end."""
    api = three_clusters(clock)
    assert await admitted(a_cluster_budget(api, clock, "2"), A, B) == [True, True]
    smaller = a_cluster_budget(api, clock, "1", identity="successor")
    assert await admitted(smaller, A, B, A) == [True, True, True]
    assert await smaller.acquire(parse_key(C)) == "2 of 1 cluster are in maintenance: team-a/prod, team-b/prod"


async def test_clusters_that_started_before_the_budget_count(clock: Clock) -> None:
    budget = a_cluster_budget(three_clusters(clock), clock, "1")
    assert not await budget.acquire(parse_key(A), is_running=True)
    assert not await budget.acquire(parse_key(B), is_running=True)
    assert await admitted(budget, C) == [False]
    await budget.release(parse_key(A))
    assert await admitted(budget, C) == [False]


async def test_label_limits_and_the_overall_limit_apply_together(clock: Clock) -> None:
    prod = [a_cluster_object(f"p/{number}", env="prod") for number in range(2)]
    test = [a_cluster_object(f"t/{number}", env="test") for number in range(3)]
    budget = a_cluster_budget(a_management_cluster(clock, *prod, *test), clock, "3", "env=prod:1")
    assert await admitted(budget, "t/0", "p/0") == [True, True]
    assert await budget.acquire(parse_key("p/1")) == "1 of 1 cluster with env=prod is in maintenance: p/0"
    assert await admitted(budget, "t/1", "t/2") == [True, False]
    uses = {usage.limit.name: (usage.holders, usage.waiting) for usage in await budget.usage()}
    assert uses == {"all clusters": (("p/0", "t/0", "t/1"), ("p/1", "t/2")), "env=prod": (("p/0",), ("p/1",))}


async def test_cluster_outside_all_limits_needs_no_slot(clock: Clock) -> None:
    api = a_management_cluster(clock, a_cluster_object(A), a_cluster_object(B, env="prod"))
    budget = a_cluster_budget(api, clock, "env=prod:1")
    assert await admitted(budget, A, B) == [True, True]
    assert await slot_holders(budget) == [B]


async def test_concurrent_hubs_are_admitted_up_to_the_limit(clock: Clock) -> None:
    keys = [f"team/{number}" for number in range(6)]
    api = a_management_cluster(clock, *map(a_cluster_object, keys))
    budgets = [a_cluster_budget(api, clock, "2", identity=f"hub-{number}") for number in range(6)]
    answers = await asyncio.gather(
        *(budget.acquire(parse_key(cluster)) for budget, cluster in zip(budgets, keys, strict=True))
    )
    assert answers.count("") == 2
    assert len(await slot_holders(budgets[0])) == 2


async def test_successor_releases_slots_of_its_predecessor(clock: Clock) -> None:
    api = three_clusters(clock)
    await admitted(a_cluster_budget(api, clock, "1"), A)
    successor = a_cluster_budget(api, clock, "1", identity="successor")
    assert await admitted(successor, B) == [False]
    await successor.release(parse_key(A))
    assert await admitted(successor, B) == [True]


async def test_deposed_hub_cannot_release_the_slot_of_its_successor(clock: Clock) -> None:
    """In its stale cache no Machine of the cluster is active."""
    api = three_clusters(clock)
    deposed, successor = a_cluster_budget(api, clock, "1"), a_cluster_budget(api, clock, "1", identity="successor")
    await deposed.release(parse_key(A))
    assert await admitted(successor, A) == [True]
    await deposed.release(parse_key(A))
    assert await slot_holders(successor) == [A]
    assert await admitted(deposed, A) == [True]
    await deposed.release(parse_key(A))
    assert await slot_holders(successor) == [A]


async def test_slot_of_a_deleted_cluster_is_freed_after_verification(clock: Clock) -> None:
    api = three_clusters(clock)
    await admitted(a_cluster_budget(api, clock, "1"), A)
    successor = a_cluster_budget(api, clock, "1", identity="successor")
    assert await admitted(successor, B) == [False]
    api.remove("machines", "prod", namespace="team-a")
    assert await admitted(successor, B) == [False], "its absence is not verified yet"
    await clock.sleep(timedelta(minutes=2))
    assert await admitted(successor, B) == [True]
    assert await slot_holders(successor) == [B]


@pytest.mark.parametrize(
    ("labels", "annotations", "is_held"),
    [({ENABLED: "true"}, {}, True), ({}, {PRE_DRAIN_HOOK: PRE_DRAIN_HOOK_OWNER}, True), ({}, {}, False)],
)
async def test_cluster_with_machines_to_clean_up_keeps_its_slot(
    clock: Clock, labels: dict[str, str], annotations: dict[str, str], *, is_held: bool
) -> None:
    api = three_clusters(clock)
    await admitted(a_cluster_budget(api, clock, "1"), A)
    machine = a_machine(A)
    machine["metadata"] |= {"labels": labels, "annotations": annotations}
    api.put(machine)
    assert await admitted(a_cluster_budget(api, clock, "1", identity="successor"), B) == [not is_held]


async def test_clusters_of_the_same_name_in_two_namespaces_are_distinct(clock: Clock) -> None:
    api = three_clusters(clock)
    await admitted(a_cluster_budget(api, clock, "1"), A)
    api.remove("machines", "prod", namespace="team-a")
    assert await admitted(a_cluster_budget(api, clock, "1", identity="successor"), B) == [True]


async def test_unreadable_ledger_refuses_with_a_reason(clock: Clock) -> None:
    api = three_clusters(clock)
    budget = a_cluster_budget(api, clock, "2")
    write_over(api, "many")
    assert re.match(
        "the budget across clusters cannot be read: .* delete the ConfigMap when", await budget.acquire(parse_key(A))
    )
    api.remove("configmaps", ledger_name(LEDGER_NAME), namespace=NAMESPACE)
    assert await budget.acquire(parse_key(A)) == ""


async def test_slot_whose_release_failed_blocks_no_other_cluster(clock: Clock) -> None:
    api = three_clusters(clock)
    budget = a_cluster_budget(api, clock, "1")
    await admitted(budget, A)
    slots = api.get("configmaps", ledger_name(LEDGER_NAME), namespace=NAMESPACE)["data"]["slots"]
    write_over(api, "many")
    await budget.release(parse_key(A))
    write_over(api, slots)
    assert await slot_holders(budget) == []
    assert await admitted(budget, B, A) == [True, False]
    assert await slot_holders(budget) == [B]


async def test_acquire_during_a_release_keeps_the_slot(clock: Clock) -> None:
    """One Machine of the cluster ends while the next begins."""
    budget = a_cluster_budget(three_clusters(clock), clock, "1")
    await admitted(budget, A)
    for ahead in range(20):
        async with asyncio.TaskGroup() as group:
            group.create_task(budget.release(parse_key(A)))
            await clock.sleep(timedelta(milliseconds=ahead))
            acquisition = group.create_task(budget.acquire(parse_key(A)))
        assert acquisition.result() == ""
        assert await slot_holders(budget) == [A], f"after {ahead} ms"


async def test_missing_cluster_api_refuses_label_limits(clock: Clock) -> None:
    budget = a_cluster_budget(ApiServer(clock, namespaces=[NAMESPACE]), clock, "env=prod:1")
    assert "Cluster API is not installed" in await budget.acquire(parse_key(A))


async def test_repeated_release_without_a_slot_writes_nothing(clock: Clock) -> None:
    api = three_clusters(clock)
    budget = a_cluster_budget(api, clock, "1")
    await budget.release(parse_key(A))
    before = len(api.history)
    for _ in range(100):
        await budget.release(parse_key(A))
    assert len(api.history) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", "at most 2 clusters"),
        (" 1 ", "at most 1 cluster"),
        ("env=prod:1", "at most 1 cluster with env=prod"),
        ("example.com/env in (prod,stage):2", "at most 2 clusters with example.com/env in (prod,stage)"),
    ],
)
def test_limit_is_parsed_and_formatted(text: str, expected: str) -> None:
    assert str(parse_limit(text)) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "env=prod", "env=prod:", ":1", "=:1", "env=prod:0", "1.5", "²"])
def test_invalid_limit_is_refused_with_the_expected_format(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected .*env=prod:1, found"):
        parse_limit(text)


async def one_by_one(cluster: SandboxCluster) -> None:
    """Request maintenance in three clusters, withdraw the second request, and wait for the others in turn."""
    for name in (A, B, C):
        await request_maintenance(cluster, name, REQUESTED)
    await cluster.eventually(lambda: running_machines(cluster), becomes=[A], within=LATER)
    await cluster.pass_time(seconds=20)
    await request_maintenance(cluster, B, None)
    await request_maintenance(cluster, A, None)
    await cluster.eventually(lambda: running_machines(cluster), becomes=[C], within=LATER)
    await request_maintenance(cluster, C, None)
    await cluster.eventually(lambda: running_machines(cluster), becomes=[], within=LATER)


async def request_maintenance(cluster: SandboxCluster, name: str, value: str | None) -> None:
    patch = merge_patch({"metadata": {"labels": {MAINTENANCE: value}}})
    await cluster.cluster.client("people").patch(
        MACHINES, parse_key(name).name, patch, namespace=parse_key(name).namespace
    )


def running_machines(cluster: SandboxCluster) -> list[str]:
    machines = cluster.by_key("machines").items()
    return sorted(name for name, obj in machines if STARTED in obj["metadata"].get("annotations", {}))


LATER = timedelta(minutes=5)


def test_budget_holds_and_every_maintenance_finishes_after_a_crash_at_any_write() -> None:
    async def story(run: CrashRun) -> None:
        async with a_cluster(run.clock).with_objects(a_namespace(NAMESPACE)).on_the_sandbox() as cluster:
            serve_cluster_api_kinds(cluster.api)
            for name in (A, B, C):
                cluster.api.put(a_machine(name))
            run.start_operator(cluster.cluster)
            await one_by_one(cluster)

    held = ClustersWithinBudget(1)
    assert assert_survives_crashes(story, operator=a_hub("1"), invariants=(held,), compare=_ends) >= 6


def _ends(history: Sequence[Write]) -> object:
    return end_state(history, ignored={*IGNORED_KINDS, "configmaps"})


async def test_two_hubs_that_both_believe_they_lead_stay_within_the_budget(clock: Clock) -> None:
    async with (
        a_cluster(clock)
        .with_invariants(ClustersWithinBudget(1))
        .with_objects(a_namespace(NAMESPACE))
        .on_the_sandbox() as cluster
    ):
        serve_cluster_api_kinds(cluster.api)
        for name in (A, B, C):
            cluster.api.put(a_machine(name))
        cluster.run(a_hub("1"))
        cluster.run(a_hub("1"), name="operator-2")
        await one_by_one(cluster)
