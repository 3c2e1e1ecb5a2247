"""What must hold about pods that are made to leave: policy, and the grace period that they were promised."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from haulout.kinds.clusterapi import DRAIN
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.store import Write
from support.invariants.checking import Invariant, Judge, State, Violation, blame
from support.invariants.reading import (
    Predicate,
    controller_of,
    has_ended,
    instant,
    is_leaving,
    was_evicted,
)

_PODS = frozenset({"pods"})
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in which something may happen."""

    start: datetime
    end: datetime


def is_skipped_by_drains(pod: JsonObject) -> bool:
    """Tell whether no drain takes a pod.

    Those of DaemonSets come back, mirrors are none of the cluster's, and some have a label that says so.
    """
    owner, metadata = controller_of(pod), pod["metadata"]
    if _MIRROR in metadata.get("annotations", {}) or DRAIN in metadata.get("labels", {}):
        return True
    return owner is not None and owner["kind"] == "DaemonSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When and how the operator may make pods leave a node.

    Each predicate takes the pod or the node as it was before: `skips` a pod, `approved` a node, and `deletes` says of a
    pod, at an instant, whether the ladder has come to deleting it rather than evicting it.
    """

    windows: tuple[Window, ...] | None = None  # None: at any time
    skips: Predicate = is_skipped_by_drains
    approved: Predicate = lambda _: True
    deletes: Callable[[JsonObject, datetime], bool] = lambda _pod, _at: False

    def objection(self, pod: JsonObject, node: JsonObject | None, *, evicted: bool, at: datetime) -> str:
        """Return why the pod should not have been made to leave; empty if it may."""
        if self.windows is not None and not any(window.start <= at < window.end for window in self.windows):
            return "outside of every window"
        if self.skips(pod):
            return "though the rules skip it"
        if node is not None and not self.approved(node):
            return "before its node was approved"
        if not evicted and not self.deletes(pod, at):
            return "by deletion, though the ladder says evict"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsLeaveByPolicy(Invariant):
    """The operator evicts and deletes pods only as its policy says."""

    operator: Collection[str]
    policy: Policy

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone."""
        return _PODS

    def begin(self) -> Judge:
        """Return a judge."""
        return _PolicyJudge(self.operator, self.policy)


class _PolicyJudge(Judge):
    def __init__(self, operator: Collection[str], policy: Policy) -> None:
        self._operator = operator
        self._policy = policy

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        pod = write.before
        if write.who not in self._operator or pod is None or not begins_to_leave(write):
            return
        node = state.get("nodes", pod["spec"].get("nodeName", ""))
        evicted = was_evicted(write.after or pod)
        if objection := self._policy.objection(pod, node, evicted=evicted, at=write.at):
            yield blame(write, f"pod {write.key} was made to leave {objection}")


def begins_to_leave(write: Write) -> bool:
    """Tell whether a write is the one with which an object was asked to go."""
    if write.before is None or is_leaving(write.before):
        return False
    return write.after is None or is_leaving(write.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraceHonoured(Invariant):
    """A pod has the grace period that it asked for, in full, unless its kubelet says that it has stopped.

    The operator may ask for less only if `hurries` says so of the pod at that instant: its deadline has passed. Nobody
    but kubelets and those who `may_force` (people) may let a pod that still runs vanish before its time is over.
    """

    operator: Collection[str]
    kubelets: Collection[str] = ("kubelets", "kubelet")
    may_force: Collection[str] = ()
    hurries: Callable[[JsonObject, datetime], bool] = lambda _pod, _at: False

    @property
    def kinds(self) -> frozenset[str]:
        """Pods alone."""
        return _PODS

    def begin(self) -> Judge:
        """Return a judge."""
        return _GraceJudge(self)


class _GraceJudge(Judge):
    def __init__(self, rule: GraceHonoured) -> None:
        self._rule = rule
        self._promised: dict[str, datetime] = {}  # by uid: until when a pod may take to stop

    def see(self, write: Write, state: State) -> Iterator[Violation]:
        pod = write.before
        if pod is None or not (write.after is None or is_leaving(write.after)):
            return
        uid = pod["metadata"].get("uid", write.key)
        if begins_to_leave(write) and write.after is not None:
            meta = write.after["metadata"]
            self._promised[uid] = instant(meta["deletionTimestamp"])
            yield from self._asked_for_less(write, pod, meta.get("deletionGracePeriodSeconds", 0), state)
            return
        promised = self._promised.get(uid, write.at)
        if write.after is None:
            self._promised.pop(uid, None)
        elif instant(write.after["metadata"]["deletionTimestamp"]) >= promised:
            return
        # Timestamps have whole seconds: what remains of a second is no haste.
        if (promised - write.at).total_seconds() >= 1 and not self._may_hurry(write, pod, state):
            verb = "vanished" if write.after is None else "was hurried"
            yield blame(write, f"pod {write.key} {verb} {promised - write.at} before its grace period was over")

    def _asked_for_less(self, write: Write, pod: JsonObject, grace: int, state: State) -> Iterator[Violation]:
        wanted = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if write.who not in self._rule.operator or grace >= wanted or self._may_hurry(write, pod, state):
            return
        yield blame(write, f"pod {write.key} was given {grace} s to stop, and it asks for {wanted} s")

    def _may_hurry(self, write: Write, pod: JsonObject, state: State) -> bool:
        rule, node = self._rule, pod["spec"].get("nodeName", "")
        if write.who in rule.kubelets or write.who in rule.may_force or rule.hurries(pod, write.at):
            return True
        return not node or state.get("nodes", node) is None or has_ended(pod)
