"""For how long nodes are not ready, as we have seen it ourselves.

What a node says of itself is an instant, by another's clock. Ours may be hours ahead, because it was set or never was:
then a kubelet that restarts would look as if the node were down since long, and be taken though the budget is used up.
So whoever follows nodes measures by a clock that nobody sets.
"""

from datetime import datetime, timedelta

from haulout.budget.away import DOWN_AFTER, down_since, failed_at, has_failed
from haulout.core.clock import Clock
from haulout.kube.objects import Node


class Outages:
    """Nodes that are not ready; without a clock, who only takes one look believes what nodes say."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[datetime | None, float]] = {}  # by uid: since when by itself, and by us

    def note(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change."""
        if self._clock is None:
            return
        if old is not None and (new is None or old.uid != new.uid):
            self._seen.pop(old.uid, None)
        if new is None:
            return
        if not has_failed(new):
            self._seen.pop(new.uid, None)
        elif new.uid not in self._seen or self._seen[new.uid][0] != failed_at(new):  # it may have been ready between
            self._seen[new.uid] = failed_at(new), self._clock.monotonic()

    def sure_in(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt, if it stays as it is: none if it is; None if it is not."""
        if not has_failed(node):
            return None
        if self._clock is None:
            return timedelta() if down_since(node, now) else DOWN_AFTER
        moment = self._clock.monotonic()
        _, since = self._seen.get(node.uid, (None, moment))
        return max(DOWN_AFTER - timedelta(seconds=moment - since), timedelta())
