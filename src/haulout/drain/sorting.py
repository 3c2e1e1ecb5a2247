"""Who leaves, who stays, who forbids the drain: all pods of a node, judged and put into their waves.

kubectl's filters judge first, then the pod's own label, then the first rule that matches. A pod that is to be kept by a
rule is never a reason to refuse the drain: nothing happens to it. Where the server must be asked before a pod can be
judged (is its DaemonSet still there, which labels has its namespace), the question is returned, and only that pod waits
for the answer.

A policy may have pods of DaemonSets leave, after all others (`daemon_sets_last`). Then those stay that tolerate all
taints of the node, for they would come back at once. Nobody waits for daemons to complete: a rule with `WaitCompleted`
keeps them where they are.

Pods that came back stay as well: one was made to leave, one like it came, was made to leave, and here is the next. More
of the same would be an endless game, so they are told of instead.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from haulout.drain import blockers
from haulout.drain.blockers import Blocker
from haulout.drain.ladder import completion_deadline
from haulout.drain.machine_rules import wish_of
from haulout.drain.memory import Memory
from haulout.drain.policy import ANY_POD, Behavior, Policy, Rule
from haulout.drain.selection import (
    DaemonSetAnswer,
    Fate,
    Selected,
    Verdict,
    belongs_to_daemon_set,
    controller_of,
    is_finished,
    is_given_up,
    is_spared,
    judge,
)
from haulout.drain.waves import Place, group_of, place_of
from haulout.kube.objects import Pod, Taint

_FIRST = Place(-(2**32))
_RETURNS = 2  # the generation of pods from which on they are not made to leave again
_SECOND = timedelta(seconds=1)


class Question(NamedTuple):
    """What must be asked: about a `daemonset`, a `namespace`, a `volume` or the `node`, by its key."""

    kind: str
    key: str


class Traveller(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that leaves, or is waited for."""

    pod: Pod
    rule: Rule
    place: Place
    blocker: Blocker | None = None  # why nobody asks it to leave now
    until: datetime | None = None  # when that ends, whatever happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """All pods of a node."""

    selected: Selected  # what kubectl's filters say of those that no rule keeps
    travellers: tuple[Traveller, ...]
    refused: tuple[tuple[Pod, Blocker], ...]
    staying: frozenset[str]  # uids of those that the drain does not touch, and that have not finished either
    returning: tuple[str, ...]
    questions: tuple[Question, ...]
    wakes: tuple[datetime, ...]  # when pods will be given up, or have waited long enough
    current: Place  # whose turn it is


def sort(
    pods: Iterable[Pod],
    memory: Memory,
    policy: Policy,
    *,
    daemon_sets: Mapping[str, DaemonSetAnswer],
    namespaces: Mapping[str, Mapping[str, str] | str],
    taints: tuple[Taint, ...] | str | None = None,
    now: datetime,
) -> Sorted:
    """Return who leaves and who does not; `taints` are those of the node, why they are not known, or None."""
    sorter = _Sorter(memory, policy, daemon_sets, namespaces, taints, now)
    for pod in pods:
        if policy.pod_selector.matches(pod.metadata.labels):
            sorter.take(pod)
        else:
            sorter.staying.append(pod.uid)
    return sorter.sorted()


class _Sorter:
    """Takes pods one by one."""

    def __init__(
        self,
        memory: Memory,
        policy: Policy,
        daemon_sets: Mapping[str, DaemonSetAnswer],
        namespaces: Mapping[str, Mapping[str, str] | str],
        taints: tuple[Taint, ...] | str | None,
        now: datetime,
    ) -> None:
        self.memory = memory
        self.policy = policy
        self.daemon_sets = daemon_sets
        self.namespaces = namespaces
        self.taints = taints
        self.now = now
        self.verdicts: list[Verdict] = []
        self.travellers: list[Traveller] = []
        self.refused: list[tuple[Pod, Blocker]] = []
        self.staying: list[str] = []
        self.returning: list[str] = []
        self.questions: list[Question] = []
        self.wakes: list[datetime] = []

    def sorted(self) -> Sorted:
        """Return where all of them belong."""
        travellers = _in_groups(self.travellers)
        return Sorted(
            selected=Selected(tuple(self.verdicts)),
            travellers=tuple(travellers),
            refused=tuple(self.refused),
            staying=frozenset(self.staying),
            returning=tuple(self.returning),
            questions=tuple(dict.fromkeys(self.questions)),
            wakes=tuple(self.wakes),
            current=min((it.place for it in travellers), default=_FIRST),
        )

    def take(self, pod: Pod) -> None:
        """Put one pod where it belongs."""
        patience = self.policy.filters.skip_wait_for_delete
        if is_given_up(pod, patience, now=self.now):
            return
        if patience and pod.metadata.deletion_timestamp is not None:
            self.wakes.append(pod.metadata.deletion_timestamp + patience + _SECOND)
        if self._lacks_answer(pod):
            return
        taints = self.taints if self.policy.order.daemon_sets_last else None
        if isinstance(taints, str):
            if leaves_last(pod, self.policy) and not self._daemon_set(pod).problem:
                self._hold(pod, taints)
                return
            taints = None
        verdict = judge(pod, self.policy.filters, daemon_set=self._daemon_set, now=self.now, taints=taints)
        if verdict.fate is Fate.STAYS:
            self._keep(verdict)
            return
        wish = wish_of(pod)
        if wish is not None and not self._has_waited(wish, pod):
            self._apply(wish, verdict)
            return
        labels = self._labels(pod)
        if isinstance(labels, str):
            self._hold(pod, labels)
            return
        rule = self.policy.rule_for(pod, labels)
        if self._has_waited(rule, pod):
            rule = self.policy.rule_after_completion(pod, labels)
        self._apply(rule, verdict)

    def _apply(self, rule: Rule, verdict: Verdict) -> None:
        pod = verdict.pod
        if rule.problem:
            self._travel(pod, rule, blockers.unreadable(pod, str(rule), rule.problem))
        elif rule.behavior is Behavior.SKIP or (rule.keeps and leaves_last(pod, self.policy)):
            self._keep(Verdict(pod, Fate.STAYS, (f"skipping Pods by {rule}",)))
        elif rule.behavior is Behavior.WAIT_COMPLETED:
            if not is_finished(pod):
                until = self._completes_by(rule, pod)
                self._travel(pod, rule, blockers.running(pod, str(rule), object=rule.by, until=until), until=until)
        elif verdict.fate is Fate.REFUSED and self._is_unknown(pod):
            self._hold(pod, verdict.problem)
        elif verdict.fate is Fate.REFUSED:
            self.verdicts.append(verdict)
            self.refused.append((pod, blockers.forbidden_by_policy(pod, verdict.problem)))
        elif self._comes_back(pod):
            self.staying.append(pod.uid)
            self.returning.append(pod.key)
        else:
            self.verdicts.append(verdict)
            self._travel(pod, rule)

    def _travel(self, pod: Pod, rule: Rule, blocker: Blocker | None = None, *, until: datetime | None = None) -> None:
        place = place_of(pod, rule, self.policy.order)
        self.travellers.append(Traveller(pod=pod, rule=rule, place=place, blocker=blocker, until=until))
        if until is not None:
            self.wakes.append(until)

    def _completes_by(self, rule: Rule, pod: Pod) -> datetime | None:
        """Return until when a rule lets a pod run to completion; None: without limit, or it lets it run not at all."""
        limit = self.policy.wait_completed_limit(rule)
        if limit is None or leaves_last(pod, self.policy):
            return None
        started, timeout = self.memory.started, self.policy.timeout
        deadline = None if timeout is None else started + timeout
        limits = self.policy.limits_for(pod, rule)
        return completion_deadline(limits, limit, started=started, deadline=deadline)

    def _has_waited(self, rule: Rule, pod: Pod) -> bool:
        """Tell whether a pod had all the time to complete that a rule gives it, and has not."""
        until = self._completes_by(rule, pod)
        return until is not None and until <= self.now and not is_finished(pod)

    def _keep(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self.staying.append(verdict.pod.uid)

    def _hold(self, pod: Pod, problem: str) -> None:
        self._travel(pod, ANY_POD, blockers.unknown(pod, problem))

    def _comes_back(self, pod: Pod) -> bool:
        leaving = pod.metadata.deletion_timestamp is not None
        return not leaving and self.memory.traces[pod.uid].generation >= _RETURNS

    # What the server must be asked

    def _lacks_answer(self, pod: Pod) -> bool:
        lacking = []
        if self._asks_for_daemon_set(pod) and _daemon_set_key(pod) not in self.daemon_sets:
            lacking.append(Question("daemonset", _daemon_set_key(pod)))
        if self.taints is None and leaves_last(pod, self.policy):
            lacking.append(Question("node", pod.spec.node_name))
        if self._asks_for_namespace(pod) and pod.namespace not in self.namespaces:
            lacking.append(Question("namespace", pod.namespace))
        self.questions += lacking
        return bool(lacking)

    def _asks_for_namespace(self, pod: Pod) -> bool:
        if not self.policy.asks_for_namespaces:
            return False
        wish = wish_of(pod)
        return wish is None or self.policy.wait_completed_limit(wish) is not None

    def _asks_for_daemon_set(self, pod: Pod) -> bool:
        if leaves_last(pod, self.policy):
            return True
        return belongs_to_daemon_set(pod) and not is_finished(pod) and not is_spared(pod, self.policy.filters)

    def _daemon_set(self, pod: Pod) -> DaemonSetAnswer:
        return self.daemon_sets[_daemon_set_key(pod)]

    def _is_unknown(self, pod: Pod) -> bool:
        """Tell whether the pod is refused only because the server did not say whether its DaemonSet exists."""
        if not self._asks_for_daemon_set(pod):
            return False
        answer = self._daemon_set(pod)
        return bool(answer.problem) and not answer.is_missing

    def _labels(self, pod: Pod) -> Mapping[str, str] | str:
        return self.namespaces.get(pod.namespace, {})


def leaves_last(pod: Pod, policy: Policy) -> bool:
    """Tell whether a pod leaves after all others, if the node's taints keep its DaemonSet from putting it back."""
    return policy.order.daemon_sets_last and belongs_to_daemon_set(pod) and not is_finished(pod)


def _in_groups(travellers: list[Traveller]) -> list[Traveller]:
    """Put pods that are scheduled as a group into one wave: that of the last of them."""
    last: dict[str, Place] = {}
    for it in travellers:
        if it.blocker is None and (group := group_of(it.pod)):
            last[group] = max(last.get(group, it.place), it.place)
    if not last:
        return travellers
    return [
        msgspec.structs.replace(it, place=last[group]) if it.blocker is None and (group := group_of(it.pod)) else it
        for it in travellers
    ]


def _daemon_set_key(pod: Pod) -> str:
    owner = controller_of(pod)
    return f"{pod.namespace}/{owner.name if owner else ''}"
