"""For how long nodes are not ready, as we have seen it ourselves.

What a node says of itself is an instant, by another's clock. Ours may be hours ahead, because it was set or never was:
then a kubelet that restarts would look as if the node were down since long, and be taken though the budget is used up.
So whoever follows nodes measures by a clock that nobody sets.
"""

from datetime import datetime, timedelta

from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import DOWN_AFTER, down_since, has_become_not_ready, ready_transition_time
from haulout.core.clock import Clock


class NotReadyTracker:
    """Nodes that are not ready; without a clock, who only takes one look believes what nodes say."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._not_ready_since: dict[str, tuple[datetime | None, float]] = {}  # by uid: since when by itself, and by us

    def on_node_change(self, old: Node | None, new: Node | None) -> None:
        """Take note of a change."""
        if self._clock is None:
            return
        if old is not None and (new is None or old.uid != new.uid):
            self._not_ready_since.pop(old.uid, None)
        if new is None:
            return
        if not has_become_not_ready(new):
            self._not_ready_since.pop(new.uid, None)
        elif new.uid not in self._not_ready_since or self._not_ready_since[new.uid][0] != ready_transition_time(
            new
        ):  # it may have been ready between
            self._not_ready_since[new.uid] = ready_transition_time(new), self._clock.monotonic()

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return in what time a node is down beyond doubt, if it stays as it is: none if it is; None if it is not."""
        if not has_become_not_ready(node):
            return None
        if self._clock is None:
            return timedelta() if down_since(node, now) else DOWN_AFTER
        monotonic_now = self._clock.monotonic()
        _, since = self._not_ready_since.get(node.uid, (None, monotonic_now))
        return max(DOWN_AFTER - timedelta(seconds=monotonic_now - since), timedelta())
