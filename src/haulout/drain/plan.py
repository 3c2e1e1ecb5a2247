"""What a drain does next: a decision from what is on the node, what is remembered, the policy and the time.

    plan = decide(view, memory, policy, now=now)
    plan.actions      pods to evict, delete or kill now
    plan.chores       EvictionRequests to withdraw or delete, for they are not needed any more
    plan.questions    what must be asked before some pod can be judged
    plan.verifies     list the node's pods, for the copy that was decided on may have missed something
    plan.wakes_at     when to decide again if nothing happens before
    plan.needs_volumes  VolumeAttachments count now
    plan.ending       a verdict, if it is over: `DRAINED` is yet to be confirmed by a list

It does no input or output and keeps nothing; the executor (`haulout.drain.engine`) decides nothing.

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

from haulout.core import duration
from haulout.drain import blockers, sorting, volumes, ways
from haulout.drain.blockers import Kind
from haulout.drain.ladder import ROOM_TO_END, Ladder, Rung, Told, ladder
from haulout.drain.memory import Memory, Pace, Trace, pace_of
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending, PodProgress, Progress, Standing, State
from haulout.drain.selection import DaemonSetAnswer
from haulout.drain.sorting import Question, Sorted, Traveller, leaves_last
from haulout.drain.volumes import VolumeAttachment
from haulout.drain.ways import Chore, Course, Evictions, Way
from haulout.drain.words import some
from haulout.kube.objects import Pod, Taint

# A pod whose time to end is up should be gone by then: if the copy still shows it, the copy may be wrong.
_DOUBT_AFTER = timedelta(seconds=5)
# The same for a pod that was told to go, but is not shown as going.
_DOUBT_UNTOLD_AFTER = timedelta(seconds=10)
_CUT_OFF = timedelta(seconds=1)  # Kubernetes writes instants without the fraction of their second
_NAMED = 5  # volumes
_MOST_UNCONFIRMED = 99  # percent, until a list has shown that nothing is left
_VERIFY_FIRST, _VERIFY_LATEST = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known about a node's pods at one moment."""

    node: str
    pods: Sequence[Pod]
    daemon_sets: Mapping[str, DaemonSetAnswer] = field(default_factory=dict)  # by namespace/name
    namespaces: Mapping[str, Mapping[str, str] | str] = field(default_factory=dict)  # labels, or why they are not known
    node_ready: bool | None = None  # None: not asked of late
    taints: tuple[Taint, ...] | str | None = None  # of the node, or why they are not known; None: not asked yet
    evictions: Evictions = ways.UNKNOWN
    attachments: tuple[VolumeAttachment, ...] | None = None  # of the node; None: not known
    attachments_problem: str = ""  # why not
    claims: Mapping[str, str] = field(default_factory=dict)  # by PersistentVolume: its claim, empty if none is known
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """One request about one pod."""

    rung: Rung
    pod: Pod
    grace: timedelta | None  # None: the pod's own
    pace: str
    way: Way = Way.EVICTION  # of asking it to leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, how things stand, and when to look again."""

    memory: Memory
    progress: Progress
    actions: tuple[Action, ...] = ()
    chores: tuple[Chore, ...] = ()
    needs_evictions: bool = False  # what is known of EvictionRequests counts
    needs_volumes: bool = False  # what is known of VolumeAttachments counts
    questions: tuple[Question, ...] = ()
    verifies: bool = False
    wakes_at: datetime | None = None
    ending: Ending | None = None
    problems: tuple[str, ...] = ()


def decide(view: View, memory: Memory, policy: Policy, *, now: datetime) -> Plan:
    """Return what to do about the pods in `view`."""
    memory = memory.seeing(view.pods, now=now)
    found = sorting.sort(
        view.pods,
        memory,
        policy,
        daemon_sets=view.daemon_sets,
        namespaces=view.namespaces,
        taints=view.taints,
        now=now,
    )
    draft = _Draft(view, memory, policy, found, now)
    return draft.plan()


class _Draft:
    """One decision in the making."""

    def __init__(self, view: View, memory: Memory, policy: Policy, found: Sorted, now: datetime) -> None:
        self.view = view
        self.memory = memory
        self.policy = policy
        self.found = found
        self.now = now
        self.deadline = None if policy.timeout is None else memory.started + policy.timeout
        self.wakes: list[datetime] = [] if self.deadline is None else [self.deadline]
        self.wakes += found.wakes
        self.doubts: list[datetime] = []
        self.asks_for_node = False
        self.candidates: list[tuple[datetime, Action]] = []  # with when they were asked the last time
        self.rows: list[PodProgress] = []
        self.waits_for_volumes = self.needs_volumes = False
        self.volumes: tuple[Standing, ...] = ()
        self.volumes_until: datetime | None = None
        self.volume_questions: tuple[Question, ...] = ()

    def plan(self) -> Plan:
        """Return the decision."""
        if not self.memory.begun and self._is_forbidden():
            self._look_at_refused()
            return self._end(Ending.REFUSED)
        if self.deadline is not None and self.now >= self.deadline and not self._has_only_volumes_left():
            self._look_at_all()
            return self._end(Ending.TIMED_OUT)
        if not self.memory.begun and self.found.questions:
            return self._finished(questions=self.found.questions)
        self.memory = replace(self.memory, begun=True)
        self._look_at_volumes()
        self._take_turns()
        self._look_at_all()
        if not self.found.travellers and not self.found.questions and not self.waits_for_volumes:
            return self._end(Ending.REFUSED if self.found.refused else Ending.DRAINED)
        questions = self.found.questions + self.volume_questions
        questions += (Question("node", self.view.node),) if self.asks_for_node else ()
        plan = self._finished(questions=questions, actions=self._chosen(), verifies=self._verifies())
        return replace(plan, chores=self._chores())

    def _is_forbidden(self) -> bool:
        return bool(self.found.refused) and not self.found.questions

    # Volumes of pods that have left

    def _has_only_volumes_left(self) -> bool:
        """Tell whether all pods left in time, and no more than volumes were waited for since."""
        pods = self.found.travellers or self.found.refused or self.found.questions
        return not pods and self.memory.detaching_since is not None

    def _look_at_volumes(self) -> None:
        """Find out whether the drain waits for volumes: from when no pod is left but daemons that leave last."""
        limit, memory = self.policy.volume_detach_timeout, self.memory
        last = [it for it in self.found.travellers if leaves_last(it.pod, self.policy)]
        has_more = len(last) < len(self.found.travellers) or self.found.questions or self.found.refused
        if has_more and (memory.detaching_since or memory.is_detached):
            self.memory = memory.without_volumes()
        if limit is None or has_more or memory.is_detached:
            return
        self.needs_volumes = True
        awaited = self._attached()
        since = self._detaching_since(awaited or ())
        until = self._detached_by(since + limit, last)
        self.memory = replace(memory, detaching_since=since, left_attached="")
        if awaited == ():
            pass
        elif self.now < until:
            self._wait_for_volumes(awaited, since=since, until=until)
        else:
            self.memory = replace(self.memory, left_attached=self._given_up(awaited, self.now - since))
        if not last and not self.waits_for_volumes:
            self.memory = replace(self.memory, is_detached=True)

    def _attached(self) -> tuple[VolumeAttachment, ...] | None:
        """Return what is attached to the node and used by no pod there; None if that is not known."""
        if self.view.attachments is None:
            return None
        used = set(volumes.claims_in_use(self.view.pods))
        found = [it for it in self.view.attachments if it.status.attached]
        return tuple(it for it in found if not self._claim(it) or self._claim(it) not in used)

    def _claim(self, it: VolumeAttachment) -> str:
        return self.view.claims.get(it.volume, "")

    def _detaching_since(self, awaited: tuple[VolumeAttachment, ...]) -> datetime:
        """Return since when volumes are waited for: be it by a predecessor, for one that is still attached."""
        inherited = {} if self.memory.inherited is None else self.memory.inherited.since
        return min([self.memory.detaching_since or self.now, *(inherited.get(it.uid, self.now) for it in awaited)])

    def _detached_by(self, until: datetime, last: Sequence[Traveller]) -> datetime:
        """Return until when volumes are waited for: so that daemons have the time to leave before the deadline."""
        if self.deadline is None:
            return until
        graces = [self.policy.limits_for(it.pod, it.rule).grace + ROOM_TO_END for it in last]
        return min(until, self.deadline - max(graces, default=timedelta()))

    def _wait_for_volumes(
        self, awaited: tuple[VolumeAttachment, ...] | None, *, since: datetime, until: datetime
    ) -> None:
        self.waits_for_volumes, self.volumes_until = True, until
        self._wake(until)
        then = f"this is waited for until {until:%Y-%m-%d %H:%M:%S} UTC"
        if awaited is not None:
            found = [volumes.attached(it, self._claim(it), until=then) for it in awaited]
            unknown = [it.volume for it in awaited if it.volume and it.volume not in self.view.claims]
            self.volume_questions = tuple(Question("volume", name) for name in unknown)
        elif self.view.attachments_problem:
            found = [volumes.unknown(self.view.node, self.view.attachments_problem, until=then)]
        else:
            found = []
        self.volumes = tuple(Standing(blocker, since) for blocker in found)

    def _given_up(self, awaited: tuple[VolumeAttachment, ...] | None, after: timedelta) -> str:
        """Return what is said of volumes that the drain does not wait for any longer."""
        waited = duration.format(timedelta(seconds=round(after.total_seconds())))
        if awaited is None:
            problem = self.view.attachments_problem or "the server does not answer"
            return f"whether volumes are still attached could not be found out within {waited}: {problem}"
        names = some((volumes.described(it, self._claim(it)) for it in awaited), most=_NAMED)
        return f"still attached after {waited}: {names}"

    # Whose turn it is

    def _take_turns(self) -> None:
        """Note since when pods have had their turn, and that they count."""
        changed: dict[str, Trace] = {}
        for it in self.found.travellers:
            trace = self.memory.traces[it.pod.uid]
            since = trace.since or (self.now if self._has_turn(it) else None)
            if not trace.counted or since != trace.since:
                changed[trace.uid] = replace(trace, counted=True, since=since)
        self.memory = self.memory.having(changed)

    def _has_turn(self, it: Traveller) -> bool:
        if self.waits_for_volumes and leaves_last(it.pod, self.policy):
            return False
        return it.place <= self.found.current and it.blocker is None

    # How it stands with each pod

    def _look_at_all(self) -> None:
        held = self._held()
        for it in self.found.travellers:
            self.rows.append(self._look(it, self.memory.traces[it.pod.uid], held))
        self._look_at_refused()

    def _look_at_refused(self) -> None:
        for pod, blocker in self.found.refused:
            since = self.memory.traces[pod.uid].seen_at
            self.rows.append(_row(pod, State.BLOCKED, blocker.reason, standing=Standing(blocker, since)))

    def _held(self) -> Mapping[str, str]:
        """Return by owner the pace of its pods that a budget refused: the others would fare no better."""
        return {
            trace.owner: pace_of(trace)
            for it in self.found.travellers
            if (trace := self.memory.traces[it.pod.uid]).blocker is not None and trace.blocker.kind is Kind.BUDGET
        }

    def _look(self, it: Traveller, trace: Trace, held: Mapping[str, str]) -> PodProgress:
        if it.pod.metadata.deletion_timestamp is not None:
            return self._look_at_leaving(it, trace)
        if it.blocker is not None:
            state = State.FINISHING if it.blocker.kind is Kind.COMPLETION else State.BLOCKED
            standing = Standing(it.blocker, trace.seen_at)
            return _row(it.pod, state, it.blocker.reason, next_at=it.until, standing=standing)
        if not self._has_turn(it):
            after = "volumes are detached" if self.waits_for_volumes else f"those of {self.found.current}"
            return _row(it.pod, State.QUEUED, f"leaves after {after}")
        since = trace.since or self.now
        steps = ladder(self.policy.limits_for(it.pod, it.rule), since=since, deadline=self.deadline)
        course = ways.course_of(it.pod, trace, policy=self.policy, seen=self.view.evictions, now=self.now)
        next_at = self._ask(it, trace, steps, held, course)
        words = course.words or "is asked to leave"
        row = _row(it.pod, State.EVICTING, words, since=trace.since, next_at=next_at, told=_told_by(trace))
        if trace.accepted_at is not None:
            row = msgspec.structs.replace(row, state=State.LEAVING, words="was told to go")
            self.doubts.append(trace.accepted_at + _DOUBT_UNTOLD_AFTER)
        if trace.is_doubtful:
            self.doubts.append(self.now)
        blocker, began = (trace.blocker, trace.blocked_since) if course.way else (course.blocker, course.since)
        if blocker is None or began is None:
            return row
        state = State.EVICTING if blocker.is_progress and not course.way else State.BLOCKED
        words = blocker.reason + _outlook(steps, self.now)
        return msgspec.structs.replace(row, state=state, words=words, standing=Standing(blocker, began))

    def _ask(
        self, it: Traveller, trace: Trace, steps: Ladder, held: Mapping[str, str], course: Course
    ) -> datetime | None:
        """Note that the pod is to be asked, now or later; return when, if it is not under way."""
        rung = steps.rung(self.now)
        later = steps.next_after(self.now)
        self._wake(later)
        if trace.asking is not None or rung is None or self._is_believed(trace):
            return None if trace.asking is not None else later
        if rung is Rung.DELETE and steps.evict_at is not None and not (trace.asks or course.is_asked):
            rung = Rung.EVICT  # nobody is deleted who was not asked first
        way = course.way if rung is Rung.EVICT else Way.EVICTION
        if way is None:
            self._wake(course.until)
            return min((at for at in (course.until, later) if at is not None), default=None)
        pace = pace_of(trace)
        if rung is Rung.DELETE:
            pace = f"{Rung.DELETE} {trace.uid}"
        elif way is Way.EVICTION and trace.blocker is None:
            pace = held.get(trace.owner, pace)
        next_at = self.memory.paces.get(pace, Pace(0, self.now)).next_at
        if next_at > self.now:
            self._wake(next_at)
            return next_at if later is None else min(next_at, later)
        if self.view.node_ready is None and leaves_last(it.pod, self.policy):
            self.asks_for_node = True  # its taints may have changed since the drain began
            return None
        limits = self.policy.limits_for(it.pod, it.rule)
        self.candidates.append(
            (trace.asked_at or self.memory.started, Action(rung, it.pod, limits.override, pace, way))
        )
        return None

    def _is_believed(self, trace: Trace) -> bool:
        """Tell whether the pod was told to go, and that has not proved to be without effect."""
        if trace.accepted_at is None:
            return False
        verified_at = self.memory.verified_at
        return verified_at is None or verified_at < trace.accepted_at + _DOUBT_UNTOLD_AFTER

    def _look_at_leaving(self, it: Traveller, trace: Trace) -> PodProgress:
        pod = it.pod
        told = told_of(pod)
        limits = self.policy.limits_for(pod, it.rule)
        steps = ladder(limits, since=trace.since or told.at, deadline=self.deadline, told=told)
        next_at = steps.next_after(self.now)
        self._wake(next_at)
        if steps.rung(self.now) is Rung.KILL and trace.told is not Rung.KILL and trace.asking is None:
            self._kill(pod, trace)
        self.doubts.append(told.ends_at + _DOUBT_AFTER)
        blocker = blockers.lingering(pod, node_ready=self.view.node_ready is not False, now=self.now)
        if blocker is None:
            self._wake(blockers.lingers_from(pod))
            return _row(
                pod,
                State.LEAVING,
                _time_left(told.ends_at),
                since=trace.since,
                next_at=next_at,
                told=_told_by(trace),
                ends_at=told.ends_at,
            )
        self.asks_for_node |= self.view.node_ready is None and not pod.metadata.finalizers
        words = blocker.reason + _outlook(steps, self.now)
        return _row(
            pod,
            State.OVERDUE,
            words,
            since=trace.since,
            next_at=next_at,
            told=_told_by(trace),
            ends_at=told.ends_at,
            standing=Standing(blocker, told.ends_at),
        )

    def _kill(self, pod: Pod, trace: Trace) -> None:
        pace = f"{Rung.KILL} {pod.uid}"
        next_at = self.memory.paces.get(pace, Pace(0, self.now)).next_at
        if next_at > self.now:
            self._wake(next_at)
        else:
            action = Action(Rung.KILL, pod, timedelta(), pace)
            self.candidates.append((trace.asked_at or self.memory.started, action))

    # What is done about it

    def _chosen(self) -> tuple[Action, ...]:
        """Return those to ask now: one of each pace, and of all no more than may be under way."""
        free = self.policy.parallel - self.memory.asking
        busy = {trace.pace for trace in self.memory.traces.values() if trace.asking is not None}
        chosen: list[Action] = []
        for _, action in sorted(self.candidates, key=_longest_wait):
            if action.pace not in busy and len(chosen) < free:
                busy.add(action.pace)
                chosen.append(action)
        return tuple(chosen)

    def _chores(self) -> tuple[Chore, ...]:
        """Return which EvictionRequests are to be cleared away: those for pods that are not to leave by one now."""
        by_request = self.policy.eviction_requests and not self.policy.disable_eviction
        wanted = {it.pod.uid for it in self.found.travellers if by_request and self._has_turn(it)}
        return ways.chores(self.view.evictions, wanted=wanted, present={pod.uid for pod in self.view.pods})

    def _needs_evictions(self) -> bool:
        """Tell whether EvictionRequests count; where they are used, even those that a predecessor left behind do."""
        return self.policy.eviction_requests or any(ways.concerns(it.pod, self.policy) for it in self.found.travellers)

    def _verifies(self) -> bool:
        """Tell whether the copy is in doubt, and was not verified of late."""
        if not self.doubts:
            self.memory = replace(self.memory, verifications=0)
            return False
        doubt_at = min(self.doubts)
        if self.memory.verified_at is not None and self.memory.verified_at >= doubt_at:
            wait = min(_VERIFY_FIRST * 2 ** min(self.memory.verifications, 8), _VERIFY_LATEST)
            doubt_at = self.memory.verified_at + wait
        if doubt_at > self.now:
            self._wake(doubt_at)
        return doubt_at <= self.now

    def _wake(self, instant: datetime | None) -> None:
        if instant is not None and instant > self.now:
            self.wakes.append(instant)

    # How it is told

    def _end(self, ending: Ending) -> Plan:
        plan = self._finished()
        problems = self.found.selected.refusals if ending is Ending.REFUSED else ()
        chores = self._chores() if ending is Ending.DRAINED else ()
        return replace(plan, chores=chores, ending=ending, problems=problems, wakes_at=None)

    def _finished(
        self, *, questions: tuple[Question, ...] = (), actions: tuple[Action, ...] = (), verifies: bool = False
    ) -> Plan:
        progress = self._progress()
        later = [instant for instant in self.wakes if instant > self.now]
        return Plan(
            memory=replace(self.memory, percent=progress.percent),
            progress=progress,
            actions=actions,
            questions=questions,
            verifies=verifies,
            needs_evictions=self._needs_evictions(),
            needs_volumes=self.needs_volumes and not self.memory.is_detached,
            wakes_at=min(later, default=None),
        )

    def _progress(self) -> Progress:
        here = {it.pod.uid for it in self.found.travellers}
        staying = self.found.staying
        gone = self.memory.gone_before + sum(
            trace.counted and uid not in here and uid not in staying for uid, trace in self.memory.traces.items()
        )
        total = gone + len(self.rows)
        share = min(100 * gone // total, _MOST_UNCONFIRMED) if total else 0
        return Progress(
            node=self.view.node,
            started=self.memory.started,
            total=total,
            gone=gone,
            leaving=sum(row.state in (State.LEAVING, State.OVERDUE) for row in self.rows),
            percent=max(self.memory.percent, share),
            pods=tuple(self.rows),
            returning=self.found.returning,
            warning="; ".join(filter(None, (self.found.selected.warning, self.memory.left_attached))),
            trouble=self.view.trouble,
            is_known=self.memory.begun or self._is_forbidden(),
            deadline=self.deadline,
            volumes=self.volumes,
            volumes_until=self.volumes_until,
            left_attached=self.memory.left_attached,
        )


def told_of(pod: Pod) -> Told:
    """Return when a pod that is leaving was told to, and until when it has time."""
    ends_at = pod.metadata.deletion_timestamp
    if ends_at is None:
        raise ValueError(f"{pod.key} was not told to go")
    ends_at += _CUT_OFF
    return Told(ends_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0), ends_at)


def _row(
    pod: Pod,
    state: State,
    words: str,
    *,
    since: datetime | None = None,
    next_at: datetime | None = None,
    told: Rung | None = None,
    ends_at: datetime | None = None,
    standing: Standing | None = None,
) -> PodProgress:
    return PodProgress(
        pod=pod.key,
        uid=pod.uid,
        state=state,
        words=words,
        since=since,
        next_at=next_at,
        told=told,
        ends_at=ends_at,
        standing=standing,
    )


@lru_cache(maxsize=256)
def _time_left(until: datetime) -> str:
    """Return it in words; of pods that were told together it is the same, at each look."""
    return f"has time to end until {until:%H:%M:%S} UTC"


def _told_by(trace: Trace) -> Rung | None:
    """Return by what a pod was told to go, or is being told right now; None if that was not us."""
    return trace.asking or trace.told or (Rung.EVICT if trace.requested_at else None)


def _longest_wait(candidate: tuple[datetime, Action]) -> tuple[datetime, int]:
    """Sort by who was asked longest ago, and then by who may need the longest to end."""
    asked_at, action = candidate
    return asked_at, -action.pod.spec.termination_grace_period_seconds


def _outlook(steps: Ladder, now: datetime) -> str:
    """Return what will be done about it, if anything will."""
    for at, words in ((steps.delete_at, "it is deleted"), (steps.kill_at, "it is killed")):
        if at is not None and at > now:
            return f"; {words} at {at:%H:%M:%S} UTC if that does not change"
    return ""
