"""Writes the sandbox's `shapes.json`: what the real server's OpenAPI says about merging the built-in types.

    cd tests && python -m controlplane.merge_schemas > ../sandbox/src/haulout_sandbox/apiserver/patch/shapes.json

Only types that some kind uses are kept, and of them only what merging needs: no descriptions, no rules. A reference to
a type that is a single value in JSON (a time, a quantity) is replaced by that value.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from controlplane.control_plane import ControlPlane
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS
from haulout_sandbox.apiserver.patch.merge_schema import SchemaTerm

_KINDS = {(it.api_version, it.kind) for it in (*CORE_KINDS, *BUILTIN_KINDS)}
_SERVED = _KINDS | {  # what can be posted to their subresources
    ("autoscaling/v1", "Scale"),
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("policy/v1", "Eviction"),
    ("v1", "Binding"),
}
GROUPS = sorted({f"apis/{it}" if "/" in it else f"api/{it}" for it, _ in _KINDS})
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_PREFIX = "#/components/schemas/"
_SPECIAL: dict[str, SchemaTerm] = {  # as kube-openapi's schemaconv has them, whatever their schema says
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "scalar",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
}


def merge_schemas(cluster: ControlPlane) -> dict[str, Any]:
    """Return the content of `shapes.json`."""
    schemas: dict[str, Any] = {}
    paths = cluster.request("GET", "/openapi/v3").json()["paths"]
    for group in GROUPS:
        document = cluster.request("GET", paths[group]["serverRelativeURL"]).json()
        schemas |= document["components"]["schemas"]
    types: dict[str, SchemaTerm] = {}
    kinds = {}
    for name, schema in sorted(schemas.items()):
        if _is_a_kind(schema):
            for each in schema["x-kubernetes-group-version-kind"]:
                api_version = f"{each['group']}/{each['version']}".removeprefix("/")
                if (api_version, each["kind"]) in _SERVED:
                    kinds[f"{api_version} {each['kind']}"] = _short(name)
                    _add_type(name, schemas, types)
    _drop_other_defaults(types)
    return {"kinds": kinds, "types": {name: types[name] for name in sorted(types)}}


def _is_a_kind(schema: dict[str, Any]) -> bool:
    meta = schema.get("properties", {}).get("metadata", {}).get("allOf", [])
    named = "x-kubernetes-group-version-kind" in schema
    return named and any(each["$ref"].endswith("meta.v1.ObjectMeta") for each in meta)


def _add_type(name: str, schemas: dict[str, Any], types: dict[str, SchemaTerm]) -> SchemaTerm:
    """Note the type called `name` and all that it refers to; return the term to refer to it by."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    short = _short(name)
    if short in types:
        return f"#{short}"
    if schemas[name].get("type") not in ("object", "array"):
        return _term_from_openapi(schemas[name], str)
    types[short] = {}  # so that a type may refer to itself
    types[short] = _term_from_openapi(
        schemas[name], lambda target: _add_type(target.removeprefix(_PREFIX), schemas, types)
    )
    return f"#{short}"


def _term_from_openapi(
    schema: dict[str, Any], reference: Callable[[str], SchemaTerm], *, is_open: bool = False
) -> SchemaTerm:
    """Return an OpenAPI schema as a term; `reference` resolves a `$ref`."""
    target = _ref(schema)
    if target:
        term = reference(target)
        attributes = _use_attributes(schema)
        return {"ref": term[1:]} | attributes if attributes and isinstance(term, str) else term
    if schema.get("type") == "array":
        return {"list": _term_from_openapi(schema.get("items", {}), reference, is_open=is_open)} | _list_attributes(
            schema
        )
    if schema.get("type") == "object":
        return _object(schema, reference, is_open=is_open)
    scalar = _SCALARS.get(schema.get("type", ""), "deduced")
    return "scalar" if scalar == "string" and schema.get("format", "byte") != "byte" else scalar


def _object(schema: dict[str, Any], reference: Callable[[str], SchemaTerm], *, is_open: bool) -> SchemaTerm:
    is_open = is_open or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties")
    attributes = {key: value for key, value in _use_attributes(schema).items() if key == "atomic"}
    term: dict[str, Any] = {}
    if properties:
        fields = {
            name: _term_from_openapi(inner_schema, reference, is_open=is_open)
            for name, inner_schema in properties.items()
        }
        term["fields"] = fields
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
        term["map"] = _term_from_openapi(additional, reference, is_open=is_open)
    elif additional or (additional is None and (is_open or not properties)):
        term["map"] = "deduced"
    return {key: value for key, value in term.items() if value} | attributes


def _ref(schema: dict[str, Any]) -> str:
    (target,) = [part.get("$ref", "") for part in (schema.get("allOf") or [schema])][:1]
    return str(target)


def _use_attributes(schema: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if "x-kubernetes-map-type" in schema:
        attributes["atomic"] = schema["x-kubernetes-map-type"] == "atomic"
    if "x-kubernetes-patch-strategy" in schema:
        attributes["strategy"] = schema["x-kubernetes-patch-strategy"]
    return attributes


def _list_attributes(schema: dict[str, Any]) -> dict[str, Any]:
    strategy, merge_key = schema.get("x-kubernetes-patch-strategy"), schema.get("x-kubernetes-patch-merge-key")
    attributes: dict[str, Any] = {"strategy": strategy, "merge_key": merge_key}
    if "x-kubernetes-list-type" in schema:
        attributes["type"], attributes["keys"] = (
            schema["x-kubernetes-list-type"],
            schema.get("x-kubernetes-list-map-keys"),
        )
    elif strategy and "merge" in strategy.split(","):
        attributes["type"], attributes["keys"] = ("map", [merge_key]) if merge_key else ("set", None)
    return {key: value for key, value in attributes.items() if value and value != "atomic"}


def _short(name: str) -> str:
    return ".".join(name.split(".")[-3:])


def _drop_other_defaults(types: dict[str, SchemaTerm]) -> None:
    keys: dict[str, set[str]] = {}
    for term in types.values():
        for each in term.get("fields", {}).values() if isinstance(term, dict) else ():
            if isinstance(each, dict) and isinstance(each.get("list"), str):
                keys.setdefault(each["list"][1:], set()).update(each.get("keys", ()))
    for name, term in types.items():
        if isinstance(term, dict):
            defaults = {key: value for key, value in term.pop("defaults", {}).items() if key in keys.get(name, ())}
            term.update({"defaults": defaults} if defaults else {})


def to_json(content: dict[str, Any]) -> str:
    """Return `content` as the file has it: a line for each kind and each type, so that differences can be read."""
    parts = []
    for name, rows in content.items():
        lines = (f"{json.dumps(key)}:{json.dumps(row, separators=(',', ':'))}" for key, row in rows.items())
        parts.append(f'"{name}":{{\n' + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    with ControlPlane() as control_plane:
        sys.stdout.write(to_json(merge_schemas(control_plane)))
