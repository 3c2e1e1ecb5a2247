"""What a drain does next: a pure function of the pods on the node, the tracked state, the policy and the time.

    decision = decide(observation, state, policy, now=now)
    decision.actions       pods to evict, delete or force-delete now
    decision.cleanups      EvictionRequests to withdraw or delete because they are not needed any more
    decision.lookups       objects to read before some pod can be judged
    decision.needs_list    list the node's pods: the cache may have missed an event
    decision.requeue_at    when to decide again if nothing changes before
    decision.needs_volumes VolumeAttachments must be watched now
    decision.result        set when the drain is over; a list has yet to confirm `DRAINED`

This module does no I/O and keeps no state. The executor (`haulout.drain.drainer`) decides nothing.

1. Judge each pod: kubectl's filters, then the first matching rule.
2. If the policy refuses the drain, report that before any pod is evicted.
3. Find the group of the drain order whose turn it is, and the escalation step of each of its pods.
4. Choose as many actions as may be in flight at once, the pod with the longest wait first.
5. When no pod is left, wait until volumes are detached, if the policy asks for that. DaemonSet pods that leave last do
   so after the detach, because one of them may be needed to detach.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from haulout.api.objects import Pod, Taint
from haulout.core import duration
from haulout.core.text import format_list
from haulout.drain import blockers, eviction_api, pod_selection, volumes
from haulout.drain.blockers import BlockerKind
from haulout.drain.escalation import TIME_TO_TERMINATE, Escalation, EscalationStep, Termination, escalation_for
from haulout.drain.eviction_api import EvictionApi, EvictionPlan, EvictionRequestCleanup, EvictionRequestView
from haulout.drain.pod_filters import DaemonSetInfo
from haulout.drain.pod_selection import LookupRequest, PodSelection, PodToEvict, leaves_last
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import ActiveBlocker, DrainProgress, OutcomeResult, PodDrainState, PodProgress
from haulout.drain.state import PendingRetry, TrackedDrain, TrackedPod, retry_key_of
from haulout.drain.volumes import VolumeAttachment

# A pod should be gone when its grace period is over. If the cache still has it, the cache may have missed the deletion.
_VERIFY_TERMINATING_AFTER = timedelta(seconds=5)
# The same for a pod whose eviction was accepted but that has no deletionTimestamp in the cache.
_VERIFY_ACCEPTED_AFTER = timedelta(seconds=10)
_TIMESTAMP_TRUNCATION = timedelta(seconds=1)  # Kubernetes truncates timestamps to seconds
_MAX_NAMED_VOLUMES = 5
_MAX_UNCONFIRMED_PERCENT = 99  # until a list confirms that no pod is left
# Between lists that verify a cache in doubt: the first soon, later ones rarely, since each is a consistent read.
_VERIFY_FIRST, _VERIFY_LATEST = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainObservation:
    """The state of a node's pods, and of what decides about them, at one moment."""

    node: str
    pods: Sequence[Pod]
    daemon_sets: Mapping[str, DaemonSetInfo] = field(default_factory=dict)  # by namespace/name
    namespaces: Mapping[str, Mapping[str, str] | str] = field(default_factory=dict)  # labels, or why they are unknown
    node_ready: bool | None = None  # None: not looked up recently
    taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are unknown; None: not looked up yet
    evictions: EvictionRequestView = eviction_api.UNKNOWN_EVICTION_REQUESTS
    attachments: tuple[VolumeAttachment, ...] | None = None  # of the node; None: unknown
    attachments_problem: str = ""  # why attachments are unknown
    claims: Mapping[str, str] = field(default_factory=dict)  # PersistentVolume name to its claim, empty if it has none
    stale_reason: str = ""


@dataclass(frozen=True, slots=True)
class PodAction:
    """One request for one pod, to be sent now."""

    step: EscalationStep
    pod: Pod
    grace: timedelta | None  # None: the pod's own grace period
    retry_key: str
    api: EvictionApi = EvictionApi.EVICTION  # for step EVICT


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainDecision:
    """Actions, progress, and the time to decide again."""

    state: TrackedDrain
    progress: DrainProgress
    actions: tuple[PodAction, ...] = ()
    cleanups: tuple[EvictionRequestCleanup, ...] = ()
    needs_eviction_requests: bool = False  # EvictionRequests must be watched now
    needs_volumes: bool = False  # VolumeAttachments must be watched now
    lookups: tuple[LookupRequest, ...] = ()
    needs_list: bool = False
    requeue_at: datetime | None = None
    result: OutcomeResult | None = None
    problems: tuple[str, ...] = ()


def decide(observation: DrainObservation, state: TrackedDrain, policy: DrainPolicy, *, now: datetime) -> DrainDecision:
    state = state.observe(observation.pods, now=now)
    selection = pod_selection.select_pods(
        observation.pods,
        state,
        policy,
        daemon_sets=observation.daemon_sets,
        namespaces=observation.namespaces,
        taints=observation.taints,
        now=now,
    )
    builder = _DecisionBuilder(observation, state, policy, selection, now)
    return builder.build()


class _DecisionBuilder:
    """Builds one decision. It is used once; what its methods find is collected in its attributes."""

    def __init__(
        self,
        observation: DrainObservation,
        state: TrackedDrain,
        policy: DrainPolicy,
        selection: PodSelection,
        now: datetime,
    ) -> None:
        self.observation = observation
        self.state = state
        self.policy = policy
        self.selection = selection
        self.now = now
        self.deadline = None if policy.timeout is None else state.started + policy.timeout
        self.requeue_times: list[datetime] = [] if self.deadline is None else [self.deadline]
        self.requeue_times += selection.requeue_times
        self.verify_times: list[datetime] = []
        self.needs_node = False
        self.candidates: list[tuple[datetime, PodAction]] = []  # with the time of the last attempt
        self.rows: list[PodProgress] = []
        self.waits_for_volumes = self.needs_volumes = False
        self.volumes: tuple[ActiveBlocker, ...] = ()
        self.volumes_until: datetime | None = None
        self.volume_lookups: tuple[LookupRequest, ...] = ()

    def build(self) -> DrainDecision:
        if not self.state.passed_precheck and self._is_forbidden():
            self._report_refused_pods()
            return self._decision_with_result(OutcomeResult.REFUSED)
        # A drain whose pods have left in time has not failed because a volume is still attached.
        if self.deadline is not None and self.now >= self.deadline and not self._has_only_volumes_left():
            self._report_all_pods()
            return self._decision_with_result(OutcomeResult.TIMED_OUT)
        if not self.state.passed_precheck and self.selection.lookups:
            return self._decision(lookups=self.selection.lookups)
        self.state = replace(self.state, passed_precheck=True)
        self._check_volumes()
        self._record_turns()
        self._report_all_pods()
        if not self.selection.pods_to_evict and not self.selection.lookups and not self.waits_for_volumes:
            return self._decision_with_result(
                OutcomeResult.REFUSED if self.selection.refused else OutcomeResult.DRAINED
            )
        lookups = self.selection.lookups + self.volume_lookups
        lookups += (LookupRequest("node", self.observation.node),) if self.needs_node else ()
        decision = self._decision(lookups=lookups, actions=self._chosen_actions(), needs_list=self._needs_list())
        return replace(decision, cleanups=self._eviction_request_cleanups())

    def _is_forbidden(self) -> bool:
        return bool(self.selection.refused) and not self.selection.lookups

    # Volumes of pods that have left

    def _has_only_volumes_left(self) -> bool:
        """Return whether all pods left in time and the drain has only waited for volumes since."""
        pods = self.selection.pods_to_evict or self.selection.refused or self.selection.lookups
        return not pods and self.state.detaching_since is not None

    def _check_volumes(self) -> None:
        """Find out whether the drain waits for volumes: once only DaemonSet pods that leave last remain."""
        limit, state = self.policy.volume_detach_timeout, self.state
        leaving_last = [selected for selected in self.selection.pods_to_evict if leaves_last(selected.pod, self.policy)]
        has_more = (
            len(leaving_last) < len(self.selection.pods_to_evict) or self.selection.lookups or self.selection.refused
        )
        if has_more and (state.detaching_since or state.is_detached):
            self.state = state.restart_volume_wait()
        if limit is None or has_more or state.is_detached:
            return
        self.needs_volumes = True
        awaited = self._attached_volumes()
        since = self._detaching_since(awaited or ())
        until = self._detach_deadline(since + limit, leaving_last)
        self.state = replace(state, detaching_since=since, left_attached="")
        # Not `not awaited`: None means that the attachments are unknown, and the drain waits for them, too.
        if awaited == ():
            pass
        elif self.now < until:
            self._wait_for_volumes(awaited, since=since, until=until)
        else:
            self.state = replace(self.state, left_attached=self._volumes_given_up_message(awaited, self.now - since))
        if not leaving_last and not self.waits_for_volumes:
            self.state = replace(self.state, is_detached=True)

    def _attached_volumes(self) -> tuple[VolumeAttachment, ...] | None:
        """Return the volumes that are attached to the node and not in use by its pods; None if unknown."""
        if self.observation.attachments is None:
            return None
        # A static pod or a DaemonSet pod that stays keeps its volume attached. Waiting for that would never end.
        used = set(volumes.claims_in_use(self.observation.pods))
        found = [attachment for attachment in self.observation.attachments if attachment.status.attached]
        return tuple(
            attachment for attachment in found if not self._claim(attachment) or self._claim(attachment) not in used
        )

    def _claim(self, attachment: VolumeAttachment) -> str:
        return self.observation.claims.get(attachment.volume, "")

    def _detaching_since(self, awaited: tuple[VolumeAttachment, ...]) -> datetime:
        """Return since when the drain waits for volumes, including a predecessor's wait for a volume still attached."""
        inherited = {} if self.state.inherited is None else self.state.inherited.since
        return min(
            [
                # A takeover must not restart the wait, or a series of restarts would extend it without end.
                self.state.detaching_since or self.now,
                *(inherited.get(attachment.uid, self.now) for attachment in awaited),
            ]
        )

    def _detach_deadline(self, until: datetime, leaving_last: Sequence[PodToEvict]) -> datetime:
        """Return when the wait for volumes ends, early enough for DaemonSet pods to leave before the deadline."""
        if self.deadline is None:
            return until
        graces = [
            self.policy.limits_for(selected.pod, selected.rule).grace + TIME_TO_TERMINATE for selected in leaving_last
        ]
        return min(until, self.deadline - max(graces, default=timedelta()))

    def _wait_for_volumes(
        self, awaited: tuple[VolumeAttachment, ...] | None, *, since: datetime, until: datetime
    ) -> None:
        self.waits_for_volumes, self.volumes_until = True, until
        self._requeue(until)
        until_text = f"the drain waits for it until {until:%Y-%m-%d %H:%M:%S} UTC"
        if awaited is not None:
            found = [
                volumes.attached_volume_blocker(attachment, self._claim(attachment), until=until_text)
                for attachment in awaited
            ]
            unknown = [
                attachment.volume
                for attachment in awaited
                if attachment.volume and attachment.volume not in self.observation.claims
            ]
            self.volume_lookups = tuple(LookupRequest("volume", name) for name in unknown)
        elif self.observation.attachments_problem:
            found = [
                volumes.unknown_volumes_blocker(
                    self.observation.node, self.observation.attachments_problem, until=until_text
                )
            ]
        else:
            found = []
        self.volumes = tuple(ActiveBlocker(blocker, since) for blocker in found)

    def _volumes_given_up_message(self, awaited: tuple[VolumeAttachment, ...] | None, after: timedelta) -> str:
        """Return the warning about volumes for which the drain does not wait any longer."""
        waited = duration.format(timedelta(seconds=round(after.total_seconds())))
        if awaited is None:
            problem = self.observation.attachments_problem or "the API server does not answer"
            return f"could not check whether volumes are still attached within {waited}: {problem}"
        names = format_list(
            (volumes.describe_volume(attachment, self._claim(attachment)) for attachment in awaited),
            max_names=_MAX_NAMED_VOLUMES,
        )
        return f"still attached after {waited}: {names}"

    # Turns

    def _record_turns(self) -> None:
        """Record since when each pod has its turn, and count the pod in the progress."""
        changed: dict[str, TrackedPod] = {}
        for selected in self.selection.pods_to_evict:
            tracked = self.state.tracked_pods[selected.pod.uid]
            since = tracked.turn_since or (self.now if self._has_turn(selected) else None)
            if not tracked.is_counted or since != tracked.turn_since:
                changed[tracked.uid] = replace(tracked, is_counted=True, turn_since=since)
        self.state = self.state.with_tracked_pods(changed)

    def _has_turn(self, selected: PodToEvict) -> bool:
        if self.waits_for_volumes and leaves_last(selected.pod, self.policy):
            return False
        return selected.order_key <= self.selection.current_order_key and selected.blocker is None

    # Progress of each pod

    def _report_all_pods(self) -> None:
        owner_retry_keys = self._pdb_retry_keys_by_owner()
        for selected in self.selection.pods_to_evict:
            self.rows.append(self._pod_progress(selected, self.state.tracked_pods[selected.pod.uid], owner_retry_keys))
        self._report_refused_pods()

    def _report_refused_pods(self) -> None:
        for pod, blocker in self.selection.refused:
            since = self.state.tracked_pods[pod.uid].first_observed_at
            self.rows.append(
                _new_pod_progress(
                    pod, PodDrainState.BLOCKED, blocker.reason, active_blocker=ActiveBlocker(blocker, since)
                )
            )

    def _pdb_retry_keys_by_owner(self) -> Mapping[str, str]:
        """Return by owner the retry key of a pod that a PodDisruptionBudget refused.

        Pods of the same owner share that key, because the PodDisruptionBudget would refuse them, too.
        """
        return {
            tracked.owner: retry_key_of(tracked)
            for selected in self.selection.pods_to_evict
            if (tracked := self.state.tracked_pods[selected.pod.uid]).blocker is not None
            and tracked.blocker.kind is BlockerKind.DISRUPTION_BUDGET
        }

    def _pod_progress(
        self, selected: PodToEvict, tracked: TrackedPod, owner_retry_keys: Mapping[str, str]
    ) -> PodProgress:
        if selected.pod.is_being_deleted:
            return self._terminating_pod_progress(selected, tracked)
        if selected.blocker is not None:
            state = (
                PodDrainState.FINISHING if selected.blocker.kind is BlockerKind.COMPLETION else PodDrainState.BLOCKED
            )
            active_blocker = ActiveBlocker(selected.blocker, tracked.first_observed_at)
            return _new_pod_progress(
                selected.pod, state, selected.blocker.reason, next_at=selected.until, active_blocker=active_blocker
            )
        if not self._has_turn(selected):
            after = (
                "volumes to be detached"
                if self.waits_for_volumes
                else f"earlier pods to leave: {self.selection.current_order_key}"
            )
            return _new_pod_progress(selected.pod, PodDrainState.QUEUED, f"waiting for {after}")
        since = tracked.turn_since or self.now
        escalation = escalation_for(
            self.policy.limits_for(selected.pod, selected.rule), since=since, deadline=self.deadline
        )
        eviction_plan = eviction_api.plan_eviction(
            selected.pod, tracked, policy=self.policy, view=self.observation.evictions, now=self.now
        )
        next_at = self._plan_eviction(selected, tracked, escalation, owner_retry_keys, eviction_plan)
        message = eviction_plan.message or "is being evicted"
        row = _new_pod_progress(
            selected.pod,
            PodDrainState.EVICTING,
            message,
            since=tracked.turn_since,
            next_at=next_at,
            step=_requested_step(tracked),
        )
        if tracked.accepted_at is not None:
            row = msgspec.structs.replace(
                row, state=PodDrainState.LEAVING, message="removal accepted by the API server"
            )
            self.verify_times.append(tracked.accepted_at + _VERIFY_ACCEPTED_AFTER)
        if tracked.needs_verification:
            self.verify_times.append(self.now)
        blocker, blocked_since = (
            (tracked.blocker, tracked.blocked_since)
            if eviction_plan.api
            else (eviction_plan.blocker, eviction_plan.since)
        )
        if blocker is None or blocked_since is None:
            return row
        state = PodDrainState.EVICTING if blocker.is_progress and not eviction_plan.api else PodDrainState.BLOCKED
        message = blocker.reason + _next_step_message(escalation, self.now)
        return msgspec.structs.replace(
            row, state=state, message=message, active_blocker=ActiveBlocker(blocker, blocked_since)
        )

    def _plan_eviction(
        self,
        selected: PodToEvict,
        tracked: TrackedPod,
        escalation: Escalation,
        owner_retry_keys: Mapping[str, str],
        eviction_plan: EvictionPlan,
    ) -> datetime | None:
        """Add the pod to the candidates if its next request is due; return when it is due otherwise.

        Return None while a request is in flight or the request is due now.
        """
        step = escalation.step_at(self.now)
        next_step_at = escalation.next_step_after(self.now)
        self._requeue(next_step_at)
        if tracked.in_flight is not None or step is None or self._is_accepted(tracked):
            return None if tracked.in_flight is not None else next_step_at
        if (
            step is EscalationStep.DELETE
            and escalation.evict_at is not None
            and not (tracked.attempts or eviction_plan.is_requested)
        ):
            step = EscalationStep.EVICT  # never delete a pod before an eviction was tried
        api = eviction_plan.api if step is EscalationStep.EVICT else EvictionApi.EVICTION
        if api is None:
            self._requeue(eviction_plan.until)
            return min((at for at in (eviction_plan.until, next_step_at) if at is not None), default=None)
        retry_key = retry_key_of(tracked)
        if step is EscalationStep.DELETE:
            # A key of its own: the wait for a PodDisruptionBudget must not delay a deletion, which ignores it.
            retry_key = f"{EscalationStep.DELETE} {tracked.uid}"
        elif api is EvictionApi.EVICTION and tracked.blocker is None:
            retry_key = owner_retry_keys.get(tracked.owner, retry_key)
        next_at = self.state.retries.get(retry_key, PendingRetry(0, self.now)).next_at
        if next_at > self.now:
            self._requeue(next_at)
            return next_at if next_step_at is None else min(next_at, next_step_at)
        if self.observation.node_ready is None and leaves_last(selected.pod, self.policy):
            self.needs_node = True  # its taints may have changed since the drain began
            return None
        limits = self.policy.limits_for(selected.pod, selected.rule)
        self.candidates.append(
            (
                tracked.last_attempt_at or self.state.started,
                PodAction(step, selected.pod, limits.grace_override, retry_key, api),
            )
        )
        return None

    def _is_accepted(self, tracked: TrackedPod) -> bool:
        """Return whether an eviction or deletion was accepted and is not known to be without effect."""
        if tracked.accepted_at is None:
            return False
        verified_at = self.state.verified_at
        return verified_at is None or verified_at < tracked.accepted_at + _VERIFY_ACCEPTED_AFTER

    def _terminating_pod_progress(self, selected: PodToEvict, tracked: TrackedPod) -> PodProgress:
        pod = selected.pod
        termination = termination_of(pod)
        limits = self.policy.limits_for(pod, selected.rule)
        escalation = escalation_for(
            limits, since=tracked.turn_since or termination.started_at, deadline=self.deadline, termination=termination
        )
        next_at = escalation.next_step_after(self.now)
        self._requeue(next_at)
        if (
            escalation.step_at(self.now) is EscalationStep.FORCE_DELETE
            and tracked.accepted_step is not EscalationStep.FORCE_DELETE
            and tracked.in_flight is None
        ):
            self._plan_force_deletion(pod, tracked)
        self.verify_times.append(termination.ends_at + _VERIFY_TERMINATING_AFTER)
        # An unknown readiness counts as ready, because the advice for an unready node is to force-delete the pod, which
        # is dangerous while its containers run.
        blocker = blockers.overdue_blocker(pod, node_ready=self.observation.node_ready is not False, now=self.now)
        if blocker is None:
            self._requeue(blockers.overdue_from(pod))
            return _new_pod_progress(
                pod,
                PodDrainState.LEAVING,
                _time_left_message(termination.ends_at),
                since=tracked.turn_since,
                next_at=next_at,
                step=_requested_step(tracked),
                ends_at=termination.ends_at,
            )
        # With finalizers, the advice does not depend on the node.
        self.needs_node |= self.observation.node_ready is None and not pod.metadata.finalizers
        message = blocker.reason + _next_step_message(escalation, self.now)
        return _new_pod_progress(
            pod,
            PodDrainState.OVERDUE,
            message,
            since=tracked.turn_since,
            next_at=next_at,
            step=_requested_step(tracked),
            ends_at=termination.ends_at,
            active_blocker=ActiveBlocker(blocker, termination.ends_at),
        )

    def _plan_force_deletion(self, pod: Pod, tracked: TrackedPod) -> None:
        retry_key = f"{EscalationStep.FORCE_DELETE} {pod.uid}"
        next_at = self.state.retries.get(retry_key, PendingRetry(0, self.now)).next_at
        if next_at > self.now:
            self._requeue(next_at)
        else:
            action = PodAction(EscalationStep.FORCE_DELETE, pod, timedelta(), retry_key)
            self.candidates.append((tracked.last_attempt_at or self.state.started, action))

    # Actions

    def _chosen_actions(self) -> tuple[PodAction, ...]:
        """Return the actions to send now: one per retry key, and not more than the policy's `parallel`."""
        free = self.policy.parallel - self.state.requests_in_flight
        # One request per key: of twenty pods behind one PodDisruptionBudget, nineteen would be refused like the first.
        busy_retry_keys = {
            tracked.retry_key for tracked in self.state.tracked_pods.values() if tracked.in_flight is not None
        }
        chosen: list[PodAction] = []
        for _, action in sorted(self.candidates, key=_longest_wait_first):
            if action.retry_key not in busy_retry_keys and len(chosen) < free:
                busy_retry_keys.add(action.retry_key)
                chosen.append(action)
        return tuple(chosen)

    def _eviction_request_cleanups(self) -> tuple[EvictionRequestCleanup, ...]:
        """Return the EvictionRequests to remove: those for pods that should not be evicted by a request now."""
        uses_requests = self.policy.eviction_requests and not self.policy.disable_eviction
        wanted = {
            selected.pod.uid for selected in self.selection.pods_to_evict if uses_requests and self._has_turn(selected)
        }
        return eviction_api.eviction_request_cleanups(
            self.observation.evictions, wanted=wanted, present={pod.uid for pod in self.observation.pods}
        )

    def _needs_eviction_requests(self) -> bool:
        """Return whether EvictionRequests must be watched, including those that a predecessor left behind."""
        return self.policy.eviction_requests or any(
            eviction_api.uses_eviction_requests(selected.pod, self.policy) for selected in self.selection.pods_to_evict
        )

    def _needs_list(self) -> bool:
        """Return whether to list the pods because the cache is in doubt. Repeated lists back off."""
        if not self.verify_times:
            self.state = replace(self.state, verifications=0)
            return False
        verify_at = min(self.verify_times)
        if self.state.verified_at is not None and self.state.verified_at >= verify_at:
            wait = min(_VERIFY_FIRST * 2 ** min(self.state.verifications, 8), _VERIFY_LATEST)
            verify_at = self.state.verified_at + wait
        if verify_at > self.now:
            self._requeue(verify_at)
        return verify_at <= self.now

    def _requeue(self, instant: datetime | None) -> None:
        if instant is not None and instant > self.now:
            self.requeue_times.append(instant)

    # The decision

    def _decision_with_result(self, result: OutcomeResult) -> DrainDecision:
        decision = self._decision()
        problems = self.selection.delete_list.refusals if result is OutcomeResult.REFUSED else ()
        cleanups = self._eviction_request_cleanups() if result is OutcomeResult.DRAINED else ()
        return replace(decision, cleanups=cleanups, result=result, problems=problems, requeue_at=None)

    def _decision(
        self, *, lookups: tuple[LookupRequest, ...] = (), actions: tuple[PodAction, ...] = (), needs_list: bool = False
    ) -> DrainDecision:
        progress = self._progress()
        later = [instant for instant in self.requeue_times if instant > self.now]
        return DrainDecision(
            state=replace(self.state, percent=progress.percent),
            progress=progress,
            actions=actions,
            lookups=lookups,
            needs_list=needs_list,
            needs_eviction_requests=self._needs_eviction_requests(),
            needs_volumes=self.needs_volumes and not self.state.is_detached,
            requeue_at=min(later, default=None),
        )

    def _progress(self) -> DrainProgress:
        present = {selected.pod.uid for selected in self.selection.pods_to_evict}
        staying = self.selection.staying
        gone = self.state.gone_before_takeover + sum(
            tracked.is_counted and uid not in present and uid not in staying
            for uid, tracked in self.state.tracked_pods.items()
        )
        total = gone + len(self.rows)
        share = min(100 * gone // total, _MAX_UNCONFIRMED_PERCENT) if total else 0
        return DrainProgress(
            node=self.observation.node,
            started=self.state.started,
            total=total,
            gone=gone,
            leaving=sum(row.state in (PodDrainState.LEAVING, PodDrainState.OVERDUE) for row in self.rows),
            # New pods may raise the total. Users and scripts take a falling percentage for an error.
            percent=max(self.state.percent, share),
            pods=tuple(self.rows),
            returning=self.selection.returning,
            warning="; ".join(filter(None, (self.selection.delete_list.warning, self.state.left_attached))),
            stale_reason=self.observation.stale_reason,
            is_known=self.state.passed_precheck or self._is_forbidden(),
            deadline=self.deadline,
            volumes=self.volumes,
            volumes_until=self.volumes_until,
            left_attached=self.state.left_attached,
        )


def termination_of(pod: Pod) -> Termination:
    """Return start and end of a terminating pod's grace period. Raise ValueError if it is not terminating."""
    ends_at = pod.metadata.deletion_timestamp
    if ends_at is None:
        raise ValueError(f"{pod.key} is not terminating")
    # Without it, a pod could be force-deleted up to a second before the end of its grace period.
    ends_at += _TIMESTAMP_TRUNCATION
    return Termination(ends_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0), ends_at)


def _new_pod_progress(
    pod: Pod,
    state: PodDrainState,
    message: str,
    *,
    since: datetime | None = None,
    next_at: datetime | None = None,
    step: EscalationStep | None = None,
    ends_at: datetime | None = None,
    active_blocker: ActiveBlocker | None = None,
) -> PodProgress:
    return PodProgress(
        pod=pod.key,
        uid=pod.uid,
        state=state,
        message=message,
        turn_since=since,
        next_at=next_at,
        requested_step=step,
        ends_at=ends_at,
        active_blocker=active_blocker,
    )


@lru_cache(maxsize=256)
def _time_left_message(until: datetime) -> str:
    """Return the message of a terminating pod. Cached, since many pods terminate at the same time."""
    return f"is terminating; its grace period ends at {until:%H:%M:%S} UTC"


def _requested_step(tracked: TrackedPod) -> EscalationStep | None:
    """Return the step by which we requested the pod's removal, or request it right now; None if we did not."""
    return tracked.in_flight or tracked.accepted_step or (EscalationStep.EVICT if tracked.requested_at else None)


def _longest_wait_first(candidate: tuple[datetime, PodAction]) -> tuple[datetime, int]:
    """Sort by last attempt, oldest first, and then by grace period, longest first."""
    last_attempt_at, action = candidate
    return last_attempt_at, -action.pod.spec.termination_grace_period_seconds


def _next_step_message(escalation: Escalation, now: datetime) -> str:
    """Return when the next escalation step follows; empty if none does."""
    for at, step_text in ((escalation.delete_at, "it is deleted"), (escalation.force_delete_at, "it is force-deleted")):
        if at is not None and at > now:
            return f"; {step_text} at {at:%H:%M:%S} UTC unless this changes"
    return ""
