"""Merge schemas: which lists merge and by which key, which values are atomic, which objects are maps.

Those of built-in types are in `shapes.json`, extracted from the OpenAPI of the real server by
`tests/controlplane/merge_schemas.py`, in these terms:

    "string" "number" "boolean" "scalar"    one value; "scalar" is any of them (quantities, times, ports)
    "any"                                   any value, atomic
    "deduced"                               any value: an object is merged by its keys, all else is atomic
    "#core.v1.PodSpec"                      a type by its name; {"ref": name, …} if this use of it differs
    {"list": term, …}                       with "type" and "keys" (server-side apply), "strategy" and "merge_key"
    {"fields": {name: term}, "map": term}   an object: its declared fields, and the values of other keys, if allowed

A `MergeSchema` is a term with its references resolved. It is built on demand and cached, because the type graph has
cycles.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject

SchemaTerm = str | dict[str, Any]


class MergeSchema:
    """How patches merge a value; `kind` is object, list, string, number, boolean, scalar, any or deduced."""

    def __init__(self, term: SchemaTerm, types: Mapping[str, SchemaTerm]) -> None:
        self.name, reference = "", term
        if isinstance(term, str) and term.startswith("#"):
            self.name = term[1:]
        elif isinstance(term, dict) and "ref" in term:
            self.name = term["ref"]
        self._types = types
        self._term = types[self.name] if self.name else term
        attributes: JsonObject = self._term if isinstance(self._term, dict) else {}
        self.kind = ("list" if "list" in attributes else "object") if attributes else str(self._term)
        attributes = attributes | (reference if isinstance(reference, dict) else {})
        self.patch_strategy: str = attributes.get("strategy", "")
        self.merge_key: str = attributes.get("merge_key", "")
        self.list_type: str = attributes.get("type", "atomic") if self.kind == "list" else ""
        self.map_keys: tuple[str, ...] = tuple(attributes.get("keys", ()))
        self.is_atomic: bool = self.kind == "any" or self.list_type == "atomic" or attributes.get("atomic", False)
        self._attributes = attributes
        self._children: dict[str, MergeSchema | None] = {}

    @property
    def items(self) -> "MergeSchema | None":
        """Return the schema of the items of a list."""
        if self.kind in ("any", "deduced"):
            return ANY
        return self._child("", self._attributes["list"]) if self.kind == "list" else None

    @property
    def declared_fields(self) -> Mapping[str, SchemaTerm]:
        """Return the fields that an object declares; a map declares none."""
        fields: Mapping[str, SchemaTerm] = self._attributes.get("fields", {})
        return fields

    def field(self, name: str) -> "MergeSchema | None":
        """Return the schema of a field, or None if the field may not exist."""
        if self.kind in ("any", "deduced"):
            return self
        term = self.declared_fields.get(name)
        return self._child("", self._attributes.get("map")) if term is None else self._child(name, term)

    def default(self, name: str) -> Any:
        """Return the default of a field that is a merge key, for items that omit it."""
        return self._attributes.get("defaults", {}).get(name)

    def _child(self, name: str, term: SchemaTerm | None) -> "MergeSchema | None":
        if name not in self._children:
            self._children[name] = None if term is None else MergeSchema(term, self._types)
        return self._children[name]


ANY = MergeSchema("any", {})
DEDUCED = MergeSchema("deduced", {})


def merge_schema_of(api_version: str, kind: str) -> MergeSchema | None:
    """Return the merge schema of a built-in kind, or None for other kinds."""
    name = builtin_types().kinds.get(f"{api_version} {kind}")
    return _builtin_schema(name) if name else None


class BuiltinTypes(msgspec.Struct):
    """Built-in kinds by API version and kind, and the types that they use."""

    kinds: dict[str, str]
    types: dict[str, SchemaTerm]


@functools.cache
def builtin_types() -> BuiltinTypes:
    return msgspec.json.decode(resources.files(__package__).joinpath("shapes.json").read_bytes(), type=BuiltinTypes)


@functools.cache
def _builtin_schema(name: str) -> MergeSchema:
    return MergeSchema(f"#{name}", builtin_types().types)


@functools.cache
def custom_resource_schema() -> MergeSchema:
    """Return the merge schema of all custom resources: metadata is typed, and lists elsewhere are atomic."""
    fields = {"apiVersion": "string", "kind": "string", "metadata": "#meta.v1.ObjectMeta"}
    return MergeSchema({"fields": fields, "map": "deduced"}, builtin_types().types)
