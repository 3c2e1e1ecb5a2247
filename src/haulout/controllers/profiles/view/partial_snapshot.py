"""A snapshot of a cluster of which only nodes and notices are watched.

This is the case while no profiles are configured. It allows to preview a first configuration as far as its checks read
only nodes and notices.
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
from haulout.runtime.freezes import Freezes


class PartialSnapshot(Snapshot):
    """A snapshot of nodes and notices. All other methods raise `InformerNotSynced`."""

    def pods_on(self, node: str) -> Collection[RawObject]:
        del node
        raise _not_watched("pods")

    def lease(self, namespace: str, name: str) -> Lease | None:
        del namespace, name
        raise _not_watched("leases")

    def hypervisor(self, name: str) -> RawObject | None:
        del name
        raise _not_watched("hypervisors")

    def free_capacity(self, node: str) -> NodeCapacity | None:
        del node
        raise _not_watched("pods")

    def daemon_sets(self) -> Collection[RawObject]:
        raise _not_watched("daemonsets")

    def workloads_on(self, node: str) -> WorkloadRecord:
        del node
        raise _not_watched("workloads")

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        del node
        raise _not_watched("workloads")


def next_step_of(
    nodes: Iterable[Node], notices: Iterable[MaintenanceNotice], now: datetime, *, freezes: Freezes
) -> Callable[[str, Configuration], Decision | None]:
    """Return a function that returns the decision for a node under a configuration; None if there is none."""
    node_index = NodeIndex(data_annotation.statuses_of, on_change=_ignore)
    for node in nodes:
        node_index.on_watch_event(None, node)
    snapshot = PartialSnapshot(node_index, {}, {str(MAINTENANCE_NOTICES): tuple(notices)})

    def next_step(name: str, configuration: Configuration) -> Decision | None:
        node_view = snapshot.get(name)
        if node_view is None or node_view.problem or not configuration.profiles:
            return None
        observation = observation_of(node_view, configuration, snapshot, drains={}, now=now, freezes=freezes)
        return decide(observation, configuration.profiles)

    return next_step


def _ignore(*_: object) -> None:
    """Ignore a change of a node: a snapshot has no subscribers."""


def _not_watched(what: str) -> InformerNotSynced:
    return InformerNotSynced(f"{what} are not watched yet, as no profiles are configured")
