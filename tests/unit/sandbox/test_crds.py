"""What a CustomResourceDefinition promises: to be refused if nothing can be served, or to be served."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from haulout_sandbox.apiserver import JsonObject, crd_openapi, crds, jsonpath
from haulout_sandbox.apiserver.crds import Served
from haulout_sandbox.apiserver.printers import Column
from support.definitions import (
    ALL,
    MACHINE_MAINTENANCE,
    NODE_MAINTENANCE,
    STRING,
    VALUES,
    a_definition,
    a_rule,
    an_object,
    schema_of,
    with_rules,
)

SCHEMA = "spec.versions[0].schema.openAPIV3Schema"


def changed(change: Callable[[JsonObject, JsonObject], Any]) -> JsonObject:
    """Return a definition after `change` did something to its spec and its version."""
    crd = a_definition("tries", "Try", an_object(a=STRING))
    change(crd["spec"], crd["spec"]["versions"][0])
    return crd


def with_x(schema: JsonObject) -> JsonObject:
    return a_definition("tries", "Try", an_object(x=schema))


def only(crd: JsonObject) -> Served:
    (found,) = crds.served(crds.defaulted(crd))
    return found


# Refusals


@pytest.mark.parametrize("crd", ALL, ids=lambda crd: crd["metadata"]["name"])
def test_these_are_fine(crd: JsonObject) -> None:
    assert crds.problems(crd) == []


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
        (with_x(with_rules(STRING, a_rule("self =="))), SCHEMA),
        (with_x(with_rules(STRING, a_rule("nobody == self"))), SCHEMA),
    ],
)
def test_a_definition_with_which_nothing_can_be_served_is_refused(crd: JsonObject, field: str) -> None:
    assert [it["field"] for it in crds.problems(crd)] == [field]


# Service


def test_a_definition_gets_the_names_it_leaves_out() -> None:
    crd = crds.defaulted(NODE_MAINTENANCE)
    assert crd["spec"]["names"] == {
        "kind": "NodeMaintenance",
        "plural": "nodemaintenances",
        "shortNames": ["nm"],
        "singular": "nodemaintenance",
        "listKind": "NodeMaintenanceList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert "singular" not in NODE_MAINTENANCE["spec"]["names"]


def test_a_definition_becomes_a_kind() -> None:
    found = only(NODE_MAINTENANCE)
    kind = found.kind
    assert (kind.api_version, kind.resource) == (
        "nodemaintenance.medik8s.io/v1beta1",
        "nodemaintenances.nodemaintenance.medik8s.io",
    )
    assert (kind.namespaced, kind.custom, kind.has_status, kind.counts_generations) == (False, True, True, True)
    assert (kind.short_names, kind.fields) == (("nm",), ("metadata.name",))
    assert (kind.list_kind, kind.singular, found.storage) == ("NodeMaintenanceList", "nodemaintenance", True)
    assert (found.columns, kind.scale) == ((), None)


def test_columns_and_selectable_fields_are_served() -> None:
    found = only(MACHINE_MAINTENANCE)
    assert found.columns[0] == Column("Machine", "string", ".spec.machinelink")
    assert found.kind.fields == ("metadata.name", "metadata.namespace", "spec.machineid")


def test_only_served_versions_are() -> None:
    crd = a_definition("tries", "Try", an_object(a=STRING))
    (first,) = crd["spec"]["versions"]
    names = ("v1alpha1", "v1", "hidden")
    crd["spec"]["versions"] = [first | {"name": it, "served": it != "hidden", "storage": it == "v1"} for it in names]
    assert [it.kind.version for it in crds.served(crd)] == ["v1alpha1", "v1"]


def test_versions_sort_as_kubernetes_sorts_them() -> None:
    names = ["foo1", "v1alpha1", "v10", "v2", "v1beta2", "v1beta1", "v11alpha2", "foo10", "v1", "valpha"]
    assert sorted(names, key=crds.version_order) == [
        *("v10", "v2", "v1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "foo1", "foo10", "valpha")
    ]


# Names


def settled(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status of a definition that is served."""
    return crds.established(crd | {"status": crds.accepted(crd, now=now)}, now=now)


def test_a_definition_has_its_names_before_it_is_established() -> None:
    status = crds.accepted(crds.defaulted(NODE_MAINTENANCE), now="2024-01-01T00:00:00Z")
    names, installing = status["conditions"]
    assert (names["type"], names["status"]) == ("NamesAccepted", "True")
    assert (installing["status"], installing["reason"]) == ("False", "Installing")


def test_a_definition_is_established_with_its_names() -> None:
    status = settled(crds.defaulted(NODE_MAINTENANCE), now="2024-01-01T00:00:00Z")
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
    crd = crds.defaulted(NODE_MAINTENANCE)
    crd["status"] = settled(crd, now="2024-01-01T00:00:00Z")
    assert settled(crd, now="2025-01-01T00:00:00Z") == crd["status"]


# Explanations


def test_the_openapi_document_leads_from_a_resource_to_its_schema() -> None:
    found = only(NODE_MAINTENANCE)
    document = crd_openapi.document([found])
    at = document["paths"]["/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"]["get"]
    gvk = {"group": "nodemaintenance.medik8s.io", "kind": "NodeMaintenance", "version": "v1beta1"}
    assert at["x-kubernetes-group-version-kind"] == gvk
    schema = document["components"]["schemas"]["io.medik8s.nodemaintenance.v1beta1.NodeMaintenance"]
    assert schema["x-kubernetes-group-version-kind"] == [gvk]
    assert schema["properties"]["spec"] == schema_of(NODE_MAINTENANCE)["properties"]["spec"]
    (meta,) = schema["properties"]["metadata"]["allOf"]
    assert meta["$ref"].rpartition("/")[2] in document["components"]["schemas"]


def test_numbers_or_texts_are_explained() -> None:
    document = crd_openapi.document([only(VALUES)])
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
    before = copy.deepcopy(VALUES)
    only(VALUES).schema.defaulted({"spec": {"ports": [{"port": 1}]}})
    crd_openapi.document([only(VALUES)])
    assert crds.problems(VALUES) == []
    assert before == VALUES
