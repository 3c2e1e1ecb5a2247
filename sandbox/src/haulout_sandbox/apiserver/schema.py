"""The schema of a custom resource: what it prunes, what it fills in, what it refuses.

    schema = Schema(crd_version["schema"]["openAPIV3Schema"])
    obj, unknown = schema.pruned(obj)
    obj = schema.defaulted(obj)
    causes = schema.errors(obj, old)        # for status.invalid(…)

That is the order of the real server (`apiextensions-apiserver/pkg/apiserver/customresource_handler.go` and
`…/registry/customresource/strategy.go` of Kubernetes 1.36). Nothing is changed in place. Metadata of the object itself
is left to others; that of resources embedded in it is pruned here.
"""

import copy
from collections.abc import Mapping
from typing import Any

from haulout_sandbox.apiserver import embedded, fields, listtypes, schema_rules, schema_values, structural
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.schema_rules import Rules
from haulout_sandbox.apiserver.structural import META_FIELDS, Node, Pair
from haulout_sandbox.apiserver.values import encoded

_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_MOST_REPLICAS = (1 << 31) - 1
_MOST_COMPILED = 64

_COMPILED: dict[bytes, tuple[Node, Rules | None]] = {}  # by their text: clusters come and go, definitions stay the same


class Schema:
    """A structural schema, compiled once. `scale` is the CRD's scale subresource, if it has one."""

    def __init__(self, raw: JsonObject, *, scale: JsonObject | None = None) -> None:
        self.node, self._rules = _compiled(raw)
        self._scale = scale or {}

    def pruned(self, obj: JsonObject) -> tuple[JsonObject, list[str]]:
        """Return the object without what the schema does not know, and the paths of that.

        Nulls go too, where they are neither allowed nor replaced by a default.
        """
        unknown: list[str] = []
        inside: list[str] = []
        kept = _without_nulls(_pruned(obj, self.node, "", unknown, resource=True), self.node)
        return embedded.pruned(kept, self.node, inside), [*sorted(unknown), *sorted(inside)]

    def defaulted(self, obj: JsonObject) -> JsonObject:
        """Return the object with defaults filled in; an object that is absent gets none inside it."""
        result: JsonObject = _defaulted(obj, self.node)
        return result

    def errors(self, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = "") -> list[JsonObject]:
        """Return what is wrong, as causes of an Invalid; what `old` had wrong already and is unchanged is let pass.

        A write to the status is held only to the status's part, except for rules.
        """
        of_status = subresource == "status"
        found = self._status_errors(obj, old) if of_status else self._value_errors(obj, old)
        found += self._scale_errors(obj, of_status=of_status)
        if not of_status:
            found += embedded.causes(obj, self.node)
        if old is None or not listtypes.causes(old, self.node):
            found += listtypes.causes(obj, self.node)
        if self._rules is None:
            return found
        if any(cause["reason"] in _BLOCKING for cause in found):
            return [*found, fields.invalid("", None, _UNCHECKED)]
        return found + schema_rules.causes(self._rules, obj, old)

    def _value_errors(self, obj: JsonObject, old: JsonObject | None) -> list[JsonObject]:
        pair = None if old is None else Pair(obj, old, self.node)
        return schema_values.causes(self.node, obj, pair=pair)

    def _status_errors(self, obj: JsonObject, old: JsonObject | None) -> list[JsonObject]:
        node = self.node.properties.get("status")
        if node is None or "status" not in obj:
            return []
        pair = None if old is None else Pair(obj, old, self.node).key("status")
        return schema_values.causes(node, obj["status"], at="status", pair=pair)

    def _scale_errors(self, obj: JsonObject, *, of_status: bool) -> list[JsonObject]:
        names = ("statusReplicasPath",) if of_status else ("specReplicasPath", "statusReplicasPath")
        found = [_replicas_error(obj, self._scale[name]) for name in names if name in self._scale]
        return [error for error in found if error]


def _compiled(raw: JsonObject) -> tuple[Node, Rules | None]:
    text = encoded(raw)
    if text not in _COMPILED:
        node = structural.compiled(raw)
        made = node, schema_rules.rules_of(node)
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        _COMPILED[text] = made
    return _COMPILED[text]


def _replicas_error(obj: JsonObject, path: str) -> JsonObject | None:
    value: Any = obj
    for name in path.removeprefix(".").split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        kind = {bool: "bool", str: "string", float: "float64"}.get(type(value), "map[string]interface {}")
        detail = f"{path} accessor error: {fields.plain(value)} is of the type {kind}, expected int64"
        return fields.invalid(path, 0, detail)
    if value < 0:
        return fields.invalid(path, value, "should be a non-negative integer")
    if value > _MOST_REPLICAS:
        return fields.invalid(path, value, f"should be less than or equal to {_MOST_REPLICAS}")
    return None


# Pruning


def _pruned(
    value: Any, node: Node | None, path: str, unknown: list[str], *, resource: bool = False, keeps: bool = False
) -> Any:
    """Return what the schema knows of `value`; with `keeps`, all of it. What is kept is pruned inside all the same."""
    keeps = keeps or (node is not None and node.preserves)
    if isinstance(value, list):
        of = node.items if node else None
        return [_pruned(item, of, f"{path}[{at}]", unknown, keeps=keeps) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    whole = resource or (node is not None and node.embedded)
    for name, item in value.items():
        where = f"{path}.{name}" if path else name
        if whole and name in META_FIELDS:
            kept[name] = copy.deepcopy(item)
        elif node is not None and (name in node.properties or "additionalProperties" in node.raw):
            kept[name] = _pruned(item, node.below(name), where, unknown)
        elif keeps:
            kept[name] = copy.deepcopy(item)
        else:
            unknown.append(where)
    return kept


def _without_nulls(value: Any, node: Node | None) -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(item, below)
            for name, item in value.items()
            for below in [node.below(name) if node else None]
            if not (item is None and below is not None and not below.nullable and below.raw.get("default") is None)
        }
    if isinstance(value, list):
        return [_without_nulls(item, node.items if node else None) for item in value]
    return value


# Defaulting


def _defaulted(value: Any, node: Node | None) -> Any:
    if node is None:
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [_defaulted(_or_default(item, node.items), node.items) for item in value]
    if not isinstance(value, dict):
        return value
    absent = {name: below.raw.get("default") for name, below in node.properties.items() if name not in value}
    filled = {name: _or_default(item, node.below(name)) for name, item in value.items()}
    filled |= {name: default for name, default in absent.items() if default is not None}
    return {name: _defaulted(item, node.below(name)) for name, item in filled.items()}


def _or_default(item: Any, node: Node | None) -> Any:
    return node.raw.get("default") if item is None and node is not None and not node.nullable else item
