"""All metrics there are, in the groups in which the reference tells of them.

Each is declared once, beside what counts it. What is exposed and not listed here, or the other way round, fails a test;
the reference, the alerts and the Grafana dashboard name nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.app import esx, kubernikus, machines, notice_tallies
from haulout.app import replica_metrics as replica
from haulout.budget import tallies as budgets
from haulout.core.metering import Kind, Metric
from haulout.drain import tallies as drains
from haulout.hub import tallies as hub
from haulout.kube import meters
from haulout.notices.agent import tallies as agent
from haulout.profiles import tallies as profiles
from haulout.web import connections, process, validator

_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")
_BUCKET = "le"


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics of one feature."""

    name: str
    metrics: tuple[Metric, ...]


def _is_known_of_old(metric: Metric) -> bool:
    return not metric.name.startswith("haulout_")


GROUPS = (
    Group("maintenance-controller", (*filter(_is_known_of_old, profiles.METRICS), replica.LEADS)),
    Group("fleet", replica.FLEET),
    Group("drains", drains.METRICS),
    Group("budgets", budgets.METRICS),
    Group("profiles", tuple(it for it in profiles.METRICS if not _is_known_of_old(it))),
    Group("notices", notice_tallies.METRICS),
    Group("agent", agent.METRICS),
    Group("machines", machines.METRICS),
    Group("hub", hub.METRICS),
    Group("kubernikus", kubernikus.METRICS),
    Group("esx", esx.METRICS),
    Group("health", (*replica.REPLICA, *meters.METRICS, validator.REVIEWS, *connections.METRICS)),
    Group("process", process.METRICS),
)


def metrics() -> Iterator[Metric]:
    """Yield all of them."""
    for group in GROUPS:
        yield from group.metrics


def series() -> dict[str, frozenset[str]]:
    """Return the names that expressions may use, and the labels of each."""
    found: dict[str, frozenset[str]] = {}
    for metric in metrics():
        labels = frozenset(metric.labels)
        if metric.kind is not Kind.HISTOGRAM:
            found[metric.name] = labels
            continue
        for ending in _OF_A_HISTOGRAM:
            found[metric.name + ending] = labels | ({_BUCKET} if ending == "_bucket" else set())
    return found
