"""Whole resources inside a custom resource (`x-kubernetes-embedded-resource`): their kind, API version and metadata."""

from typing import Any

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import METADATA_FIELDS, label_problems
from haulout_sandbox.apiserver.structural import Node

_METADATA = frozenset(METADATA_FIELDS)


def pruned(value: Any, node: Node | None, unknown: list[str], path: str = "") -> Any:
    """Return `value` with only what metadata can have in the metadata inside it; add the paths of the rest."""
    if node is None:
        return value
    if isinstance(value, list):
        return [pruned(item, node.items, unknown, f"{path}[{at}]") for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, item in value.items():
        where = fields.child(path, name) if name in node.properties or not node.additional else f"{path}[{name}]"
        if node.embedded and name == "metadata" and isinstance(item, dict):
            unknown += [f"{where}.{each}" for each in item if each not in _METADATA]
            kept[name] = {each: inner for each, inner in item.items() if each in _METADATA and inner is not None}
        else:
            kept[name] = pruned(item, node.below(name), unknown, where)
    return kept


def causes(value: Any, node: Node | None, path: str = "") -> list[JsonObject]:
    """Return what is wrong with the kinds and API versions inside `value`, as causes of an Invalid."""
    if node is None:
        return []
    if isinstance(value, list):
        return [cause for at, item in enumerate(value) for cause in causes(item, node.items, f"{path}[{at}]")]
    if not isinstance(value, dict):
        return []
    found = _type_causes(value, path) if node.embedded else []
    for name in sorted(value):
        where = fields.child(path, name) if name in node.properties else f"{path}[{name}]"
        found += causes(value[name], node.below(name), where)
    return found


def _type_causes(value: JsonObject, path: str) -> list[JsonObject]:
    names = ("apiVersion", "kind")
    found = [fields.required(fields.child(path, name)) for name in names if name not in value]
    for name in names:
        given, where = value.get(name), fields.child(path, name)
        if name not in value:
            continue
        if not isinstance(given, str):
            found.append(fields.invalid(where, given, "must be a string"))
        elif not given:
            found.append(fields.invalid(where, given, "must not be empty"))
        elif name == "apiVersion" and given.count("/") > 1:
            found.append(fields.invalid(where, given, f"unexpected GroupVersion string: {given}"))
        elif name == "kind" and (problems := label_problems(given.lower())):
            rule = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            found.append(fields.invalid(where, given, rule))
    return found
