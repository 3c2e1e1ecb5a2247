"""What was last decided about each node, for `/api/v1/info`, `haulout why` and the dashboard.

It is memory that does not matter: a new leader has it again as soon as it has looked at all nodes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.observation import ProfileReport, TransitionReport
from haulout.core import duration
from haulout.kube.timestamps import micro_time

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What was decided about a node, and when. It does not hold the node itself, which others keep anyway."""

    name: str
    labels: Mapping[str, str]  # those that are shown
    reports: tuple[ProfileReport, ...]
    updated: datetime
    next_reconcile: datetime | None  # at the latest; None: only when something changes
    topics: frozenset[str] = frozenset()  # what else it is looked at for
    query_interval: timedelta | None = None  # how often its checks ask the outside; None: they do not
    problem: str = ""  # why nothing at all is done about it


class NodeStatuses:
    """The latest decisions, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeStatus] = {}
        self._subscribers: list[Callable[[str], object]] = []

    def store(self, status: NodeStatus) -> None:
        """Keep what was decided."""
        self._nodes[status.name] = status
        self._notify(status.name)

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        if self._nodes.pop(node, None) is not None:
            self._notify(node)

    def subscribe(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback` with the name of each node about which something was decided; returns what ends that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def _notify(self, node: str) -> None:
        for callback in self._subscribers:
            callback(node)

    def get(self, node: str) -> NodeStatus | None:
        """Return what was decided about a node."""
        return self._nodes.get(node)

    def all(self) -> Iterable[NodeStatus]:
        """Return what was decided about all nodes."""
        return self._nodes.values()


def as_json(statuses: Iterable[NodeStatus], *, label_filter: tuple[str, ...]) -> list[RawObject]:
    """Return what `/api/v1/info` answers, in the shape that the SAP maintenance-controller has."""
    return [_node(status, label_filter) for status in statuses]


def _node(status: NodeStatus, label_filter: tuple[str, ...]) -> RawObject:
    labels = status.labels
    return {
        "node": status.name,
        "profiles": [_profile(report) for report in status.reports],
        "labels": {key: labels[key] for key in label_filter if key in labels},
        "updated": micro_time(status.updated),
        # What follows is ours: readers of the Go controller's answer pass over it.
        "nextLook": None if status.next_reconcile is None else micro_time(status.next_reconcile),
        "wakesOn": sorted(status.topics),
        "asksEvery": None if status.query_interval is None else duration.format(status.query_interval),
        "problem": status.problem,
    }


def _profile(report: ProfileReport) -> RawObject:
    applied = {
        "next": report.next,
        "transitions": [_transition(transition) for transition in report.transitions],
        "error": report.error,
    }
    return {"applied": applied, "name": report.name, "state": report.state, "waitsFor": report.waits_for}


def _transition(report: TransitionReport) -> RawObject:
    checks = {
        name: {"id": check.type, "passed": bool(check.result.passed), "info": json_safe(_check_info(check.result))}
        for name, check in report.checks.items()
    }
    chain = {"passed": report.chain_passed, "info": checks, "expression": report.expression}
    result = {"passed": report.passed, "target": report.target, "chain": chain, "error": report.error}
    return {**result, "veto": report.veto}


def _check_info(result: Any) -> Mapping[str, Any]:
    """Return what a check has to say: its own information, and the reason and error if it does not tell them itself."""
    reason = {"reason": result.reason} if result.reason and not result.passed else {}
    error = {"error": result.error} if result.error else {}
    return {**reason, **result.info, **error}


def json_safe(value: Any) -> Any:
    """Return a value that every JSON reader reads: no NaN, and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: json_safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(each) for each in value]
    return value
