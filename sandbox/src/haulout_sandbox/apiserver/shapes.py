"""What merging must know about types: which lists merge and by which key, which parts are one piece, what is a map.

The facts about built-in types lie in `shapes.json`, taken from the OpenAPI of the real server by `tests/controlplane/
shapes.py`; those about custom resources come from the schema in their definition. Both become the same small terms:

    "string" "number" "boolean" "scalar"    one value; "scalar" is any of them (quantities, times, ports)
    "any"                                   any value, in one piece
    "deduced"                               any value: an object is merged by its keys, all else is in one piece
    "#core.v1.PodSpec"                      a type by its name; {"ref": name, …} if this use of it differs
    {"list": term, …}                       with "type" and "keys" (server-side apply), "strategy" and "merge_key"
    {"fields": {name: term}, "map": term}   an object: fields it declares, and what other keys hold, if they may be

A `Shape` is a term with its references followed. Shapes are made when asked for and then kept: a type graph has cycles.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject

Term = str | dict[str, Any]
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


class Shape:
    """How one value is put together; `kind` is object, list, string, number, boolean, scalar, any or deduced."""

    def __init__(self, term: Term, types: Mapping[str, Term]) -> None:
        self.name, use = "", term
        if isinstance(term, str) and term.startswith("#"):
            self.name = term[1:]
        elif isinstance(term, dict) and "ref" in term:
            self.name = term["ref"]
        self._types = types
        self._term = types[self.name] if self.name else term
        told: JsonObject = self._term if isinstance(self._term, dict) else {}
        self.kind = ("list" if "list" in told else "object") if told else str(self._term)
        told = told | (use if isinstance(use, dict) else {})
        self.patch_strategy: str = told.get("strategy", "")
        self.merge_key: str = told.get("merge_key", "")
        self.list_type: str = told.get("type", "atomic") if self.kind == "list" else ""
        self.map_keys: tuple[str, ...] = tuple(told.get("keys", ()))
        self.atomic: bool = self.kind == "any" or self.list_type == "atomic" or told.get("atomic", False)
        self._told = told
        self._made: dict[str, Shape | None] = {}

    @property
    def items(self) -> "Shape | None":
        """What a list holds."""
        if self.kind in ("any", "deduced"):
            return ANY
        return self._make("", self._told["list"]) if self.kind == "list" else None

    @property
    def declared(self) -> Mapping[str, Term]:
        """The fields that an object declares; a map declares none."""
        fields: Mapping[str, Term] = self._told.get("fields", {})
        return fields

    def field(self, name: str) -> "Shape | None":
        """Return what is under `name`, or None if nothing may be there."""
        if self.kind in ("any", "deduced"):
            return self
        term = self.declared.get(name)
        return self._make("", self._told.get("map")) if term is None else self._make(name, term)

    def default(self, name: str) -> Any:
        """Return what a field that is the key in a list has where it is not given."""
        return self._told.get("defaults", {}).get(name)

    def _make(self, name: str, term: Term | None) -> "Shape | None":
        if name not in self._made:
            self._made[name] = None if term is None else Shape(term, self._types)
        return self._made[name]


ANY = Shape("any", {})
DEDUCED = Shape("deduced", {})


def shape_of(api_version: str, kind: str) -> Shape | None:
    """Return the shape of a built-in kind, or None for a kind that is not built in."""
    name = facts().kinds.get(f"{api_version} {kind}")
    return _built_in(name) if name else None


def misfit(value: Any, shape: Shape, path: str = "") -> str:
    """Return the path of the first value that its type does not allow, or nothing; unknown fields may hold anything."""
    below: Iterable[tuple[str, Any, Shape | None]] = ()
    if isinstance(value, dict) and shape.kind == "object":
        below = ((f"{path}.{name}", item, shape.field(name)) for name, item in value.items())
    elif isinstance(value, list) and shape.kind == "list":
        below = ((f"{path}[{at}]", item, shape.items) for at, item in enumerate(value))
    elif value is not None and not isinstance(value, _PYTHON_TYPES.get(shape.kind, object)):
        return path
    return next((found for where, item, it in below if it and (found := misfit(item, it, where))), "")


def from_schema(schema: JsonObject) -> Shape:
    """Return the shape of a custom resource, given the structural schema of its version."""
    term = term_of(schema, str)
    if not isinstance(term, dict) or "list" in term:
        return DEDUCED
    return Shape(term | {"fields": term.get("fields", {}) | _type_and_meta()}, facts().types)


def term_of(schema: JsonObject, reference: Callable[[str], Term], *, open_to_all: bool = False) -> Term:
    """Return an OpenAPI schema as a term; `reference` says what to make of a `$ref`."""
    target = _ref(schema)
    if target:
        term = reference(target)
        told = _told_of_use(schema)
        return {"ref": term[1:]} | told if told and isinstance(term, str) else term
    if schema.get("type") == "array":
        return {"list": term_of(schema.get("items", {}), reference, open_to_all=open_to_all)} | _told_of_list(schema)
    if schema.get("type") == "object":
        return _object(schema, reference, open_to_all=open_to_all)
    scalar = _SCALARS.get(schema.get("type", ""), "deduced")
    return "scalar" if scalar == "string" and schema.get("format", "byte") != "byte" else scalar


def _object(schema: JsonObject, reference: Callable[[str], Term], *, open_to_all: bool) -> Term:
    open_to_all = open_to_all or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    told = {key: value for key, value in _told_of_use(schema).items() if key == "atomic"}
    term: JsonObject = {}
    if properties or schema.get("x-kubernetes-embedded-resource"):
        fields = {name: term_of(each, reference, open_to_all=open_to_all) for name, each in properties.items()}
        term["fields"] = fields | (_type_and_meta() if schema.get("x-kubernetes-embedded-resource") else {})
        term["defaults"] = {name: each["default"] for name, each in properties.items() if "default" in each}
        always = [name for name, each in properties.items() if _ref(each) and each.get("default") == {}]
        term["required"] = [name for name in schema.get("required", ()) if name not in always]
    if isinstance(rest, dict):
        term["map"] = term_of(rest, reference, open_to_all=open_to_all)
    elif rest or (rest is None and (open_to_all or not properties)):
        term["map"] = "deduced"
    return {key: value for key, value in term.items() if value} | told


def _ref(schema: JsonObject) -> str:
    (target,) = [each.get("$ref", "") for each in (schema.get("allOf") or [schema])][:1]
    return str(target)


def _told_of_use(schema: JsonObject) -> JsonObject:
    told: JsonObject = {}
    if "x-kubernetes-map-type" in schema:
        told["atomic"] = schema["x-kubernetes-map-type"] == "atomic"
    if "x-kubernetes-patch-strategy" in schema:
        told["strategy"] = schema["x-kubernetes-patch-strategy"]
    return told


def _told_of_list(schema: JsonObject) -> JsonObject:
    strategy, merge_key = schema.get("x-kubernetes-patch-strategy"), schema.get("x-kubernetes-patch-merge-key")
    told: JsonObject = {"strategy": strategy, "merge_key": merge_key}
    if "x-kubernetes-list-type" in schema:
        told["type"], told["keys"] = schema["x-kubernetes-list-type"], schema.get("x-kubernetes-list-map-keys")
    elif strategy and "merge" in strategy.split(","):
        told["type"], told["keys"] = ("map", [merge_key]) if merge_key else ("set", None)
    return {key: value for key, value in told.items() if value and value != "atomic"}


def _type_and_meta() -> dict[str, Term]:
    return {"apiVersion": "string", "kind": "string", "metadata": _META}


class Facts(msgspec.Struct):
    """Built-in kinds by API version and kind, and the types that they consist of."""

    kinds: dict[str, str]
    types: dict[str, Term]


@functools.cache
def facts() -> Facts:
    """Return what is known of the built-in types."""
    return msgspec.json.decode(resources.files(__package__).joinpath("shapes.json").read_bytes(), type=Facts)


@functools.cache
def _built_in(name: str) -> Shape:
    return Shape(f"#{name}", facts().types)
