"""One drain: does what `haulout.drain.plan` decides, from the first look at a node's pods until it is empty.

    drain = Drain(client, "n1", policy, lane=lane, on_progress=show)
    outcome = await drain.run()

It follows the node's pods by a watch, decides whenever something changed or an instant has come, and sends requests in
parallel. It polls nothing. It reports values, and leaves logs, events and status to whoever runs it.

While all pods that are left were told to go, or are being told, there is nothing to do but to count them: changes are
then gathered for a moment, unless the last pod has gone, or somebody refuses. A decision about twenty pods costs more
than all else about one of them.

- It ends when a list from the server, made after the last pod had been seen to go, shows that nothing is left; or
  with a verdict. What it cannot do it tries again, at a pace that spares the server.
- It asks pods the way that `haulout.drain.ways` says, and leaves none of its EvictionRequests behind.
- `change` gives it another policy and `stop` ends it, at any time: nothing is sent after that, and `run` returns as
  soon as the requests under way are answered. Cancelling the task of `run` does not even wait for these.
- One that is made `waiting` looks and reports, and touches nothing until `begin`; `taints` are those that the node gets
  until then, which decide whether pods of DaemonSets leave. One that is `lasting` goes on after
  the node is empty, and makes those leave that come later: `outcome` tells whether the node is empty right now.
- All its tasks end with `run`. What a successor needs to go on is in `Progress.checkpoint`.
- `on_asked` hears of each pod that is asked to leave, told to, or ended: once of each, however many tries it takes.
  `on_answer` hears what came of each try: nothing, or who said no.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core.backoff import Backoff
from haulout.core.clock import SET_BACK, offset
from haulout.drain import blockers, verdicts, words
from haulout.drain.answers import Answers
from haulout.drain.blockers import Blocker
from haulout.drain.evictionrequests import EvictionRequests, Owner
from haulout.drain.ladder import Rung
from haulout.drain.memory import Checkpoint, Memory, budget_of
from haulout.drain.openings import PREFIX, Openings
from haulout.drain.plan import Action, Plan, View, decide
from haulout.drain.pods import PodSource, Presence, WatchedPods, on_node
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending, Outcome, Progress, State
from haulout.drain.requests import Lane, is_gone
from haulout.drain.selection import aggregate
from haulout.drain.sorting import Question
from haulout.drain.volume_watch import VolumeAttachments
from haulout.drain.ways import Way
from haulout.errors import ApiError, KubeError
from haulout.kube.client import Client
from haulout.kube.objects import Pod, Taint
from haulout.kube.resources import PODS

_RETRY = Backoff(first=timedelta(seconds=5), factor=1.5, limit=timedelta(seconds=30), jitter=0.2)
_NOTICED_ANYWAY = timedelta(seconds=30)  # for pods whose budget is watched
_LONGEST_RETRY_AFTER = timedelta(minutes=5)
_LIST_RETRY = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)
_TROUBLE_REPORTED_EVERY = timedelta(seconds=5)  # nobody tells when it is over
_GATHERED_FOR = timedelta(milliseconds=250)  # while nothing but the going of pods is waited for
_ANSWERED_WITHIN = timedelta(seconds=5)  # once it is to stop
_SENDING = "sending"  # the name of tasks
_WAITS = "leaves when the drain begins"


class Drain:
    """One node being emptied. `run` may be called once."""

    def __init__(  # noqa: PLR0913 - what drains may differ in
        self,
        client: Client,
        node: str,
        policy: Policy,
        *,
        lane: Lane | None = None,
        pods: PodSource | None = None,
        checkpoint: Checkpoint | None = None,
        waiting: bool = False,
        lasting: bool = False,
        taints: tuple[Taint, ...] = (),
        volumes: VolumeAttachments | None = None,
        owner: Owner | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        on_asked: Callable[[Pod, Rung], object] | None = None,
        on_answer: Callable[[Rung, Way, Blocker | None], object] | None = None,
    ) -> None:
        if not node:
            raise ValueError("a drain needs the name of a node: pods that are on none would be meant otherwise")
        self.node = node
        self._client = client
        self._clock = client.clock
        self._policy = policy
        self._lane = Lane(client) if lane is None else lane
        self._source: PodSource = WatchedPods(client, node) if pods is None else pods
        self._on_progress = on_progress
        self._on_asked = on_asked
        self._on_answer = on_answer
        self._told_of: set[tuple[str, Rung]] = set()
        self._bell = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._gathers_until = 0.0  # by the monotonic clock
        self._offset = offset(client.clock)
        self._awaited: set[str] = set()  # uids of pods, if nothing but their going is waited for
        self._presence = Presence(self._source, changed=self._note_pod)
        self._answers = Answers(client)
        self._openings = Openings(client, opened=self._note_opening)
        owner = Owner(name=node) if owner is None else owner
        self._requests = EvictionRequests(client, owner, gate=self._lane.gate, changed=self._bell.set)
        self._checkpoint = checkpoint
        self._memory = self._first_memory()
        self.progress = Progress(node=node, started=self._memory.started, percent=self._memory.percent)
        self.outcome: Outcome | None = None
        self._is_waiting = waiting
        self._is_lasting = lasting
        self._volumes = VolumeAttachments(client) if volumes is None else volumes
        self._owns_volumes = volumes is None
        self._leave_volumes: Callable[[], None] | None = None
        self._taints = taints  # that the node gets before the drain begins
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._is_synced = False
        self._is_stopping = False
        self._is_handed_over = False
        self._is_listing = False
        self._is_confirmed = False  # by a list that was made when nothing seemed to be left
        self._list_failures = 0
        self._list_again_at = 0.0  # by the monotonic clock
        self._list_problem = ""

    # For others, at any time

    def change(self, policy: Policy) -> None:
        """Go on by another policy."""
        self._policy = policy
        self._bell.set()

    def begin(self) -> None:
        """Let pods leave from now on, if it waited with that."""
        if self._is_waiting:
            self._is_waiting = False
            self._answers.forget_node()
            self._memory = self._first_memory()  # what was noted down while it waited does not count
            self._bell.set()

    @property
    def is_waiting(self) -> bool:
        """Tell whether it has yet to begin."""
        return self._is_waiting

    def stop(self, *, hands_over: bool = False) -> None:
        """Ask no further pod to leave, and let `run` return.

        EvictionRequests are withdrawn, unless a successor goes on: then what was begun because of them goes on, too.
        """
        self._is_stopping = True
        self._is_handed_over = hands_over
        self._bell.set()

    def hurry(self, namespace: str) -> None:
        """Ask pods of a namespace again that wait for a disruption budget: a pod became ready there."""
        now = self._now()
        self._memory = self._memory.hurried(f"{PREFIX}{namespace}/", at=now)
        self._bell.set()

    # The drain

    async def run(self) -> Outcome:
        """Drain the node; return how that ended."""
        if self._group is not None:
            raise RuntimeError(f"the drain of node {self.node} has run already: make another")
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start(self._follow())
                self._start(self._first_look())
                self._start(self._requests.run())
                if self._owns_volumes:
                    self._start(self._volumes.run())
                try:
                    with self._presence.following():
                        return await self._drain(group)
                finally:
                    self._openings.close()
                    self._follow_volumes(is_needed=False)
                    for task in self._tasks:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _drain(self, group: asyncio.TaskGroup) -> Outcome:
        while True:
            self._bell.clear()
            looked_at = self._clock.monotonic()
            self._gathers_until = looked_at + _GATHERED_FOR.total_seconds()
            plan = self._decided() if self._is_synced else self._before_the_first_look()
            self._memory = plan.memory
            self.outcome = self._ended(plan)
            self._report(plan.progress if self.outcome is None else self.outcome.progress)
            if plan.needs_evictions:
                self._requests.want()
            self._follow_volumes(is_needed=plan.needs_volumes)
            if self._is_stopping:
                return await self._cleared(await self._stopped())
            if self.outcome is not None and not (self._is_lasting and self.outcome.is_drained):
                return await self._cleared(self.outcome)
            self._act(plan)
            self._awaited = _awaited(plan)
            self._openings.follow((it.blocker.object for it in plan.progress.blockers), group)
            await self._rest(plan, looked_at)

    def _now(self) -> datetime:
        """Return the wall time; if that was set, what was noted by it is moved along before anything else is."""
        now = self._clock.now()
        ahead = offset(self._clock)
        by = timedelta(seconds=ahead - self._offset)
        if abs(by) >= SET_BACK:
            self._offset = ahead
            self._memory = self._memory.shifted(by)
        return now

    def _decided(self) -> Plan:
        pods = self._presence.pods()
        view = View(
            node=self.node,
            pods=pods,
            daemon_sets=self._answers.daemon_sets,
            namespaces=self._answers.namespaces,
            node_ready=self._answers.node_ready,
            taints=self._node_taints(),
            evictions=self._requests.seen(pods),
            attachments=None if self._leave_volumes is None else self._volumes.on(self.node),
            attachments_problem=self._volumes.problem,
            claims=self._answers.claims,
            trouble=self._source.trouble or self._list_problem,
        )
        if self.outcome is not None:
            return self._decided_anew(view)
        now = self._now()
        if self._is_waiting:
            return _only_looking(decide(view, self._memory, self._policy.without_completion_limits, now=now))
        return decide(view, self._memory, self._policy, now=now)

    def _follow_volumes(self, *, is_needed: bool) -> None:
        """Have VolumeAttachments followed while they count."""
        if is_needed and self._leave_volumes is None:
            self._leave_volumes = self._volumes.join(self.node, changed=self._bell.set)
        elif not is_needed and self._leave_volumes is not None:
            self._leave_volumes()
            self._leave_volumes = None

    def _node_taints(self) -> tuple[Taint, ...] | str | None:
        known = self._answers.taints
        return (*known, *self._taints) if self._is_waiting and isinstance(known, tuple) else known

    def _decided_anew(self, view: View) -> Plan:
        """Decide about a node that was empty: for pods that came since, the time that the drain may take begins now."""
        now = self._now()
        plan = decide(view, self._memory, replace(self._policy, timeout=None), now=now)
        if plan.ending is Ending.DRAINED:
            return plan
        return decide(view, replace(self._memory, started=now), self._policy, now=now)

    def _first_memory(self) -> Memory:
        return Memory(started=self._now()) if self._checkpoint is None else Memory.resume(self._checkpoint)

    def _before_the_first_look(self) -> Plan:
        now, limit = self._now(), self._policy.timeout
        deadline = None if limit is None or self._is_waiting else self._memory.started + limit
        progress = replace(self.progress, trouble=self._source.trouble, deadline=deadline)
        late = deadline is not None and now >= deadline
        look_again_at = now + _TROUBLE_REPORTED_EVERY
        return Plan(
            memory=self._memory,
            progress=progress,
            wakes_at=look_again_at if deadline is None else min(deadline, look_again_at),
            ending=Ending.TIMED_OUT if late else None,
        )

    def _ended(self, plan: Plan) -> Outcome | None:
        match plan.ending:
            case None:
                self._is_confirmed = False
                return None
            case Ending.DRAINED if not self._is_confirmed:
                return None
            case Ending.DRAINED:
                progress = replace(plan.progress, percent=100)
                return Outcome(Ending.DRAINED, verdicts.drained(progress), progress)
            case Ending.REFUSED:
                return Outcome(Ending.REFUSED, aggregate(plan.problems), plan.progress, plan.problems)
        why = verdicts.timed_out(plan.progress, self._policy.timeout)
        return Outcome(Ending.TIMED_OUT, why, plan.progress)

    def _act(self, plan: Plan) -> None:
        for chore in plan.chores:
            self._start(self._requests.do(chore))
        for question in self._answers.open(plan.questions):
            self._start(self._ask(question))
        now = self._now()
        for action in plan.actions:
            uid = action.pod.uid
            self._memory = self._memory.ask(uid, action.rung, at=now, pace=action.pace)
            self._openings.use(budget_of(action.pace))
            self._start(self._perform(action), name=_SENDING)
        wants_list = plan.verifies or (plan.ending is Ending.DRAINED and not self._is_confirmed)
        may_list = self._list_again_at <= self._clock.monotonic()
        if wants_list and may_list and not self._is_listing:
            self._is_listing = True
            self._start(self._list())

    async def _rest(self, plan: Plan, looked_at: float) -> None:
        """Wait until something happened, or an instant has come, be it since the look."""
        now, moment = self._now(), self._clock.monotonic()
        in_trouble_at = now + _TROUBLE_REPORTED_EVERY if plan.progress.trouble else None
        waits = [(it - now).total_seconds() for it in (plan.wakes_at, in_trouble_at) if it is not None]
        again = (self._answers.wakes_at, self._list_again_at)
        waits += [it - moment for it in again if it is not None and it > looked_at]
        wait = max(min(waits), 0.0) if waits else None
        # Lengths of time stay the same when the wall clock is set.
        alarm = None if wait is None else asyncio.get_running_loop().call_later(wait, self._bell.set)
        try:
            await self._bell.wait()
        finally:
            for it in (alarm, self._gathering):
                if it is not None:
                    it.cancel()
            self._gathering = None

    def _note_pod(self, uid: str, *, is_gone: bool) -> None:
        """Look at once if that can make a difference, and else when more has come together."""
        if is_gone:
            self._awaited.discard(uid)
        if self._awaited and (is_gone or uid in self._awaited):
            self._look_soon()
        else:
            self._bell.set()

    def _look_soon(self) -> None:
        wait = self._gathers_until - self._clock.monotonic()
        if wait <= 0:
            self._bell.set()
        elif self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(wait, self._bell.set)

    async def _stopped(self) -> Outcome:
        """Let the requests under way be answered, so that what is told is true."""
        await self._answered()
        if self._is_synced:
            self._report(self._decided().progress)
        left = words.pods(len(self.progress.pods))
        why = f"stopped before node {self.node} was drained; still to leave: {left}"
        return Outcome(Ending.CANCELLED, why, self.progress)

    async def _answered(self) -> None:
        sending = [task for task in self._tasks if task.get_name() == _SENDING]
        if sending:
            await asyncio.wait(sending, timeout=_ANSWERED_WITHIN.total_seconds())

    async def _cleared(self, outcome: Outcome) -> Outcome:
        """Clear away the EvictionRequests of a drain that is over."""
        if self._is_handed_over or not self._requests.are_wanted:
            return outcome
        self._is_stopping = True
        await self._answered()
        left = await self._requests.finish({pod.uid for pod in self._presence.pods()})
        return replace(outcome, why=f"{outcome.why}; {left}") if left else outcome

    def _report(self, progress: Progress) -> None:
        if progress != self.progress:
            self.progress = progress
            if self._on_progress is not None:
                self._on_progress(progress)

    # What runs beside it

    def _start(self, work: Coroutine[Any, Any, None], *, name: str | None = None) -> None:
        if self._group is None:
            raise RuntimeError("a drain that does not run starts nothing")
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        await self._source.run()

    async def _first_look(self) -> None:
        await self._source.wait_synced()
        self._is_synced = True
        self._bell.set()

    async def _ask(self, question: Question) -> None:
        await self._answers.ask(question)
        self._bell.set()

    async def _list(self) -> None:
        """Have the server tell which pods are on the node right now."""
        try:
            page = await self._client.list(PODS, fields=on_node(self.node))
        except KubeError as error:
            self._list_failures += 1
            self._list_problem = str(error)
            wait = _LIST_RETRY.delay(self._list_failures, self._client.random)
            self._list_again_at = self._clock.monotonic() + wait.total_seconds()
        else:
            self._list_failures, self._list_again_at, self._list_problem = 0, 0.0, ""
            self._presence.confirm(page)
            now = self._now()
            self._memory = self._memory.verified(at=now)
            self._is_confirmed = True
        finally:
            self._is_listing = False
            self._bell.set()

    async def _perform(self, action: Action) -> None:
        """Send one request, and remember what came of it."""
        uid, problem = action.pod.uid, ""
        try:
            async with self._lane.gate:
                if self._is_stopping:
                    self._memory = self._memory.dropped(uid)
                    self._bell.set()
                    return
                self._tell_asked(action)
                if action.way is Way.REQUEST:
                    problem = await self._requests.ask(action.pod)
                else:
                    await self._lane.send(action)
        except KubeError as error:
            self._note_refusal(action, error)
            self._bell.set()
        else:
            self._note_answer(action, problem)
            if action.rung is Rung.EVICT:
                self._note_pod(uid, is_gone=False)
            else:
                self._bell.set()  # a pod that is deleted may be gone at once, and how is to be told
        finally:
            if self._openings.is_open(budget_of(action.pace)):
                self._note_opening(budget_of(action.pace))

    def _tell_asked(self, action: Action) -> None:
        what = action.pod.uid, action.rung
        if self._on_asked is not None and what not in self._told_of:
            self._told_of.add(what)
            self._on_asked(action.pod, action.rung)

    def _note_answer(self, action: Action, problem: str) -> None:
        uid, now = action.pod.uid, self._now()
        if self._on_answer is not None and not problem:
            self._on_answer(action.rung, action.way, None)
        if action.way is Way.REQUEST:
            self._memory = self._memory.requested(uid, at=now, problem=problem)
            return
        wait = _NOTICED_ANYWAY if self._openings.is_followed(budget_of(action.pace)) else timedelta()
        self._memory = self._memory.accepted(uid, at=now, wait=wait)

    def _note_refusal(self, action: Action, error: KubeError) -> None:
        uid, now = action.pod.uid, self._now()
        if is_gone(error):
            self._memory = self._memory.vanished(uid, at=now, wait=_RETRY.first)
            return
        blocker = blockers.refused(action.pod, error)
        if self._on_answer is not None:
            self._on_answer(action.rung, action.way, blocker)
        asked_for = error.retry_after if isinstance(error, ApiError) else None
        if asked_for is None and self._openings.is_followed(blocker.object):
            asked_for = _NOTICED_ANYWAY
        elif asked_for is None:
            asked_for = _RETRY.delay(self._memory.refusals(uid, blocker) + 1, self._client.random)
        wait = min(asked_for, _LONGEST_RETRY_AFTER)
        self._memory = self._memory.refused(uid, blocker, at=now, wait=wait)

    def _note_opening(self, budget: str) -> None:
        """Ask the next pod that waits for a budget, which has room."""
        now = self._now()
        self._memory = self._memory.hurried(budget, at=now)
        self._bell.set()


def _awaited(plan: Plan) -> set[str]:
    """Return the pods that are left, if there is nothing to do but to wait for them."""
    asked = {action.pod.uid for action in plan.actions}
    left = plan.progress.pods
    if plan.questions or not all(it.told is not None or it.uid in asked for it in left):
        return set()
    return {it.uid for it in left}


def _only_looking(plan: Plan) -> Plan:
    """Return how things stand before the drain begins: nothing is done, and nothing has ended."""
    queued = {"state": State.QUEUED, "words": _WAITS, "since": None, "next_at": None}
    pods = tuple(msgspec.structs.replace(pod, **queued) for pod in plan.progress.pods)
    progress = replace(plan.progress, pods=pods, deadline=None, volumes=(), volumes_until=None)
    return Plan(memory=plan.memory, progress=progress, questions=plan.questions)
