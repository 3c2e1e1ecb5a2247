"""Evaluation of invariants: one pass over the history, in which each checker sees the writes that concern it.

An invariant is a small frozen value that says what must hold, with its parameters: whose writes are the operator's,
what marks a cordon as its own. `new_checker` creates a checker, which sees each write of the kinds that it asked for,
together with the `State` after the write, and returns violations. Checkers have state; invariants do not, so one
invariant can be checked on any number of histories.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import ClassVar

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write

_NOTHING: Mapping[str, JsonObject] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An instant at which an invariant did not hold, and the author of the write."""

    revision: int  # 0: not a write
    at: datetime
    who: str
    what: str
    invariant: str = ""

    def __str__(self) -> str:
        """Return it as a sentence for people."""
        revision_text = f"revision {self.revision}, " if self.revision else ""
        return f"{self.invariant}: {self.what} ({revision_text}{self.at:%Y-%m-%d %H:%M:%S}, by {self.who or 'nobody'})"


def violation_of(write: Write, what: str) -> Violation:
    """Return the violation that `write` is."""
    return Violation(revision=write.revision, at=write.written_at, who=write.username, what=what)


class State:
    """All objects as they are after a write: by the plural of their kind, then by key."""

    def __init__(self) -> None:
        self._objects: defaultdict[str, dict[str, JsonObject]] = defaultdict(dict)

    def by_key(self, plural: str) -> Mapping[str, JsonObject]:
        """Return the objects of a kind by their keys; a live view."""
        return self._objects.get(plural, _NOTHING)

    def get(self, plural: str, key: str) -> JsonObject | None:
        """Return an object, or None."""
        return self.by_key(plural).get(key)

    def apply(self, write: Write) -> None:
        """Apply a write."""
        objects = self._objects[write.kind.plural]
        if write.after is None:
            objects.pop(write.key, None)
        else:
            objects[write.key] = write.after


class Checker:
    """Looks at one history for one invariant."""

    def check_write(self, write: Write, state: State) -> Iterable[Violation]:  # noqa: ARG002 - for those that look at writes
        """Return what is wrong about a write; `state` already shows it."""
        return ()

    def check_end(self, at: datetime, state: State) -> Iterable[Violation]:  # noqa: ARG002 - for those that look at the end
        """Return the violations in the state `at` the end."""
        return ()


class Invariant(ABC):
    """Something that must hold at every revision, or in the end."""

    needs_writer: ClassVar[bool] = True  # it must know who wrote, which the watches of a real cluster do not tell

    @property
    def name(self) -> str:
        """Its name in messages."""
        return type(self).__name__

    @property
    def kinds(self) -> frozenset[str] | None:
        """The plurals of the kinds whose writes matter; None for all."""
        return None

    @abstractmethod
    def new_checker(self) -> Checker:
        """Return a checker of one history."""


def check(history: Sequence[Write], *invariants: Invariant, until: datetime | None = None) -> list[Violation]:
    """Return all violations in the history, in order; it is taken to go on, without writes, `until` then."""
    return list(violations(history, invariants, until=until))


def violations(
    history: Sequence[Write], invariants: Sequence[Invariant], *, until: datetime | None = None
) -> Iterator[Violation]:
    """Yield violations in the order of the history."""
    checkers = [(invariant, invariant.new_checker()) for invariant in invariants]
    by_kind: dict[str, list[tuple[Invariant, Checker]]] = {}
    state = State()
    for write in history:
        state.apply(write)
        plural = write.kind.plural
        if plural not in by_kind:
            by_kind[plural] = [pair for pair in checkers if _is_relevant(pair[0], plural)]
        for invariant, checker in by_kind[plural]:
            yield from _with_invariant_name(invariant, checker.check_write(write, state))
    if history or until:
        at = until or history[-1].written_at
        for invariant, checker in checkers:
            yield from _with_invariant_name(invariant, checker.check_end(at, state))


def _is_relevant(invariant: Invariant, plural: str) -> bool:
    return invariant.kinds is None or plural in invariant.kinds


def _with_invariant_name(invariant: Invariant, found: Iterable[Violation]) -> Iterator[Violation]:
    for violation in found:
        yield replace(violation, invariant=invariant.name)
