"""The OpenAPI v3 document of custom resources, for `kubectl explain` and editors.

There is one document per group and version, at `/openapi/v3/apis/GROUP/VERSION`. It contains what these clients use:
the schemas, and the paths of collections, which map a resource to its kind.
"""

import copy
from collections.abc import Sequence

from haulout_sandbox.apiserver.apiextensions.crds import ServedVersion
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.openapi import type_schemas

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_TYPE_META = {
    "apiVersion": {"type": "string", "description": "The group and version of this object's schema."},
    "kind": {"type": "string", "description": "The kind of this object."},
}


def document(served: Sequence[ServedVersion]) -> JsonObject:
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


def model_name(version: ServedVersion) -> str:
    """Return the name of the kind's schema: `dev.haulout.v1alpha1.MaintenanceNotice`."""
    group = ".".join(reversed(version.kind.group.split(".")))
    return f"{group}.{version.kind.version}.{version.kind.kind}"


def _kind_schema(version: ServedVersion) -> JsonObject:
    schema = _published_schema(version.schema.raw)
    if schema.get("type") == "object":
        schema["properties"] = schema.get("properties", {}) | _TYPE_META | {"metadata": _reference("ObjectMeta")}
    schema["x-kubernetes-group-version-kind"] = [_gvk(version, version.kind.kind)]
    return schema


def _published_schema(raw: JsonObject) -> JsonObject:
    """Return a schema as published in the document."""
    schema = copy.deepcopy(raw)
    if "properties" in schema:
        schema["properties"] = {name: _published_schema(inner) for name, inner in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _published_schema(schema[name])
    if schema.get("x-kubernetes-int-or-string"):
        schema.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return schema


def _list_schema(version: ServedVersion) -> JsonObject:
    items = {"$ref": f"#/components/schemas/{model_name(version)}"}
    return {
        "type": "object",
        "description": f"{version.kind.list_kind} is a list of {version.kind.kind}",
        "required": ["items"],
        "properties": {
            **_TYPE_META,
            "items": {"type": "array", "items": items, "description": f"The {version.kind.plural}."},
            "metadata": _reference("ListMeta"),
        },
        "x-kubernetes-group-version-kind": [_gvk(version, version.kind.list_kind)],
    }


def _paths(version: ServedVersion) -> JsonObject:
    root = f"/apis/{version.kind.api_version}"
    all_namespaces_path = f"{root}/{version.kind.plural}"
    collection_path = (
        f"{root}/namespaces/{{namespace}}/{version.kind.plural}" if version.kind.namespaced else all_namespaces_path
    )
    list_operation = _operation(version, "list")
    paths = {
        all_namespaces_path: {"get": list_operation},
        collection_path: {"get": list_operation, "post": _operation(version, "post")},
        f"{collection_path}/{{name}}": {verb: _operation(version, verb) for verb in ("get", "put", "patch", "delete")},
    }
    if version.kind.has_status:
        paths[f"{collection_path}/{{name}}/status"] = {
            verb: _operation(version, verb) for verb in ("get", "put", "patch")
        }
    return paths


def _operation(version: ServedVersion, action: str) -> JsonObject:
    returned = (
        model_name(version)
        if action != "list"
        else model_name(version).removesuffix(version.kind.kind) + version.kind.list_kind
    )
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{returned}"}}}
    return {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(version, version.kind.kind),
    }


def _gvk(version: ServedVersion, kind: str) -> JsonObject:
    return {"group": version.kind.group, "kind": kind, "version": version.kind.version}


def _reference(name: str) -> JsonObject:
    return {"allOf": [{"$ref": f"#/components/schemas/{_META}.{name}"}], "description": "Standard object metadata."}


def _meta_schemas() -> JsonObject:
    fields = {"continue": "string", "remainingItemCount": "integer", "resourceVersion": "string"}
    list_meta = {"type": "object", "properties": {name: {"type": kind} for name, kind in fields.items()}}
    return type_schemas("meta.v1.ObjectMeta") | {f"{_META}.ListMeta": list_meta}
