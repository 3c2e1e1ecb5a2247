"""Drains that are only tried out."""

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


async def dry_run_nodes(town: DrainCluster, *nodes: str, policy: DrainPolicy = NMO) -> DrainDryRun:
    revision = town.api.revision
    before = len(town.api.history)
    there = [await town.client.get(NODES, name) for name in nodes]
    result = await dry_run_drain(town.client, there, policy, eviction_client=EvictionClient(town.client))
    written = [it for it in town.api.history[before:] if it.username == "drainer"]
    assert written == [], f"nothing changes after {revision}"
    return result


async def test_budgets_are_summed_over_all_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        town.put(a_workload("Deployment", "cart", replicas=6))
        town.put(a_pdb("cart", app="cart", maxUnavailable=1))
        await town.wait_until(lambda: sum(map(is_ready, town.pods())) == 6)
        await town.wait_until(
            lambda: town.api.get("poddisruptionbudgets", "cart", "shop")["status"]["disruptionsAllowed"] == 1
        )
        result = await dry_run_nodes(town, "n1", "n2")
        assert [len(it.leaving) for it in result.nodes] == [2, 2]
        assert [it.blockers for it in result.nodes] == [(), ()]
        assert [(it.pdb, it.outcome, len(it.waiting)) for it in result.pdbs.pdbs] == [
            ("shop/cart", PdbOutcome.IN_TURN, 3)
        ]


async def test_what_would_stand_in_the_way_is_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        await town.run_pods("web", 1, on="n1")
        town.put(a_pdb("cart", app="cart", minAvailable=1))
        await town.wait_until(lambda: "status" in town.api.get("poddisruptionbudgets", "cart", "shop"))
        result = await dry_run_nodes(town, "n1")
        assert [it.kind for it in result.nodes[0].blockers] == [BlockerKind.DISRUPTION_BUDGET]
        assert result.nodes[0].leaving == ("shop/cart-00", "shop/web-00")
        assert result.nodes[0].warning == "deleting Pods that declare no controller: shop/cart-00, shop/web-00"


async def test_what_the_policy_forbids_is_told_and_nobody_is_asked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("bare", 1, on="n1")
        result = await dry_run_nodes(town, "n1", policy=DrainPolicy())
        assert result.nodes[0].refusals == (
            "cannot delete Pods that declare no controller (use --force to override): shop/bare-00",
        )
        assert town.evicted_pods() == []


async def test_a_pod_that_is_waited_for_is_not_asked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("batch", 1, on="n1")
        rule = DrainRule(name="batch", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED)
        result = await dry_run_nodes(town, "n1", policy=replace(NMO, rules=(rule,)))
        assert [it.kind for it in result.nodes[0].blockers] == [BlockerKind.COMPLETION]
        assert town.evicted_pods() == []


async def test_without_evictions_deletions_are_tried_out(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        result = await dry_run_nodes(town, "n1", policy=replace(NMO, disable_eviction=True))
        assert len(result.nodes[0].leaving) == 2
        assert len(town.transport.sent_requests(method="DELETE")) == 2
        assert len(town.pod_names(on="n1")) == 2
