"""OpenAPI of the sandbox says what kubectl asks it for."""

import re
from typing import Any

import msgspec
import pytest

from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, JsonObject, Kind
from haulout_sandbox.apiserver.openapi import openapi_document
from haulout_sandbox.event_loops.virtual_time import VirtualClock

BUILT_IN = (*CORE_KINDS, *BUILTIN_KINDS)
THING = Kind(group="example.com", version="v1", plural="things", kind="Thing", is_custom=True)
CORE = "io.k8s.api.core.v1"


def document(path: str, *kinds: Kind, custom: JsonObject | None = None) -> Any:
    schemas = {} if custom is None else {THING: custom}
    found = openapi_document([*BUILT_IN, *kinds], f"/openapi/v3/{path}", custom=schemas)
    assert found is not None
    return found


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own_reference = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own_reference.union(*(references(inner) for inner in value.values()))
    return set().union(*(references(inner) for inner in value)) if isinstance(value, list) else set()


def test_the_index_leads_to_every_group_and_version() -> None:
    index = openapi_document(BUILT_IN, "/openapi/v3")
    assert index is not None
    assert {"api/v1", "apis/apps/v1", "apis/policy/v1", "apis/coordination.k8s.io/v1"} <= set(index["paths"])
    for name, entry in index["paths"].items():
        assert re.fullmatch(rf"/openapi/v3/{re.escape(name)}\?hash=[0-9A-F]{{128}}", entry["serverRelativeURL"])
        assert openapi_document(BUILT_IN, f"/openapi/v3/{name}")


@pytest.mark.parametrize("path", ["/openapi/v3/apis/none/v1", "/openapi/v2", "/openapi/v3x", "/api/v1"])
def test_other_paths_have_no_document(path: str) -> None:
    assert openapi_document(BUILT_IN, path) is None


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.resource)
def test_a_patch_of_every_kind_takes_field_validation_and_merges_by_keys(kind: Kind) -> None:
    """Without these kubectl refuses to apply, or asks for OpenAPI v2."""
    paths = document(f"apis/{kind.api_version}" if kind.group else "api/v1")["paths"]
    path = kind.path("{namespace}/{name}" if kind.namespaced else "{name}")
    patch = paths[path]["patch"]
    assert {"group": kind.group, "version": kind.version, "kind": kind.kind} == patch["x-kubernetes-group-version-kind"]
    assert ("fieldValidation", "query") in {(item["name"], item["in"]) for item in patch["parameters"]}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


@pytest.mark.parametrize("path", ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/policy/v1"])
def test_every_reference_leads_to_a_schema(path: str) -> None:
    found = document(path)
    schemas = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert references(found) <= schemas


def test_a_schema_has_the_structure_of_its_type() -> None:
    schemas = document("api/v1")["components"]["schemas"]
    node = schemas[f"{CORE}.Node"]
    assert node["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Node"}]
    assert node["properties"]["metadata"] == {
        "$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    }
    assert schemas[f"{CORE}.NodeSpec"]["properties"]["unschedulable"] == {"type": "boolean"}
    pod = schemas[f"{CORE}.PodSpec"]
    assert pod["required"] == ["containers"]
    assert pod["properties"]["containers"] == {
        "type": "array",
        "items": {"$ref": f"#/components/schemas/{CORE}.Container"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "name",
    }
    assert pod["properties"]["nodeSelector"]["additionalProperties"] == {"type": "string"}


def test_a_custom_kind_without_a_schema_may_hold_anything() -> None:
    found = document("apis/example.com/v1", THING)
    schema = found["components"]["schemas"]["com.example.v1.Thing"]
    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Thing"}]
    patch = found["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_the_hash_in_the_index_changes_with_a_schema() -> None:
    def url(*fields: str) -> Any:
        schema: JsonObject = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
        index = openapi_document([*BUILT_IN, THING], "/openapi/v3", custom={THING: schema})
        return index and index["paths"]["apis/example.com/v1"]["serverRelativeURL"]

    assert url("a") == url("a")
    assert url("a") != url("b")


async def test_the_server_serves_it() -> None:
    transport = ApiServer(VirtualClock()).transport("alice")
    answer = await transport.send(Request(method="GET", path="/openapi/v3/api/v1", query=(("hash", "ABC"),)))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    missing = await transport.send(Request(method="GET", path="/openapi/v1"))
    assert missing.status == 404


async def test_openapi_v2_is_served_in_both_encodings_without_kinds() -> None:
    transport = ApiServer(VirtualClock()).transport("alice")
    response = await transport.send(Request(method="GET", path="/openapi/v2"))
    assert msgspec.json.decode(response.body) == {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": {},
        "definitions": {},
    }
    binary = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    packed = await transport.send(Request(method="GET", path="/openapi/v2", accept=binary))
    assert packed.body == b"\n\x032.0\x12\x15\n\x0aKubernetes\x12\x07v1.36.3"
