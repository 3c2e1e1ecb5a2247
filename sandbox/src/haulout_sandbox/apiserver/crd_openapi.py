"""The OpenAPI v3 document of custom resources: what `kubectl explain` and editors read.

One document for each group and version, at `/openapi/v3/apis/GROUP/VERSION`. It has what those readers use: the
schemas, and of the paths the collections, which lead from a resource to its kind.
"""

import copy
from collections.abc import Sequence

from haulout_sandbox.apiserver.crds import Served
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.openapi import type_schemas

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_TYPE_META = {
    "apiVersion": {"type": "string", "description": "The group and version of this object's schema."},
    "kind": {"type": "string", "description": "The kind of this object."},
}


def document(served: Sequence[Served]) -> JsonObject:
    """Return the document of the resources of one group and version."""
    schemas = _meta_schemas()
    paths: JsonObject = {}
    for each in served:
        name = model_name(each)
        schemas[name] = _kind_schema(each)
        schemas[name.removesuffix(each.kind.kind) + each.kind.list_kind] = _list_schema(each)
        paths |= _paths(each)
    info = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def model_name(of: Served) -> str:
    """Return the name of the kind's schema: `dev.haulout.v1alpha1.MaintenanceNotice`."""
    group = ".".join(reversed(of.kind.group.split(".")))
    return f"{group}.{of.kind.version}.{of.kind.kind}"


def _kind_schema(of: Served) -> JsonObject:
    schema = _shown(of.schema.raw)
    if schema.get("type") == "object":
        schema["properties"] = schema.get("properties", {}) | _TYPE_META | {"metadata": _reference("ObjectMeta")}
    schema["x-kubernetes-group-version-kind"] = [_gvk(of, of.kind.kind)]
    return schema


def _shown(raw: JsonObject) -> JsonObject:
    """Return a schema as the document has it."""
    schema = copy.deepcopy(raw)
    if "properties" in schema:
        schema["properties"] = {name: _shown(below) for name, below in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _shown(schema[name])
    if schema.get("x-kubernetes-int-or-string"):
        schema.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return schema


def _list_schema(of: Served) -> JsonObject:
    items = {"$ref": f"#/components/schemas/{model_name(of)}"}
    return {
        "type": "object",
        "description": f"{of.kind.list_kind} is a list of {of.kind.kind}",
        "required": ["items"],
        "properties": {
            **_TYPE_META,
            "items": {"type": "array", "items": items, "description": f"The {of.kind.plural}."},
            "metadata": _reference("ListMeta"),
        },
        "x-kubernetes-group-version-kind": [_gvk(of, of.kind.list_kind)],
    }


def _paths(of: Served) -> JsonObject:
    root = f"/apis/{of.kind.api_version}"
    everywhere = f"{root}/{of.kind.plural}"
    there = f"{root}/namespaces/{{namespace}}/{of.kind.plural}" if of.kind.namespaced else everywhere
    listed = _operation(of, "list")
    paths = {
        everywhere: {"get": listed},
        there: {"get": listed, "post": _operation(of, "post")},
        f"{there}/{{name}}": {verb: _operation(of, verb) for verb in ("get", "put", "patch", "delete")},
    }
    if of.kind.has_status:
        paths[f"{there}/{{name}}/status"] = {verb: _operation(of, verb) for verb in ("get", "put", "patch")}
    return paths


def _operation(of: Served, action: str) -> JsonObject:
    returned = model_name(of) if action != "list" else model_name(of).removesuffix(of.kind.kind) + of.kind.list_kind
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{returned}"}}}
    return {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(of, of.kind.kind),
    }


def _gvk(of: Served, kind: str) -> JsonObject:
    return {"group": of.kind.group, "kind": kind, "version": of.kind.version}


def _reference(name: str) -> JsonObject:
    return {"allOf": [{"$ref": f"#/components/schemas/{_META}.{name}"}], "description": "Standard object metadata."}


def _meta_schemas() -> JsonObject:
    of_lists = {"continue": "string", "remainingItemCount": "integer", "resourceVersion": "string"}
    of_list = {"type": "object", "properties": {name: {"type": kind} for name, kind in of_lists.items()}}
    return type_schemas("meta.v1.ObjectMeta") | {f"{_META}.ListMeta": of_list}
