"""Dry runs: planned evictions and blockers."""

import json
from datetime import timedelta

import pytest

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.resources import NODES
from haulout.cli.drain import execution
from haulout.cli.node_lookup import find_nodes
from haulout.core.clock import Clock
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import DrainPolicy
from haulout.kube.patches import merge_patch
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster, a_pdb, a_pod

FORCE = DrainPolicy(filters=PodFilters(force=True))


async def run_dry_run(
    cluster: DrainCluster, *nodes: str, policy: DrainPolicy = FORCE, dry_run: str = "server", as_json: bool = False
) -> bool:
    found = await find_nodes(cluster.client, nodes, None)
    return await execution.run_dry_run(cluster.client, found, policy, dry_run=dry_run, as_json=as_json)


async def test_client_dry_run_prints_the_planned_actions(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        assert await run_dry_run(cluster, "n1", "n2", dry_run="client")
        output = capsys.readouterr()
        assert output.out.splitlines() == [
            "node/n1 cordoned (dry run)",
            "node/n2 cordoned (dry run)",
            "evicting pod shop/web-00 (dry run)",
            "evicting pod shop/web-01 (dry run)",
            "node/n1 drained (dry run)",
            "node/n2 drained (dry run)",
        ]
        assert output.err == "Warning: deleting Pods that declare no controller: shop/web-00, shop/web-01\n"
        assert cluster.evicted_pods() == []
        assert cluster.transport.sent_requests(method="PATCH") == []


async def test_server_dry_run_sums_disruption_budgets_over_all_nodes(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server allows each eviction alone, but only one of them in total."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("a", 1, on="n1")
        cluster.put(a_pod("a-01", on="n2", labels={"app": "a"}))
        cluster.put(a_pdb("a", app="a", minAvailable=1))
        await clock.sleep(timedelta(seconds=5))
        assert await run_dry_run(cluster, "n1", "n2")
        output = capsys.readouterr()
        assert "node/n1 drained (server dry run)" in output.out
        assert (
            "PodDisruptionBudget shop/a allows 1 now, so 1 of 2 pods wait in turn: shop/a-00, shop/a-01" in output.err
        )
        assert cluster.pod_names() == ["a-00", "a-01"]


async def test_pods_that_can_never_be_evicted_are_an_error(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("a", 1, on="n1")
        cluster.put(a_pdb("a", app="a", minAvailable=1))
        await clock.sleep(timedelta(seconds=5))
        assert not await run_dry_run(cluster, "n1", "n2")
        output = capsys.readouterr()
        assert "node/n2 drained (server dry run)" in output.out
        assert "node/n1 drained" not in output.out
        assert "PodDisruptionBudget shop/a never allows a disruption, and 1 pod would need one: shop/a-00" in output.err
        assert (
            'error when evicting pods/"a-00" -n "shop": PodDisruptionBudget shop/a needs 1 healthy pods' in output.err
        )
        assert "There are pending nodes to be drained:\n n1\n" in output.err


async def test_pods_under_several_disruption_budgets_are_named(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("a", 1, on="n1")
        cluster.put(a_pdb("one", app="a", minAvailable=0), a_pdb("two", app="a", minAvailable=0))
        await clock.sleep(timedelta(seconds=5))
        assert not await run_dry_run(cluster, "n1")
        assert (
            "pod shop/a-00 matches 2 PodDisruptionBudgets, so Kubernetes refuses its eviction: shop/one, shop/two"
            in (capsys.readouterr().err)
        )


async def test_pods_that_the_filters_refuse_are_reported_like_kubectl(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        assert not await run_dry_run(cluster, "n1", policy=DrainPolicy(), dry_run="client")
        reason = "cannot delete Pods that declare no controller (use --force to override): shop/web-00"
        assert capsys.readouterr().err.splitlines() == [
            f'error: unable to drain node "n1" due to error: {reason}, continuing command...',
            "There are pending nodes to be drained:",
            " n1",
            reason,
        ]


async def test_json_output_is_one_document(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("a", 1, on="n1")
        cluster.put(a_pdb("a", app="a", minAvailable=1))
        await clock.sleep(timedelta(seconds=5))
        assert not await run_dry_run(cluster, "n1", as_json=True)
        document = json.loads(capsys.readouterr().out)
        assert (document["dryRun"], document["wouldDrain"]) == ("server", False)
        assert document["nodes"][0]["pods"] == ["shop/a-00"]
        assert document["nodes"][0]["blockers"][0]["object"] == "PodDisruptionBudget shop/a"
        assert [it["outcome"] for it in document["podDisruptionBudgets"]] == ["Never"]


async def test_pods_kept_by_drain_rules_are_not_listed_as_evicted(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        for name, label in (("web", {}), ("pinned", {DRAIN: "skip"}), ("batch", {DRAIN: "wait-completed"})):
            cluster.put(a_pod(name, on="n1", labels={"app": name} | label))
        rules = '{"rules":[{"name":"first","behavior":"Drain","order":-1}]}'
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {DRAIN_RULES: rules}}}))
        assert await run_dry_run(cluster, "n1")
        output = capsys.readouterr()
        assert output.out.splitlines() == [
            "node/n1 cordoned (server dry run)",
            "evicting pod shop/web (server dry run)",
            "node/n1 drained (server dry run)",
        ]
        warning, waiting_line = output.err.splitlines()
        assert warning == (
            "Warning: skipping Pods by label cluster.x-k8s.io/drain=skip: shop/pinned; "
            "deleting Pods that declare no controller: shop/web"
        )
        waiting = "waiting for pod shop/batch: label cluster.x-k8s.io/drain=wait-completed waits until the pod"
        assert waiting_line == f"{waiting} has completed"
        broken = merge_patch({"metadata": {"annotations": {DRAIN_RULES: "{"}}})
        await cluster.client.patch(NODES, "n1", broken)
        assert not await run_dry_run(cluster, "n1")
        assert "annotation haulout.dev/machine-drain-rules of the node is invalid" in capsys.readouterr().err
