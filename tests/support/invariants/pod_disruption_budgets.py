"""The invariant about PodDisruptionBudgets: no eviction removes a healthy pod that its budget needs.

The required number is computed here from the objects, not read from the budget's status, which is under test. The
disruption controller needs some time to notice that a pod became unhealthy by itself; for that time (`lag`) such a pod
counts as healthy here, because no eviction could have known better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.selectors import from_label_selector
from haulout_sandbox.apiserver.storage.store import Write
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of
from support.invariants.object_fields import controller_of, is_healthy, was_evicted
from support.invariants.pods import starts_termination

_PLURALS = {"ReplicaSet": "replicasets", "Deployment": "deployments", "StatefulSet": "statefulsets"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDisruptionBudgetsRespected(Invariant):
    """No eviction leaves fewer healthy pods than a PodDisruptionBudget requires."""

    needs_writer: ClassVar[bool] = False
    lag: timedelta = timedelta(seconds=2)

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone; what else matters is in the state."""
        return frozenset({"pods"})

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _PodDisruptionBudgetChecker(self.lag)


class _PodDisruptionBudgetChecker(Checker):
    def __init__(self, lag: timedelta) -> None:
        self._lag = lag
        self._became_unhealthy: dict[str, Write] = {}  # what last made a pod unhealthy, if that was no eviction

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        before = write.before
        if write.after is not None and is_healthy(write.after):
            self._became_unhealthy.pop(write.key, None)
        elif before is None or not is_healthy(before):
            return
        elif not (starts_termination(write) and was_evicted(write.after or before)):
            self._became_unhealthy[write.key] = write
        else:
            for budget in _budgets_of(before, state):
                yield from self._check_budget(write, budget, state)

    def _check_budget(self, write: Write, budget: JsonObject, state: State) -> Iterator[Violation]:
        pods = [pod for pod in state.by_key("pods").values() if _covers(budget, pod)]
        healthy, needed = sum(map(is_healthy, pods)), _needed(budget, pods, state)
        if healthy + self._not_yet_counted(budget, write.written_at) < needed:
            name = f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
            yield violation_of(
                write, f"pod {write.key} was evicted: {healthy} healthy are left, and {name} needs {needed}"
            )

    def _not_yet_counted(self, budget: JsonObject, now: datetime) -> int:
        self._became_unhealthy = {
            key: write for key, write in self._became_unhealthy.items() if now - write.written_at <= self._lag
        }
        return sum(
            _covers(budget, write.before) for write in self._became_unhealthy.values() if write.before is not None
        )


def _covers(budget: JsonObject, pod: JsonObject) -> bool:
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return from_label_selector(budget["spec"].get("selector"))(pod["metadata"].get("labels", {}))


def _budgets_of(pod: JsonObject, state: State) -> list[JsonObject]:
    return [budget for budget in state.by_key("poddisruptionbudgets").values() if _covers(budget, pod)]


def _needed(budget: JsonObject, pods: Sequence[JsonObject], state: State) -> int:
    spec = budget["spec"]
    if (max_unavailable := spec.get("maxUnavailable")) is not None:
        expected = _expected(pods, state)
        return max(expected - _share(max_unavailable, expected), 0)
    min_available = spec.get("minAvailable", 0)
    return min_available if isinstance(min_available, int) else _share(min_available, _expected(pods, state))


def _share(amount: int | str, total: int) -> int:
    if isinstance(amount, int):
        return amount
    return -(-int(amount.removesuffix("%")) * total // 100)  # rounded up


def _expected(pods: Sequence[JsonObject], state: State) -> int:
    """Return how many pods the owners of these want."""
    wanted: dict[str, int] = {}
    for pod in pods:
        owner = _workload(pod, state)
        if owner is not None:
            wanted[owner["metadata"]["uid"]] = owner["spec"].get("replicas", 1)
    return sum(wanted.values())


def _workload(obj: JsonObject, state: State) -> JsonObject | None:
    """Return the workload that an object belongs to in the end."""
    found, reference = None, controller_of(obj)
    while reference is not None and reference["kind"] in _PLURALS:
        key = f"{obj['metadata']['namespace']}/{reference['name']}"
        parent = state.get(_PLURALS[reference["kind"]], key)
        if parent is None or parent["metadata"]["uid"] != reference["uid"]:
            break
        found, reference = parent, controller_of(parent)
    return found
