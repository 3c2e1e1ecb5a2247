"""What disruption budgets allow when several pods are to leave at once."""

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


def only(*pods: Pod, budget: PodDisruptionBudget) -> PdbSimulation:
    tallies = simulate_evictions(pods, [budget]).pdbs
    assert len(tallies) == 1
    return tallies[0]


def test_pods_on_several_nodes_add_up() -> None:
    """Asked for each of them alone, the server says yes three times."""
    result = only(*CARTS, budget=a_budget(allowed=1))
    assert (result.allowed, result.outcome) == (1, PdbOutcome.IN_TURN)
    assert result.waiting == ("shop/cart-1", "shop/cart-2")
    assert str(result) == "PodDisruptionBudget shop/cart allows 1 now, so 2 of 3 pods wait in turn"


def test_what_fits_leaves_at_once() -> None:
    result = only(*CARTS, budget=a_budget(allowed=3))
    assert (result.outcome, result.waiting) == (PdbOutcome.AT_ONCE, ())
    assert str(result) == "PodDisruptionBudget shop/cart lets 3 pods leave at once"


def test_a_budget_that_never_allows_anything_is_told() -> None:
    result = only(CARTS[0], budget=a_budget(allowed=0, desiredHealthy=5))
    assert result.outcome is PdbOutcome.NEVER
    assert str(result) == "PodDisruptionBudget shop/cart never allows a disruption, and 1 pod would need one"


def test_a_budget_that_only_waits_for_a_pod_to_be_ready_will_open() -> None:
    assert only(CARTS[0], budget=a_budget(allowed=0, currentHealthy=4)).outcome is PdbOutcome.IN_TURN


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("done", phase="Succeeded"),
        a_pod("new", phase="Pending"),
        a_pod("going", deletionTimestamp="2026-01-05T09:00:00Z"),
        a_pod("web", app="web"),
    ],
)
def test_no_budget_has_a_say_in_these(pod: Pod) -> None:
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
def test_pods_that_are_not_ready_may_be_free(budget: PodDisruptionBudget, *, free: bool) -> None:
    result = only(a_pod("sick", ready=False), budget=budget)
    assert bool(result.uncharged) is free
    assert bool(result.charged) is not free


def test_a_pod_under_two_budgets_is_named_with_both_and_charged_to_none() -> None:
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
def test_a_budget_of_others_or_of_nobody_does_not_count(budget: PodDisruptionBudget) -> None:
    assert simulate_evictions(CARTS, [budget]).pdbs == ()
