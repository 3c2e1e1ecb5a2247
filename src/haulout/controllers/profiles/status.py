"""The last decision about each node, for `/api/v1/info`, `haulout why` and the dashboard.

It is kept in memory only: a new leader has it again after it has reconciled all nodes.
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
from haulout.core.timestamps import micro_time

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeProfilesStatus:
    """The last decision about a node, without the node itself, which other components keep in memory anyway."""

    name: str
    labels: Mapping[str, str]  # of the label filter only
    reports: tuple[ProfileReport, ...]
    updated: datetime
    next_reconcile: datetime | None  # at the latest; None: only on a change
    topics: frozenset[str] = frozenset()  # that requeue the node
    query_interval: timedelta | None = None  # how often external queries run; None: there are none
    problem: str = ""  # why the node is not managed at all


class NodeStatuses:
    """The last decisions, by node. Subscribers are called at once, and must not block."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeProfilesStatus] = {}
        self._subscribers: list[Callable[[str], object]] = []

    def store(self, status: NodeProfilesStatus) -> None:
        self._nodes[status.name] = status
        self._notify(status.name)

    def forget(self, node: str) -> None:
        if self._nodes.pop(node, None) is not None:
            self._notify(node)

    def subscribe(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call `callback` with the name of each node whose status changes. Return a function that unsubscribes."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def _notify(self, node: str) -> None:
        for callback in self._subscribers:
            callback(node)

    def get(self, node: str) -> NodeProfilesStatus | None:
        return self._nodes.get(node)

    def all(self) -> Iterable[NodeProfilesStatus]:
        return self._nodes.values()


def as_json(statuses: Iterable[NodeProfilesStatus], *, label_filter: tuple[str, ...]) -> list[RawObject]:
    """Return the response of `/api/v1/info`, in the shape that the SAP maintenance-controller has."""
    return [_node(status, label_filter) for status in statuses]


def _node(status: NodeProfilesStatus, label_filter: tuple[str, ...]) -> RawObject:
    labels = status.labels
    return {
        "node": status.name,
        "profiles": [_profile(report) for report in status.reports],
        "labels": {key: labels[key] for key in label_filter if key in labels},
        "updated": micro_time(status.updated),
        # These keys are additions: clients of the Go controller ignore them.
        "nextReconcile": None if status.next_reconcile is None else micro_time(status.next_reconcile),
        "requeueOn": sorted(status.topics),
        "queryInterval": None if status.query_interval is None else duration.format(status.query_interval),
        "problem": status.problem,
    }


def _profile(report: ProfileReport) -> RawObject:
    applied = {
        "next": report.next,
        "transitions": [_transition(transition) for transition in report.transitions],
        "error": report.error,
    }
    return {"applied": applied, "name": report.name, "state": report.state, "waitingFor": report.waits_for}


def _transition(report: TransitionReport) -> RawObject:
    checks = {
        name: {"id": check.type, "passed": bool(check.result.passed), "info": json_safe(_check_info(check.result))}
        for name, check in report.checks.items()
    }
    chain = {"passed": report.chain_passed, "info": checks, "expression": report.expression}
    result = {"passed": report.passed, "target": report.target, "chain": chain, "error": report.error}
    return {**result, "veto": report.veto}


def _check_info(result: Any) -> Mapping[str, Any]:
    """Return the info of a check, with its reason and error unless the info contains them."""
    reason = {"reason": result.reason} if result.reason and not result.passed else {}
    error = {"error": result.error} if result.error else {}
    return {**reason, **result.info, **error}


def json_safe(value: Any) -> Any:
    """Return a value that every JSON parser accepts: no NaN, and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        # NaN and Infinity are not part of JSON (RFC 8259, section 6), and `JSON.parse` of browsers rejects them.
        return str(value)
    if isinstance(value, Mapping):
        return {key: json_safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(each) for each in value]
    return value
