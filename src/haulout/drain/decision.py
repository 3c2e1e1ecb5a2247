"""What a drain does next: a decision from what is on the node, what is remembered, the policy and the time.

    plan = decide(view, memory, policy, now=now)
    plan.actions      pods to evict, delete or kill now
    plan.chores       EvictionRequests to withdraw or delete, for they are not needed any more
    plan.questions    what must be asked before some pod can be judged
    plan.verifies     list the node's pods, for the copy that was decided on may have missed something
    plan.wakes_at     when to decide again if nothing happens before
    plan.needs_volumes  VolumeAttachments count now
    plan.ending       a verdict, if it is over: `DRAINED` is yet to be confirmed by a list

It does no input or output and keeps nothing; the executor (`haulout.drain.drainer`) decides nothing.

The steps: judge each pod (kubectl's filters, then the first matching rule); if the policy forbids the drain, say so
before any pod is touched; find the wave whose turn it is; find for each of its pods the rung of its ladder; ask as many
as may be asked at once, the one that waited longest first. When no pod is left, wait until volumes are detached, if the
policy says so; pods of DaemonSets that leave last do so after that, for one of them may be needed to detach.
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
from haulout.drain.state import Retry, TrackedDrain, TrackedPod, retry_key_of
from haulout.drain.volumes import VolumeAttachment

# A pod whose time to end is up should be gone by then: if the copy still shows it, the copy may be wrong.
_VERIFY_TERMINATING_AFTER = timedelta(seconds=5)
# The same for a pod that was told to go, but is not shown as going.
_VERIFY_ACCEPTED_AFTER = timedelta(seconds=10)
_TIMESTAMP_TRUNCATION = timedelta(seconds=1)  # Kubernetes writes instants without the fraction of their second
_MAX_NAMED_VOLUMES = 5  # volumes
_MAX_UNCONFIRMED_PERCENT = 99  # percent, until a list has shown that nothing is left
_VERIFY_FIRST, _VERIFY_LATEST = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainObservation:
    """What is known about a node's pods at one moment."""

    node: str
    pods: Sequence[Pod]
    daemon_sets: Mapping[str, DaemonSetInfo] = field(default_factory=dict)  # by namespace/name
    namespaces: Mapping[str, Mapping[str, str] | str] = field(default_factory=dict)  # labels, or why they are not known
    node_ready: bool | None = None  # None: not asked of late
    taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are not known; None: not asked yet
    evictions: EvictionRequestView = eviction_api.UNKNOWN_EVICTION_REQUESTS
    attachments: tuple[VolumeAttachment, ...] | None = None  # of the node; None: not known
    attachments_problem: str = ""  # why not
    claims: Mapping[str, str] = field(default_factory=dict)  # by PersistentVolume: its claim, empty if none is known
    stale_reason: str = ""


@dataclass(frozen=True, slots=True)
class PodAction:
    """One request about one pod."""

    step: EscalationStep
    pod: Pod
    grace: timedelta | None  # None: the pod's own
    retry_key: str
    api: EvictionApi = EvictionApi.EVICTION  # of asking it to leave


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainDecision:
    """What is to be done, how things stand, and when to look again."""

    state: TrackedDrain
    progress: DrainProgress
    actions: tuple[PodAction, ...] = ()
    cleanups: tuple[EvictionRequestCleanup, ...] = ()
    needs_eviction_requests: bool = False  # what is known of EvictionRequests counts
    needs_volumes: bool = False  # what is known of VolumeAttachments counts
    lookups: tuple[LookupRequest, ...] = ()
    needs_list: bool = False
    requeue_at: datetime | None = None
    result: OutcomeResult | None = None
    problems: tuple[str, ...] = ()


def decide(observation: DrainObservation, state: TrackedDrain, policy: DrainPolicy, *, now: datetime) -> DrainDecision:
    """Return what to do about the pods in `observation`."""
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
    """One decision in the making."""

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
        self.candidates: list[tuple[datetime, PodAction]] = []  # with when they were asked the last time
        self.rows: list[PodProgress] = []
        self.waits_for_volumes = self.needs_volumes = False
        self.volumes: tuple[ActiveBlocker, ...] = ()
        self.volumes_until: datetime | None = None
        self.volume_lookups: tuple[LookupRequest, ...] = ()

    def build(self) -> DrainDecision:
        """Return the decision."""
        if not self.state.passed_precheck and self._is_forbidden():
            self._report_refused_pods()
            return self._decision_with_result(OutcomeResult.REFUSED)
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
        """Tell whether all pods left in time, and no more than volumes were waited for since."""
        pods = self.selection.pods_to_evict or self.selection.refused or self.selection.lookups
        return not pods and self.state.detaching_since is not None

    def _check_volumes(self) -> None:
        """Find out whether the drain waits for volumes: from when no pod is left but daemons that leave last."""
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
        if awaited == ():
            pass
        elif self.now < until:
            self._wait_for_volumes(awaited, since=since, until=until)
        else:
            self.state = replace(self.state, left_attached=self._volumes_given_up_message(awaited, self.now - since))
        if not leaving_last and not self.waits_for_volumes:
            self.state = replace(self.state, is_detached=True)

    def _attached_volumes(self) -> tuple[VolumeAttachment, ...] | None:
        """Return what is attached to the node and used by no pod there; None if that is not known."""
        if self.observation.attachments is None:
            return None
        used = set(volumes.claims_in_use(self.observation.pods))
        found = [attachment for attachment in self.observation.attachments if attachment.status.attached]
        return tuple(
            attachment for attachment in found if not self._claim(attachment) or self._claim(attachment) not in used
        )

    def _claim(self, attachment: VolumeAttachment) -> str:
        return self.observation.claims.get(attachment.volume, "")

    def _detaching_since(self, awaited: tuple[VolumeAttachment, ...]) -> datetime:
        """Return since when volumes are waited for: be it by a predecessor, for one that is still attached."""
        inherited = {} if self.state.inherited is None else self.state.inherited.since
        return min(
            [
                self.state.detaching_since or self.now,
                *(inherited.get(attachment.uid, self.now) for attachment in awaited),
            ]
        )

    def _detach_deadline(self, until: datetime, leaving_last: Sequence[PodToEvict]) -> datetime:
        """Return until when volumes are waited for: so that daemons have the time to leave before the deadline."""
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
        until_text = f"this is waited for until {until:%Y-%m-%d %H:%M:%S} UTC"
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
        """Return what is said of volumes that the drain does not wait for any longer."""
        waited = duration.format(timedelta(seconds=round(after.total_seconds())))
        if awaited is None:
            problem = self.observation.attachments_problem or "the server does not answer"
            return f"whether volumes are still attached could not be found out within {waited}: {problem}"
        names = format_list(
            (volumes.describe_volume(attachment, self._claim(attachment)) for attachment in awaited),
            max_names=_MAX_NAMED_VOLUMES,
        )
        return f"still attached after {waited}: {names}"

    # Whose turn it is

    def _record_turns(self) -> None:
        """Note since when pods have had their turn, and that they count."""
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

    # How it stands with each pod

    def _report_all_pods(self) -> None:
        owner_retry_keys = self._pdb_retry_keys_by_owner()
        for selected in self.selection.pods_to_evict:
            self.rows.append(self._pod_progress(selected, self.state.tracked_pods[selected.pod.uid], owner_retry_keys))
        self._report_refused_pods()

    def _report_refused_pods(self) -> None:
        for pod, blocker in self.selection.refused:
            since = self.state.tracked_pods[pod.uid].first_seen_at
            self.rows.append(
                _new_pod_progress(
                    pod, PodDrainState.BLOCKED, blocker.reason, active_blocker=ActiveBlocker(blocker, since)
                )
            )

    def _pdb_retry_keys_by_owner(self) -> Mapping[str, str]:
        """Return by owner the pace of its pods that a budget refused: the others would fare no better."""
        return {
            tracked.owner: retry_key_of(tracked)
            for selected in self.selection.pods_to_evict
            if (tracked := self.state.tracked_pods[selected.pod.uid]).blocker is not None
            and tracked.blocker.kind is BlockerKind.DISRUPTION_BUDGET
        }

    def _pod_progress(
        self, selected: PodToEvict, tracked: TrackedPod, owner_retry_keys: Mapping[str, str]
    ) -> PodProgress:
        if selected.pod.metadata.deletion_timestamp is not None:
            return self._terminating_pod_progress(selected, tracked)
        if selected.blocker is not None:
            state = (
                PodDrainState.FINISHING if selected.blocker.kind is BlockerKind.COMPLETION else PodDrainState.BLOCKED
            )
            active_blocker = ActiveBlocker(selected.blocker, tracked.first_seen_at)
            return _new_pod_progress(
                selected.pod, state, selected.blocker.reason, next_at=selected.until, active_blocker=active_blocker
            )
        if not self._has_turn(selected):
            after = "volumes are detached" if self.waits_for_volumes else f"those of {self.selection.current_order_key}"
            return _new_pod_progress(selected.pod, PodDrainState.QUEUED, f"leaves after {after}")
        since = tracked.turn_since or self.now
        escalation = escalation_for(
            self.policy.limits_for(selected.pod, selected.rule), since=since, deadline=self.deadline
        )
        eviction_plan = eviction_api.plan_eviction(
            selected.pod, tracked, policy=self.policy, view=self.observation.evictions, now=self.now
        )
        next_at = self._plan_eviction(selected, tracked, escalation, owner_retry_keys, eviction_plan)
        message = eviction_plan.message or "is asked to leave"
        row = _new_pod_progress(
            selected.pod,
            PodDrainState.EVICTING,
            message,
            since=tracked.turn_since,
            next_at=next_at,
            step=_requested_step(tracked),
        )
        if tracked.accepted_at is not None:
            row = msgspec.structs.replace(row, state=PodDrainState.LEAVING, message="was told to go")
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
        """Note that the pod is to be asked, now or later; return when, if it is not under way."""
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
            step = EscalationStep.EVICT  # nobody is deleted who was not asked first
        api = eviction_plan.api if step is EscalationStep.EVICT else EvictionApi.EVICTION
        if api is None:
            self._requeue(eviction_plan.until)
            return min((at for at in (eviction_plan.until, next_step_at) if at is not None), default=None)
        retry_key = retry_key_of(tracked)
        if step is EscalationStep.DELETE:
            retry_key = f"{EscalationStep.DELETE} {tracked.uid}"
        elif api is EvictionApi.EVICTION and tracked.blocker is None:
            retry_key = owner_retry_keys.get(tracked.owner, retry_key)
        next_at = self.state.retries.get(retry_key, Retry(0, self.now)).next_at
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
        """Tell whether the pod was told to go, and that has not proved to be without effect."""
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
        next_at = self.state.retries.get(retry_key, Retry(0, self.now)).next_at
        if next_at > self.now:
            self._requeue(next_at)
        else:
            action = PodAction(EscalationStep.FORCE_DELETE, pod, timedelta(), retry_key)
            self.candidates.append((tracked.last_attempt_at or self.state.started, action))

    # What is done about it

    def _chosen_actions(self) -> tuple[PodAction, ...]:
        """Return those to ask now: one of each pace, and of all no more than may be under way."""
        free = self.policy.parallel - self.state.requests_in_flight
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
        """Return which EvictionRequests are to be cleared away: those for pods that are not to leave by one now."""
        uses_requests = self.policy.eviction_requests and not self.policy.disable_eviction
        wanted = {
            selected.pod.uid for selected in self.selection.pods_to_evict if uses_requests and self._has_turn(selected)
        }
        return eviction_api.eviction_request_cleanups(
            self.observation.evictions, wanted=wanted, present={pod.uid for pod in self.observation.pods}
        )

    def _needs_eviction_requests(self) -> bool:
        """Tell whether EvictionRequests count; where they are used, even those that a predecessor left behind do."""
        return self.policy.eviction_requests or any(
            eviction_api.uses_eviction_requests(selected.pod, self.policy) for selected in self.selection.pods_to_evict
        )

    def _needs_list(self) -> bool:
        """Tell whether the copy is in doubt, and was not verified of late."""
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

    # How it is told

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
    """Return when a pod that is leaving was told to, and until when it has time."""
    ends_at = pod.metadata.deletion_timestamp
    if ends_at is None:
        raise ValueError(f"{pod.key} was not told to go")
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
    """Return it in words; of pods that were told together it is the same, at each look."""
    return f"has time to end until {until:%H:%M:%S} UTC"


def _requested_step(tracked: TrackedPod) -> EscalationStep | None:
    """Return by what a pod was told to go, or is being told right now; None if that was not us."""
    return tracked.in_flight or tracked.accepted_step or (EscalationStep.EVICT if tracked.requested_at else None)


def _longest_wait_first(candidate: tuple[datetime, PodAction]) -> tuple[datetime, int]:
    """Sort by who was asked longest ago, and then by who may need the longest to end."""
    last_attempt_at, action = candidate
    return last_attempt_at, -action.pod.spec.termination_grace_period_seconds


def _next_step_message(escalation: Escalation, now: datetime) -> str:
    """Return what will be done about it, if anything will."""
    for at, step_text in ((escalation.delete_at, "it is deleted"), (escalation.force_delete_at, "it is killed")):
        if at is not None and at > now:
            return f"; {step_text} at {at:%H:%M:%S} UTC if that does not change"
    return ""
