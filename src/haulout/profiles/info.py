"""What was last decided about each node, for `/api/v1/info`, `haulout why` and the dashboard.

It is memory that does not matter: a new leader has it again as soon as it has looked at all nodes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from haulout.core import duration
from haulout.kube.objects import RawObject
from haulout.kube.timestamps import micro_time
from haulout.profiles.steps import ProfileReport, TransitionReport

NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What was decided about a node, and when. It does not hold the node itself, which others keep anyway."""

    name: str
    labels: Mapping[str, str]  # those that are shown
    reports: tuple[ProfileReport, ...]
    updated: datetime
    next_look: datetime | None  # at the latest; None: only when something changes
    topics: frozenset[str] = frozenset()  # what else it is looked at for
    asks_every: timedelta | None = None  # how often its checks ask the outside; None: they do not
    problem: str = ""  # why nothing at all is done about it


class Info:
    """The latest decisions, by node."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._readers: list[Callable[[str], object]] = []

    def note(self, info: NodeInfo) -> None:
        """Keep what was decided."""
        self._nodes[info.name] = info
        self._tell(info.name)

    def forget(self, node: str) -> None:
        """Drop a node that is gone."""
        if self._nodes.pop(node, None) is not None:
            self._tell(node)

    def subscribe(self, read: Callable[[str], object]) -> Callable[[], None]:
        """Call `read` with the name of each node about which something was decided; returns what ends that."""
        self._readers.append(read)
        return lambda: self._readers.remove(read)

    def _tell(self, node: str) -> None:
        for read in self._readers:
            read(node)

    def get(self, node: str) -> NodeInfo | None:
        """Return what was decided about a node."""
        return self._nodes.get(node)

    def all(self) -> Iterable[NodeInfo]:
        """Return what was decided about all nodes."""
        return self._nodes.values()


def as_json(infos: Iterable[NodeInfo], *, label_filter: tuple[str, ...]) -> list[RawObject]:
    """Return what `/api/v1/info` answers, in the shape that the SAP maintenance-controller has."""
    return [_node(info, label_filter) for info in infos]


def _node(info: NodeInfo, label_filter: tuple[str, ...]) -> RawObject:
    labels = info.labels
    return {
        "node": info.name,
        "profiles": [_profile(report) for report in info.reports],
        "labels": {key: labels[key] for key in label_filter if key in labels},
        "updated": micro_time(info.updated),
        # What follows is ours: readers of the Go controller's answer pass over it.
        "nextLook": None if info.next_look is None else micro_time(info.next_look),
        "wakesOn": sorted(info.topics),
        "asksEvery": None if info.asks_every is None else duration.format(info.asks_every),
        "problem": info.problem,
    }


def _profile(report: ProfileReport) -> RawObject:
    applied = {
        "next": report.next,
        "transitions": [_transition(it) for it in report.transitions],
        "error": report.error,
    }
    return {"applied": applied, "name": report.name, "state": report.state, "waitsFor": report.waits_for}


def _transition(report: TransitionReport) -> RawObject:
    checks = {
        name: {"id": it.type, "passed": bool(it.verdict.passed), "info": plain(_information(it.verdict))}
        for name, it in report.checks.items()
    }
    chain = {"passed": report.chain_passed, "info": checks, "expression": report.expression}
    said = {"passed": report.passed, "target": report.target, "chain": chain, "error": report.error}
    return {**said, "veto": report.veto}


def _information(verdict: Any) -> Mapping[str, Any]:
    """Return what a check has to say: its own information, and the reason and error if it does not tell them itself."""
    more = {"reason": verdict.reason} if verdict.reason and not verdict.passed else {}
    wrong = {"error": verdict.error} if verdict.error else {}
    return {**more, **verdict.info, **wrong}


def plain(value: Any) -> Any:
    """Return a value that every JSON reader reads: no NaN, and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
