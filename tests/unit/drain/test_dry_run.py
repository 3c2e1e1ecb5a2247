"""Dry runs of drains."""

from dataclasses import replace

from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.drain.blockers import BlockerKind
from haulout.drain.dry_run import DrainDryRun, dry_run_drain
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.pdb_simulation import PdbOutcome
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.kube.selectors import parse
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster, a_pdb, a_workload, is_ready

NMO = DrainPolicy.like_nmo()


async def dry_run_nodes(cluster: DrainCluster, *nodes: str, policy: DrainPolicy = NMO) -> DrainDryRun:
    revision = cluster.api.revision
    before = len(cluster.api.history)
    found = [await cluster.client.get(NODES, name) for name in nodes]
    result = await dry_run_drain(cluster.client, found, policy, eviction_client=EvictionClient(cluster.client))
    written = [it for it in cluster.api.history[before:] if it.username == "drainer"]
    assert written == [], f"nothing changes after {revision}"
    return result


async def test_dry_run_sums_up_pdbs_over_all_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        cluster.put(a_workload("Deployment", "cart", replicas=6))
        cluster.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await cluster.wait_until(lambda: sum(map(is_ready, cluster.pods())) == 6)
        await cluster.wait_until(
            lambda: cluster.api.get("poddisruptionbudgets", "cart", "shop")["status"]["disruptionsAllowed"] == 1
        )
        result = await dry_run_nodes(cluster, "n1", "n2")
        assert [len(it.leaving) for it in result.nodes] == [2, 2]
        assert [it.blockers for it in result.nodes] == [(), ()]
        assert [(it.pdb, it.outcome, len(it.waiting)) for it in result.pdbs.pdbs] == [
            ("shop/cart", PdbOutcome.IN_TURN, 3)
        ]


async def test_dry_run_reports_what_would_block_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("cart", 1, on="n1")
        await cluster.run_pods("web", 1, on="n1")
        cluster.put(a_pdb("cart", app="cart", minAvailable=1))
        await cluster.wait_until(lambda: "status" in cluster.api.get("poddisruptionbudgets", "cart", "shop"))
        result = await dry_run_nodes(cluster, "n1")
        assert [it.kind for it in result.nodes[0].blockers] == [BlockerKind.DISRUPTION_BUDGET]
        assert result.nodes[0].leaving == ("shop/cart-00", "shop/web-00")
        assert result.nodes[0].warning == "deleting Pods that declare no controller: shop/cart-00, shop/web-00"


async def test_dry_run_reports_refusals_of_the_policy_without_evictions(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("bare", 1, on="n1")
        result = await dry_run_nodes(cluster, "n1", policy=DrainPolicy())
        assert result.nodes[0].refusals == (
            "cannot delete Pods that declare no controller (use --force to override): shop/bare-00",
        )
        assert cluster.evicted_pods() == []


async def test_dry_run_does_not_evict_pods_that_are_to_complete(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("batch", 1, on="n1")
        rule = DrainRule(name="batch", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED)
        result = await dry_run_nodes(cluster, "n1", policy=replace(NMO, rules=(rule,)))
        assert [it.kind for it in result.nodes[0].blockers] == [BlockerKind.COMPLETION]
        assert cluster.evicted_pods() == []


async def test_dry_run_deletes_with_dry_run_when_eviction_is_disabled(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        result = await dry_run_nodes(cluster, "n1", policy=replace(NMO, disable_eviction=True))
        assert len(result.nodes[0].leaving) == 2
        assert len(cluster.transport.sent_requests(method="DELETE")) == 2
        assert len(cluster.pod_names(on="n1")) == 2
