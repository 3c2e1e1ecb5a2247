"""Invariants about external calls: at most one per transition."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from support.invariants.checker import Checker, Invariant, State, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCall:
    """One external call: a notification, a hook, a call of a cloud's API."""

    at: datetime
    receiver: str
    transition: str  # what it is about, such as `n1 operational -> maintenance-required #3`
    who: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledOnce(Invariant):
    """Each receiver is called at most once for a transition, unless it tells repetitions apart by itself.

    `external_calls` is the log that a fake receiver keeps; it may still grow until the history is checked.
    """

    calls: Sequence[ExternalCall]
    deduplicating: Collection[str] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """None: calls are not writes."""
        return frozenset()

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _CallChecker(self.calls, self.deduplicating)


class _CallChecker(Checker):
    def __init__(self, calls: Sequence[ExternalCall], deduplicating: Collection[str]) -> None:
        self._calls = calls
        self._deduplicating = deduplicating

    def check_end(self, at: datetime, state: State) -> Iterator[Violation]:
        del at, state
        first: dict[tuple[str, str], ExternalCall] = {}
        for call in self._calls:
            before = first.setdefault((call.receiver, call.transition), call)
            if before is not call and call.receiver not in self._deduplicating:
                message = f"{call.receiver} was called again about {call.transition}, after {before.at:%H:%M:%S}"
                yield Violation(revision=0, at=call.at, who=call.who, what=message)
