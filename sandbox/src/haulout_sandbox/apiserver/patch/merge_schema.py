"""Merge schemas: which lists merge and by which key, which values are atomic, which objects are maps.

Those of built-in types are in `shapes.json`, extracted from the OpenAPI of the real server by
`tests/controlplane/merge_schemas.py`; those of custom resources come from the schema in their definition. Both are
written in the same terms:

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
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject

SchemaTerm = str | dict[str, Any]
_PYTHON_TYPES: Mapping[str, Any] = {
    "object": dict,
    "list": list,
    "string": str,
    "number": int | float,
    "boolean": bool,
    "scalar": str | int | float,
}
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_META = "#meta.v1.ObjectMeta"


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


def first_type_mismatch(value: Any, schema: MergeSchema, path: str = "") -> str:
    """Return the path of the first value of the wrong type, or nothing; unknown fields may hold anything."""
    children: Iterable[tuple[str, Any, MergeSchema | None]] = ()
    if isinstance(value, dict) and schema.kind == "object":
        children = ((f"{path}.{name}", item, schema.field(name)) for name, item in value.items())
    elif isinstance(value, list) and schema.kind == "list":
        children = ((f"{path}[{index}]", item, schema.items) for index, item in enumerate(value))
    elif value is not None and not isinstance(value, _PYTHON_TYPES.get(schema.kind, object)):
        return path
    return next(
        (
            mismatch
            for item_path, item, child in children
            if child and (mismatch := first_type_mismatch(item, child, item_path))
        ),
        "",
    )


def from_openapi_schema(schema: JsonObject) -> MergeSchema:
    """Return the merge schema of a custom resource, given the structural schema of its version."""
    term = term_from_openapi(schema, str)
    if not isinstance(term, dict) or "list" in term:
        return DEDUCED
    return MergeSchema(term | {"fields": term.get("fields", {}) | _type_and_metadata()}, builtin_types().types)


def term_from_openapi(
    schema: JsonObject, reference: Callable[[str], SchemaTerm], *, is_open: bool = False
) -> SchemaTerm:
    """Return an OpenAPI schema as a term; `reference` resolves a `$ref`."""
    target = _ref(schema)
    if target:
        term = reference(target)
        attributes = _use_attributes(schema)
        return {"ref": term[1:]} | attributes if attributes and isinstance(term, str) else term
    if schema.get("type") == "array":
        return {"list": term_from_openapi(schema.get("items", {}), reference, is_open=is_open)} | _list_attributes(
            schema
        )
    if schema.get("type") == "object":
        return _object(schema, reference, is_open=is_open)
    scalar = _SCALARS.get(schema.get("type", ""), "deduced")
    return "scalar" if scalar == "string" and schema.get("format", "byte") != "byte" else scalar


def _object(schema: JsonObject, reference: Callable[[str], SchemaTerm], *, is_open: bool) -> SchemaTerm:
    is_open = is_open or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    attributes = {key: value for key, value in _use_attributes(schema).items() if key == "atomic"}
    term: JsonObject = {}
    if properties or schema.get("x-kubernetes-embedded-resource"):
        fields = {
            name: term_from_openapi(inner_schema, reference, is_open=is_open)
            for name, inner_schema in properties.items()
        }
        term["fields"] = fields | (_type_and_metadata() if schema.get("x-kubernetes-embedded-resource") else {})
        term["defaults"] = {
            name: inner_schema["default"] for name, inner_schema in properties.items() if "default" in inner_schema
        }
        always_defaulted = [
            name
            for name, inner_schema in properties.items()
            if _ref(inner_schema) and inner_schema.get("default") == {}
        ]
        term["required"] = [name for name in schema.get("required", ()) if name not in always_defaulted]
    if isinstance(additional, dict):
        term["map"] = term_from_openapi(additional, reference, is_open=is_open)
    elif additional or (additional is None and (is_open or not properties)):
        term["map"] = "deduced"
    return {key: value for key, value in term.items() if value} | attributes


def _ref(schema: JsonObject) -> str:
    (target,) = [part.get("$ref", "") for part in (schema.get("allOf") or [schema])][:1]
    return str(target)


def _use_attributes(schema: JsonObject) -> JsonObject:
    attributes: JsonObject = {}
    if "x-kubernetes-map-type" in schema:
        attributes["atomic"] = schema["x-kubernetes-map-type"] == "atomic"
    if "x-kubernetes-patch-strategy" in schema:
        attributes["strategy"] = schema["x-kubernetes-patch-strategy"]
    return attributes


def _list_attributes(schema: JsonObject) -> JsonObject:
    strategy, merge_key = schema.get("x-kubernetes-patch-strategy"), schema.get("x-kubernetes-patch-merge-key")
    attributes: JsonObject = {"strategy": strategy, "merge_key": merge_key}
    if "x-kubernetes-list-type" in schema:
        attributes["type"], attributes["keys"] = (
            schema["x-kubernetes-list-type"],
            schema.get("x-kubernetes-list-map-keys"),
        )
    elif strategy and "merge" in strategy.split(","):
        attributes["type"], attributes["keys"] = ("map", [merge_key]) if merge_key else ("set", None)
    return {key: value for key, value in attributes.items() if value and value != "atomic"}


def _type_and_metadata() -> dict[str, SchemaTerm]:
    return {"apiVersion": "string", "kind": "string", "metadata": _META}


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
