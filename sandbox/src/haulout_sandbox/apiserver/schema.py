"""The schema of a custom resource: what it prunes, what it fills in, what it refuses.

    schema = Schema(crd_version["schema"]["openAPIV3Schema"])
    obj, unknown = schema.pruned(obj)
    obj = schema.defaulted(obj)
    causes = schema.errors(obj, old)        # for status.invalid(…)

Nothing is changed in place. The metadata of the object itself is left to others.
"""

import copy
from functools import lru_cache
from typing import Any

import msgspec

from haulout_sandbox.apiserver import schema_rules, schema_values
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.schema_nodes import Node

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class Schema:
    """A structural schema; `msgspec.ValidationError` says that it is none."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        self._node = _compiled(msgspec.json.encode(raw))

    def pruned(self, obj: JsonObject) -> tuple[JsonObject, list[str]]:
        """Return the object without what the schema does not know, and the paths of that.

        Nulls go too, where they are neither allowed nor replaced by a default.
        """
        unknown: list[str] = []
        kept: JsonObject = _pruned(obj, self._node, "", unknown, whole=True)
        return kept, sorted(unknown)

    def defaulted(self, obj: JsonObject) -> JsonObject:
        """Return the object with defaults filled in; an object that is absent gets none inside it."""
        result: JsonObject = _defaulted(obj, self._node)
        return result

    def errors(self, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = "") -> list[JsonObject]:
        """Return what is wrong, as causes of an Invalid; what is wrong with `old` in the same way is let pass.

        A write to the status is held only to the status's part, except for rules, which wait until all else is right.
        """
        found = self._value_errors(obj, subresource)
        if found and old is not None:
            known = self._value_errors(old, subresource)
            found = [cause for cause in found if cause not in known]
        if found:
            return found
        found = schema_rules.causes(self._node, obj, old)
        if found and old is not None:
            known = schema_rules.causes(self._node, old, None)
            found = [cause for cause in found if cause not in known]
        return found

    def _value_errors(self, obj: JsonObject, subresource: str) -> list[JsonObject]:
        if subresource != "status":
            return schema_values.causes(self._node, obj)
        node = self._node.properties.get("status")
        return schema_values.causes(node, obj["status"], "status") if node and "status" in obj else []


@lru_cache(maxsize=64)  # clusters come and go, definitions stay the same
def _compiled(raw: bytes) -> Node:
    return msgspec.json.decode(raw, type=Node)


def _pruned(
    value: Any, node: Node | None, path: str, unknown: list[str], *, whole: bool = False, keeps: bool = False
) -> Any:
    """Return what the schema knows of `value`; with `keeps`, all of it. What is kept is pruned inside all the same."""
    keeps = keeps or (node is not None and node.preserves)
    if isinstance(value, list):
        of = node.items if node else None
        return [_pruned(item, of, f"{path}[{at}]", unknown, keeps=keeps) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    whole = whole or (node is not None and node.embedded)
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        below = node.below(name) if node else None
        if item is None and below is not None and not below.nullable and below.default is None:
            continue
        if whole and name in _META_FIELDS:
            kept[name] = copy.deepcopy(item)
        elif below is not None or (node is not None and node.additional is True):
            kept[name] = _pruned(item, below, where, unknown)
        elif keeps:
            kept[name] = copy.deepcopy(item)
        else:
            unknown.append(where)
    return kept


def _defaulted(value: Any, node: Node | None) -> Any:
    if node is None:
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [_defaulted(_or_default(item, node.items), node.items) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {name: _or_default(item, node.below(name)) for name, item in value.items()}
    for name, below in node.properties.items():
        if name not in value and below.default is not None:
            filled[name] = below.default
    return {name: _defaulted(item, node.below(name)) for name, item in filled.items()}


def _or_default(item: Any, node: Node | None) -> Any:
    return node.default if item is None and node is not None and not node.nullable else item
