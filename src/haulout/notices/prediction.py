"""How long emptying a node will take, from how long it took before. Pure.

    predicted(node.name, own=(2400.0, 2520.0), alike=[("nodes of pool blue", samples)])

What a node's own last drains took counts most: its workloads and their budgets are much the same each time. A node that
was never drained is compared with its like, from the nearest kind to all nodes, and only where there are enough of them
to mean something. Of what is known the slow end counts (nine in ten were faster), and some time is added: who begins
too early loses little.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from haulout.core import duration

MOST: Final = timedelta(hours=6)  # nobody wants a node emptied a day ahead because of one drain that hung
SAFETY: Final = 1.25
KEPT: Final = 5  # drains of one node: what it ran a year ago tells little
_SLOW = 0.9
_ENOUGH = 3  # drains of other nodes
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long it takes, with time to spare, and where that is known from."""

    takes: timedelta
    why: str = ""  # for people: "emptying n1 took 42m last time"

    @property
    def expected(self) -> timedelta:
        """How long it takes without time to spare."""
        return self.takes / SAFETY


NOT_YET: Final = Prediction(timedelta(), "the history is being read")  # compare with `is`


def predicted(node: str, *, own: Sequence[float], alike: Iterable[tuple[str, Sequence[float]]]) -> Prediction | None:
    """Return what to expect; None if nothing is known. All drains are in seconds, a node's own from old to new."""
    if own:
        return _made(_slow_end(own), _own_words(node, own))
    for whose, drains in alike:
        if len(drains) >= _ENOUGH:
            seconds = _slow_end(drains)
            why = f"of {len(drains)} drains of {whose} nine in ten took no longer than {said(seconds)}"
            return _made(seconds, why)
    return None


def said(seconds: float) -> str:
    """Return a length of time as people say it: minutes, and seconds only if it is less than ten of them."""
    unit = 1 if seconds < 10 * _MINUTE.total_seconds() else 60
    return duration.short(timedelta(seconds=round(seconds / unit) * unit))


def _made(seconds: float, why: str) -> Prediction:
    # In whole minutes, so that a second more or less is not told as news.
    takes = math.ceil(seconds * SAFETY / _MINUTE.total_seconds()) * _MINUTE
    if takes <= MOST:
        return Prediction(takes, why)
    return Prediction(MOST, f"{why}; no node is emptied more than {duration.short(MOST)} ahead")


def _own_words(node: str, own: Sequence[float]) -> str:
    slow, last = said(_slow_end(own)), said(own[-1])
    return f"emptying {node} took {last} last time" + (f", and {slow} before" if slow != last else "")


def _slow_end(drains: Sequence[float]) -> float:
    """Return what nine in ten do not exceed, by the nearest rank: of a few, the longest."""
    return sorted(drains)[math.ceil(_SLOW * len(drains)) - 1]
