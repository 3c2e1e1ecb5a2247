"""The status of a hub for health probes, metrics and the dashboard, as `haulout.app.operator_status` for operators.

There is one per process; it outlives leadership.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from haulout import __version__
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.objects import RawObject
from haulout.app import replica
from haulout.core.metrics import MetricVec
from haulout.httpserver.metrics import Collector
from haulout.kube import metrics
from haulout.kube.client import Client
from haulout.runtime.component import Component

if TYPE_CHECKING:
    from haulout.app.profiles import ProfilesComponent
    from haulout.dashboard.api.backend import Backend
    from haulout.dashboard.api.health import RecentWarnings


@dataclass(slots=True)
class HubStatus:
    """The components of a hub replica, and whether it leads."""

    is_leader: bool = False
    components: Sequence[Component] = ()
    client: Client | None = None  # of the management cluster
    source: "Backend | None" = None  # the dashboard backend, while leading
    profiles: "ProfilesComponent | None" = None  # always None: a hub has no profiles
    started: datetime | None = None
    recent_warnings: "RecentWarnings | None" = None
    viewer_count: Callable[[], int] = lambda: 0  # open event streams of the dashboard

    def set_viewer_counter(self, count: Callable[[], int]) -> None:
        self.viewer_count = count

    def unready(self) -> Sequence[str]:
        """Return why this replica is not ready; unreachable clusters are no reason."""
        return tuple(reason for component in self.components for reason in component.unready())

    def troubles(self) -> Sequence[str]:
        """Return problems that need attention but do not affect readiness."""
        return [problem for component in self.components for problem in component.problems()]

    def status_lines(self) -> Sequence[str]:
        """Return one line per component, `[+]` if it is healthy and `[-]` if not."""
        leader = f"[+] leader: {'this replica leads' if self.is_leader else 'another replica leads, or none does yet'}"
        return [leader, *(line for component in self.components for line in component.status_lines())]

    def infos(self) -> list[RawObject]:
        """Return the answer to `/api/v1/info`: a hub has no profiles."""
        return []

    def collect_metrics(self) -> Iterator[Collector]:
        """Yield the current values of all metrics."""
        yield replica.build_info(__version__)
        leads = MetricVec(replica.LEADER)
        leads.set(EXTENSION_LEASE, to=self.is_leader)
        yield leads
        yield replica.gauge(replica.VIEWERS, self.viewer_count())
        if self.client is None:
            return
        yield from metrics.collect_requests(self.client.request_metrics)
        yield from self.client.metrics.collect(now=self.client.clock.now())
        for component in self.components:
            yield from component.collect_metrics()
