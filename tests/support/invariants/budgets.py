"""PodDisruptionBudgets hold: no eviction takes a healthy pod that its budget needs.

What a budget needs is reckoned here from the objects themselves, not taken from its status, which is what is judged. A
budget's controller needs some time to learn that a pod fell ill by itself; for so long (`lag`) such a pod counts as
healthy here, because no eviction could have known better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.selectors import structured
from haulout_sandbox.apiserver.store import Write
from support.invariants.checking import Invariant, Judge, State, Violation, blame
from support.invariants.pods import begins_to_leave
from support.invariants.reading import controller_of, is_healthy, was_evicted

_PLURALS = {"ReplicaSet": "replicasets", "Deployment": "deployments", "StatefulSet": "statefulsets"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBudgetsKept(Invariant):
    """No eviction, by whomever, leaves fewer healthy pods than a PodDisruptionBudget wants."""

    asks_who: ClassVar[bool] = False
    lag: timedelta = timedelta(seconds=2)

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone; what else matters is in the state."""
        return frozenset({"pods"})

    def begin(self) -> Judge:
        """Return a judge."""
        return _PodBudgetJudge(self.lag)


class _PodBudgetJudge(Judge):
    def __init__(self, lag: timedelta) -> None:
        self._lag = lag
        self._fell_ill: dict[str, Write] = {}  # what last made a pod unhealthy, if that was no eviction

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        before = write.before
        if write.after is not None and is_healthy(write.after):
            self._fell_ill.pop(write.key, None)
        elif before is None or not is_healthy(before):
            return
        elif not (begins_to_leave(write) and was_evicted(write.after or before)):
            self._fell_ill[write.key] = write
        else:
            for budget in _budgets_of(before, state):
                yield from self._judge(write, budget, state)

    def _judge(self, write: Write, budget: JsonObject, state: State) -> Iterator[Violation]:
        pods = [pod for pod in state.all("pods").values() if _covers(budget, pod)]
        healthy, needed = sum(map(is_healthy, pods)), _needed(budget, pods, state)
        if healthy + self._unnoticed(budget, write.at) < needed:
            name = f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"
            yield blame(write, f"pod {write.key} was evicted: {healthy} healthy are left, and {name} needs {needed}")

    def _unnoticed(self, budget: JsonObject, now: datetime) -> int:
        self._fell_ill = {key: it for key, it in self._fell_ill.items() if now - it.at <= self._lag}
        return sum(_covers(budget, it.before) for it in self._fell_ill.values() if it.before is not None)


def _covers(budget: JsonObject, pod: JsonObject) -> bool:
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return structured(budget["spec"].get("selector"))(pod["metadata"].get("labels", {}))


def _budgets_of(pod: JsonObject, state: State) -> list[JsonObject]:
    return [budget for budget in state.all("poddisruptionbudgets").values() if _covers(budget, pod)]


def _needed(budget: JsonObject, pods: Sequence[JsonObject], state: State) -> int:
    spec = budget["spec"]
    if (most := spec.get("maxUnavailable")) is not None:
        expected = _expected(pods, state)
        return max(expected - _share(most, expected), 0)
    least = spec.get("minAvailable", 0)
    return least if isinstance(least, int) else _share(least, _expected(pods, state))


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
        above = state.get(_PLURALS[reference["kind"]], key)
        if above is None or above["metadata"]["uid"] != reference["uid"]:
            break
        found, reference = above, controller_of(above)
    return found
