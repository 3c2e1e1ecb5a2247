"""All metrics, in the groups of the reference page.

Each metric is declared once, next to the code that updates it. A test fails if a metric is exposed but not listed here,
or the other way round. The reference, the alerts and the Grafana dashboard use no other metrics.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from haulout.app import replica
from haulout.app.components import all_types
from haulout.budget import metrics as budgets
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
_PREDECESSOR = "maintenance-controller"  # names that the SAP maintenance-controller has fixed


@dataclass(frozen=True, slots=True)
class Group:
    """The metrics of one feature: one table of the reference page. That of a component has the name of its folder."""

    name: str
    metrics: tuple[Metric, ...]


def _groups_of_components() -> Iterator[Group]:
    found = defaultdict[str, list[Metric]](list)
    for kind in all_types():
        for metric in kind.metrics:
            is_ours = metric.name.startswith("haulout_")
            found[kind.__module__.split(".")[-2] if is_ours else _PREDECESSOR].append(metric)
    found[_PREDECESSOR].append(replica.LEADER)
    yield from (Group(name, tuple(listed)) for name, listed in found.items())


GROUPS = (
    *_groups_of_components(),
    Group("drains", drains.METRICS),
    Group("budgets", budgets.METRICS),
    Group("agent", agent.METRICS),
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
