"""How long nodes have been NotReady, measured on the local monotonic clock.

A node's lastTransitionTime comes from another clock. If the local clock is hours ahead, a restarting kubelet looks as
if its node had been down for hours, and the node would be taken although the budget is exhausted. Controllers that
watch nodes therefore measure the time themselves, on a clock that cannot be set.
"""

from datetime import datetime, timedelta

from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import DOWN_AFTER, down_since, has_become_not_ready, ready_transition_time
from haulout.core.clock import Clock


class NotReadyTracker:
    """Nodes that are NotReady. Without a clock, for a single look at the cluster, it relies on lastTransitionTime."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        # By UID: lastTransitionTime, and the local monotonic time.
        self._not_ready_since: dict[str, tuple[datetime | None, float]] = {}

    def on_node_change(self, old: Node | None, new: Node | None) -> None:
        """Start or stop the measurement of a node."""
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
        ):  # it may have been ready in between
            self._not_ready_since[new.uid] = ready_transition_time(new), self._clock.monotonic()

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return the time until a node that stays NotReady is down beyond doubt; zero if it is, None if it is ready."""
        if not has_become_not_ready(node):
            return None
        if self._clock is None:
            return timedelta() if down_since(node, now) else DOWN_AFTER
        monotonic_now = self._clock.monotonic()
        _, since = self._not_ready_since.get(node.uid, (None, monotonic_now))
        return max(DOWN_AFTER - timedelta(seconds=monotonic_now - since), timedelta())
