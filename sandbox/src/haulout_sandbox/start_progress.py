"""How far the start of a sandbox is: a thousand nodes take half a minute."""

from collections.abc import Callable

from haulout.core.clock import Clock
from haulout_sandbox.cluster import Cluster

_INTERVAL_SECONDS = 0.5


class StartProgress:
    """Calls `report` with a line of text at most twice a second, by the clock of the machine."""

    def __init__(self, cluster: Cluster, machine: Clock, report: Callable[[str], object]) -> None:
        self._cluster = cluster
        self._machine = machine
        self._report = report
        self._due = machine.monotonic() + _INTERVAL_SECONDS

    def update(self) -> None:
        """Report, if it is time to; called at each iteration of the event loop."""
        seconds = self._machine.monotonic()
        if seconds < self._due:
            return
        self._due = seconds + _INTERVAL_SECONDS
        api = self._cluster.api
        nodes, pods = api.by_key("nodes"), api.by_key("pods").values()
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        behind = self._machine.now() - self._cluster.clock.now()
        minutes = max(behind.total_seconds() / 60, 0)
        self._report(
            f"{len(nodes):,} nodes, {running:,} of {len(pods):,} pods running, {minutes:.1f} min still to simulate"
        )
