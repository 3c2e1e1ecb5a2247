"""The metadata of custom resources is read, and refused, as Go's JSON decoder and the API server do it."""

from typing import Any

import pytest

from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems
from haulout_sandbox.apiserver.object_meta import (
    Malformed,
    change_causes,
    coerced,
    drop_repeated_owners,
    finalizer_warnings,
    new_causes,
)

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}


def said(causes: list[dict[str, Any]]) -> list[str]:
    return [f"{it['field']}: {it['message']}" for it in causes]


def test_what_metadata_does_not_have_is_dropped_and_named() -> None:
    meta, unknown = coerced({"name": "a", "odd": 1, "ownerReferences": [OWNER | {"more": 2}]})
    assert meta == {"name": "a", "ownerReferences": [OWNER]}
    assert unknown == ["metadata.odd", "metadata.ownerReferences[0].more"]


def test_empty_values_are_left_out_as_the_type_leaves_them_out() -> None:
    meta, _ = coerced({"name": "a", "labels": {}, "finalizers": [], "namespace": "", "annotations": {"x": None}})
    assert meta == {"name": "a", "annotations": {"x": ""}}
    assert coerced(None) == ({}, [])
    owner, _ = coerced({"ownerReferences": [{"name": "n", "controller": False}]})
    assert owner["ownerReferences"] == [{"apiVersion": "", "kind": "", "name": "n", "uid": "", "controller": False}]


def test_times_are_in_utc() -> None:
    meta, _ = coerced({"creationTimestamp": "2024-01-01T02:00:00+02:00"})
    assert meta == {"creationTimestamp": "2024-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ([], "array into Go value of type v1.ObjectMeta"),
        ({"name": 1}, "number into Go struct field ObjectMeta.name of type string"),
        ({"uid": True}, "bool into Go struct field ObjectMeta.uid of type types.UID"),
        ({"generation": 1.5}, "number 1.5 into Go struct field ObjectMeta.generation of type int64"),
        ({"labels": [1]}, "array into Go struct field ObjectMeta.labels of type map[string]string"),
        ({"labels": {"a": {}}}, "object into Go struct field ObjectMeta.labels of type string"),
        ({"finalizers": "x"}, "string into Go struct field ObjectMeta.finalizers of type []string"),
        (
            {"ownerReferences": ["x"]},
            "string into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
        ),
        (
            {"ownerReferences": [{"controller": "x"}]},
            "string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
    ],
)
def test_values_of_the_wrong_type_are_refused_in_the_words_of_go(metadata: Any, why: str) -> None:
    with pytest.raises(Malformed) as refusal:
        coerced(metadata)
    assert str(refusal.value) == f"json: cannot unmarshal {why}"


@pytest.mark.parametrize("text", ["soon", "2024-01-01", "2024-01-01T00:00:00", "2024-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="parsing time"):
        coerced({"creationTimestamp": text})


def test_a_new_object_needs_a_name_that_is_one() -> None:
    assert said(new_causes({})) == ["metadata.name: Required value: name or generateName is required"]
    assert [it.split(":")[0] for it in said(new_causes({"name": "A", "generateName": "BB-"}))] == [
        "metadata.generateName",
        "metadata.name",
    ]
    assert new_causes({"name": "a-x", "generateName": "a-"}) == []


def test_labels_annotations_finalizers_and_owners_are_checked() -> None:
    meta = {
        "name": "a",
        "labels": {"b c": "-"},
        "annotations": {"D/e/f": "", "UPPER": "is fine"},
        "finalizers": ["orphan", "foregroundDeletion", "g h"],
        "ownerReferences": [OWNER | {"name": ""}, OWNER | {"controller": True}, OWNER | {"controller": True}],
    }
    assert [it["field"] for it in new_causes(meta)] == [
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences.name",
        "metadata.ownerReferences",
        "metadata.finalizers",
        "metadata.finalizers",
    ]


def test_an_event_owns_nothing_and_annotations_have_a_limit() -> None:
    big = {"name": "a", "annotations": {"a": "x" * 262_144}, "ownerReferences": [OWNER | {"kind": "Event"}]}
    assert [it["reason"] for it in new_causes(big)] == ["FieldValueTooLong", "FieldValueInvalid"]


def test_a_change_is_checked_twice_and_said_so() -> None:
    old = {"name": "a", "uid": "1", "finalizers": ["x/y"], "deletionTimestamp": "now", "resourceVersion": "5"}
    found = said(change_causes(old | {"uid": "2", "finalizers": ["x/y", "x/z"]}, old))
    fresh = 'no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/z"}'
    assert (
        found
        == [
            f"metadata.finalizers: Forbidden: {fresh}",
            'metadata.uid: Invalid value: "2": field is immutable',
        ]
        * 2
    )


def test_only_new_finalizers_without_a_path_are_warned_of() -> None:
    meta = {"finalizers": ["old", "plain", "with.dots", "fine/one", "foregroundDeletion"]}
    plain, dotted = finalizer_warnings(meta, {"finalizers": ["old"]})
    assert plain.startswith('metadata.finalizers: "plain": prefer a domain-qualified finalizer name to avoid')
    assert dotted.startswith(
        'metadata.finalizers: "with.dots": prefer a domain-qualified finalizer name including a path'
    )


def test_an_owner_that_is_there_twice_stays_once() -> None:
    meta = {"ownerReferences": [OWNER, OWNER | {"uid": "2"}, OWNER]}
    (warning,) = drop_repeated_owners(meta)
    assert meta["ownerReferences"] == [OWNER, OWNER | {"uid": "2"}]
    assert warning.endswith("duplicate UID(s) observed: 1")
    assert drop_repeated_owners(meta) == []


@pytest.mark.parametrize("name", ["a", "a.b-c_D", "example.com/a", "a" * 63])
def test_keys_that_are_right(name: str) -> None:
    assert qualified_problems(name) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "name part must be non-empty"),
        ("-a", "name part must consist of"),
        ("/a", "prefix part must be non-empty"),
        ("A/b", "prefix part a lowercase RFC 1123 subdomain"),
        ("a/b/c", "a valid label key must consist of"),
        ("a" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_keys_that_are_wrong(name: str, why: str) -> None:
    assert qualified_problems(name)[0].startswith(why)


def test_values_of_labels() -> None:
    assert label_value_problems("") == label_value_problems("A.b_c-1") == []
    assert label_value_problems("a b")[0].startswith("a valid label must be an empty string or consist of")
    assert label_value_problems("a" * 64) == ["must be no more than 63 bytes"]
