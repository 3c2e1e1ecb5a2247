"""Invariants about maintenances of any kind: one at a time per node, an end or a reason, a record."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of
from support.invariants.object_fields import Predicate, is_terminating


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenances:
    """A kind of object that stands for the maintenance of a node, and how to read it."""

    plural: str
    node: Callable[[JsonObject], str]  # which node it is about; empty if none
    is_active: Predicate
    has_ended: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMaintenancePerNode(Invariant):
    """At most one maintenance of a node is active; the others wait, and come in the order of their creation."""

    needs_writer: ClassVar[bool] = False
    maintenances: tuple[Maintenances, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of maintenances."""
        return frozenset(maintenance.plural for maintenance in self.maintenances)

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _QueueChecker(self.maintenances)


class _QueueChecker(Checker):
    def __init__(self, maintenances: tuple[Maintenances, ...]) -> None:
        self._kinds = {maintenance.plural: maintenance for maintenance in maintenances}
        self._created: dict[tuple[str, str], int] = {}  # by plural and key: the revision

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        own_key, kind = (write.kind.plural, write.key), self._kinds[write.kind.plural]
        if write.after is None:
            self._created.pop(own_key, None)
            return
        self._created.setdefault(own_key, write.revision)
        if not kind.is_active(write.after) or (write.before is not None and kind.is_active(write.before)):
            return
        node = kind.node(write.after)
        for plural, key in self._created:
            other = state.get(plural, key)
            if (plural, key) == own_key or other is None or not node or self._kinds[plural].node(other) != node:
                continue
            if self._kinds[plural].is_active(other):
                yield violation_of(write, f"{write.key} became active on {node}, where {key} is active")
            elif self._waits(plural, other) and self._created[plural, key] < self._created[own_key]:
                yield violation_of(
                    write, f"{write.key} became active on {node} before {key}, which waited there longer"
                )

    def _waits(self, plural: str, other: JsonObject) -> bool:
        return not self._kinds[plural].has_ended(other) and not is_terminating(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reason, the blocker and the next reconcile of an unfinished maintenance."""

    reason: str
    waits_for: str
    next_reconcile_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndsOrExplainsItself(Invariant):
    """Every maintenance reaches an end, or shows a reason, its blocker, and its next reconcile.

    For no longer than `within` may one do neither, and an instant at which it wanted to look again may not lie back
    longer than that.
    """

    needs_writer: ClassVar[bool] = False
    maintenances: Maintenances
    explanation: Callable[[JsonObject], Explanation | None]
    within: timedelta = timedelta(seconds=30)

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of maintenances."""
        return frozenset({self.maintenances.plural})

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _ExplanationChecker(self)


class _ExplanationChecker(Checker):
    def __init__(self, rule: EndsOrExplainsItself) -> None:
        self._rule = rule
        self._unexplained_since: dict[str, datetime] = {}

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        yield from self._overdue(
            write.key, write.before, at=write.written_at, author=write.username, revision=write.revision
        )
        if write.after is None or self._is_settled(write.after):
            self._unexplained_since.pop(write.key, None)
        else:
            self._unexplained_since.setdefault(write.key, write.written_at)

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        for key, obj in sorted(state.by_key(self._rule.maintenances.plural).items()):
            yield from self._overdue(key, obj, at=at)

    def _is_settled(self, obj: JsonObject) -> bool:
        return self._rule.maintenances.has_ended(obj) or self._next_reconcile_at(obj) is not None

    def _next_reconcile_at(self, obj: JsonObject) -> datetime | None:
        """Return the next reconcile, if the explanation is complete."""
        explanation = self._rule.explanation(obj)
        return explanation.next_reconcile_at if explanation and explanation.reason and explanation.waits_for else None

    def _overdue(
        self, key: str, obj: JsonObject | None, *, at: datetime, author: str = "", revision: int = 0
    ) -> Iterator[Violation]:
        """Yield the violations of its state until `at`."""
        if obj is None or self._rule.maintenances.has_ended(obj):
            return
        since = self._unexplained_since.get(key)
        next_reconcile_at = self._next_reconcile_at(obj)
        if since is not None and at - since > self._rule.within:
            message = f"{key} has neither an end nor an explanation since {since:%H:%M:%S}"
        elif since is None and next_reconcile_at is not None and at - next_reconcile_at > self._rule.within:
            message = f"{key} wanted to look again at {next_reconcile_at:%H:%M:%S}, and did not"
        else:
            return
        yield Violation(revision=revision, at=at, who=author, what=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEntry:
    """One line of a record: who or what brought something from one state to another, why, and with what result."""

    at: datetime
    who: str
    old: str
    new: str
    why: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReplays(Invariant):
    """A record is complete: entries are added in order, none is changed, and the last leads to the status there is.

    A bounded record may forget its oldest entries. `status` returns the state of that which a record is about.
    """

    needs_writer: ClassVar[bool] = False
    plural: str
    entries: Callable[[JsonObject], Sequence[RecordEntry]]
    status: Callable[[JsonObject, State], str]

    @property
    def kinds(self) -> frozenset[str]:
        """The kind of the record."""
        return frozenset({self.plural})

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _RecordChecker(self)


class _RecordChecker(Checker):
    def __init__(self, rule: RecordReplays) -> None:
        self._rule = rule

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        if write.after is None:
            return
        old = list(self._rule.entries(write.before)) if write.before else []
        new = list(self._rule.entries(write.after))
        if not _is_continuation(old, new):
            yield violation_of(write, f"the record {write.key} was changed where it should only grow")
        for number, entry in enumerate(new):
            before = new[number - 1] if number else None
            if problem := _problem(before, entry):
                yield violation_of(write, f"the record {write.key}, entry {number + 1}: {problem}")

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        for key, record in sorted(state.by_key(self._rule.plural).items()):
            entries, status = self._rule.entries(record), self._rule.status(record, state)
            last_state = entries[-1].new if entries else ""
            if last_state != status:
                message = (
                    f"the record {key} ends with {last_state or 'nothing'}, and the status is {status or 'nothing'}"
                )
                yield Violation(revision=0, at=at, who="", what=message)


def _is_continuation(old: list[RecordEntry], new: list[RecordEntry]) -> bool:
    """Tell whether `new` is `old` with some of its first entries, but not the last, forgotten and others added."""
    return not old or any(new[: len(old) - start] == old[start:] for start in range(len(old)))


def _problem(before: RecordEntry | None, entry: RecordEntry) -> str:
    missing = [name for name in ("who", "new", "why", "result") if not getattr(entry, name)]
    if missing:
        return f"it does not tell {', '.join(missing)}"
    if before is not None and before.at > entry.at:
        return "it is older than the one before it"
    if before is not None and before.new != entry.old:
        return f"it begins with {entry.old}, and the one before it ended with {before.new}"
    return ""
