"""The drain policy: what a drain may do to pods, in which order, and how long each may take.

A policy is a value. By default a drain tries for ever and does nothing that a PodDisruptionBudget forbids. To go
further, a policy must say what is allowed (`force`, `force_delete`) and when (`eviction_timeout`, `deletion_timeout`).

With `eviction_requests` (`evictionRequests: true` in a document) pods are evicted by EvictionRequests if the cluster
serves them (Kubernetes 1.37 and later, behind a feature gate) and a controller acts on them. If not, and for each pod
whose request fails, the Eviction API is used. All timeouts apply to both.

Rules apply to some of the pods, with the meaning of Cluster API's MachineDrainRules: sorted by name, the first match
counts; a pod without a match is drained with order 0; lower orders leave first, and all pods of one order are gone
before the next begins. A rule never evicts a pod that kubectl's filters keep.

Real MachineDrainRules (`haulout.drain.machine_drain_rules`) apply in addition to the policy's rules: a pod leaves only
if both let it. If both keep it, the MachineDrainRule decides how. The order is that of the MachineDrainRule if it sets
one. Timeouts are always those of the policy.

Without `wait_completed_timeout` the drain waits without limit for pods that run to completion (`WaitCompleted`); only
its own `timeout` ends the wait, as Cluster API's nodeDrainTimeout does. With it, these pods are evicted after that
time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from haulout.api.objects import Pod
from haulout.core import duration
from haulout.drain.escalation import EscalationLimits
from haulout.drain.pod_filters import PodFilters
from haulout.kube.selectors import EVERYTHING, Selector

MAX_PARALLEL = 500


_NO_FILTERS = PodFilters()


class Behavior(StrEnum):
    """What happens to the pods of a rule, in the words of Cluster API."""

    DRAIN = "Drain"
    SKIP = "Skip"  # they stay
    WAIT_COMPLETED = "WaitCompleted"  # no eviction, but the drain waits until they have finished


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """Which pods leave first within one order of the rules. DaemonSet pods leave after all orders."""

    by_priority: bool = False  # lowest priority first
    storage_last: bool = False  # pods with a volume that moves with them leave last
    daemon_sets_last: bool = False  # they leave, too, if the node's taints keep them from coming back


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRule:
    """A rule for some of the pods. Fields that are None take the value of the policy."""

    name: str
    pods: Selector = EVERYTHING
    namespaces: tuple[str, ...] = ()  # empty: all
    namespace_selector: Selector | None = None
    behavior: Behavior = Behavior.DRAIN
    order: int | None = None  # None: 0; only with Drain
    grace_period: timedelta | None = None
    eviction_timeout: timedelta | None = None
    deletion_timeout: timedelta | None = None
    wait_completed_timeout: timedelta | None = None  # only with WaitCompleted
    source: str = ""  # origin if not the policy itself: `MachineDrainRule keep-db`
    problem: str = ""  # why the rule is invalid; its pods wait

    def __str__(self) -> str:
        return self.source or f"rule {self.name}"

    @property
    def keeps_pods(self) -> bool:
        """Whether its pods must not be evicted."""
        return bool(self.problem) or self.behavior is not Behavior.DRAIN

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether the rule applies to `pod`, whose namespace has these labels."""
        if self.namespaces and pod.namespace not in self.namespaces:
            return False
        if self.namespace_selector is not None and not self.namespace_selector.matches(namespace_labels):
            return False
        return self.pods.matches(pod.metadata.labels)


DEFAULT_RULE = DrainRule(name="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    """How a node is drained: a frozen value, complete with its defaults. `problems` checks it."""

    filters: PodFilters = _NO_FILTERS
    pod_selector: Selector = EVERYTHING  # other pods stay and are not counted
    grace_period: timedelta | None = None  # instead of each pod's own
    timeout: timedelta | None = None  # of the whole drain
    eviction_timeout: timedelta | None = None  # per pod; then it is deleted regardless of PodDisruptionBudgets
    deletion_timeout: timedelta | None = None  # per pod; then it is force-deleted without further grace
    wait_completed_timeout: timedelta | None = None  # from the start of the drain; then these pods are evicted
    # On a node that is not healthy, the attach/detach controller detaches a volume by force only after 6 minutes
    # (ReconcilerMaxWaitForUnmountDuration in pkg/controller/volume/attachdetach/attach_detach_controller.go).
    volume_detach_timeout: timedelta | None = None  # wait for volumes after all pods have left; None: do not wait
    force_delete: bool = False
    disable_eviction: bool = False
    eviction_requests: bool = False  # use EvictionRequests (KEP-4563) where the cluster supports them
    parallel: int = 20  # requests in flight per node
    order: DrainOrder = DrainOrder()
    rules: tuple[DrainRule, ...] = ()
    # Of the node's Machine, in their order: see `machine_drain_rules.with_machine_drain_rules`.
    machine_drain_rules: tuple[DrainRule, ...] = ()
    _sorted_rules: tuple[DrainRule, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        # Sorted once: every decision looks up the rule of every pod.
        object.__setattr__(self, "_sorted_rules", tuple(sorted(self.rules, key=lambda rule: rule.name)))

    @classmethod
    def like_nmo(cls) -> "DrainPolicy":
        """Return the policy of the Node Maintenance Operator: all pods except DaemonSet pods, without a timeout."""
        return cls(filters=PodFilters(force=True, ignore_daemonsets=True, delete_emptydir_data=True))

    @classmethod
    def like_smc(
        cls, *, eviction_timeout: timedelta | None = None, deletion_timeout: timedelta | None = None
    ) -> "DrainPolicy":
        """Return the policy of the SAP maintenance-controller: all pods except those of any owner of kind DaemonSet.

        With `eviction_timeout` and `deletion_timeout` it deletes after the first and force-deletes after the second.
        """
        return cls(
            filters=PodFilters(force=True, ignore_daemonsets=True, delete_emptydir_data=True, keep_any_daemonset=True),
            eviction_timeout=eviction_timeout,
            deletion_timeout=deletion_timeout,
            force_delete=deletion_timeout is not None,
        )

    @property
    def needs_namespaces(self) -> bool:
        return any(rule.namespace_selector is not None for rule in (*self.rules, *self.machine_drain_rules))

    @property
    def may_delete(self) -> bool:
        with_timeouts: tuple[DrainPolicy | DrainRule, ...] = (self, *self.rules)
        deletes_after_timeout = self.filters.force and any(
            limits.eviction_timeout is not None for limits in with_timeouts
        )
        force_deletes_after_timeout = self.force_delete and any(
            limits.deletion_timeout is not None for limits in with_timeouts
        )
        return self.disable_eviction or deletes_after_timeout or force_deletes_after_timeout

    def rule_for(self, pod: Pod, namespace_labels: Mapping[str, str]) -> DrainRule:
        policy_rule = _first_match(self._sorted_rules, pod, namespace_labels)
        if not self.machine_drain_rules:
            return policy_rule
        machine_rule = _first_match(self.machine_drain_rules, pod, namespace_labels)
        if machine_rule.keeps_pods:
            limit = policy_rule.wait_completed_timeout
            return machine_rule if limit is None else replace(machine_rule, wait_completed_timeout=limit)
        return policy_rule if machine_rule.order is None else replace(policy_rule, order=machine_rule.order)

    def rule_after_completion(self, pod: Pod, namespace_labels: Mapping[str, str]) -> DrainRule:
        """Return the rule that applies to `pod` once the wait for its completion is over.

        A pod that another rule keeps stays: the end of the wait permits no more than the other rules do.
        """
        policy_rule = _first_match(self._sorted_rules, pod, namespace_labels)
        machine_rule = _first_match(self.machine_drain_rules, pod, namespace_labels)
        for rule in (machine_rule, policy_rule):
            if rule.keeps_pods and (rule.problem or rule.behavior is not Behavior.WAIT_COMPLETED):
                return rule
        times = DEFAULT_RULE if policy_rule.keeps_pods else policy_rule
        return times if machine_rule.order is None else replace(times, order=machine_rule.order)

    def wait_completed_limit(self, rule: DrainRule) -> timedelta | None:
        """Return how long the drain waits for pods of a rule to complete; None: without limit."""
        if rule.problem or rule.behavior is not Behavior.WAIT_COMPLETED:
            return None
        return _specific_or_general(rule.wait_completed_timeout, self.wait_completed_timeout)

    def limits_for(self, pod: Pod, rule: DrainRule) -> EscalationLimits:
        """Return which escalation steps the policy allows for `pod`, and after what time."""
        grace_override = _specific_or_general(rule.grace_period, self.grace_period)
        pod_grace = timedelta(seconds=pod.spec.termination_grace_period_seconds)
        # A deletion bypasses PodDisruptionBudgets. `force` is the consent to that, so a timeout alone never deletes.
        may_delete = self.filters.force
        return EscalationLimits(
            grace=pod_grace if grace_override is None else grace_override,
            grace_override=grace_override,
            may_evict=not self.disable_eviction,
            eviction_timeout=_specific_or_general(rule.eviction_timeout, self.eviction_timeout) if may_delete else None,
            deletion_timeout=_specific_or_general(rule.deletion_timeout, self.deletion_timeout)
            if self.force_delete
            else None,
        )

    @property
    def without_completion_limits(self) -> "DrainPolicy":
        """The policy before its drain begins: the time to complete does not start yet."""
        with_timeouts: tuple[DrainPolicy | DrainRule, ...] = (self, *self.rules)
        if all(limits.wait_completed_timeout is None for limits in with_timeouts):
            return self
        rules = tuple(replace(rule, wait_completed_timeout=None) for rule in self.rules)
        return replace(self, wait_completed_timeout=None, rules=rules)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key in the document and the description of each error in the policy."""
        yield from self._escalation_problems("", self.eviction_timeout, self.deletion_timeout, self.grace_period)
        if self.force_delete and not any((self.deletion_timeout, *(rule.deletion_timeout for rule in self.rules))):
            yield "forceDelete", "found true, expected deletionTimeout to be set as well"
        escalation = (self.eviction_timeout or timedelta()) + (self.deletion_timeout or timedelta())
        if self.timeout is not None and self.timeout <= escalation:
            expected = f"more than evictionTimeout and deletionTimeout together, {duration.format(escalation)}"
            yield "timeout", f"found {duration.format(self.timeout)}, expected {expected}"
        yield from self._completion_problems("", self.wait_completed_timeout)
        if self.eviction_requests and self.disable_eviction:
            yield "evictionRequests", "found true with disableEviction, expected one of the two"
        if not 1 <= self.parallel <= MAX_PARALLEL:
            yield "parallel", f"found {self.parallel}, expected a number from 1 to {MAX_PARALLEL}"
        for number, rule in enumerate(self.rules):
            yield from self._rule_problems(f"rules[{number}].", rule)
        names = [rule.name for rule in self.rules]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield f"rules[{number}].name", f"found {name!r} again, expected names that differ"

    def _rule_problems(self, path: str, rule: DrainRule) -> Iterator[tuple[str, str]]:
        if rule.namespaces and rule.namespace_selector is not None:
            yield f"{path}namespaceSelector", "found beside namespaces, expected one of the two"
        yield from self._completion_problems(path, rule.wait_completed_timeout)
        if rule.wait_completed_timeout is not None and rule.behavior is not Behavior.WAIT_COMPLETED:
            found = f"found with behavior {rule.behavior}"
            yield f"{path}waitCompletedTimeout", f"{found}, expected only with {Behavior.WAIT_COMPLETED}"
        if rule.behavior is Behavior.DRAIN:
            yield from self._escalation_problems(path, rule.eviction_timeout, rule.deletion_timeout, rule.grace_period)
            return
        given = {
            "order": rule.order,
            "gracePeriod": rule.grace_period,
            "evictionTimeout": rule.eviction_timeout,
            "deletionTimeout": rule.deletion_timeout,
        }
        for key, value in given.items():
            if value is not None:
                yield f"{path}{key}", f"found with behavior {rule.behavior}, expected only with {Behavior.DRAIN}"

    def _completion_problems(self, path: str, limit: timedelta | None) -> Iterator[tuple[str, str]]:
        if limit is not None and self.timeout is not None and limit >= self.timeout:
            found, expected = duration.format(limit), f"less than timeout, {duration.format(self.timeout)}"
            yield f"{path}waitCompletedTimeout", f"found {found}, expected {expected}"

    def _escalation_problems(
        self, path: str, eviction: timedelta | None, deletion: timedelta | None, grace: timedelta | None
    ) -> Iterator[tuple[str, str]]:
        if eviction is not None and not self.filters.force:
            yield f"{path}evictionTimeout", "found without force, expected force: true, or no evictionTimeout"
        if eviction is not None and self.disable_eviction:
            yield f"{path}evictionTimeout", "found with disableEviction, expected one of the two"
        if deletion is not None and not self.force_delete:
            yield f"{path}deletionTimeout", "found without forceDelete, expected forceDelete: true"
        # Grace period 0 is a force-deletion in all but name: the object is removed at once, before the containers stop.
        if grace == timedelta() and not self.force_delete:
            yield f"{path}gracePeriod", "found 0s, which ends pods without any grace, expected forceDelete: true"


def _first_match(rules: tuple[DrainRule, ...], pod: Pod, namespace_labels: Mapping[str, str]) -> DrainRule:
    return next((rule for rule in rules if rule.matches(pod, namespace_labels)), DEFAULT_RULE)


def _specific_or_general(special: timedelta | None, general: timedelta | None) -> timedelta | None:
    return general if special is None else special
