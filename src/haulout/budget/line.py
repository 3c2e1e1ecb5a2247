"""Who waits for room on a person's order, in the order of their coming.

Profiles let them go first: a person who says "now" must not stand behind a thousand nodes that roll by themselves.
This is about fairness only, and known to one process: no limit rests on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, order=True)
class Order:
    """An order that waits."""

    since: datetime
    name: str
    node: str


class Line:
    """Orders that wait for room."""

    def __init__(self) -> None:
        self._orders: dict[str, Order] = {}
        self._told: list[Callable[[], object]] = []

    def join(self, order: Order) -> None:
        """Let an order wait."""
        self._orders[order.name] = order

    def leave(self, name: str) -> None:
        """Let an order go; those behind it are told, if it waited."""
        if self._orders.pop(name, None) is not None:
            for tell in tuple(self._told):
                tell()

    def orders(self) -> tuple[Order, ...]:
        """Return those that wait, the first to come first."""
        return tuple(sorted(self._orders.values()))

    def subscribe(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Call `tell` when an order has left, which may make room for others; returns what ends that."""
        self._told.append(tell)
        return lambda: self._told.remove(tell)
