"""The CRD keeps all fields of the Node Maintenance Operator unchanged; its drain policy schema matches the parser."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from haulout.api.nodemaintenance import (
    FINALIZER,
    NO_OBSERVED_GENERATION,
    NODE_MAINTENANCES,
    NodeMaintenance,
    NodeMaintenanceSpec,
    NodeMaintenanceStatus,
    custom_resource_definition,
)
from haulout.api.objects import Base
from haulout.drain import policy_parser
from haulout.drain.policy import DrainPolicy
from haulout.errors import PolicyError
from haulout_sandbox.apiserver.apiextensions import crds

CRD: dict[str, Any] = custom_resource_definition()
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]

# The manifest of the specification, section 1.2.
BEFORE = yaml.safe_load(
    """
type: object
properties:
  apiVersion: {type: string}
  kind: {type: string}
  metadata: {type: object}
  spec:
    type: object
    required: [nodeName]
    properties: {nodeName: {type: string}, reason: {type: string}}
  status:
    type: object
    properties:
      phase: {type: string}
      drainProgress: {type: integer}
      lastUpdate: {type: string, format: date-time}
      lastError: {type: string}
      pendingPods: {type: array, items: {type: string}}
      pendingPodsRefs:
        {type: array, items: {type: object, properties: {namespace: {type: string}, name: {type: string}}}}
      totalpods: {type: integer}
      evictionPods: {type: integer}
      errorOnLeaseCount: {type: integer}
"""
)


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the differences of `now` from `before`; new properties and descriptions are no difference."""
    if not isinstance(before, dict):
        if before != now:
            yield f"{path}: {before} became {now}"
        return
    for key, value in before.items():
        if key not in now:
            yield f"{path}.{key} is gone"
        else:
            yield from differences(value, now[key], f"{path}.{key}")
    if not path.endswith("properties"):
        yield from (f"{path}.{key} is new" for key in now if key not in {*before, "description"})


def test_schema_keeps_all_fields_of_the_node_maintenance_operator() -> None:
    """Only the status of an object without an observed generation has a default, and no existing field has one."""
    assert list(differences(BEFORE, SCHEMA)) == [".properties.status.default is new"]
    new = SCHEMA["properties"]["status"]["default"]
    assert new == {"observedGeneration": NO_OBSERVED_GENERATION}
    assert not new.keys() & BEFORE["properties"]["status"]["properties"].keys()


def test_crd_names_are_those_of_the_node_maintenance_operator() -> None:
    assert CRD["metadata"]["name"] == "nodemaintenances.nodemaintenance.medik8s.io"
    spec = CRD["spec"]
    assert (spec["group"], spec["scope"]) == ("nodemaintenance.medik8s.io", "Cluster")
    assert spec["names"] == {
        "kind": "NodeMaintenance",
        "listKind": "NodeMaintenanceList",
        "plural": "nodemaintenances",
        "singular": "nodemaintenance",
        "shortNames": ["nm"],
    }
    assert [(it["name"], it["served"], it["storage"]) for it in spec["versions"]] == [("v1beta1", True, True)]
    assert VERSION["subresources"] == {"status": {}}
    assert FINALIZER == "foregroundDeleteNodeMaintenance"
    assert (NODE_MAINTENANCES.api_version, NODE_MAINTENANCES.plural) == (
        "nodemaintenance.medik8s.io/v1beta1",
        "nodemaintenances",
    )


def test_crd_is_accepted_by_the_api_server() -> None:
    assert crds.validation_causes(CRD) == []


# The policy


def known_keys(path: tuple[str, ...]) -> set[str]:
    """Return the keys that the policy parser accepts at `path`, from its error for an unknown key."""
    data: Any = {"?": 1} if path != ("rules",) else {"?": 1, "name": "a"}
    for key in reversed(path):
        data = {key: [data] if key == "rules" else data}
    with pytest.raises(PolicyError) as caught:
        policy_parser.parse_policy(data, base=DrainPolicy.like_nmo())
    listed = re.search(r"\?: unknown, expected one of (.*)", str(caught.value))
    assert listed is not None
    return {it.strip() for it in listed[1].split(",")}


@pytest.mark.parametrize("path", [(), ("order",), ("rules",)], ids=["policy", "order", "rules"])
def test_drain_policy_schema_has_exactly_the_keys_that_the_parser_reads(path: tuple[str, ...]) -> None:
    schema = SCHEMA["properties"]["spec"]["properties"]["drain"]
    for key in path:
        schema = schema["properties"][key]
        schema = schema.get("items", schema)
    assert set(schema["properties"]) == known_keys(path)


@pytest.mark.parametrize("text", ["90s", "1h30m", "1.5h", "100ms", "2m0s", "1h1m1s"])
def test_durations_are_accepted_by_schema_and_parser(text: str) -> None:
    pattern = SCHEMA["properties"]["spec"]["properties"]["drain"]["properties"]["timeout"]["pattern"]
    assert re.search(pattern, text)
    assert policy_parser.parse_policy({"timeout": text}).timeout


@pytest.mark.parametrize("text", ["", "1", "-5s", "5 s", "abc", "1d", "s"])
def test_malformed_durations_are_rejected_by_schema_and_parser(text: str) -> None:
    pattern = SCHEMA["properties"]["spec"]["properties"]["drain"]["properties"]["timeout"]["pattern"]
    assert not re.search(pattern, text)
    with pytest.raises(PolicyError):
        policy_parser.parse_policy({"timeout": text})


# The structs that we read and write


def fields_of(model: type[Base]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(model)}


@pytest.mark.parametrize(("model", "section"), [(NodeMaintenanceSpec, "spec"), (NodeMaintenanceStatus, "status")])
def test_each_field_that_is_read_or_written_is_in_the_schema(model: type[Base], section: str) -> None:
    assert fields_of(model) == set(SCHEMA["properties"][section]["properties"])


def test_nested_status_structs_match_the_schema() -> None:
    status = SCHEMA["properties"]["status"]["properties"]
    types = {field.encode_name: field.type for field in msgspec.structs.fields(NodeMaintenanceStatus)}
    assert {"conditions", "blockers", "drain", "pendingPodsRefs"} <= set(types)
    for name in ("conditions", "blockers", "pendingPodsRefs"):
        assert fields_of(types[name].__args__[0]) == set(status[name]["items"]["properties"])
    assert fields_of(types["drain"].__args__[0]) == set(status["drain"]["properties"])


def test_node_maintenance_without_a_spec_can_be_decoded() -> None:
    """The schema accepts it."""
    assert msgspec.json.decode(b'{"metadata": {"name": "x"}}', type=NodeMaintenance).node == ""
