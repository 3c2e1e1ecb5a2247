"""The metadata of custom resources: what is read of it, and what is refused."""

from typing import Any

import pytest

from haulout_sandbox.apiserver.decoding import Misfit
from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems
from haulout_sandbox.apiserver.object_meta import (
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


def test_empty_values_are_left_out() -> None:
    meta, _ = coerced({"name": "a", "labels": {}, "finalizers": [], "namespace": ""})
    assert meta == {"name": "a"}
    assert coerced(None) == ({}, [])


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ([], "expected `object`, got `array`"),
        ({"name": 1}, "metadata.name: expected `str`, got `int`"),
        ({"labels": {"a": {}}}, "metadata.labels: expected `str`, got `object`"),
        ({"ownerReferences": ["x"]}, "metadata.ownerReferences[0]: expected `object`, got `str`"),
        ({"creationTimestamp": "soon"}, 'metadata.creationTimestamp: "soon" is no time as RFC 3339 has it'),
    ],
)
def test_values_of_the_wrong_type_are_refused(metadata: Any, why: str) -> None:
    with pytest.raises(Misfit) as refusal:
        coerced(metadata)
    assert why in str(refusal.value)


def test_a_new_object_needs_a_name_that_is_one() -> None:
    assert said(new_causes({})) == ["metadata.name: Required value"]
    assert new_causes({"name": "A"})
    assert new_causes({"name": "a-x", "generateName": "a-"}) == []


def test_labels_annotations_finalizers_and_owners_are_checked() -> None:
    meta = {
        "name": "a",
        "labels": {"b c": "-"},
        "annotations": {"D/e/f": "", "UPPER": "is fine"},
        "finalizers": ["g h"],
        "ownerReferences": [OWNER | {"name": ""}, OWNER | {"controller": True}, OWNER | {"controller": True}],
    }
    assert [it["field"] for it in new_causes(meta)] == [
        "metadata.labels",
        "metadata.labels",
        "metadata.annotations",
        "metadata.ownerReferences.name",
        "metadata.ownerReferences",
        "metadata.finalizers",
    ]


def test_annotations_have_a_limit() -> None:
    big = {"name": "a", "annotations": {"a": "x" * 262_144}}
    assert [it["reason"] for it in new_causes(big)] == ["FieldValueTooLong"]


def test_what_may_not_change_is_named() -> None:
    old = {"name": "a", "uid": "1", "finalizers": ["x/y"], "deletionTimestamp": "now", "resourceVersion": "5"}
    found = change_causes(old | {"uid": "2", "finalizers": ["x/y", "x/z"]}, old)
    assert [it["field"] for it in found] == ["metadata.uid", "metadata.finalizers"]


def test_only_new_finalizers_without_a_path_are_warned_of() -> None:
    meta = {"finalizers": ["old", "plain", "fine/one", "foregroundDeletion"]}
    (warning,) = finalizer_warnings(meta, {"finalizers": ["old"]})
    assert warning.startswith('metadata.finalizers: "plain": prefer a domain-qualified finalizer name to avoid')


def test_an_owner_that_is_there_twice_stays_once() -> None:
    meta = {"ownerReferences": [OWNER, OWNER | {"uid": "2"}, OWNER]}
    drop_repeated_owners(meta)
    assert meta["ownerReferences"] == [OWNER, OWNER | {"uid": "2"}]


@pytest.mark.parametrize("name", ["a", "a.b-c_D", "example.com/a", "a" * 63])
def test_keys_that_are_right(name: str) -> None:
    assert qualified_problems(name) == []


@pytest.mark.parametrize("name", ["", "-a", "/a", "A/b", "a/b/c", "a" * 64])
def test_keys_that_are_wrong(name: str) -> None:
    assert qualified_problems(name)


def test_values_of_labels() -> None:
    assert label_value_problems("") == label_value_problems("A.b_c-1") == []
    assert label_value_problems("a b")
    assert label_value_problems("a" * 64)
