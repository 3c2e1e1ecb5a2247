"""Hands leadership over before the node is drained on which this process runs.

Otherwise the operator would evict itself in the middle of its work. All controllers of a process share one `Handover`.
"""

import asyncio

from haulout.errors import LeadershipHandover


class Handover:
    """Knows the node of this process. An empty name means: not on a node of the cluster, never hand over."""

    def __init__(self, own_node: str = "") -> None:
        self.own_node = own_node
        self._requested = asyncio.Event()

    def before_drain(self, node: str) -> None:
        """Call this before the first eviction on a node. Raise `LeadershipHandover` if this process runs on it."""
        if self.own_node and node == self.own_node:
            self._requested.set()
            raise self.reason()

    async def wait(self) -> None:
        """Wait until leadership must be handed over."""
        await self._requested.wait()

    def reason(self) -> LeadershipHandover:
        """Return the exception with which the controllers end."""
        return LeadershipHandover(f"this process runs on node {self.own_node}, which is about to be drained")
