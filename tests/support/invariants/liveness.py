"""Liveness invariants: convergence, reactions to events, announced deadlines, and release by dead processes.

Time also passes without writes: each checker also looks at the end of the history.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from support.invariants.checker import Checker, Invariant, State, Violation
from support.invariants.object_fields import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Converges(Invariant):
    """After faults stop, the desired state is reached within some time, and kept.

    `problem` says what is not yet as it should be, empty if nothing; it is asked after each write to one of `plurals`.
    """

    needs_writer: ClassVar[bool] = False
    problem: Callable[[State], str]
    plurals: frozenset[str]
    faults_stopped_at: datetime  # when faults stopped
    within: timedelta

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that matter to it."""
        return self.plurals

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _ConvergenceChecker(self)


class _ConvergenceChecker(Checker):
    def __init__(self, rule: Converges) -> None:
        self._rule = rule
        self._due = rule.faults_stopped_at + rule.within
        self._problem = ""  # until now
        self._is_late = False

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        problem_before, self._problem = self._problem, self._rule.problem(state)
        if write.written_at <= self._due:
            return
        if problem_before:
            yield from self._report_late(write.written_at, problem_before)
        elif self._problem:
            self._is_late = True  # and it is reported only once
            message = f"it did not stay so: {self._problem}"
            yield Violation(revision=write.revision, at=write.written_at, who=write.username, what=message)

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        problem = self._rule.problem(state)
        if problem and at >= self._due:
            yield from self._report_late(at, problem)

    def _report_late(self, at: datetime, problem: str) -> Iterator[Violation]:
        if not self._is_late:
            self._is_late = True
            message = f"not within {self._rule.within} after faults stopped: {problem}"
            yield Violation(revision=0, at=at, who="", what=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that a cloud delivered."""

    at: datetime
    event: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsBecomeObjects(Invariant):
    """Every event that a cloud delivers is an object of kind `plural` within some seconds; `event` tells which."""

    needs_writer: ClassVar[bool] = False
    deliveries: Sequence[Delivery]
    plural: str
    event: Callable[[JsonObject], str]
    within: timedelta = timedelta(seconds=10)

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of the objects."""
        return frozenset({self.plural})

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _DeliveryChecker(self)


class _DeliveryChecker(Checker):
    def __init__(self, rule: EventsBecomeObjects) -> None:
        self._rule = rule
        self._created_at: dict[str, datetime] = {}

    def check_write(self, write: Write, state: State) -> tuple[Violation, ...]:
        del state
        if write.after is not None:
            self._created_at.setdefault(self._rule.event(write.after), write.written_at)
        return ()

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        del state
        for delivery in self._rule.deliveries:
            took = self._created_at.get(delivery.event, at) - delivery.at
            if took > self._rule.within:
                suffix = "" if delivery.event in self._created_at else " and still is none"
                message = f"event {delivery.event} was no object within {self._rule.within}{suffix}"
                yield Violation(revision=0, at=delivery.at + self._rule.within, who="", what=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedDeadlinesAnnounced(Invariant):
    """A deadline that cannot be met is announced before it passes."""

    needs_writer: ClassVar[bool] = False
    plural: str
    deadline: Callable[[JsonObject], datetime | None]
    is_met: Predicate
    is_announced: Predicate  # the object says that its deadline will be missed

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of the objects that have deadlines."""
        return frozenset({self.plural})

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _DeadlineChecker(self)


class _DeadlineChecker(Checker):
    def __init__(self, rule: MissedDeadlinesAnnounced) -> None:
        self._rule = rule
        self._reported: set[tuple[str, datetime]] = set()

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        yield from self._missed(write.key, write.before, write.written_at)

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        for key, obj in sorted(state.by_key(self._rule.plural).items()):
            yield from self._missed(key, obj, at)

    def _missed(self, key: str, obj: JsonObject | None, at: datetime) -> Iterator[Violation]:
        """Yield if the deadline passed while the object was as `obj` shows it."""
        due = self._rule.deadline(obj) if obj is not None else None
        if obj is None or due is None or at < due or (key, due) in self._reported:
            return
        if not self._rule.is_met(obj) and not self._rule.is_announced(obj):
            self._reported.add((key, due))
            message = f"the deadline of {key} passed, and nothing was said before"
            yield Violation(revision=0, at=due, who="", what=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDeath:
    """A process that was killed."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadProcessesReleaseAll(Invariant):
    """What a dead process held (slots, cordons, locks) is free or taken over within its lease time.

    `holders` has, for each kind, who holds an object of it.
    """

    needs_writer: ClassVar[bool] = False
    deaths: Sequence[ProcessDeath]
    holders: Mapping[str, Callable[[JsonObject], Collection[str]]]
    lease: timedelta

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of what can be held."""
        return frozenset(self.holders)

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _ReleaseChecker(self)


class _ReleaseChecker(Checker):
    def __init__(self, rule: DeadProcessesReleaseAll) -> None:
        self._rule = rule
        self._reported: set[tuple[str, str, str]] = set()

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        if write.before is not None:
            yield from self._held(write.kind.plural, write.key, write.before, write.written_at)

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        for plural in sorted(self._rule.holders):
            for key, obj in sorted(state.by_key(plural).items()):
                yield from self._held(plural, key, obj, at)

    def _held(self, plural: str, key: str, obj: JsonObject, at: datetime) -> Iterator[Violation]:
        """Yield if the object was, as `obj` shows it until `at`, held by a dead process for too long."""
        held_by = self._rule.holders[plural](obj)
        for death in self._rule.deaths:
            due = death.at + self._rule.lease
            if at <= due or death.who not in held_by or (plural, key, death.who) in self._reported:
                continue
            self._reported.add((plural, key, death.who))
            message = f"{plural} {key} is still held by {death.who}, which died at {death.at:%H:%M:%S}"
            yield Violation(revision=0, at=due, who=death.who, what=message)
