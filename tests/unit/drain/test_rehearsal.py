"""Drains that are only tried out."""

from dataclasses import replace

from haulout.core.clock import Clock
from haulout.drain.blockers import Kind
from haulout.drain.budgets import Pass
from haulout.drain.policy import Behavior, Policy, Rule
from haulout.drain.rehearsal import Rehearsal, rehearse
from haulout.drain.requests import Lane
from haulout.kube.resources import NODES
from haulout.kube.selectors import parse
from support.draining import Town, a_budget, a_town, a_workload, is_ready

NMO = Policy.like_nmo()


async def tried(town: Town, *nodes: str, policy: Policy = NMO) -> Rehearsal:
    revision = town.api.revision
    before = len(town.api.history)
    there = [await town.client.get(NODES, name) for name in nodes]
    result = await rehearse(town.client, there, policy, lane=Lane(town.client))
    written = [it for it in town.api.history[before:] if it.who == "drainer"]
    assert written == [], f"nothing changes after {revision}"
    return result


async def test_budgets_are_summed_over_all_nodes(clock: Clock) -> None:
    async with a_town(clock, "n1", "n2", "n3") as town:
        town.put(a_workload("Deployment", "cart", replicas=6))
        town.put(a_budget("cart", app="cart", maxUnavailable=1))
        await town.until(lambda: sum(map(is_ready, town.pods())) == 6)
        await town.until(
            lambda: town.api.get("poddisruptionbudgets", "cart", "shop")["status"]["disruptionsAllowed"] == 1
        )
        result = await tried(town, "n1", "n2")
        assert [len(it.leaving) for it in result.nodes] == [2, 2]
        assert [it.blockers for it in result.nodes] == [(), ()]
        assert [(it.budget, it.way, len(it.later)) for it in result.tallies.budgets] == [("shop/cart", Pass.IN_TURN, 3)]


async def test_what_would_stand_in_the_way_is_told(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await town.run_pods("cart", 1, on="n1")
        await town.run_pods("web", 1, on="n1")
        town.put(a_budget("cart", app="cart", minAvailable=1))
        await town.until(lambda: "status" in town.api.get("poddisruptionbudgets", "cart", "shop"))
        result = await tried(town, "n1")
        assert [it.kind for it in result.nodes[0].blockers] == [Kind.BUDGET]
        assert result.nodes[0].leaving == ("shop/cart-00", "shop/web-00")
        assert result.nodes[0].warning == "deleting Pods that declare no controller: shop/cart-00, shop/web-00"


async def test_what_the_policy_forbids_is_told_and_nobody_is_asked(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await town.run_pods("bare", 1, on="n1")
        result = await tried(town, "n1", policy=Policy())
        assert result.nodes[0].refusals == (
            "cannot delete Pods that declare no controller (use --force to override): shop/bare-00",
        )
        assert town.evictions() == []


async def test_a_pod_that_is_waited_for_is_not_asked(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await town.run_pods("batch", 1, on="n1")
        rule = Rule(name="batch", pods=parse("app=batch"), behavior=Behavior.WAIT_COMPLETED)
        result = await tried(town, "n1", policy=replace(NMO, rules=(rule,)))
        assert [it.kind for it in result.nodes[0].blockers] == [Kind.COMPLETION]
        assert town.evictions() == []


async def test_without_evictions_deletions_are_tried_out(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        result = await tried(town, "n1", policy=replace(NMO, disable_eviction=True))
        assert len(result.nodes[0].leaving) == 2
        assert len(town.line.asked(method="DELETE")) == 2
        assert len(town.names(on="n1")) == 2
