"""All metrics, in the groups of the reference page.

Each metric is declared once, next to the code that updates it. A test fails if a metric is exposed but not listed here,
or the other way round. The reference, the alerts and the Grafana dashboard use no other metrics.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.app import replica
from haulout.app.components import component_types
from haulout.budget import metrics as budgets
from haulout.controllers.clusterapi import metrics as hub
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance.component import NodeMaintenancesComponent
from haulout.controllers.notices.metrics import METRICS as NOTICE_METRICS
from haulout.controllers.profiles import metrics as profiles
from haulout.core.metrics import Metric, MetricKind
from haulout.drain import metrics as drains
from haulout.httpserver import connections
from haulout.httpserver.metrics import PROCESS_METRICS
from haulout.kube import metrics as meters
from haulout.providers.agent import metrics as agent
from haulout.runtime import journal
from haulout.webhook import validator

_HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
_BUCKET = "le"


@dataclass(frozen=True, slots=True)
class Group:
    """The metrics of one feature: one table of the reference page."""

    name: str
    metrics: tuple[Metric, ...]


def _is_from_predecessor(metric: Metric) -> bool:
    return not metric.name.startswith("haulout_")


GROUPS = (
    Group("maintenance-controller", (*filter(_is_from_predecessor, profiles.METRICS), replica.LEADER)),
    Group("fleet", NodeMaintenancesComponent.metrics),
    Group("drains", drains.METRICS),
    Group("budgets", budgets.METRICS),
    Group("profiles", tuple(it for it in profiles.METRICS if not _is_from_predecessor(it))),
    Group("notices", NOTICE_METRICS),
    Group("agent", agent.METRICS),
    Group("machines", MachinesComponent.metrics),
    Group("hub", hub.METRICS),
    *(Group(kind.name, kind.metrics) for kind in component_types() if kind.metrics),
    Group(
        "health",
        (*replica.REPLICA_METRICS, *meters.METRICS, journal.TRANSITIONS, validator.REVIEWS, *connections.METRICS),
    ),
    Group("process", PROCESS_METRICS),
)


def metrics() -> Iterator[Metric]:
    for group in GROUPS:
        yield from group.metrics


def series() -> dict[str, frozenset[str]]:
    """Return the names that expressions may use, with the labels of each."""
    found: dict[str, frozenset[str]] = {}
    for metric in metrics():
        labels = frozenset(metric.labels)
        if metric.kind is not MetricKind.HISTOGRAM:
            found[metric.name] = labels
            continue
        for ending in _HISTOGRAM_SUFFIXES:
            found[metric.name + ending] = labels | ({_BUCKET} if ending == "_bucket" else set())
    return found
