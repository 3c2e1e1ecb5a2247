"""Simulated evictions of several pods against PodDisruptionBudgets."""

from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod
from haulout.drain.pdb_simulation import PdbOutcome, PdbSimulation, PodDisruptionBudget, simulate_evictions

READY = [{"type": "Ready", "status": "True"}]


def a_pod(name: str, *, app: str = "cart", ready: bool = True, phase: str = "Running", **meta: Any) -> Pod:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"app": app}} | meta
    status = {"phase": phase, "conditions": READY if ready else []}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}, Pod)


def a_budget(name: str = "cart", *, app: str = "cart", allowed: int = 1, **more: Any) -> PodDisruptionBudget:
    state = {"disruptionsAllowed": allowed, "currentHealthy": 5, "desiredHealthy": 4, "expectedPods": 5}
    spec = {"selector": {"matchLabels": {"app": app}}, "unhealthyPodEvictionPolicy": more.pop("unhealthy", None)}
    meta = {"name": name, "namespace": more.pop("namespace", "shop")}
    return msgspec.convert(
        {"metadata": meta, "spec": spec | more.pop("spec", {}), "status": state | more}, PodDisruptionBudget
    )


CARTS = [a_pod(f"cart-{number}") for number in range(3)]


def simulate_one_pdb(*pods: Pod, budget: PodDisruptionBudget) -> PdbSimulation:
    simulations = simulate_evictions(pods, [budget]).pdbs
    assert len(simulations) == 1
    return simulations[0]


def test_pods_on_several_nodes_are_summed_up_for_one_pdb() -> None:
    """Single dry runs would succeed three times."""
    result = simulate_one_pdb(*CARTS, budget=a_budget(allowed=1))
    assert (result.allowed, result.outcome) == (1, PdbOutcome.IN_TURN)
    assert result.waiting == ("shop/cart-1", "shop/cart-2")
    assert str(result) == "PodDisruptionBudget shop/cart allows 1 now, so 2 of 3 pods wait in turn"


def test_pods_within_the_allowed_disruptions_leave_at_once() -> None:
    result = simulate_one_pdb(*CARTS, budget=a_budget(allowed=3))
    assert (result.outcome, result.waiting) == (PdbOutcome.AT_ONCE, ())
    assert str(result) == "PodDisruptionBudget shop/cart lets 3 pods leave at once"


def test_pdb_that_never_allows_a_disruption_is_reported() -> None:
    result = simulate_one_pdb(CARTS[0], budget=a_budget(allowed=0, desiredHealthy=5))
    assert result.outcome is PdbOutcome.NEVER
    assert str(result) == "PodDisruptionBudget shop/cart never allows a disruption, and 1 pod would need one"


def test_pdb_that_waits_for_a_ready_pod_allows_disruptions_in_turn() -> None:
    assert simulate_one_pdb(CARTS[0], budget=a_budget(allowed=0, currentHealthy=4)).outcome is PdbOutcome.IN_TURN


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("done", phase="Succeeded"),
        a_pod("new", phase="Pending"),
        a_pod("going", deletionTimestamp="2026-01-05T09:00:00Z"),
        a_pod("web", app="web"),
    ],
)
def test_pdb_does_not_apply_to_pods_that_are_finished_pending_or_terminating(pod: Pod) -> None:
    assert simulate_evictions([pod], [a_budget(allowed=0)]).pdbs == ()


@pytest.mark.parametrize(
    ("budget", "free"),
    [
        (a_budget(), True),
        (a_budget(currentHealthy=3), False),
        (a_budget(currentHealthy=3, unhealthy="IfHealthyBudget"), False),
        (a_budget(currentHealthy=3, unhealthy="AlwaysAllow"), True),
        (a_budget(desiredHealthy=0), False),
    ],
)
def test_unready_pods_are_charged_by_unhealthy_pod_eviction_policy(budget: PodDisruptionBudget, *, free: bool) -> None:
    result = simulate_one_pdb(a_pod("sick", ready=False), budget=budget)
    assert bool(result.uncharged) is free
    assert bool(result.charged) is not free


def test_pod_with_several_pdbs_is_reported_with_all_and_charged_to_none() -> None:
    result = simulate_evictions(CARTS[:1], [a_budget("one"), a_budget("two")])
    assert result.pods_with_several_pdbs == (("shop/cart-0", ("shop/one", "shop/two")),)
    assert result.pdbs == ()


@pytest.mark.parametrize(
    "budget",
    [
        a_budget(namespace="other"),
        a_budget(spec={"selector": None}),
        a_budget(spec={"selector": {"matchExpressions": "odd"}}),
    ],
)
def test_pdb_of_another_namespace_or_without_selector_does_not_count(budget: PodDisruptionBudget) -> None:
    assert simulate_evictions(CARTS, [budget]).pdbs == ()
