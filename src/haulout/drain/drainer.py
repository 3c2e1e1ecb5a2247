"""One drain: executes the decisions of `haulout.drain.decision` from the first pod list until the node is empty.

    drainer = Drainer(client, "n1", policy, on_progress=show)
    outcome = await drainer.run()

It watches the node's pods, decides when something changed or `requeue_at` has come, and sends requests in parallel. It
does not poll. It reports values; the caller writes logs, events and status.

While all remaining pods are terminating or being evicted, a decision can only update the count. Pod changes are then
batched for a moment, unless the last pod has gone or a request is refused. A decision about twenty pods costs more than
all other work for one of them.

- The drain ends when a list from the API server, made after the last pod was gone from the cache, shows that no pod is
  left, or when the decision has another result. Failed requests are retried with a backoff that spares the API server.
- Pods are evicted by the API that `haulout.drain.eviction_api` chooses. No EvictionRequest is left behind.
- `set_policy` and `stop` may be called at any time. After `stop`, nothing is sent, and `run` returns as soon as the
  requests in flight are answered. Cancelling the task of `run` does not wait for them.
- With `waiting`, the drain watches and reports, and evicts nothing until `begin`. `taints` are those that the node gets
  until then; they decide whether DaemonSet pods leave.
- With `keep_running`, the drain continues after the node is empty and evicts pods that come later. `outcome` tells
  whether the node is empty right now.
- All tasks of the drain end with `run`. A successor continues from `DrainProgress.checkpoint`.
- `on_pod_requested` is called once per pod and step, however many attempts the step takes.
- `on_response` is called after each attempt, with the blocker or None.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.objects import Pod, Taint
from haulout.api.resources import PODS
from haulout.core import text
from haulout.core.backoff import RECONNECT, Backoff
from haulout.core.clock import SET_BACK_TOLERANCE, wall_clock_offset
from haulout.core.retry import Retry
from haulout.drain import blockers
from haulout.drain.blockers import Blocker
from haulout.drain.decision import DrainDecision, DrainObservation, PodAction, decide
from haulout.drain.escalation import EscalationStep
from haulout.drain.eviction_api import EvictionApi
from haulout.drain.eviction_client import EvictionClient, is_gone
from haulout.drain.eviction_requests import EvictionRequestManager, RequestOwner
from haulout.drain.lookups import LookupCache
from haulout.drain.pdb_watch import PodDisruptionBudgetWatch
from haulout.drain.pod_filters import aggregate_errors
from haulout.drain.pod_informers import NodePodInformer, PodSource, PresentPods, node_field_selector
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import (
    DrainOutcome,
    DrainProgress,
    OutcomeResult,
    PodDrainState,
    drained_message,
    timed_out_message,
)
from haulout.drain.state import Checkpoint, TrackedDrain, pdb_of_retry_key
from haulout.drain.volumes import VolumeAttachmentInformer
from haulout.errors import ApiError, KubeError
from haulout.kube.client import Client

# kubectl drain retries a refused eviction every 5 seconds (staging/src/k8s.io/kubectl/pkg/drain/drain.go).
_RETRY = Backoff(first=timedelta(seconds=5), factor=1.5, limit=timedelta(seconds=30), jitter=0.2)
_RETRY_WHEN_WATCHED = timedelta(seconds=30)  # for pods whose PodDisruptionBudget is watched
_MAX_RETRY_AFTER = timedelta(minutes=5)
_STALENESS_REPORT_INTERVAL = timedelta(seconds=5)  # the end of staleness triggers no event
_BATCH_INTERVAL = timedelta(milliseconds=250)  # while the drain only waits for pods to terminate
_STOP_TIMEOUT = timedelta(seconds=5)  # for requests in flight
_SENDING = "sending"  # name of the tasks that send requests
_WAITING_MESSAGE = "leaves when the drain begins"


class Drainer:
    """Drains one node. Call `run` at most once."""

    def __init__(  # noqa: PLR0913 - one per option of a drain
        self,
        client: Client,
        node: str,
        policy: DrainPolicy,
        *,
        eviction_client: EvictionClient | None = None,
        pods: PodSource | None = None,
        checkpoint: Checkpoint | None = None,
        waiting: bool = False,
        keep_running: bool = False,
        taints: tuple[Taint, ...] = (),
        volumes: VolumeAttachmentInformer | None = None,
        owner: RequestOwner | None = None,
        on_progress: Callable[[DrainProgress], object] | None = None,
        on_pod_requested: Callable[[Pod, EscalationStep], object] | None = None,
        on_response: Callable[[EscalationStep, EvictionApi, Blocker | None], object] | None = None,
    ) -> None:
        # The field selector `spec.nodeName=` selects the pods that are not scheduled yet, in all namespaces.
        if not node:
            raise ValueError("a drain needs the name of a node: without it, all unscheduled pods would match")
        self.node = node
        self._client = client
        self._clock = client.clock
        self._policy = policy
        self._eviction_client = EvictionClient(client) if eviction_client is None else eviction_client
        self._source: PodSource = NodePodInformer(client, node) if pods is None else pods
        self._on_progress = on_progress
        self._on_pod_requested = on_pod_requested
        self._on_response = on_response
        self._reported_requests: set[tuple[str, EscalationStep]] = set()
        self._wake = asyncio.Event()
        self._batch_timer: asyncio.TimerHandle | None = None
        self._batch_until = 0.0  # monotonic
        self._clock_offset = wall_clock_offset(client.clock)
        self._awaited_pods: set[str] = set()  # UIDs, while the drain only waits for these pods to terminate
        self._present_pods = PresentPods(self._source, on_change=self._handle_pod_change)
        self._lookups = LookupCache(client)
        self._pdb_watch = PodDisruptionBudgetWatch(client, on_allowed=self._handle_pdb_allows)
        owner = RequestOwner(name=node) if owner is None else owner
        self._eviction_requests = EvictionRequestManager(
            client, owner, limiter=self._eviction_client.limiter, on_change=self._wake.set
        )
        self._checkpoint = checkpoint
        self._state = self._initial_state()
        self.progress = DrainProgress(node=node, started=self._state.started, percent=self._state.percent)
        self.outcome: DrainOutcome | None = None
        self._is_waiting = waiting
        self._keeps_running = keep_running
        self._volumes = VolumeAttachmentInformer(client) if volumes is None else volumes
        self._owns_volumes = volumes is None
        self._unsubscribe_volumes: Callable[[], None] | None = None
        self._taints = taints  # that the node gets before the drain begins
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._is_synced = False
        self._is_stopping = False
        self._is_handed_over = False
        self._is_listing = False
        self._is_confirmed = False  # by a list that was made when no pod seemed to be left
        self._list_retry = Retry(client.clock, client.random, RECONNECT)
        self._list_again_at = 0.0  # monotonic
        self._list_problem = ""

    # Callable at any time

    def set_policy(self, policy: DrainPolicy) -> None:
        """Continue with another policy. Requests in flight are not taken back."""
        self._policy = policy
        self._wake.set()

    def begin(self) -> None:
        """Start evicting pods if the drain was created with `waiting`."""
        if self._is_waiting:
            self._is_waiting = False
            self._lookups.forget_node()
            self._state = self._initial_state()  # the state tracked while waiting does not count
            self._wake.set()

    @property
    def is_waiting(self) -> bool:
        return self._is_waiting

    def stop(self, *, hands_over: bool = False) -> None:
        """Stop evicting pods, and let `run` return.

        EvictionRequests are withdrawn unless `hands_over`: a successor then continues with them.
        """
        self._is_stopping = True
        self._is_handed_over = hands_over
        self._wake.set()

    # The drain

    async def run(self) -> DrainOutcome:
        if self._group is not None:
            raise RuntimeError(f"the drain of node {self.node} has already run: create another one")
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start_task(self._run_pod_source())
                self._start_task(self._wait_synced())
                self._start_task(self._eviction_requests.run())
                if self._owns_volumes:
                    self._start_task(self._volumes.run())
                try:
                    with self._present_pods.subscribed():
                        return await self._drain(group)
                finally:
                    self._pdb_watch.close()
                    # Unsubscribe in any case: the informer may belong to the manager and outlive this drain.
                    self._watch_volumes(is_needed=False)
                    for task in self._tasks:
                        task.cancel()
        except BaseExceptionGroup as failures:
            # The caller handles KubeError and LeadershipLost, not groups. The tasks of a drain fail for the same
            # reason.
            raise failures.exceptions[0] from None

    async def _drain(self, group: asyncio.TaskGroup) -> DrainOutcome:
        while True:
            # Before the observation, so that a change during the decision is not lost.
            self._wake.clear()
            observed_at = self._clock.monotonic()
            self._batch_until = observed_at + _BATCH_INTERVAL.total_seconds()
            decision = self._decide() if self._is_synced else self._decision_before_sync()
            self._state = decision.state
            self.outcome = self._outcome_of(decision)
            self._report(decision.progress if self.outcome is None else self.outcome.progress)
            if decision.needs_eviction_requests:
                self._eviction_requests.enable()
            self._watch_volumes(is_needed=decision.needs_volumes)
            if self._is_stopping:
                return await self._clean_up(await self._finish_stop())
            if self.outcome is not None and not (self._keeps_running and self.outcome.is_drained):
                return await self._clean_up(self.outcome)
            self._act(decision)
            self._awaited_pods = _awaited_pods(decision)
            self._pdb_watch.watch((active.blocker.object for active in decision.progress.blockers), group)
            await self._wait_for_change(decision, observed_at)

    def _now(self) -> datetime:
        """Return the wall time. If the clock was set, shift all recorded times first."""
        now = self._clock.now()
        clock_offset = wall_clock_offset(self._clock)
        shift = timedelta(seconds=clock_offset - self._clock_offset)
        if abs(shift) >= SET_BACK_TOLERANCE:
            self._clock_offset = clock_offset
            self._state = self._state.shift_clock(shift)
        return now

    def _decide(self) -> DrainDecision:
        pods = self._present_pods.pods()
        observation = DrainObservation(
            node=self.node,
            pods=pods,
            daemon_sets=self._lookups.daemon_sets,
            namespaces=self._lookups.namespaces,
            node_ready=self._lookups.node_ready,
            taints=self._node_taints(),
            evictions=self._eviction_requests.observe(pods),
            attachments=None if self._unsubscribe_volumes is None else self._volumes.of_node(self.node),
            attachments_problem=self._volumes.problem,
            claims=self._lookups.claims,
            stale_reason=self._source.stale_reason or self._list_problem,
        )
        if self.outcome is not None:
            return self._decide_after_empty(observation)
        now = self._now()
        if self._is_waiting:
            return _observe_only(decide(observation, self._state, self._policy.without_completion_limits, now=now))
        return decide(observation, self._state, self._policy, now=now)

    def _watch_volumes(self, *, is_needed: bool) -> None:
        if is_needed and self._unsubscribe_volumes is None:
            self._unsubscribe_volumes = self._volumes.subscribe(self.node, on_change=self._wake.set)
        elif not is_needed and self._unsubscribe_volumes is not None:
            self._unsubscribe_volumes()
            self._unsubscribe_volumes = None

    def _node_taints(self) -> tuple[Taint, ...] | str | None:
        known = self._lookups.taints
        return (*known, *self._taints) if self._is_waiting and isinstance(known, tuple) else known

    def _decide_after_empty(self, observation: DrainObservation) -> DrainDecision:
        """Decide about a node that was empty before. For pods that came since, the drain's timeout starts now."""
        now = self._now()
        # Without the timeout, which counted from the start: a pod that comes hours later would find it expired.
        decision = decide(observation, self._state, replace(self._policy, timeout=None), now=now)
        if decision.result is OutcomeResult.DRAINED:
            return decision
        return decide(observation, replace(self._state, started=now), self._policy, now=now)

    def _initial_state(self) -> TrackedDrain:
        return TrackedDrain(started=self._now()) if self._checkpoint is None else TrackedDrain.resume(self._checkpoint)

    def _decision_before_sync(self) -> DrainDecision:
        now, limit = self._now(), self._policy.timeout
        deadline = None if limit is None or self._is_waiting else self._state.started + limit
        progress = replace(self.progress, stale_reason=self._source.stale_reason, deadline=deadline)
        is_timed_out = deadline is not None and now >= deadline
        requeue_at = now + _STALENESS_REPORT_INTERVAL
        return DrainDecision(
            state=self._state,
            progress=progress,
            requeue_at=requeue_at if deadline is None else min(deadline, requeue_at),
            result=OutcomeResult.TIMED_OUT if is_timed_out else None,
        )

    def _outcome_of(self, decision: DrainDecision) -> DrainOutcome | None:
        match decision.result:
            case None:
                self._is_confirmed = False
                return None
            # The cache may lag. An empty cache is only a reason to list.
            case OutcomeResult.DRAINED if not self._is_confirmed:
                return None
            case OutcomeResult.DRAINED:
                progress = replace(decision.progress, percent=100)
                return DrainOutcome(OutcomeResult.DRAINED, drained_message(progress), progress)
            case OutcomeResult.REFUSED:
                return DrainOutcome(
                    OutcomeResult.REFUSED, aggregate_errors(decision.problems), decision.progress, decision.problems
                )
        message = timed_out_message(decision.progress, self._policy.timeout)
        return DrainOutcome(OutcomeResult.TIMED_OUT, message, decision.progress)

    def _act(self, decision: DrainDecision) -> None:
        for cleanup in decision.cleanups:
            self._start_task(self._eviction_requests.clean_up(cleanup))
        for request in self._lookups.due_requests(decision.lookups):
            self._start_task(self._look_up(request))
        now = self._now()
        for action in decision.actions:
            uid = action.pod.uid
            self._state = self._state.record_attempt(uid, action.step, at=now, retry_key=action.retry_key)
            self._pdb_watch.mark_used(pdb_of_retry_key(action.retry_key))
            self._start_task(self._execute(action), name=_SENDING)
        wants_list = decision.needs_list or (decision.result is OutcomeResult.DRAINED and not self._is_confirmed)
        may_list = self._list_again_at <= self._clock.monotonic()
        if wants_list and may_list and not self._is_listing:
            self._is_listing = True
            self._start_task(self._list_pods())

    async def _wait_for_change(self, decision: DrainDecision, observed_at: float) -> None:
        """Wait until something changed or a requeue time has come, even one that came during the last decision."""
        now, monotonic_now = self._now(), self._clock.monotonic()
        staleness_report_at = now + _STALENESS_REPORT_INTERVAL if decision.progress.stale_reason else None
        waits = [
            (value - now).total_seconds() for value in (decision.requeue_at, staleness_report_at) if value is not None
        ]
        retry_times = (self._lookups.next_retry_at, self._list_again_at)
        waits += [value - monotonic_now for value in retry_times if value is not None and value > observed_at]
        wait = max(min(waits), 0.0) if waits else None
        # A timer is not affected when the wall clock is set.
        timer = None if wait is None else asyncio.get_running_loop().call_later(wait, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            for value in (timer, self._batch_timer):
                if value is not None:
                    value.cancel()
            self._batch_timer = None

    def _handle_pod_change(self, uid: str, *, is_gone: bool) -> None:
        """Decide at once if the change can matter, and in a batch otherwise."""
        if is_gone:
            self._awaited_pods.discard(uid)
        if self._awaited_pods and (is_gone or uid in self._awaited_pods):
            self._wake_in_batch()
        else:
            self._wake.set()

    def _wake_in_batch(self) -> None:
        wait = self._batch_until - self._clock.monotonic()
        if wait <= 0:
            self._wake.set()
        elif self._batch_timer is None:
            self._batch_timer = asyncio.get_running_loop().call_later(wait, self._wake.set)

    async def _finish_stop(self) -> DrainOutcome:
        """Wait for the requests in flight, so that the reported progress is true."""
        await self._wait_for_responses()
        if self._is_synced:
            self._report(self._decide().progress)
        pods_left = text.format_pod_count(len(self.progress.pods))
        message = f"stopped before node {self.node} was drained; still to leave: {pods_left}"
        return DrainOutcome(OutcomeResult.CANCELLED, message, self.progress)

    async def _wait_for_responses(self) -> None:
        # Lookups and watches change nothing in the cluster, so nobody waits for them.
        sending = [task for task in self._tasks if task.get_name() == _SENDING]
        if sending:
            await asyncio.wait(sending, timeout=_STOP_TIMEOUT.total_seconds())

    async def _clean_up(self, outcome: DrainOutcome) -> DrainOutcome:
        """Remove the EvictionRequests of a drain that is over."""
        if self._is_handed_over or not self._eviction_requests.is_enabled:
            return outcome
        self._is_stopping = True
        await self._wait_for_responses()
        leftovers = await self._eviction_requests.finish({pod.uid for pod in self._present_pods.pods()})
        return replace(outcome, message=f"{outcome.message}; {leftovers}") if leftovers else outcome

    def _report(self, progress: DrainProgress) -> None:
        if progress != self.progress:
            self.progress = progress
            if self._on_progress is not None:
                self._on_progress(progress)

    # Background tasks

    def _start_task(self, coroutine: Coroutine[Any, Any, None], *, name: str | None = None) -> None:
        if self._group is None:
            raise RuntimeError("the drain is not running")
        task = self._group.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_pod_source(self) -> None:
        await self._source.run()

    async def _wait_synced(self) -> None:
        await self._source.wait_synced()
        self._is_synced = True
        self._wake.set()

    async def _look_up(self, request: LookupRequest) -> None:
        await self._lookups.look_up(request)
        self._wake.set()

    async def _list_pods(self) -> None:
        """List the node's pods from the API server, to confirm or correct the cache."""
        try:
            page = await self._client.list(PODS, fields=node_field_selector(self.node))
        except KubeError as error:
            self._list_problem = str(error)
            self._list_again_at = self._clock.monotonic() + self._list_retry.delay(error).total_seconds()
        else:
            self._list_retry.reset()
            self._list_again_at, self._list_problem = 0.0, ""
            self._present_pods.confirm(page)
            now = self._now()
            self._state = self._state.record_verified(at=now)
            self._is_confirmed = True
        finally:
            self._is_listing = False
            self._wake.set()

    async def _execute(self, action: PodAction) -> None:
        uid, problem = action.pod.uid, ""
        try:
            # A stop must not wait for requests that have not begun: look again once it is this one's turn.
            async with self._eviction_client.limiter:
                if self._is_stopping:
                    self._state = self._state.record_not_sent(uid)
                    self._wake.set()
                    return
                self._report_request(action)
                if action.api is EvictionApi.REQUEST:
                    problem = await self._eviction_requests.create(action.pod)
                else:
                    await self._eviction_client.send(action)
        except KubeError as error:
            self._handle_refusal(action, error)
            self._wake.set()
        else:
            self._handle_success(action, problem)
            if action.step is EscalationStep.EVICT:
                self._handle_pod_change(uid, is_gone=False)
            else:
                self._wake.set()  # a deleted pod may be gone at once, and the progress must tell how it went
        finally:
            # The status may have changed while the request was in flight, and that change has already been reported.
            if self._pdb_watch.allows_disruption(pdb_of_retry_key(action.retry_key)):
                self._handle_pdb_allows(pdb_of_retry_key(action.retry_key))

    def _report_request(self, action: PodAction) -> None:
        pod_and_step = action.pod.uid, action.step
        if self._on_pod_requested is not None and pod_and_step not in self._reported_requests:
            self._reported_requests.add(pod_and_step)
            self._on_pod_requested(action.pod, action.step)

    def _handle_success(self, action: PodAction, problem: str) -> None:
        uid, now = action.pod.uid, self._now()
        if self._on_response is not None and not problem:
            self._on_response(action.step, action.api, None)
        if action.api is EvictionApi.REQUEST:
            self._state = self._state.record_eviction_request(uid, at=now, problem=problem)
            return
        # The watch reports when the budget allows the next disruption. An attempt before that would be refused.
        wait = _RETRY_WHEN_WATCHED if self._pdb_watch.is_watched(pdb_of_retry_key(action.retry_key)) else timedelta()
        self._state = self._state.record_accepted(uid, at=now, wait=wait)

    def _handle_refusal(self, action: PodAction, error: KubeError) -> None:
        uid, now = action.pod.uid, self._now()
        if is_gone(error):
            self._state = self._state.record_not_found(uid, at=now, wait=_RETRY.first)
            return
        blocker = blockers.refusal_blocker(action.pod, error)
        if self._on_response is not None:
            self._on_response(action.step, action.api, blocker)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        # The watch wakes the drain. This retry is only for the case that the watch lies, for example behind a stale
        # server.
        if retry_after is None and self._pdb_watch.is_watched(blocker.object):
            retry_after = _RETRY_WHEN_WATCHED
        elif retry_after is None:
            retry_after = _RETRY.delay(self._state.refusal_count(uid, blocker) + 1, self._client.random)
        wait = min(retry_after, _MAX_RETRY_AFTER)
        self._state = self._state.record_refusal(uid, blocker, at=now, wait=wait)

    def _handle_pdb_allows(self, pdb: str) -> None:
        """Retry the next pod that waits for the PodDisruptionBudget, which allows a disruption now."""
        now = self._now()
        self._state = self._state.retry_now(pdb, at=now)
        self._wake.set()


def _awaited_pods(decision: DrainDecision) -> set[str]:
    """Return the remaining pods if all of them were requested to leave; otherwise an empty set."""
    requested = {action.pod.uid for action in decision.actions}
    remaining = decision.progress.pods
    if decision.lookups or not all(pod.requested_step is not None or pod.uid in requested for pod in remaining):
        return set()
    return {pod.uid for pod in remaining}


def _observe_only(decision: DrainDecision) -> DrainDecision:
    """Return the decision of a drain that has not begun: progress without actions or result."""
    queued = {"state": PodDrainState.QUEUED, "message": _WAITING_MESSAGE, "turn_since": None, "next_at": None}
    pods = tuple(msgspec.structs.replace(pod, **queued) for pod in decision.progress.pods)
    progress = replace(decision.progress, pods=pods, deadline=None, volumes=(), volumes_until=None)
    return DrainDecision(state=decision.state, progress=progress, lookups=decision.lookups)
