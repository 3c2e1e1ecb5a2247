"""What a CustomResourceDefinition promises: to be refused if nothing can be served, or to be served."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from haulout_sandbox.apiserver import JsonObject
from haulout_sandbox.apiserver.apiextensions import crds
from haulout_sandbox.apiserver.apiextensions.crds import ServedVersion
from haulout_sandbox.apiserver.openapi import openapi_document
from haulout_sandbox.apiserver.tables import jsonpath
from haulout_sandbox.apiserver.tables.printers import PrinterColumn
from support.builders.crds import (
    ALL_CRDS,
    MACHINE_MAINTENANCE_CRD,
    NODE_MAINTENANCE_CRD,
    STRING,
    VALUE_CRD,
    a_crd,
    object_schema,
    schema_of,
)

SCHEMA = "spec.versions[0].schema.openAPIV3Schema"


def changed(change: Callable[[JsonObject, JsonObject], Any]) -> JsonObject:
    """Return a definition after `change` did something to its spec and its version."""
    crd = a_crd("tries", "Try", object_schema(a=STRING))
    change(crd["spec"], crd["spec"]["versions"][0])
    return crd


def with_x(schema: JsonObject) -> JsonObject:
    return a_crd("tries", "Try", object_schema(x=schema))


def only_version(crd: JsonObject) -> ServedVersion:
    (versions,) = crds.served_versions(crds.with_defaults(crd))
    return versions


# Refusals


@pytest.mark.parametrize("crd", ALL_CRDS, ids=lambda crd: crd["metadata"]["name"])
def test_these_are_fine(crd: JsonObject) -> None:
    assert crds.validation_causes(crd) == []


@pytest.mark.parametrize(
    ("crd", "field"),
    [
        (changed(lambda spec, _: spec["names"].update(plural="others")), "metadata.name"),
        (changed(lambda spec, _: spec.pop("group")), "spec"),
        (changed(lambda spec, _: spec.pop("scope")), "spec"),
        (changed(lambda spec, _: spec.update(scope="Any")), "spec"),
        (changed(lambda spec, _: spec.update(versions=[])), "spec.versions"),
        (changed(lambda _, version: version.update(storage=False)), "spec.versions"),
        (changed(lambda _, version: version.pop("schema")), "spec"),
        (changed(lambda _, version: version.update(subresources={"scale": {}})), "spec"),
        (with_x({"type": "string", "pattern": "["}), SCHEMA),
        (with_x({"type": "array", "items": "string"}), SCHEMA),
    ],
)
def test_a_definition_with_which_nothing_can_be_served_is_refused(crd: JsonObject, field: str) -> None:
    assert [cause["field"] for cause in crds.validation_causes(crd)] == [field]


# Service


def test_a_definition_gets_the_names_it_leaves_out() -> None:
    crd = crds.with_defaults(NODE_MAINTENANCE_CRD)
    assert crd["spec"]["names"] == {
        "kind": "NodeMaintenance",
        "plural": "nodemaintenances",
        "shortNames": ["nm"],
        "singular": "nodemaintenance",
        "listKind": "NodeMaintenanceList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert "singular" not in NODE_MAINTENANCE_CRD["spec"]["names"]


def test_a_definition_becomes_a_kind() -> None:
    found = only_version(NODE_MAINTENANCE_CRD)
    kind = found.kind
    assert (kind.api_version, kind.resource) == (
        "nodemaintenance.medik8s.io/v1beta1",
        "nodemaintenances.nodemaintenance.medik8s.io",
    )
    assert (kind.namespaced, kind.is_custom, kind.has_status, kind.has_generation) == (False, True, True, True)
    assert (kind.short_names, kind.selectable_fields) == (("nm",), ("metadata.name",))
    assert (kind.list_kind, kind.singular, found.is_storage) == ("NodeMaintenanceList", "nodemaintenance", True)
    assert (found.columns, kind.scale_paths) == ((), None)


def test_columns_and_selectable_fields_are_served() -> None:
    found = only_version(MACHINE_MAINTENANCE_CRD)
    assert found.columns[0] == PrinterColumn("Machine", "string", ".spec.machinelink")
    assert found.kind.selectable_fields == ("metadata.name", "metadata.namespace", "spec.machineid")


def test_only_served_versions_are() -> None:
    crd = a_crd("tries", "Try", object_schema(a=STRING))
    (first,) = crd["spec"]["versions"]
    names = ("v1alpha1", "v1", "hidden")
    crd["spec"]["versions"] = [
        first | {"name": version, "served": version != "hidden", "storage": version == "v1"} for version in names
    ]
    assert [version.kind.version for version in crds.served_versions(crd)] == ["v1alpha1", "v1"]


def test_versions_sort_as_kubernetes_sorts_them() -> None:
    names = ["foo1", "v1alpha1", "v10", "v2", "v1beta2", "v1beta1", "v11alpha2", "foo10", "v1", "valpha"]
    assert sorted(names, key=crds.version_order) == [
        *("v10", "v2", "v1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "foo1", "foo10", "valpha")
    ]


# Names


def establish(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status of a definition that is served."""
    return crds.established_status(crd | {"status": crds.accepted_status(crd, now=now)}, now=now)


def test_a_definition_has_its_names_before_it_is_established() -> None:
    status = crds.accepted_status(crds.with_defaults(NODE_MAINTENANCE_CRD), now="2024-01-01T00:00:00Z")
    names, installing = status["conditions"]
    assert (names["type"], names["status"]) == ("NamesAccepted", "True")
    assert (installing["status"], installing["reason"]) == ("False", "Installing")


def test_a_definition_is_established_with_its_names() -> None:
    status = establish(crds.with_defaults(NODE_MAINTENANCE_CRD), now="2024-01-01T00:00:00Z")
    assert status == {
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ],
        "acceptedNames": {
            "plural": "nodemaintenances",
            "kind": "NodeMaintenance",
            "singular": "nodemaintenance",
            "shortNames": ["nm"],
            "listKind": "NodeMaintenanceList",
        },
        "storedVersions": ["v1beta1"],
    }


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    crd = crds.with_defaults(NODE_MAINTENANCE_CRD)
    crd["status"] = establish(crd, now="2024-01-01T00:00:00Z")
    assert establish(crd, now="2025-01-01T00:00:00Z") == crd["status"]


# Explanations


def openapi_of(crd: JsonObject) -> JsonObject:
    """Return the OpenAPI document of the only version of a definition."""
    version = only_version(crd)
    path = f"/openapi/v3/apis/{version.kind.api_version}"
    document = openapi_document([version.kind], path, custom={version.kind: version.schema.raw})
    assert document is not None
    return document


def test_the_openapi_document_leads_from_a_resource_to_its_schema() -> None:
    document = openapi_of(NODE_MAINTENANCE_CRD)
    at = document["paths"]["/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"]["get"]
    gvk = {"group": "nodemaintenance.medik8s.io", "kind": "NodeMaintenance", "version": "v1beta1"}
    assert at["x-kubernetes-group-version-kind"] == gvk
    schema = document["components"]["schemas"]["io.medik8s.nodemaintenance.v1beta1.NodeMaintenance"]
    assert schema["x-kubernetes-group-version-kind"] == [gvk]
    assert schema["properties"]["spec"] == schema_of(NODE_MAINTENANCE_CRD)["properties"]["spec"]
    (meta,) = schema["properties"]["metadata"]["allOf"]
    assert meta["$ref"].rpartition("/")[2] in document["components"]["schemas"]


def test_numbers_or_texts_are_explained() -> None:
    document = openapi_of(VALUE_CRD)
    spec = document["components"]["schemas"]["dev.haulout.test.v1.Value"]["properties"]["spec"]["properties"]
    assert spec["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]


# Paths

CONDITIONS = [{"type": "Ready", "status": "True"}, {"type": "Fit", "status": "False", "n": 3}]
OBJECT = {
    "metadata": {"annotations": {"a.b/c": "x"}},
    "spec": {"n": [1, 2, 3], "o": {"b": 2, "a": 1}, "conditions": CONDITIONS},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.n[0]", [1]),
        (".spec.n[-1]", [3]),
        (".spec.n[7]", []),
        (".spec.n[*]", [1, 2, 3]),
        (".spec.n[0:2]", [1, 2]),
        (".spec.o.*", [2, 1]),
        (".spec.o", [{"b": 2, "a": 1}]),
        (".spec.missing.deeper", []),
        (".spec.n.deeper", []),
        ("{.spec.n[0]}", [1]),
        (r".metadata.annotations.a\.b/c", ["x"]),
        (".metadata.annotations['a.b/c']", ["x"]),
        ('.spec.conditions[?(@.type=="Ready")].status', ["True"]),
        (".spec.conditions[?(@.type=='Fit')].status", ["False"]),
        (".spec.conditions[?(@.type != 'Fit')].type", ["Ready"]),
        (".spec.conditions[?(@.n)].type", ["Fit"]),
        (".spec.conditions[?(@.n==3)].type", ["Fit"]),
        (".spec.conditions[*].status", ["True", "False"]),
        (".", [OBJECT]),
    ],
)
def test_a_path_finds(path: str, found: list[Any]) -> None:
    assert jsonpath.find(path, OBJECT) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b==]", ".a[?(b)]", ".a[?(@.b=='c')"])
def test_half_a_path_finds_nothing(path: str) -> None:
    assert jsonpath.find(path, {"a": [{"b": "c"}]}) == []


def test_serving_a_definition_does_not_change_it() -> None:
    before = copy.deepcopy(VALUE_CRD)
    only_version(VALUE_CRD).schema.apply_defaults({"spec": {"ports": [{"port": 1}]}})
    openapi_of(VALUE_CRD)
    assert crds.validation_causes(VALUE_CRD) == []
    assert before == VALUE_CRD
