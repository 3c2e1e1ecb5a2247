"""Invariants about metadata of other owners: labels, annotations, taints, conditions and finalizers stay unchanged."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from support.invariants.checker import Checker, Invariant, State, Violation, violation_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMetadataUntouched(Invariant):
    """The operator changes no label, annotation, taint, condition or finalizer but its own.

    Its own are those whose name matches one of `ours` (`haulout.dev/*`, `DrainInProgress`; of one kind of object
    `nodemaintenances/Ready`), and all of an object that it created itself. What the server writes when it evicts on the
    operator's behalf does not count.
    """

    operator: Collection[str]
    ours: tuple[str, ...]

    def new_checker(self) -> Checker:
        """Return a checker."""
        return _OwnershipChecker(self.operator, self.ours)


class _OwnershipChecker(Checker):
    def __init__(self, operator: Collection[str], owned_prefixes: tuple[str, ...]) -> None:
        self._operator = operator
        self._ours = owned_prefixes
        self._created: set[str] = set()

    def check_write(self, write: Write, state: State) -> Iterator[Violation]:
        del state
        is_operators = write.username in self._operator
        if write.before is None or write.after is None:
            self._created.discard(write.path)
            if is_operators and write.after is not None:
                self._created.add(write.path)
            return
        if not is_operators or write.verb == "evict" or write.path in self._created:
            return
        before, after = _sections(write.before), _sections(write.after)
        for section, names in after.items():
            for name in _changed(before[section], names):
                if not self._is_ours(write.kind.plural, name):
                    change_kind = _change_kind(before[section], names, name)
                    yield violation_of(
                        write, f"{write.kind.plural} {write.key}: the {section} {name} of others was {change_kind}"
                    )

    def _is_ours(self, plural: str, name: str) -> bool:
        names = (name, f"{plural}/{name}")
        return any(fnmatchcase(candidate, pattern) for candidate in names for pattern in self._ours)


def _sections(obj: JsonObject) -> dict[str, dict[str, Any]]:
    meta = obj["metadata"]
    taints = obj.get("spec", {}).get("taints", ()) if obj.get("kind") == "Node" else ()
    conditions = obj.get("status", {}).get("conditions", ())
    return {
        "label": meta.get("labels", {}),
        "annotation": meta.get("annotations", {}),
        "finalizer": dict.fromkeys(meta.get("finalizers", ())),
        "taint": {f"{item['key']}:{item['effect']}": item for item in taints},
        "condition": {item["type"]: item for item in conditions},
    }


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in (*before, *(name for name in after if name not in before)):
        if (name in before) != (name in after) or before[name] != after[name]:
            yield name


def _change_kind(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    if name not in before:
        return "added"
    return "changed" if name in after else "removed"
