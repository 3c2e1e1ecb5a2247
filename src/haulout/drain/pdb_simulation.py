"""What PodDisruptionBudgets allow when several pods leave at once, which a dry run does not tell.

The API server answers a dry-run eviction for that pod alone. For two pods under a PodDisruptionBudget that allows one
disruption, both dry runs succeed. A dry run of a drain, of one node or many, must therefore count itself: which pods
each PodDisruptionBudget is charged for, and how many disruptions it allows now.

The rules are those of the eviction subresource (`pkg/registry/core/pod/storage/eviction.go` of Kubernetes): pods that
have finished, have not started or are terminating are not charged, and unready pods may be free, depending on
`unhealthyPodEvictionPolicy`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from haulout.api.objects import Base, Object, Pod, RawObject
from haulout.api.resources import Resource
from haulout.core.text import format_pod_count
from haulout.drain.pod_filters import FINISHED
from haulout.kube import selectors
from haulout.kube.selectors import Selector, SelectorError

# canIgnorePDB of pkg/registry/core/pod/storage/eviction.go: no PodDisruptionBudget protects these, nor a pod that is
# terminating.
_UNCHARGED_PHASES = (*FINISHED, "Pending")


class PodDisruptionBudgetSpec(Base, frozen=True):
    """The spec fields that evictions depend on."""

    selector: RawObject | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Base, frozen=True):
    """The status fields that evictions depend on."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Object, frozen=True):
    """A PodDisruptionBudget, reduced to what an eviction depends on."""

    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, model=PodDisruptionBudget
)


class PdbOutcome(StrEnum):
    """How the pods of a PodDisruptionBudget can leave."""

    AT_ONCE = "AtOnce"
    IN_TURN = "InTurn"  # some wait until others are replaced
    NEVER = "Never"  # it allows no disruption even when all pods are healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class PdbSimulation:
    """How the pods of one PodDisruptionBudget can leave if all of them are evicted now."""

    pdb: str  # namespace/name
    allowed: int
    charged: tuple[str, ...]  # pods that use a disruption, as namespace/name, in drain order
    uncharged: tuple[str, ...]  # pods that leave without using a disruption
    outcome: PdbOutcome

    @property
    def waiting(self) -> tuple[str, ...]:
        """The pods that cannot leave now, although each alone could."""
        return self.charged[self.allowed :]

    def __str__(self) -> str:
        """Return the result as a sentence without a full stop."""
        name = f"PodDisruptionBudget {self.pdb}"
        match self.outcome:
            case PdbOutcome.AT_ONCE:
                return f"{name} lets {format_pod_count(len(self.charged) + len(self.uncharged))} leave at once"
            case PdbOutcome.NEVER:
                return f"{name} never allows a disruption, and {format_pod_count(len(self.charged))} would need one"
        return (
            f"{name} allows {self.allowed} now, so {len(self.waiting)} "
            f"of {format_pod_count(len(self.charged))} wait in turn"
        )


@dataclass(frozen=True, slots=True)
class PdbSimulations:
    """The results for all PodDisruptionBudgets that select any of the pods."""

    pdbs: tuple[PdbSimulation, ...]
    # Pods selected by more than one PodDisruptionBudget: the Eviction API refuses them.
    pods_with_several_pdbs: tuple[tuple[str, tuple[str, ...]], ...]


def simulate_evictions(pods: Sequence[Pod], pdbs: Iterable[PodDisruptionBudget]) -> PdbSimulations:
    """Return what each PodDisruptionBudget allows if these pods leave at once; they may be on any nodes."""
    pdbs_with_selectors = [(listed_pdb, _selector(listed_pdb)) for listed_pdb in pdbs]
    by_pod = {
        pod.uid: [
            pdb for pdb, selector in pdbs_with_selectors if pdb.namespace == pod.namespace and _selects(selector, pod)
        ]
        for pod in pods
        if not _needs_no_pdb(pod)
    }
    pods_with_several_pdbs = tuple(
        (pod.key, tuple(pdb.key for pdb in by_pod[pod.uid])) for pod in pods if _has_several_pdbs(by_pod, pod)
    )
    simulations = [
        _simulate(pdb, [pod for pod in pods if by_pod.get(pod.uid) == [pdb]]) for pdb, _ in pdbs_with_selectors
    ]
    return PdbSimulations(tuple(pdb for pdb in simulations if pdb.charged or pdb.uncharged), pods_with_several_pdbs)


def _simulate(pdb: PodDisruptionBudget, selected: Sequence[Pod]) -> PdbSimulation:
    status = pdb.status
    uncharged = tuple(pod.key for pod in selected if _is_uncharged(pod, pdb))
    charged = tuple(pod.key for pod in selected if not _is_uncharged(pod, pdb))
    allowed = max(status.disruptions_allowed, 0)
    if len(charged) <= allowed:
        outcome = PdbOutcome.AT_ONCE
    else:
        outcome = (
            # disruptionsAllowed is currentHealthy - desiredHealthy (updatePdbStatus in
            # pkg/controller/disruption/disruption.go). With as many pods needed as expected (minAvailable 100 %,
            # maxUnavailable 0), no replacement ever frees a disruption.
            PdbOutcome.NEVER if status.expected_pods <= status.desired_healthy and not allowed else PdbOutcome.IN_TURN
        )
    return PdbSimulation(pdb=pdb.key, allowed=allowed, charged=charged, uncharged=uncharged, outcome=outcome)


def _is_uncharged(pod: Pod, pdb: PodDisruptionBudget) -> bool:
    if pod.is_ready:
        return False
    if pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    # IfHealthyBudget, the default (KEP-3017): an unready pod is free only if the application is not disrupted anyway.
    # The condition is that of EvictionREST.Create in eviction.go.
    return pdb.status.current_healthy >= pdb.status.desired_healthy > 0


def _needs_no_pdb(pod: Pod) -> bool:
    return pod.status.phase in _UNCHARGED_PHASES or pod.is_being_deleted


def _selector(pdb: PodDisruptionBudget) -> Selector | None:
    """Return the selector of a PodDisruptionBudget; None if it has none or an invalid one, and selects no pod."""
    # In policy/v1, a null selector selects no pod, and an empty one all pods of the namespace (PodDisruptionBudgetSpec
    # in staging/src/k8s.io/api/policy/v1/types.go).
    if pdb.spec.selector is None:
        return None
    try:
        return selectors.from_label_selector(pdb.spec.selector)
    # As in getPodDisruptionBudgets of eviction.go: a budget with an invalid selector selects nothing.
    except SelectorError:
        return None


def _selects(selector: Selector | None, pod: Pod) -> bool:
    return selector is not None and selector.matches(pod.metadata.labels)


def _has_several_pdbs(by_pod: dict[str, list[PodDisruptionBudget]], pod: Pod) -> bool:
    return len(by_pod.get(pod.uid, ())) > 1
