"""Checks invariants on the whole history at the end of a test."""

from collections.abc import Callable, Sequence
from datetime import datetime

from haulout_sandbox.apiserver import Write
from support.invariants import Invariant, check


def assert_invariants(history: Sequence[Write], *invariants: Invariant, until: datetime | None = None) -> None:
    """Fail with one line for each violation."""
    found = [f"\n  {violation}" for violation in check(history, *invariants, until=until)]
    assert not found, f"what must hold did not:{''.join(found)}"


class InvariantChecks:
    """Histories that still grow, and the invariants that are checked on each."""

    def __init__(self) -> None:
        self._checks: list[tuple[Callable[[], Sequence[Write]], tuple[Invariant, ...]]] = []

    def __call__(self, history: Callable[[], Sequence[Write]], *invariants: Invariant) -> None:
        """Have `invariants` checked on `history` in the end."""
        self._checks.append((history, invariants))

    def check(self) -> None:
        """Check them now."""
        for history, invariants in self._checks:
            assert_invariants(history(), *invariants)
