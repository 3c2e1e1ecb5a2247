"""What a CustomResourceDefinition promises: to be refused in the real server's words, or to be served."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from haulout_sandbox.apiserver import JsonObject, crd_openapi, crds, jsonpath, structural
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

SCHEMA = "spec.validation.openAPIV3Schema"
X = f"{SCHEMA}.properties[spec].properties[x]"


def said(crd: JsonObject, old: JsonObject | None = None) -> list[str]:
    return [f"{it['field']}: {it['message']}" for it in crds.problems(crds.defaulted(crd), old)]


def with_x(schema: JsonObject) -> JsonObject:
    return a_definition("tries", "Try", an_object(x=schema))


def changed(change: Callable[[JsonObject, JsonObject], Any]) -> JsonObject:
    """Return a definition after `change` did something to its spec and its version."""
    crd = a_definition("tries", "Try", an_object(a=STRING))
    change(crd["spec"], crd["spec"]["versions"][0])
    return crd


def in_group(group: str) -> JsonObject:
    return a_definition("tries", "Try", an_object(a=STRING), group=group)


def only(crd: JsonObject) -> Served:
    (found,) = crds.served(crds.defaulted(crd))
    return found


# Refusals


@pytest.mark.parametrize("crd", ALL, ids=lambda crd: crd["metadata"]["name"])
def test_these_are_fine(crd: JsonObject) -> None:
    assert said(crd) == []


@pytest.mark.parametrize(
    ("crd", "messages"),
    [
        (
            changed(lambda spec, _: spec["names"].update(plural="others")),
            ['metadata.name: Invalid value: "tries.test.haulout.dev": must be spec.names.plural+"."+spec.group'],
        ),
        (changed(lambda spec, _: spec.pop("scope")), ["spec.scope: Required value"]),
        (
            changed(lambda spec, _: spec.update(scope="Any")),
            ['spec.scope: Unsupported value: "Any": supported values: "Cluster", "Namespaced"'],
        ),
        (
            changed(lambda _, version: version.pop("schema")),
            ["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            changed(lambda _, version: version.update(storage=False)),
            [
                (
                    'spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,'
                    '"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,'
                    '"SelectableFields":null}]: must have exactly one version marked as storage version'
                ),
                "status.storedVersions: Invalid value: null: must have at least one stored version",
            ],
        ),
        (
            changed(lambda spec, _: spec["names"].update(listKind="Try")),
            ['spec.names.listKind: Invalid value: "Try": kind and listKind may not be the same'],
        ),
        (
            changed(lambda spec, _: spec.update(preserveUnknownFields=True)),
            [
                (
                    "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                    "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
                )
            ],
        ),
        (
            changed(lambda _, version: version.update(additionalPrinterColumns=[{"name": "A", "type": "text"}])),
            [
                (
                    'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of '
                    "boolean,date,integer,number,string"
                ),
                "spec.additionalPrinterColumns[0].JSONPath: Required value",
            ],
        ),
        (
            changed(lambda _, version: version.update(subresources={"scale": {"specReplicasPath": ".status.a"}})),
            [
                (
                    'spec.subresources.scale.specReplicasPath: Invalid value: ".status.a": should be a json path '
                    "under .spec"
                ),
                "spec.subresources.scale.statusReplicasPath: Required value",
            ],
        ),
        (
            changed(lambda _, version: version.update(selectableFields=[{"jsonPath": ".spec.b"}])),
            [
                (
                    'spec.selectableFields[0].jsonPath: Invalid value: ".spec.b": is an invalid path: does not refer '
                    "to a valid field"
                )
            ],
        ),
    ],
)
def test_a_wrong_definition_is_refused(crd: JsonObject, messages: list[str]) -> None:
    assert said(crd) == messages


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, f"{X}.type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, f"{X}.items: Required value: must be specified"),
        (
            {"type": "text"},
            (
                f'{X}.type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", '
                '"object", "string"'
            ),
        ),
        (
            {"type": "string", "pattern": "["},
            (
                f'{X}.pattern: Invalid value: "[": must be a valid regular expression, but isn\'t: error parsing '
                "regexp: missing closing ]: `[`"
            ),
        ),
        (
            an_object(a=STRING) | {"additionalProperties": STRING},
            f"{X}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "string", "default": 1},
            f'{X}.default: Invalid value: "integer":  in body must be of type string: "integer"',
        ),
        (
            an_object(a=STRING) | {"default": {"b": 1}},
            f'{X}.default: Invalid value: {{"b":1}}: must not have unknown fields',
        ),
        (
            {"type": "array", "items": STRING, "uniqueItems": True},
            (
                f"{X}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
                "quadratic"
            ),
        ),
        (
            {"type": "object", "not": {"description": "words"}},
            f"{X}.not.description: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "array", "items": an_object(k=STRING), "x-kubernetes-list-type": "set"},
            (
                f"{X}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
                "x-kubernetes-list-type=set"
            ),
        ),
        (
            {
                "type": "array",
                "items": an_object(k=STRING),
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            },
            (
                f"{X}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so "
                "it must have a default or be a required property"
            ),
        ),
        (
            with_rules(STRING, a_rule("")),
            f"{X}.x-kubernetes-validations[0].rule: Required value: rule is not specified",
        ),
        (
            with_rules(STRING, a_rule("true", optionalOldSelf=True)),
            (
                f"{X}.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is "
                "not used in rule"
            ),
        ),
        (
            {"type": "array", "items": with_rules(STRING, a_rule("self == oldSelf"))},
            (
                f'{X}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used '
                f"on the uncorrelatable portion of the schema within {X}"
            ),
        ),
        (
            with_rules(an_object(a=STRING), a_rule("self.b == ''", message="m")),
            (
                f'{X}.x-kubernetes-validations[0].rule: Invalid value: {{"Rule":"self.b == \'\'","Message":"m",'
                '"MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: '
                "ERROR: <input>:1:5: undefined field 'b'\n | self.b == ''\n | ....^"
            ),
        ),
    ],
)
def test_a_wrong_schema_is_refused(schema: JsonObject, message: str) -> None:
    assert message in said(with_x(schema))


def a_list(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items} | {f"x-kubernetes-list-{name}": it for name, it in more.items()}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ({"type": "null"}, ["type", "type"]),
        (STRING | {"id": "a", "patternProperties": {"a": STRING}}, ["id", "patternProperties"]),
        (STRING | {"x-kubernetes-embedded-resource": True}, ["type", "properties"]),
        ({"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}, ["type"]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, ["properties"]),
        (
            an_object(kind={"type": "integer"}) | {"x-kubernetes-embedded-resource": True},
            ["properties[kind].type"],
        ),
        (
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            ["x-kubernetes-preserve-unknown-fields"],
        ),
        ({"type": "object", "oneOf": [{"not": {"type": "object"}}]}, ["oneOf[0].not.type"]),
        ({"type": "object", "allOf": [{"properties": {"metadata": {}}}]}, ["allOf[0].properties[metadata]"]),
        (a_list(STRING, type="map"), ["x-kubernetes-list-map-keys", "items.type"]),
        (a_list(STRING, type="bag"), ["x-kubernetes-list-type"]),
        (a_list(a_list(STRING, type="set"), type="set"), ["items.x-kubernetes-list-type"]),
        (a_list(STRING | {"nullable": True}, type="set"), ["items.nullable"]),
        (a_list(STRING) | {"x-kubernetes-list-map-keys": ["a"]}, ["x-kubernetes-list-type"]),
        (
            a_list(an_object(required=["k"], k=STRING), type="map") | {"x-kubernetes-list-map-keys": ["k", "k", "z"]},
            ["x-kubernetes-list-map-keys"] * 2,
        ),
        (STRING | {"x-kubernetes-list-type": "set"}, ["type"]),
        ({"type": "object", "x-kubernetes-map-type": "odd"}, ["x-kubernetes-map-type"]),
        (an_object(a=a_list(an_object(b=STRING))) | {"default": {"a": [{"c": 1}]}}, ["default"]),
        (
            an_object(m={"type": "object", "additionalProperties": STRING}) | {"default": {"m": {"a": 1}}},
            ["default.m.a"],
        ),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "default": {"a": 1}}, []),
        (with_rules(STRING, a_rule("true", message=" ")), ["x-kubernetes-validations[0].message"]),
        (with_rules(STRING, a_rule("true", message="a\nb")), ["x-kubernetes-validations[0].message"]),
        (with_rules(STRING, a_rule("true\n&& true")), ["x-kubernetes-validations[0].message"]),
        (with_rules(STRING, a_rule("true", reason="Odd")), ["x-kubernetes-validations[0].reason"]),
        (with_rules(STRING, a_rule("true", fieldPath=".a")), ["x-kubernetes-validations[0].fieldPath"]),
        (with_rules(STRING, a_rule("true", messageExpression="a")), ["x-kubernetes-validations[0].messageExpression"]),
    ],
)
def test_the_wrong_part_of_a_schema_is_named(schema: JsonObject, fields: list[str]) -> None:
    found = crds.problems(crds.defaulted(with_x(schema)))
    assert sorted(it["field"] for it in found) == sorted(f"{X}.{name}" for name in fields)


@pytest.mark.parametrize(
    ("crd", "fields"),
    [
        (in_group("Odd_Group.dev"), ["metadata.name", "spec.group"]),
        (in_group("nodots"), ["spec.group"]),
        (in_group("x.k8s.io"), ["metadata.annotations[api-approved.kubernetes.io]"]),
        (changed(lambda spec, _: spec.pop("group")), ["metadata.name", "spec.group"]),
        (changed(lambda spec, _: spec.update(versions=[])), ["spec.versions", "status.storedVersions"]),
        (changed(lambda _, version: version.update(name="V1")), ["spec.version", "spec.versions[0].name"]),
        (changed(lambda _, it: it.update(deprecationWarning="x")), ["spec.versions[0].deprecationWarning"]),
        (
            changed(lambda _, it: it.update(deprecated=True, deprecationWarning="x" * 257)),
            ["spec.versions[0].deprecationWarning"],
        ),
        (changed(lambda spec, _: spec["names"].update(shortNames=["A_"])), ["spec.names.shortNames[0]"]),
        (
            changed(lambda spec, _: spec["names"].update(kind="A_", listKind="A")),
            ["spec.names.kind", "spec.names.singular"],
        ),
        (changed(lambda spec, _: spec.update(conversion={"strategy": "Odd"})), ["spec.conversion.strategy"]),
        (
            changed(lambda spec, _: spec.update(conversion={"strategy": "Webhook"})),
            ["spec.conversion.conversionReviewVersions", "spec.conversion.webhookClientConfig"],
        ),
        (
            changed(
                lambda spec, _: spec.update(conversion={"strategy": "None", "webhook": {"clientConfig": {"url": ""}}})
            ),
            ["spec.conversion.webhookClientConfig"],
        ),
        (
            changed(
                lambda _, it: it.update(selectableFields=[{}, {"jsonPath": ".spec"}, *[{"jsonPath": ".spec.a"}] * 2])
            ),
            [f"spec.selectableFields[{at}].jsonPath" for at in (0, 1, 3)],
        ),
        (
            changed(lambda _, it: it.update(additionalPrinterColumns=[{"jsonPath": "a", "format": "odd"}])),
            [f"spec.additionalPrinterColumns[0].{name}" for name in ("JSONPath", "format", "name", "type")],
        ),
    ],
)
def test_the_wrong_part_of_a_definition_is_named(crd: JsonObject, fields: list[str]) -> None:
    assert sorted(it["field"] for it in crds.problems(crds.defaulted(crd))) == fields


def test_a_protected_group_needs_an_approval() -> None:
    crd = in_group("x.k8s.io")
    for approval, count in (("unapproved, an experiment", 0), ("https://a.dev/1", 0), ("yes", 1)):
        crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": approval}
        assert len(said(crd)) == count
    assert said(crd, crds.defaulted(crd)) == []


def test_branches_only_restrict_what_is_declared() -> None:
    crd = with_x(STRING)
    schema_of(crd)["anyOf"] = [{"properties": {"spec": {"properties": {"y": {"minimum": 1}}}}}]
    path = f"{SCHEMA}.anyOf[0].properties[spec].properties[y]"
    assert said(crd) == [f"{SCHEMA}.properties[spec].properties[y]: Required value: because it is defined in {path}"]


def test_versions_that_differ_are_told_apart() -> None:
    crd = changed(lambda spec, version: spec["versions"].append(copy.deepcopy(version)))
    second = crd["spec"]["versions"][1]
    second |= {"name": "v2", "storage": False}
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"properties": {}}
    rule = "Required value: must not be empty for specified object fields"
    assert said(crd) == [f"spec.versions[1].schema.openAPIV3Schema.properties[spec].type: {rule}"]


def test_what_clients_rely_on_does_not_change() -> None:
    old = crds.defaulted(with_x(STRING))
    old["status"] = settled(old, now="2024-01-01T00:00:00Z")
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["names"] |= {"kind": "Other", "listKind": "OtherList"}
    assert said(new, old) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Other": field is immutable',
    ]


def test_a_version_in_which_objects_are_stored_stays() -> None:
    old = crds.defaulted(with_x(STRING))
    new = copy.deepcopy(old)
    new["spec"]["versions"][0]["name"] = "v2"
    assert said(new, old)[0].startswith('status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1')
    assert crds.defaulted(new)["status"]["storedVersions"] == ["v1", "v2"]


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
    assert (found.columns, found.scale, found.deprecation) == ((), None, "")


def test_columns_and_selectable_fields_are_served() -> None:
    found = only(MACHINE_MAINTENANCE)
    assert found.columns[0] == Column("Machine", "string", ".spec.machinelink")
    assert found.kind.fields == ("metadata.name", "metadata.namespace", "spec.machineid")
    assert found.selectable == ("spec.machineid",)


def test_only_served_versions_are_and_old_ones_warn() -> None:
    crd = a_definition("tries", "Try", an_object(a=STRING))
    (first,) = crd["spec"]["versions"]
    names = ("v1alpha1", "v1beta1", "v1", "v2", "hidden")
    crd["spec"]["versions"] = [first | {"name": it, "served": it != "hidden", "storage": it == "v1"} for it in names]
    crd["spec"]["versions"][0] |= {"deprecated": True}
    crd["spec"]["versions"][1] |= {"deprecated": True, "deprecationWarning": "use something else"}
    found = {it.kind.version: it.deprecation for it in crds.served(crd)}
    assert found == {
        "v1alpha1": "test.haulout.dev/v1alpha1 Try is deprecated; use test.haulout.dev/v2 Try",
        "v1beta1": "use something else",
        "v1": "",
        "v2": "",
    }


def test_versions_sort_as_kubernetes_sorts_them() -> None:
    names = ["foo1", "v1alpha1", "v10", "v2", "v1beta2", "v1beta1", "v11alpha2", "foo10", "v1", "valpha"]
    assert sorted(names, key=crds.version_order) == [
        *("v10", "v2", "v1", "v1beta2", "v1beta1", "v11alpha2", "v1alpha1", "foo1", "foo10", "valpha")
    ]


# Names


def settled(crd: JsonObject, *, now: str) -> JsonObject:
    """Return the status of a definition that nothing stands in the way of."""
    return crds.established(crd | {"status": crds.accepted(crd, [], now=now)}, now=now)


def test_a_definition_has_its_names_before_it_is_established() -> None:
    status = crds.accepted(crds.defaulted(NODE_MAINTENANCE), [], now="2024-01-01T00:00:00Z")
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


def test_names_that_another_has_are_not_given_twice() -> None:
    first = crds.defaulted(a_definition("tries", "Try", an_object(a=STRING)))
    first["spec"]["names"]["shortNames"] = ["t"]
    first["status"] = crds.accepted(first, [], now="1")
    second = crds.defaulted(a_definition("trials", "Try", an_object(a=STRING)))
    second["spec"]["names"] |= {"shortNames": ["t"], "singular": "trial"}
    status = crds.accepted(second, [first, second], now="2")
    names, established = status["conditions"]
    assert (names["status"], names["reason"]) == ("False", "ListKindConflict")
    assert names["message"] == '"TryList" is already in use'
    assert (established["status"], established["reason"]) == ("False", "NotAccepted")
    assert status["acceptedNames"] == {"plural": "trials", "kind": "", "singular": "trial"}


def test_a_name_once_given_is_kept() -> None:
    first = crds.defaulted(a_definition("tries", "Try", an_object(a=STRING)))
    first["status"] = crds.accepted(first, [], now="1")
    other = copy.deepcopy(first) | {"metadata": {"name": "others.test.haulout.dev"}}
    assert crds.accepted(first, [other], now="2") == first["status"]


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


def test_embedded_resources_and_numbers_or_texts_are_explained() -> None:
    document = crd_openapi.document([only(VALUES)])
    spec = document["components"]["schemas"]["dev.haulout.test.v1.Value"]["properties"]["spec"]["properties"]
    assert spec["template"]["required"] == ["kind", "apiVersion"]
    assert set(spec["template"]["properties"]) == {"apiVersion", "kind", "metadata"}
    assert spec["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert (
        structural.compiled(schema_of(VALUES)).properties["spec"].raw["properties"]["template"].get("required") is None
    )


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
        (".spec.o.*", [1, 2]),
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
        (".spec.conditions[?(@.n > 2)].type", ["Fit"]),
        (".spec.conditions[?(@.n < 2)].type", []),
        (".spec.conditions[?(@.type > 5)].type", []),
        (".spec.conditions[*].status", ["True", "False"]),
        ("..type", ["Ready", "Fit"]),
        (".", [OBJECT]),
    ],
)
def test_a_path_finds(path: str, found: list[Any]) -> None:
    assert jsonpath.find(path, OBJECT) == found


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b==]", ".a[?(b)]", ".a[?(@.b=='c')"])
def test_half_a_path_is_none(path: str) -> None:
    with pytest.raises(jsonpath.JsonPathError):
        jsonpath.find(path, {})


def test_serving_a_definition_does_not_change_it() -> None:
    before = copy.deepcopy(VALUES)
    only(VALUES).schema.defaulted({"spec": {"ports": [{"port": 1}]}})
    crd_openapi.document([only(VALUES)])
    said(VALUES)
    assert before == VALUES
