"""Invariants about evicted pods: the drain policy, and the grace period."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from haulout.api.clusterapi import DRAIN
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of
from support.invariants.object_fields import (
    Predicate,
    controller_of,
    has_ended,
    is_terminating,
    parse_instant,
    was_evicted,
)

_PODS = frozenset({"pods"})
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A stretch of time in which something may happen."""

    start: datetime
    end: datetime


def is_skipped_by_drains(pod: JsonObject) -> bool:
    """Tell whether no drain takes a pod.

    Pods of DaemonSets would be recreated, mirror pods belong to their kubelet, and a label excludes some pods.
    """
    owner, metadata = controller_of(pod), pod["metadata"]
    if _MIRROR in metadata.get("annotations", {}) or DRAIN in metadata.get("labels", {}):
        return True
    return owner is not None and owner["kind"] == "DaemonSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRules:
    """When and how the operator may make pods leave a node.

    Each predicate takes the pod or the node as it was before: `is_skipped` a pod, `is_approved` a node, and
    `may_delete` says of a pod, at an instant, whether the escalation allows deleting it instead of evicting it.
    """

    windows: tuple[TimeWindow, ...] | None = None  # None: at any time
    is_skipped: Predicate = is_skipped_by_drains
    is_approved: Predicate = lambda _: True
    may_delete: Callable[[JsonObject, datetime], bool] = lambda _pod, _at: False

    def objection(self, pod: JsonObject, node: JsonObject | None, *, evicted: bool, at: datetime) -> str:
        """Return why the pod must not be evicted; empty if it may."""
        if self.windows is not None and not any(window.start <= at < window.end for window in self.windows):
            return "outside of every window"
        if self.is_skipped(pod):
            return "though the rules skip it"
        if node is not None and not self.is_approved(node):
            return "before its node was approved"
        if not evicted and not self.may_delete(pod, at):
            return "by deletion, though the ladder says evict"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsLeaveByPolicy(Invariant):
    """The operator evicts and deletes pods only as its policy says."""

    operator: Collection[str]
    policy: DrainRules

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone."""
        return _PODS

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _PolicyChecker(self.operator, self.policy)


class _PolicyChecker(Checker):
    def __init__(self, operator: Collection[str], policy: DrainRules) -> None:
        self._operator = operator
        self._policy = policy

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        pod = write.before
        if write.username not in self._operator or pod is None or not starts_termination(write):
            return
        node = state.get("nodes", pod["spec"].get("nodeName", ""))
        evicted = was_evicted(write.after or pod)
        if objection := self._policy.objection(pod, node, evicted=evicted, at=write.written_at):
            yield violation_of(write, f"pod {write.key} was made to leave {objection}")


def starts_termination(write: Write) -> bool:
    """Return whether a write starts the termination of an object."""
    if write.before is None or is_terminating(write.before):
        return False
    return write.after is None or is_terminating(write.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class GracePeriodRespected(Invariant):
    """A pod has the grace period that it asked for, in full, unless its kubelet says that it has stopped.

    The operator may ask for less only if `may_shorten_grace` says so of the pod at that instant: its deadline has
    passed. Nobody but kubelets and those who `may_force` (people) may let a pod that still runs vanish before its time
    is over.
    """

    operator: Collection[str]
    kubelets: Collection[str] = ("kubelets", "kubelet")
    may_force: Collection[str] = ()
    may_shorten_grace: Callable[[JsonObject, datetime], bool] = lambda _pod, _at: False

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone."""
        return _PODS

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _GraceChecker(self)


class _GraceChecker(Checker):
    def __init__(self, rule: GracePeriodRespected) -> None:
        self._rule = rule
        self._termination_deadlines: dict[str, datetime] = {}  # by uid: until when a pod may take to stop

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        pod = write.before
        if pod is None or not (write.after is None or is_terminating(write.after)):
            return
        uid = pod["metadata"].get("uid", write.key)
        if starts_termination(write) and write.after is not None:
            meta = write.after["metadata"]
            self._termination_deadlines[uid] = parse_instant(meta["deletionTimestamp"])
            yield from self._check_requested_grace(write, pod, meta.get("deletionGracePeriodSeconds", 0), state)
            return
        deadline = self._termination_deadlines.get(uid, write.written_at)
        if write.after is None:
            self._termination_deadlines.pop(uid, None)
        elif parse_instant(write.after["metadata"]["deletionTimestamp"]) >= deadline:
            return
        # Timestamps have whole seconds: a fraction of a second is tolerated.
        if (deadline - write.written_at).total_seconds() >= 1 and not self._may_shorten_grace(write, pod, state):
            verb = "vanished" if write.after is None else "was hurried"
            yield violation_of(
                write, f"pod {write.key} {verb} {deadline - write.written_at} before its grace period was over"
            )

    def _check_requested_grace(self, write: Write, pod: JsonObject, grace: int, state: State) -> Iterator[Violation]:
        wanted = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if write.username not in self._rule.operator or grace >= wanted or self._may_shorten_grace(write, pod, state):
            return
        yield violation_of(write, f"pod {write.key} was given {grace} s to stop, and it asks for {wanted} s")

    def _may_shorten_grace(self, write: Write, pod: JsonObject, state: State) -> bool:
        rule, node = self._rule, pod["spec"].get("nodeName", "")
        if (
            write.username in rule.kubelets
            or write.username in rule.may_force
            or rule.may_shorten_grace(pod, write.written_at)
        ):
            return True
        return not node or state.get("nodes", node) is None or has_ended(pod)
