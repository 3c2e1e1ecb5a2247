"""What disruption budgets allow when several pods are to leave at once: the sums that the server does not make.

A server that is asked whether a pod may be evicted (dry run) answers for that pod alone. Asked for two pods under a
budget that allows one disruption it says yes twice. So whoever plans a drain, of one node or of many, must count by
himself: which pods a budget would be charged for, and how many disruptions it allows now.

The rules are those of the eviction subresource (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes): pods that
have finished, have not started or are leaving already are not charged for, and pods that are not ready may be free,
depending on the budget's `unhealthyPodEvictionPolicy`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from haulout.drain.selection import FINISHED
from haulout.drain.words import pods
from haulout.kube import selectors
from haulout.kube.objects import Base, Object, Pod, RawObject
from haulout.kube.resources import Resource
from haulout.kube.selectors import Selector, SelectorError

_FREE_PHASES = (*FINISHED, "Pending")


class BudgetSpec(Base, frozen=True):
    """Which pods a budget is about."""

    selector: RawObject | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Base, frozen=True):
    """What a budget allows now."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class Budget(Object, frozen=True):
    """A disruption budget."""

    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)


BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, model=Budget)


class Pass(StrEnum):
    """How pods get past their budget."""

    AT_ONCE = "AtOnce"
    IN_TURN = "InTurn"  # some wait until others have been replaced
    NEVER = "Never"  # it allows no disruption even when all is well


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one budget is asked for, and what it allows."""

    budget: str  # namespace/name
    allowed: int
    charged: tuple[str, ...]  # pods that it is charged for, as namespace/name, in the order in which they would leave
    free: tuple[str, ...]  # pods that it lets go for nothing
    way: Pass

    @property
    def later(self) -> tuple[str, ...]:
        """The pods that cannot leave now, even though each of them alone could."""
        return self.charged[self.allowed :]

    def __str__(self) -> str:
        """Return it in a sentence without an end mark."""
        name = f"PodDisruptionBudget {self.budget}"
        match self.way:
            case Pass.AT_ONCE:
                return f"{name} lets {pods(len(self.charged) + len(self.free))} leave at once"
            case Pass.NEVER:
                return f"{name} never allows a disruption, and {pods(len(self.charged))} would need one"
        return f"{name} allows {self.allowed} now, so {len(self.later)} of {pods(len(self.charged))} wait in turn"


@dataclass(frozen=True, slots=True)
class Tallies:
    """What all budgets are asked for."""

    budgets: tuple[Tally, ...]
    several: tuple[tuple[str, tuple[str, ...]], ...]  # pods under more than one budget, which nobody can evict


def tally(leaving: Sequence[Pod], budgets: Iterable[Budget]) -> Tallies:
    """Return what budgets are asked for if these pods, of whichever nodes, leave."""
    selecting = [(budget, _selector(budget)) for budget in budgets]
    by_pod = {
        pod.uid: [it for it, selector in selecting if it.namespace == pod.namespace and _selects(selector, pod)]
        for pod in leaving
        if not _needs_no_budget(pod)
    }
    several = tuple((pod.key, tuple(it.key for it in by_pod[pod.uid])) for pod in leaving if _many(by_pod, pod))
    tallies = [_tally(it, [pod for pod in leaving if by_pod.get(pod.uid) == [it]]) for it, _ in selecting]
    return Tallies(tuple(it for it in tallies if it.charged or it.free), several)


def _tally(budget: Budget, selected: Sequence[Pod]) -> Tally:
    state = budget.status
    free = tuple(pod.key for pod in selected if _is_free(pod, budget))
    charged = tuple(pod.key for pod in selected if not _is_free(pod, budget))
    allowed = max(state.disruptions_allowed, 0)
    if len(charged) <= allowed:
        way = Pass.AT_ONCE
    else:
        way = Pass.NEVER if state.expected_pods <= state.desired_healthy and not allowed else Pass.IN_TURN
    return Tally(budget=budget.key, allowed=allowed, charged=charged, free=free, way=way)


def _is_free(pod: Pod, budget: Budget) -> bool:
    if any(it.type == "Ready" and it.status == "True" for it in pod.status.conditions):
        return False
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


def _needs_no_budget(pod: Pod) -> bool:
    return pod.status.phase in _FREE_PHASES or pod.metadata.deletion_timestamp is not None


def _selector(budget: Budget) -> Selector | None:
    """Return whom a budget is about; None is nobody, as for a budget that has no selector."""
    if budget.spec.selector is None:
        return None
    try:
        return selectors.from_object(budget.spec.selector)
    except SelectorError:
        return None


def _selects(selector: Selector | None, pod: Pod) -> bool:
    return selector is not None and selector.matches(pod.metadata.labels)


def _many(by_pod: dict[str, list[Budget]], pod: Pod) -> bool:
    return len(by_pod.get(pod.uid, ())) > 1
