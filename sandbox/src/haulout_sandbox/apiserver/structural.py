"""A structural schema as a tree of nodes, and two versions of an object walked along it in step.

The tree is made once from a CRD's `openAPIV3Schema`; what validates, defaults and prunes walks it. A node keeps its
keywords as they were written (`raw`), so that each rule reads them where it applies them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from haulout_sandbox.apiserver import formats
from haulout_sandbox.apiserver.kinds import JsonObject

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_STRING = {"type": "string"}
_RESOURCE_META = {
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """One place in a schema."""

    raw: JsonObject
    types: tuple[str, ...]
    format: str  # empty if the server does not enforce it here
    properties: dict[str, "Node"]
    additional: "Node | None"  # what further properties must be
    items: "Node | None"
    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] = ()
    one_of: tuple["Node", ...] = ()
    negated: "Node | None" = None
    nullable: bool = False
    preserves: bool = False  # x-kubernetes-preserve-unknown-fields
    embedded: bool = False  # x-kubernetes-embedded-resource
    int_or_string: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    rules: tuple[JsonObject, ...] = ()
    allows_more: bool = False  # additionalProperties: true

    @property
    def type(self) -> str:
        """Return the type as it was written; empty if there is none."""
        return str(self.raw.get("type", ""))

    def below(self, name: str) -> "Node | None":
        """Return the schema of the property `name`, if there is one."""
        return self.properties.get(name, self.additional)


def compiled(raw: JsonObject) -> Node:
    """Return the tree for a schema."""
    types = ("integer", "string") if raw.get("x-kubernetes-int-or-string") else tuple(filter(None, [raw.get("type")]))
    additional = raw.get("additionalProperties")
    negated = raw.get("not")
    return Node(
        raw=raw,
        types=types,
        format=_enforced_format(types, raw.get("format", "")),
        properties={name: compiled(below) for name, below in (raw.get("properties") or {}).items()},
        additional=compiled(additional) if isinstance(additional, dict) else None,
        items=compiled(raw["items"]) if isinstance(raw.get("items"), dict) else None,
        all_of=_compiled_all(raw.get("allOf")),
        any_of=_compiled_all(raw.get("anyOf")),
        one_of=_compiled_all(raw.get("oneOf")),
        negated=compiled(negated) if isinstance(negated, dict) else None,
        nullable=bool(raw.get("nullable")),
        preserves=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(raw.get("x-kubernetes-embedded-resource")),
        int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
        list_type=raw.get("x-kubernetes-list-type", ""),
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        rules=tuple(raw.get("x-kubernetes-validations") or ()),
        allows_more=additional is True,
    )


def nodes(node: Node) -> Iterator[Node]:
    """Yield the node and all below it."""
    yield node
    below = (node.additional, node.items, node.negated, *node.all_of, *node.any_of, *node.one_of)
    for each in (*node.properties.values(), *below):
        if each is not None:
            yield from nodes(each)


def with_resource_meta(node: Node) -> Node:
    """Return the schema of a whole resource, which has a kind, an API version and metadata whatever it says."""
    return compiled(node.raw | {"properties": (node.raw.get("properties") or {}) | _RESOURCE_META})


def _compiled_all(branches: Sequence[JsonObject] | None) -> tuple[Node, ...]:
    return tuple(compiled(branch) for branch in branches or ())


def _enforced_format(types: tuple[str, ...], name: str) -> str:
    match types:
        case ("integer",):
            enforced = name in ("int32", "int64")
        case ("number",):
            enforced = name in ("float", "double")
        case (kind,) if kind != "string":
            enforced = False
        case _:
            enforced = formats.known(name)
    return name if enforced else ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A value and what it was before an update: what has not changed is not held against the writer.

    Only members of objects and of lists with keys (`x-kubernetes-list-type: map`) have a before.
    """

    new: Any
    old: Any
    node: Node

    def key(self, name: str) -> "Pair | None":
        """Return the pair of a property, if it was there before and the schema knows it."""
        below = self.node.below(name)
        if not isinstance(self.new, dict) or not isinstance(self.old, dict) or below is None:
            return None
        return Pair(self.new[name], self.old[name], below) if name in self.new and name in self.old else None

    def index(self, at: int) -> "Pair | None":
        """Return the pair of a list item, if the list has keys and the item was there before."""
        if not isinstance(self.new, list) or not isinstance(self.old, list) or self.node.items is None:
            return None
        old = same_item(self.node, self.new[at], self.old)
        return None if old is None else Pair(self.new[at], old, self.node.items)

    @property
    def unchanged(self) -> bool:
        """Tell whether it is as before; the order of lists with keys does not count."""
        if isinstance(self.new, dict) and isinstance(self.old, dict):
            pairs = [self.key(name) for name in self.new]
            return len(self.new) == len(self.old) and all(pair is not None and pair.unchanged for pair in pairs)
        if isinstance(self.new, list) and isinstance(self.old, list) and self.node.list_type == "map":
            pairs = [self.index(at) for at in range(len(self.new))]
            return len(self.new) == len(self.old) and all(pair is not None and pair.unchanged for pair in pairs)
        return type(self.new) is type(self.old) and bool(self.new == self.old)


def same_item(node: Node, item: Any, among: Sequence[Any] | None) -> Any:
    """Return the one of `among` with the keys of `item`, if the list has keys."""
    if node.list_type != "map" or not isinstance(item, dict):
        return None
    keys = _keys(node, item)
    return next((each for each in among or () if isinstance(each, dict) and _keys(node, each) == keys), None)


def _keys(node: Node, item: JsonObject) -> list[Any]:
    return [item.get(key) for key in node.list_keys]
