"""Counts the entries that node histories must contain, from watch events of the objects alone.

    audit = HistoryAudit()
    audit.observe("nodemaintenances", "patch", obj)          # each version of each object, in order
    audit.observe("nodemaintenances", "patch", None)         # deleted
    audit.read_record("n1", record)                          # regularly, before old entries are trimmed
    assert audit.problems() == []

It uses no code of `haulout.history`: expected entries are derived from `status.phase` and the data annotation of nodes,
actual ones from the raw record. Timestamps are not compared.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

RawObject = dict[str, Any]
Change = tuple[str, str]  # of what, to where
MAINTENANCES, NODES, RECORDS = "nodemaintenances", "nodes", "maintenancerecords"
DATA_ANNOTATION = "cloud.sap/maintenance-data"


@dataclass(slots=True)
class HistoryAudit:
    """What happened to objects, and what the records say about it; both by node."""

    expected: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    gaps: list[RawObject] = field(default_factory=list)
    reconstructed: int = 0
    _objects: dict[tuple[str, str], RawObject] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)

    def observe(self, plural: str, name: str, obj: RawObject | None) -> None:
        """Record the next version of an object; None: it was deleted."""
        before = self._objects.pop((plural, name), None)
        if obj is not None:
            self._objects[plural, name] = obj
        if plural == MAINTENANCES:
            self._observe_maintenance(name, before, obj)
        elif plural == NODES and obj is not None:
            self._observe_node(name, before, obj)

    def read_record(self, node: str, record: RawObject) -> None:
        """Record the entries that were added since the last read."""
        added = record["total"] - self._totals.get(node, 0)
        self._totals[node] = record["total"]
        for entry in record["entries"][-added:] if added else ():
            self.reconstructed += entry.get("reconstructed", False)
            if entry.get("result") == "Gap":
                self.gaps.append(entry)
            elif "to" in entry:
                self.recorded[node].append((entry["object"], entry["to"]))

    def missing_count(self) -> int:
        """Return how many changes are in no record."""
        return sum(len(_subtract(self.expected[node], self.recorded[node])) for node in self.expected)

    def problems(self) -> list[str]:
        """Return what is missing, too much, or in another order, for each object."""
        found = []
        for node in self.expected.keys() | self.recorded.keys():
            expected, recorded = _by_object(self.expected[node]), _by_object(self.recorded[node])
            found += [
                _difference(f"{subject} on {node}", expected.get(subject, []), recorded.get(subject, []))
                for subject in expected.keys() | recorded.keys()
                if expected.get(subject) != recorded.get(subject)
            ]
        return sorted(found) + [f"a gap: {gap['reason']}" for gap in self.gaps]

    def counts(self) -> tuple[int, int]:
        """Return how many changes there were, and how many of them are in no record."""
        return self.changes, self.missing_count()

    def latest(self, plural: str, name: str) -> RawObject | None:
        """Return an object as it was observed last."""
        return self._objects.get((plural, name))

    def profiles(self, node: str) -> dict[str, str]:
        """Return the profile states of a node."""
        return _profiles(self.latest(NODES, node))

    @property
    def changes(self) -> int:
        """How many changes there were."""
        return sum(map(len, self.expected.values()))

    def _observe_maintenance(self, name: str, before: RawObject | None, after: RawObject | None) -> None:
        node = (after or before or {})["spec"]["nodeName"]
        phase_before, subject = _phase(before), f"NodeMaintenance/{name}"
        if after is None:
            if phase_before:
                self.expected[node].append((subject, "Ended"))
        elif (phase := _phase(after)) and phase != phase_before:
            self.expected[node].append((subject, phase))

    def _observe_node(self, name: str, before: RawObject | None, after: RawObject) -> None:
        states_before, states = _profiles(before), _profiles(after)
        for profile, state in states.items():
            if state != states_before.get(profile, "operational"):
                self.expected[name].append((f"profile/{profile}", state))


def _phase(obj: RawObject | None) -> str:
    return str((obj or {}).get("status", {}).get("phase", ""))


def _profiles(obj: RawObject | None) -> dict[str, str]:
    data = json.loads((obj or {}).get("metadata", {}).get("annotations", {}).get(DATA_ANNOTATION, "{}"))
    return {name: profile["Current"] for name, profile in data.get("Profiles", {}).items()}


def _by_object(changes: list[Change]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for what, to in changes:
        found.setdefault(what, []).append(to)
    return found


def _difference(about: str, expected: list[str], recorded: list[str]) -> str:
    pairs = zip(expected, recorded, strict=False)
    same = next(
        (number for number, (one, other) in enumerate(pairs) if one != other), min(len(expected), len(recorded))
    )
    first = max(same - 3, 0)
    return f"{about}, from change {first} on: expected {expected[first:]}, recorded {recorded[first:]}"


def _subtract(changes: list[Change], others: list[Change]) -> list[Change]:
    left = list(changes)
    for other in others:
        if other in left:
            left.remove(other)
    return left
