"""Lists that are sets or maps (`x-kubernetes-list-type`): no item, and no key, is there twice."""

from collections.abc import Iterable
from typing import Any

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.structural import Node


def causes(value: Any, node: Node | None, path: str = "") -> list[JsonObject]:
    """Return the duplicates, as causes of an Invalid."""
    if node is None:
        return []
    if isinstance(value, list):
        found = _duplicates(value, node, path)
        return found + [cause for at, item in enumerate(value) for cause in causes(item, node.items, f"{path}[{at}]")]
    if not isinstance(value, dict):
        return []
    return [
        cause
        for name in sorted(value)
        for cause in causes(
            value[name],
            node.below(name),
            fields.child(path, name) if name in node.properties else f"{path}[{name}]",
        )
    ]


def _duplicates(items: list[Any], node: Node, path: str) -> list[JsonObject]:
    if node.list_type == "map":
        for at, item in enumerate(items):
            if item is not None and not isinstance(item, dict):
                return [fields.invalid(f"{path}[{at}]", item, "must be an object for an array of list-type map")]
        keys = [{key: item[key] for key in node.list_keys if key in item} for item in (it or {} for it in items)]
        return [fields.duplicate(f"{path}[{at}]", keys[at]) for at in _second_times(keys)]
    if node.list_type == "set":
        return [fields.duplicate(f"{path}[{at}]", items[at]) for at in _second_times(items)]
    return []


def _second_times(items: Iterable[Any]) -> list[int]:
    """Return where items appear for the second time; a third is not told."""
    seen: dict[str, int] = {}
    found = []
    for at, item in enumerate(items):
        known = fields.as_json(item)
        seen[known] = seen.get(known, 0) + 1
        if seen[known] == 2:  # noqa: PLR2004 - the second time
            found.append(at)
    return found
