"""How a drain is told to scripts and logs: in the lines of `kubectl drain`, on the same streams.

kubectl repeats every five seconds what it waits for. Here it is said once, with who is to blame and what can be done,
and once a minute how it stands if nothing else was said meanwhile.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from haulout.cli.cordoning import Done, told
from haulout.cli.draining.records import Record, Result
from haulout.cli.holders import elapsed
from haulout.cli.lines import Line
from haulout.core.clock import Clock
from haulout.drain.blockers import Kind
from haulout.drain.ladder import Rung
from haulout.drain.policy import Policy
from haulout.drain.progress import PodProgress, Progress, Standing, State
from haulout.drain.words import pods

_QUIET = timedelta(minutes=1)
_ASKED = (State.EVICTING, State.BLOCKED, State.LEAVING, State.OVERDUE)
_DONE = {Rung.EVICT: "evicted", Rung.DELETE: "deleted", Rung.KILL: "deleted without grace"}
_OVER_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


class PlainShow:
    """Tells how it goes, line by line."""

    def __init__(self, policy: Policy, *, clock: Clock, tell: Callable[[Line], None] = Line.print) -> None:
        self._policy = policy
        self._clock = clock
        self._tell = tell
        self._tellers: dict[str, Teller] = {}
        self._records: dict[str, Record] = {}
        self._told_at = clock.now()

    def cordoned(self, record: Record, done: Done) -> None:
        """Say so."""
        del record
        for line in told(done, wanted="cordon"):
            self._say(line)

    def moved(self, record: Record) -> None:
        """Say what is new."""
        self._records[record.node] = record
        if record.progress is not None:
            for line in self._teller(record).news(record.progress, now=self._clock.now()):
                self._say(line)

    def ended(self, record: Record) -> None:
        """Say how it ended."""
        if record.progress is not None and record.result is not Result.REFUSED:
            for line in self._teller(record).last_news(record.progress, now=self._clock.now()):
                self._say(line)
        for line in ending(record):
            self._say(line)

    def stopping(self) -> None:
        """Say so."""
        self._say(Line("Stopping: waiting for the answers under way; Ctrl-C again ends at once."))

    async def run(self) -> None:
        """Say now and then how it stands."""
        while True:
            await self._clock.sleep(self._told_at + _QUIET - self._clock.now())
            if self._clock.now() - self._told_at < _QUIET:
                continue
            self._told_at = self._clock.now()
            for record in self._records.values():
                if not record.is_over:
                    self._say(Line(standing(record, now=self._clock.now())))

    def _teller(self, record: Record) -> "Teller":
        return self._tellers.setdefault(record.node, Teller(self._policy))

    def _say(self, line: Line) -> None:
        self._told_at = self._clock.now()
        self._tell(line)


class Warnings:
    """Finds what is new in the warnings about one node; that a pod is not there any more is nothing new."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def news(self, progress: Progress) -> Iterator[Line]:
        """Yield the warning, if it is about pods that none was about before."""
        named = {name for text in progress.warning.split("; ") for name in text.rpartition(": ")[2].split(", ")}
        if progress.warning and not named <= self._named:
            self._named |= named
            yield Line(f"Warning: {progress.warning}")


class Teller:
    """Finds what is new about one node."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rows: dict[str, PodProgress] = {}
        self._announced: set[str] = set()
        self._escalated: dict[str, Rung] = {}  # by uid
        self._warnings = Warnings()
        self._blamed: dict[str, tuple[Kind, str]] = {}  # by uid
        self._volumes: set[str] = set()  # that were told of
        self._trouble = ""

    def news(self, progress: Progress, *, now: datetime) -> Iterator[Line]:
        """Yield what is new, in the order in which kubectl says it."""
        # What the flags do not let go is told at the end, of all such pods together.
        asked = [pod for pod in progress.pods if pod.standing is None or pod.standing.blocker.kind is not Kind.POLICY]
        turn = [pod for pod in asked if _is_asked(pod) and pod.uid not in self._announced]
        if turn:
            yield from self._warnings.news(progress)
        for pod in turn:
            self._announced.add(pod.uid)
            if not self._policy.disable_eviction:
                yield Line(f"evicting pod {pod.pod}", is_result=True)
        for pod in asked:
            yield from self._blame(pod, now=now)
            yield from self._escalation(pod)
        yield from self._vanished(progress, now=now)
        for it in progress.volumes:
            if it.blocker.object not in self._volumes:
                self._volumes.add(it.blocker.object)
                yield Line(f"waiting: {it.blocker}")
        if progress.trouble and progress.trouble != self._trouble:
            yield Line(f"Warning: node {progress.node}: what is said here may be old: {progress.trouble}")
        self._trouble = progress.trouble

    def last_news(self, progress: Progress, *, now: datetime) -> Iterator[Line]:
        """Yield what is yet to be said when it is over."""
        yield from self._warnings.news(progress)
        yield from self.news(progress, now=now)
        for pod in progress.returning:
            yield Line(f"Warning: pod {pod} came back and stays: others like it would come after it")

    def _escalation(self, pod: PodProgress) -> Iterator[Line]:
        """Yield that a pod which was asked to leave is deleted now."""
        if pod.told in (None, Rung.EVICT, self._escalated.get(pod.uid)):
            return
        self._escalated[pod.uid] = pod.told
        if not self._policy.disable_eviction:
            how = " without grace" if pod.told is Rung.KILL else ""
            yield Line(f"deleting pod {pod.pod}{how}", is_result=True)

    def _blame(self, pod: PodProgress, *, now: datetime) -> Iterator[Line]:
        if pod.standing is None:
            self._blamed.pop(pod.uid, None)
            return
        blocker = pod.standing.blocker
        if self._blamed.get(pod.uid) == (blocker.kind, blocker.object):
            return
        self._blamed[pod.uid] = blocker.kind, blocker.object
        yield Line(blame(pod, pod.standing, now=now))

    def _vanished(self, progress: Progress, *, now: datetime) -> Iterator[Line]:
        here = {pod.uid: pod for pod in progress.pods}
        lost = [pod for uid, pod in self._rows.items() if uid not in here]
        self._rows = here
        patience = self._policy.filters.skip_wait_for_delete
        for pod in lost:
            name = pod.pod.partition("/")[2]
            if pod.state is State.FINISHING:
                yield Line(f"pod/{name} completed", is_result=True)
            elif patience and pod.ends_at is not None and now >= pod.ends_at + patience:
                seconds = int(patience.total_seconds())
                yield Line(f'pod "{name}" has DeletionTimestamp older than {seconds} seconds, skipping', is_result=True)
            elif pod.uid in self._announced:
                yield Line(f"pod/{name} {self._done(pod)}", is_result=True)

    def _done(self, pod: PodProgress) -> str:
        """Return what became of a pod that is not there any more; others may have told it to go."""
        if pod.told is not None:
            return _DONE[pod.told]
        if pod.state is State.EVICTING:  # it went so fast that the answer was never seen on its own
            return _DONE[Rung.DELETE if self._policy.disable_eviction else Rung.EVICT]
        return "gone"


def _is_asked(pod: PodProgress) -> bool:
    """Tell whether a pod is asked to leave; one about which a rule cannot be read is not."""
    return pod.state in _ASKED and (pod.standing is None or pod.standing.blocker.kind is not Kind.RULE)


def blame(pod: PodProgress, standing: Standing, *, now: datetime) -> str:
    """Return what stands in a pod's way: kubectl's beginning of the line, and our end of it."""
    blocker = standing.blocker
    namespace, _, name = pod.pod.partition("/")
    why = blocker.reason + (f"; {blocker.advice}" if blocker.advice else "")
    if pod.state is not State.BLOCKED or blocker.kind is Kind.RULE:
        return f"waiting for pod {pod.pod}: {why}"
    again = f" (will retry after {elapsed(pod.next_at - now)})" if pod.next_at and pod.next_at > now else ""
    if blocker.kind is Kind.NAMESPACE:
        return f'error when evicting pod "{name}" from terminating namespace "{namespace}"{again}: {why}'
    said = f"{_OVER_BUDGET} {why}" if blocker.kind is Kind.BUDGET else why
    return f'error when evicting pods/"{name}" -n "{namespace}"{again}: {said}'


def ending(record: Record) -> Iterator[Line]:
    """Yield how a node's drain ended."""
    if record.result is Result.DRAINED:
        yield Line(f"node/{record.node} drained", is_result=True)
        return
    if record.result is Result.INTERRUPTED:
        return  # that is told of all nodes together
    if record.pods and record.result is not Result.REFUSED:
        yield Line(f'There are pending pods in node "{record.node}" when an error occurred: {record.problem}')
        for pod in record.pods:
            yield Line(f"pod/{pod.pod.partition('/')[2]}")
            if pod.standing is not None:
                yield Line(f"  {pod.standing}")
    yield Line(f'error: unable to drain node "{record.node}" due to error: {record.problem}, continuing command...')


def summary(records: list[Record]) -> Iterator[Line]:
    """Yield what kubectl says at the end of a command that failed."""
    pending = [it for it in records if it.result is not Result.DRAINED]
    if pending:
        yield Line("There are pending nodes to be drained:")
        for record in pending:
            yield Line(f" {record.node}")
        for problem in dict.fromkeys(it.problem for it in pending):
            yield Line(problem)


def standing(record: Record, *, now: datetime) -> str:
    """Return in one line how it stands with a node."""
    progress = record.progress
    if progress is None or record.started is None:
        return f"node/{record.node}: not looked at yet"
    text = f"node/{record.node}: {len(progress.pods)} of {pods(progress.total)} left"
    text += f" after {elapsed(now - record.started)}"
    blocked = sorted(progress.blockers, key=lambda it: it.since)
    if blocked:
        more = f", and {len(blocked) - 1} more" if len(blocked) > 1 else ""
        text += f"; blocked for {elapsed(now - blocked[0].since)}: {blocked[0].blocker}{more}"
    return text
