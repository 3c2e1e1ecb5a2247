"""The structural schema of a custom resource: pruning, defaults and validation.

    schema = Schema(crd_version["schema"]["openAPIV3Schema"])
    obj, unknown = schema.prune(obj)
    obj = schema.apply_defaults(obj)
    causes = schema.validation_causes(obj, old)        # for status.invalid(…)

Nothing is changed in place. The object's own metadata is not handled here.
"""

import copy
from functools import lru_cache
from typing import Any

import msgspec

from haulout_sandbox.apiserver.apiextensions import schema_rules, schema_validation
from haulout_sandbox.apiserver.apiextensions.schema_nodes import Node
from haulout_sandbox.apiserver.kinds.kind import JsonObject

_META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class Schema:
    """A structural schema; raises `msgspec.ValidationError` if it is invalid."""

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        self._node = _compile(msgspec.json.encode(raw))

    def prune(self, obj: JsonObject) -> tuple[JsonObject, list[str]]:
        """Return the object without fields that the schema does not have, and the paths of these fields.

        Null values that are neither nullable nor defaulted are removed, too.
        """
        unknown: list[str] = []
        pruned: JsonObject = _prune(obj, self._node, "", unknown, is_object_root=True)
        return pruned, sorted(unknown)

    def apply_defaults(self, obj: JsonObject) -> JsonObject:
        """Return the object with defaults; an absent object gets no defaults inside it."""
        result: JsonObject = _apply_defaults(obj, self._node)
        return result

    def validation_causes(
        self, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = ""
    ) -> list[JsonObject]:
        """Return what is invalid, as causes of an Invalid error.

        Errors that `old` has as well are ignored (ratcheting). A write to the status is validated against the status
        schema only. Rules are evaluated only if nothing else is invalid.
        """
        causes = self._value_causes(obj, subresource)
        if causes and old is not None:
            old_causes = self._value_causes(old, subresource)
            causes = [cause for cause in causes if cause not in old_causes]
        if causes:
            return causes
        causes = schema_rules.rule_causes(self._node, obj, old)
        if causes and old is not None:
            old_causes = schema_rules.rule_causes(self._node, old, None)
            causes = [cause for cause in causes if cause not in old_causes]
        return causes

    def _value_causes(self, obj: JsonObject, subresource: str) -> list[JsonObject]:
        if subresource != "status":
            return schema_validation.value_causes(self._node, obj)
        node = self._node.properties.get("status")
        return schema_validation.value_causes(node, obj["status"], "status") if node and "status" in obj else []


@lru_cache(maxsize=64)  # tests create many clusters with the same definitions
def _compile(raw: bytes) -> Node:
    return msgspec.json.decode(raw, type=Node)


def _prune(
    value: Any,
    node: Node | None,
    path: str,
    unknown: list[str],
    *,
    is_object_root: bool = False,
    keep_unknown: bool = False,
) -> Any:
    """Return `value` without unknown fields.

    `keep_unknown` keeps unknown fields, but prunes inside known ones.
    """
    keep_unknown = keep_unknown or (node is not None and node.preserves_unknown_fields)
    if isinstance(value, list):
        item_node = node.items if node else None
        return [
            _prune(item, item_node, f"{path}[{index}]", unknown, keep_unknown=keep_unknown)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    result = {}
    is_object_root = is_object_root or (node is not None and node.is_embedded_resource)
    for name, item in value.items():
        item_path = f"{path}.{name}" if path else name
        property_node = node.property_node(name) if node else None
        if item is None and property_node is not None and not property_node.nullable and property_node.default is None:
            continue
        if is_object_root and name in _META_FIELDS:
            result[name] = copy.deepcopy(item)
        elif property_node is not None or (node is not None and node.additional is True):
            result[name] = _prune(item, property_node, item_path, unknown)
        elif keep_unknown:
            result[name] = copy.deepcopy(item)
        else:
            unknown.append(item_path)
    return result


def _apply_defaults(value: Any, node: Node | None) -> Any:
    if node is None:
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [_apply_defaults(_or_default(item, node.items), node.items) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {name: _or_default(item, node.property_node(name)) for name, item in value.items()}
    for name, property_node in node.properties.items():
        if name not in value and property_node.default is not None:
            filled[name] = property_node.default
    return {name: _apply_defaults(item, node.property_node(name)) for name, item in filled.items()}


def _or_default(item: Any, node: Node | None) -> Any:
    return node.default if item is None and node is not None and not node.nullable else item
