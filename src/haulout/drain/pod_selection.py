"""Which pods leave, which stay, and which refuse the drain.

kubectl's filters apply first, then the pod's own label, then the first rule that matches. A pod that a rule keeps never
refuses the drain: nothing happens to it. If an object must be read before a pod can be judged (does its DaemonSet
exist, which labels has its namespace), a lookup request is returned, and only that pod waits.

With `daemon_sets_last`, DaemonSet pods leave after all others, except those that tolerate all taints of the node, since
they would come back at once. The drain does not wait for DaemonSet pods to complete: a rule with `WaitCompleted` keeps
them on the node.

Pods that keep coming back stay as well: a pod was evicted, its replacement came to the node and was evicted, and the
next replacement came. Evicting it again would never end, so it is reported instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from haulout.api.objects import Pod, Taint
from haulout.drain import blockers
from haulout.drain.blockers import Blocker
from haulout.drain.drain_order import OrderKey, order_key_of, pod_group_of
from haulout.drain.escalation import completion_deadline
from haulout.drain.machine_drain_rules import rule_from_pod_label
from haulout.drain.pod_filters import (
    DaemonSetInfo,
    PodDeleteList,
    PodDeleteStatus,
    PodDisposition,
    belongs_to_daemon_set,
    controller_of,
    filter_pod,
    is_finished,
    is_owned_by_any_daemon_set,
    is_past_wait_for_delete,
)
from haulout.drain.policy import DEFAULT_RULE, Behavior, DrainPolicy, DrainRule
from haulout.drain.state import TrackedDrain

# Replacements from this generation on are not evicted any more. The first may have been scheduled before the cordon;
# the second shows that its owner ignores the cordon (a fixed nodeName, or tolerations).
_MAX_REPLACEMENTS = 2
_SECOND = timedelta(seconds=1)


_FIRST_ORDER_KEY = OrderKey(-(2**32))


class LookupRequest(NamedTuple):
    """An object to read, by key; `kind` is `daemonset`, `namespace`, `volume` or `node`."""

    kind: str
    key: str


class PodToEvict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that must leave, now or later."""

    pod: Pod
    rule: DrainRule
    order_key: OrderKey
    blocker: Blocker | None = None  # why it is not evicted now
    until: datetime | None = None  # when that ends at the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelection:
    """The judgement of all pods of a node."""

    delete_list: PodDeleteList  # kubectl's judgement of the pods that no rule keeps
    pods_to_evict: tuple[PodToEvict, ...]
    refused: tuple[tuple[Pod, Blocker], ...]
    staying: frozenset[str]  # UIDs of running pods that the drain does not touch
    returning: tuple[str, ...]
    lookups: tuple[LookupRequest, ...]
    requeue_times: tuple[datetime, ...]  # when a wait for a pod ends
    current_order_key: OrderKey  # the lowest key of the pods to evict


def select_pods(
    pods: Iterable[Pod],
    state: TrackedDrain,
    policy: DrainPolicy,
    *,
    daemon_sets: Mapping[str, DaemonSetInfo],
    namespaces: Mapping[str, Mapping[str, str] | str],
    taints: tuple[Taint, ...] | str | None = None,
    now: datetime,
) -> PodSelection:
    """Return which pods leave.

    `taints` are those of the node, or why they are unknown, or None if not looked up yet.
    """
    selector = _PodSelector(state, policy, daemon_sets, namespaces, taints, now)
    for pod in pods:
        if policy.pod_selector.matches(pod.metadata.labels):
            selector.add(pod)
        else:
            selector.staying.append(pod.uid)
    return selector.selection()


class _PodSelector:
    """Builds a selection, pod by pod, with all that is known at one moment."""

    def __init__(
        self,
        state: TrackedDrain,
        policy: DrainPolicy,
        daemon_sets: Mapping[str, DaemonSetInfo],
        namespaces: Mapping[str, Mapping[str, str] | str],
        taints: tuple[Taint, ...] | str | None,
        now: datetime,
    ) -> None:
        self.state = state
        self.policy = policy
        self.daemon_sets = daemon_sets
        self.namespaces = namespaces
        self.taints = taints
        self.now = now
        self.statuses: list[PodDeleteStatus] = []
        self.pods_to_evict: list[PodToEvict] = []
        self.refused: list[tuple[Pod, Blocker]] = []
        self.staying: list[str] = []
        self.returning: list[str] = []
        self.lookups: list[LookupRequest] = []
        self.requeue_times: list[datetime] = []

    def selection(self) -> PodSelection:
        pods_to_evict = _align_pod_groups(self.pods_to_evict)
        return PodSelection(
            delete_list=PodDeleteList(tuple(self.statuses)),
            pods_to_evict=tuple(pods_to_evict),
            refused=tuple(self.refused),
            staying=frozenset(self.staying),
            returning=tuple(self.returning),
            lookups=tuple(dict.fromkeys(self.lookups)),
            requeue_times=tuple(self.requeue_times),
            current_order_key=min((pod_to_evict.order_key for pod_to_evict in pods_to_evict), default=_FIRST_ORDER_KEY),
        )

    def add(self, pod: Pod) -> None:
        wait_for_delete = self.policy.filters.skip_wait_for_delete
        if is_past_wait_for_delete(pod, wait_for_delete, now=self.now):
            return
        if wait_for_delete and pod.metadata.deletion_timestamp is not None:
            self.requeue_times.append(pod.metadata.deletion_timestamp + wait_for_delete + _SECOND)
        if self._needs_lookup(pod):
            return
        taints = self.taints if self.policy.order.daemon_sets_last else None
        if isinstance(taints, str):
            if leaves_last(pod, self.policy) and not self._daemon_set_info(pod).problem:
                self._add_unknown(pod, taints)
                return
            taints = None
        status = filter_pod(pod, self.policy.filters, daemon_set=self._daemon_set_info, now=self.now, taints=taints)
        if status.disposition is PodDisposition.STAYS:
            self._keep_pod(status)
            return
        label_rule = rule_from_pod_label(pod)
        if label_rule is not None and not self._completion_wait_is_over(label_rule, pod):
            self._apply_rule(label_rule, status)
            return
        labels = self._namespace_labels(pod)
        # Without the labels, the first matching rule is unknown, and a later one may evict what an earlier one
        # protects.
        if isinstance(labels, str):
            self._add_unknown(pod, labels)
            return
        rule = self.policy.rule_for(pod, labels)
        if self._completion_wait_is_over(rule, pod):
            rule = self.policy.rule_after_completion(pod, labels)
        self._apply_rule(rule, status)

    def _apply_rule(self, rule: DrainRule, status: PodDeleteStatus) -> None:
        pod = status.pod
        if rule.problem:
            self._add_pod_to_evict(pod, rule, blockers.invalid_rule_blocker(pod, str(rule), rule.problem))
        # A DaemonSet pod never completes. To wait for it would be to wait for ever.
        elif rule.behavior is Behavior.SKIP or (rule.keeps_pods and leaves_last(pod, self.policy)):
            self._keep_pod(PodDeleteStatus(pod, PodDisposition.STAYS, (f"skipping Pods by {rule}",)))
        elif rule.behavior is Behavior.WAIT_COMPLETED:
            if not is_finished(pod):
                until = self._completion_deadline(rule, pod)
                self._add_pod_to_evict(
                    pod, rule, blockers.completion_blocker(pod, str(rule), object=rule.source, until=until), until=until
                )
        # A failed lookup is temporary: it must not end the drain as a refusal would.
        elif status.disposition is PodDisposition.REFUSED and self._is_daemon_set_unknown(pod):
            self._add_unknown(pod, status.problem)
        elif status.disposition is PodDisposition.REFUSED:
            self.statuses.append(status)
            self.refused.append((pod, blockers.policy_blocker(pod, status.problem)))
        elif self._keeps_coming_back(pod):
            self.staying.append(pod.uid)
            self.returning.append(pod.key)
        else:
            self.statuses.append(status)
            self._add_pod_to_evict(pod, rule)

    def _add_pod_to_evict(
        self, pod: Pod, rule: DrainRule, blocker: Blocker | None = None, *, until: datetime | None = None
    ) -> None:
        order_key = order_key_of(pod, rule, self.policy.order)
        self.pods_to_evict.append(PodToEvict(pod=pod, rule=rule, order_key=order_key, blocker=blocker, until=until))
        if until is not None:
            self.requeue_times.append(until)

    def _completion_deadline(self, rule: DrainRule, pod: Pod) -> datetime | None:
        """Return until when a rule lets a pod run to completion; None: no limit, or no such rule."""
        limit = self.policy.wait_completed_limit(rule)
        if limit is None or leaves_last(pod, self.policy):
            return None
        started, timeout = self.state.started, self.policy.timeout
        deadline = None if timeout is None else started + timeout
        limits = self.policy.limits_for(pod, rule)
        return completion_deadline(limits, limit, started=started, deadline=deadline)

    def _completion_wait_is_over(self, rule: DrainRule, pod: Pod) -> bool:
        """Return whether a pod has used up its time to complete without completing."""
        until = self._completion_deadline(rule, pod)
        return until is not None and until <= self.now and not is_finished(pod)

    def _keep_pod(self, status: PodDeleteStatus) -> None:
        self.statuses.append(status)
        self.staying.append(status.pod.uid)

    def _add_unknown(self, pod: Pod, problem: str) -> None:
        self._add_pod_to_evict(pod, DEFAULT_RULE, blockers.unknown_state_blocker(pod, problem))

    def _keeps_coming_back(self, pod: Pod) -> bool:
        leaving = pod.is_being_deleted
        return not leaving and self.state.tracked_pods[pod.uid].replacement_count >= _MAX_REPLACEMENTS

    # Lookups

    def _needs_lookup(self, pod: Pod) -> bool:
        missing = []
        if self._needs_daemon_set(pod) and _daemon_set_key(pod) not in self.daemon_sets:
            missing.append(LookupRequest("daemonset", _daemon_set_key(pod)))
        if self.taints is None and leaves_last(pod, self.policy):
            missing.append(LookupRequest("node", pod.spec.node_name))
        if self._needs_namespace(pod) and pod.namespace not in self.namespaces:
            missing.append(LookupRequest("namespace", pod.namespace))
        self.lookups += missing
        return bool(missing)

    def _needs_namespace(self, pod: Pod) -> bool:
        if not self.policy.needs_namespaces:
            return False
        label_rule = rule_from_pod_label(pod)
        return label_rule is None or self.policy.wait_completed_limit(label_rule) is not None

    def _needs_daemon_set(self, pod: Pod) -> bool:
        if leaves_last(pod, self.policy):
            return True
        return (
            belongs_to_daemon_set(pod)
            and not is_finished(pod)
            and not is_owned_by_any_daemon_set(pod, self.policy.filters)
        )

    def _daemon_set_info(self, pod: Pod) -> DaemonSetInfo:
        return self.daemon_sets[_daemon_set_key(pod)]

    def _is_daemon_set_unknown(self, pod: Pod) -> bool:
        """Return whether the pod is refused only because the lookup of its DaemonSet failed."""
        if not self._needs_daemon_set(pod):
            return False
        info = self._daemon_set_info(pod)
        return bool(info.problem) and not info.is_missing

    def _namespace_labels(self, pod: Pod) -> Mapping[str, str] | str:
        return self.namespaces.get(pod.namespace, {})


def leaves_last(pod: Pod, policy: DrainPolicy) -> bool:
    """Return whether a pod leaves after all others.

    It does so only if the node's taints keep its DaemonSet from recreating it.
    """
    return policy.order.daemon_sets_last and belongs_to_daemon_set(pod) and not is_finished(pod)


def _align_pod_groups(pods_to_evict: list[PodToEvict]) -> list[PodToEvict]:
    """Give pods of one scheduling group the same order key: the highest of them."""
    last_order_keys: dict[str, OrderKey] = {}
    for pod_to_evict in pods_to_evict:
        if pod_to_evict.blocker is None and (group := pod_group_of(pod_to_evict.pod)):
            last_order_keys[group] = max(last_order_keys.get(group, pod_to_evict.order_key), pod_to_evict.order_key)
    if not last_order_keys:
        return pods_to_evict
    return [
        msgspec.structs.replace(pod_to_evict, order_key=last_order_keys[group])
        if pod_to_evict.blocker is None and (group := pod_group_of(pod_to_evict.pod))
        else pod_to_evict
        for pod_to_evict in pods_to_evict
    ]


def _daemon_set_key(pod: Pod) -> str:
    owner = controller_of(pod)
    return f"{pod.namespace}/{owner.name if owner else ''}"
