"""What checks see of a cluster of which nodes and notices are followed, and nothing else.

So it is where no profiles are configured. What a first configuration would do can be told all the same, as far as it
goes by these.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.decision import decide
from haulout.controllers.profiles.explain.explanation import observation_of
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.observation import Decision
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.controllers.profiles.view.snapshot import Snapshot
from haulout.kube.informer_set import InformerNotSynced


class PartialSnapshot(Snapshot):
    """Nodes and notices."""

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return nothing, as nobody knows."""
        del node
        raise _not_watched("pods")

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return nothing, as nobody knows."""
        del namespace, name
        raise _not_watched("leases")

    def hypervisor(self, name: str) -> RawObject | None:
        """Return nothing, as nobody knows."""
        del name
        raise _not_watched("hypervisors")

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return nothing, as nobody knows."""
        del node
        raise _not_watched("pods")

    def daemon_sets(self) -> Collection[RawObject]:
        """Return nothing, as nobody knows."""
        raise _not_watched("daemonsets")

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return nothing, as nobody knows."""
        del node
        raise _not_watched("workloads")

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return nothing, as nobody knows."""
        del node
        raise _not_watched("workloads")


def next_step_of(
    nodes: Iterable[Node], notices: Iterable[MaintenanceNotice], now: datetime
) -> Callable[[str, Configuration], Decision | None]:
    """Return what tells which step a node would take by a configuration."""
    node_index = NodeIndex(data_annotation.statuses_of, on_change=_ignore)
    for node in nodes:
        node_index.on_watch_event(None, node)
    snapshot = PartialSnapshot(node_index, {}, {str(MAINTENANCE_NOTICES): tuple(notices)})

    def next_step(name: str, configuration: Configuration) -> Decision | None:
        node_view = snapshot.get(name)
        if node_view is None or node_view.problem or not configuration.profiles:
            return None
        return decide(observation_of(node_view, configuration, snapshot, drains={}, now=now), configuration.profiles)

    return next_step


def _ignore(*_: object) -> None:
    """Hear that a node changed: nobody waits."""


def _not_watched(what: str) -> InformerNotSynced:
    return InformerNotSynced(f"{what} are not followed yet, as no profiles are configured")
