"""What checks see of a cluster of which nodes and notices are followed, and nothing else.

So it is where no profiles are configured. What a first configuration would do can be told all the same, as far as it
goes by these.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from haulout.drain.workloads import Record, Workload
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.objects import Lease, Node, RawObject
from haulout.kube.sources import NotKnown
from haulout.profiles import data
from haulout.profiles.fitting import Room
from haulout.profiles.glimpse import Glimpse
from haulout.profiles.machine import step
from haulout.profiles.model import Configuration
from haulout.profiles.sights import NodeSights
from haulout.profiles.steps import Result
from haulout.profiles.why import subject_of


class Bare(Glimpse):
    """Nodes and notices."""

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return nothing, as nobody knows."""
        del node
        raise _not_followed("pods")

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return nothing, as nobody knows."""
        del namespace, name
        raise _not_followed("leases")

    def hypervisor(self, name: str) -> RawObject | None:
        """Return nothing, as nobody knows."""
        del name
        raise _not_followed("hypervisors")

    def room(self, node: str) -> Room | None:
        """Return nothing, as nobody knows."""
        del node
        raise _not_followed("pods")

    def daemon_sets(self) -> Collection[RawObject]:
        """Return nothing, as nobody knows."""
        raise _not_followed("daemonsets")

    def workloads_on(self, node: str) -> Record:
        """Return nothing, as nobody knows."""
        del node
        raise _not_followed("workloads")

    def evicted_from(self, node: str) -> Collection[Workload]:
        """Return nothing, as nobody knows."""
        del node
        raise _not_followed("workloads")


def considering(
    nodes: Iterable[Node], notices: Iterable[MaintenanceNotice], now: datetime
) -> Callable[[str, Configuration], Result | None]:
    """Return what tells which step a node would take by a configuration."""
    found = NodeSights(data.entries_of, changed=_ignore)
    for node in nodes:
        found.follow(None, node)
    seen = Bare(found, {}, {str(MAINTENANCE_NOTICES): tuple(notices)})

    def consider(name: str, configuration: Configuration) -> Result | None:
        sight = seen.get(name)
        if sight is None or sight.problem or not configuration.profiles:
            return None
        return step(subject_of(sight, configuration, seen, drains={}, now=now), configuration.profiles)

    return consider


def _ignore(*_: object) -> None:
    """Hear that a node changed: nobody waits."""


def _not_followed(what: str) -> NotKnown:
    return NotKnown(f"{what} are not followed yet, as no profiles are configured")
