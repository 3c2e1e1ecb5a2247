"""OpenAPI v3 documents, as far as kubectl reads them: for server-side validation, `explain` and list merge keys.

There is one document per group and version, and an index of them at `/openapi/v3`. Built-in kinds have the structure
of their types (`shapes.json`), without descriptions. Custom resources have the schema of their definition; without one,
they may hold anything.

Before kubectl leaves validation to the server, it checks whether the kind's PATCH takes `fieldValidation`. Before it
merges lists by their keys, it checks whether PATCH takes a strategic merge patch.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from haulout.kube.transport import Response
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.json_patch import JSON_PATCH, MERGE_PATCH
from haulout_sandbox.apiserver.patch.merge_schema import SchemaTerm, builtin_types
from haulout_sandbox.apiserver.patch.server_side_apply import APPLY_PATCH
from haulout_sandbox.apiserver.patch.strategic_merge import STRATEGIC_MERGE_PATCH
from haulout_sandbox.apiserver.status import JSON, json_response
from haulout_sandbox.apiserver.subresources.scale import SCALE

OPENAPI_V2 = "/openapi/v2"

CustomSchemas = Mapping[Kind, JsonObject]
NO_SCHEMAS: CustomSchemas = {}

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "Kubernetes"
_ROOT = "/openapi/v3"
_ANYTHING: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCALARS: Mapping[str, JsonObject] = {
    "string": {"type": "string"},
    "scalar": {"type": "string"},
    "number": {"type": "integer"},
    "boolean": {"type": "boolean"},
}
_FLOAT_FIELDS = {"apiextensions.v1.JSONSchemaProps": ("maximum", "minimum", "multipleOf")}
_PACKAGES = {
    "meta": "io.k8s.apimachinery.pkg.apis.meta",
    "apiextensions": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
}
_EXTENSIONS = {
    "type": "x-kubernetes-list-type",
    "keys": "x-kubernetes-list-map-keys",
    "strategy": "x-kubernetes-patch-strategy",
    "merge_key": "x-kubernetes-patch-merge-key",
}
_TYPE_META = {
    "apiVersion": {"type": "string", "description": "The group and version of this object's schema."},
    "kind": {"type": "string", "description": "The kind of this object."},
}
_SCALE = "autoscaling.v1.Scale"
_WRITES = {"post", "put", "patch"}
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")


def openapi_document(kinds: Sequence[Kind], path: str, *, custom: CustomSchemas = NO_SCHEMAS) -> JsonObject | None:
    """Return the index or the document at `path`, or None if there is none."""
    requested, versions = path.rstrip("/"), sorted({_version(kind) for kind in kinds})
    if requested == _ROOT:
        hashes = {name: _hash(_members(name, kinds), custom) for name in versions}
        return {"paths": {name: {"serverRelativeURL": f"{_ROOT}/{name}?hash={hashes[name]}"} for name in versions}}
    name = requested.removeprefix(f"{_ROOT}/")
    return _document(_members(name, kinds), custom) if name != requested and name in versions else None


def _version(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _members(name: str, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    return tuple(sorted((kind for kind in kinds if _version(kind) == name), key=lambda kind: kind.plural))


def _hash(kinds: tuple[Kind, ...], custom: CustomSchemas) -> str:
    """Return a hash of all that the document of these kinds depends on; the rest is the same in each run."""
    content = [(kind.resource, kind.has_status, custom.get(kind)) for kind in kinds]
    return hashlib.sha512(msgspec.json.encode(content, order="sorted")).hexdigest().upper()


def _document(kinds: tuple[Kind, ...], custom: CustomSchemas) -> JsonObject:
    schemas: JsonObject = {}
    paths: JsonObject = {}
    for kind in kinds:
        type_name = "" if kind.is_custom else builtin_types().kinds.get(f"{kind.api_version} {kind.kind}", "")
        schema_name = _model_name(type_name) if type_name else custom_model_name(kind)
        schemas |= type_schemas(type_name or "meta.v1.ObjectMeta")
        schema = schemas[schema_name] if type_name else _custom_schema(custom.get(kind))
        schemas[schema_name] = schema | {"x-kubernetes-group-version-kind": [_gvk(kind)]}
        paths |= _paths(kind, schema_name)
        if kind.scale_paths:
            schemas |= type_schemas(_SCALE)
    info = {"title": _TITLE, "version": "1.36"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def custom_model_name(kind: Kind) -> str:
    """Return the name of the schema of a custom resource: `dev.haulout.v1alpha1.MaintenanceNotice`."""
    return f"{'.'.join(reversed(kind.group.split('.')))}.{kind.version}.{kind.kind}"


def _custom_schema(raw: JsonObject | None) -> JsonObject:
    """Return the published schema of a custom resource."""
    if raw is None:
        return _ANYTHING
    schema = _published_schema(raw)
    if schema.get("type") == "object":
        metadata = {"allOf": [{"$ref": _schema_ref("meta.v1.ObjectMeta")}], "description": "Standard object metadata."}
        schema["properties"] = schema.get("properties", {}) | _TYPE_META | {"metadata": metadata}
    return schema


def _published_schema(raw: JsonObject) -> JsonObject:
    schema = dict(raw)
    if "properties" in schema:
        schema["properties"] = {name: _published_schema(inner) for name, inner in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            schema[name] = _published_schema(schema[name])
    if schema.get("x-kubernetes-int-or-string"):
        schema.setdefault("anyOf", [{"type": "integer"}, {"type": "string"}])
    return schema


def type_schemas(root_type: str) -> JsonObject:
    """Return the schema of a type and those of all types that it refers to."""
    schemas: JsonObject = {}
    pending = [root_type]
    while pending:
        type_name = pending.pop()
        if _model_name(type_name) not in schemas:
            term = builtin_types().types[type_name]
            schemas[_model_name(type_name)] = _schema(term)
            for field in _FLOAT_FIELDS.get(type_name, ()):
                schemas[_model_name(type_name)]["properties"][field] = {"type": "number"}
            pending += _referenced_types(term)
    return schemas


def _referenced_types(term: SchemaTerm) -> Iterator[str]:
    if isinstance(term, str):
        yield from (term[1:],) if term.startswith("#") else ()
        return
    yield from (term["ref"],) if "ref" in term else ()
    for inner in (*term.get("fields", {}).values(), *(term[name] for name in ("list", "map") if name in term)):
        yield from _referenced_types(inner)


def _schema(term: SchemaTerm) -> JsonObject:
    if isinstance(term, str):
        return {"$ref": _schema_ref(term[1:])} if term.startswith("#") else dict(_SCALARS.get(term, _ANYTHING))
    extensions = {extension: term[name] for name, extension in _EXTENSIONS.items() if name in term}
    if term.get("atomic"):
        extensions["x-kubernetes-map-type"] = "atomic"
    if "ref" in term:
        return {"allOf": [{"$ref": _schema_ref(term["ref"])}], **extensions}
    if "list" in term:
        return {"type": "array", "items": _schema(term["list"]), **extensions}
    schema: JsonObject = {"type": "object", **extensions}
    if "fields" in term:
        schema["properties"] = {name: _schema(inner) for name, inner in term["fields"].items()}
    if "map" in term:
        schema["additionalProperties"] = _schema(term["map"])
    if "required" in term:
        schema["required"] = term["required"]
    return schema


def _schema_ref(name: str) -> str:
    return f"#/components/schemas/{_model_name(name)}"


def _model_name(name: str) -> str:
    """Return a type's name as in the real server's documents: `io.k8s.api.core.v1.Pod`."""
    group, _, rest = name.partition(".")
    return f"{_PACKAGES.get(group, f'io.k8s.api.{group}')}.{rest}"


def _gvk(kind: Kind) -> JsonObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths(kind: Kind, schema: str) -> JsonObject:
    root = f"/{_version(kind)}"
    all_namespaces_path = f"{root}/{kind.plural}"
    collection_path = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else all_namespaces_path
    paths = {all_namespaces_path: _operations(kind, schema, "get")}
    paths[collection_path] = _operations(kind, schema, "get", "post", "delete")
    paths[f"{collection_path}/{{name}}"] = _operations(kind, schema, "get", "put", "patch", "delete")
    if kind.has_status:
        paths[f"{collection_path}/{{name}}/status"] = _operations(kind, schema, "get", "put", "patch")
    if kind.scale_paths:
        paths[f"{collection_path}/{{name}}/scale"] = _operations(SCALE, _model_name(_SCALE), "get", "put", "patch")
    return paths


def _operations(kind: Kind, schema: str, *verbs: str) -> JsonObject:
    return {verb: _operation(kind, schema, verb) for verb in verbs}


def _operation(kind: Kind, schema: str, verb: str) -> JsonObject:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    operation: JsonObject = {"responses": {"200": {"description": "OK", "content": content}}}
    if verb in _WRITES:
        operation["parameters"] = _parameters(verb)
        operation["requestBody"] = {"required": True, "content": content}
    if verb == "patch":
        types = (APPLY_PATCH, JSON_PATCH, MERGE_PATCH, *(() if kind.is_custom else (STRATEGIC_MERGE_PATCH,)))
        operation["requestBody"]["content"] = {content_type: {"schema": {"type": "object"}} for content_type in types}
    return operation | {"x-kubernetes-group-version-kind": _gvk(kind)}


def _parameters(verb: str) -> list[JsonObject]:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _WRITE_PARAMETERS]
    return (
        [*parameters, {"name": "force", "in": "query", "schema": {"type": "boolean"}}]
        if verb == "patch"
        else parameters
    )


# OpenAPI v2


def openapi_v2(version: str, *, accept: str) -> Response:
    """Return an empty OpenAPI v2 document in the requested encoding.

    kubectl leaves validation to the server except for a `kind: List`: it validates each item with this document first,
    and skips types that the document does not contain. The document is empty, so the server validates the items when
    they are sent.
    """
    if "protobuf" not in accept:
        info_json = {"title": _TITLE, "version": version}
        return json_response(
            200, {"swagger": "2.0", "info": info_json, "paths": {}, "definitions": {}}, content_type=JSON
        )
    info = _protobuf_field(1, _TITLE.encode()) + _protobuf_field(2, version.encode())
    return Response(200, {"content-type": _V2_PROTOBUF}, _protobuf_field(1, b"2.0") + _protobuf_field(2, info))


def _protobuf_field(number: int, content: bytes) -> bytes:
    """Return a length-delimited protobuf field; the content must be shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content
