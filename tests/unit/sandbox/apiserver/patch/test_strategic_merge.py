"""Strategic merge patches; `tests/cluster/test_patches_conformance.py` compares many more with the real server."""

import copy
from typing import Any

import pytest

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, merge_schema_of
from haulout_sandbox.apiserver.patch.strategic_merge import strategic_merge
from haulout_sandbox.apiserver.status import StatusError


def merge_schema(kind: str) -> MergeSchema:
    schema = merge_schema_of("v1", kind)
    assert schema
    return schema


def apply_patch(obj: JsonObject, patch: JsonObject, kind: str = "Pod") -> JsonObject:
    return strategic_merge(copy.deepcopy(obj), copy.deepcopy(patch), merge_schema(kind))


def names(pod: JsonObject) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"]]


def a_pod(*containers: str, **meta: Any) -> JsonObject:
    return {"metadata": {"name": "p"} | meta, "spec": {"containers": [{"name": name} for name in containers]}}


def containers(*items: JsonObject, **more: Any) -> JsonObject:
    return {"spec": {"containers": list(items)} | more}


def order(*names_in_order: str) -> JsonObject:
    return {"$setElementOrder/containers": [{"name": name} for name in names_in_order]}


def test_an_item_is_found_by_its_key_and_merged() -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "1", "tty": True}, {"name": "b", "image": "1"}]}}

    result = apply_patch(pod, containers({"name": "a", "image": "2"}))

    assert result["spec"]["containers"] == [{"name": "a", "image": "2", "tty": True}, {"name": "b", "image": "1"}]


def test_what_is_null_in_the_patch_is_gone() -> None:
    pod = a_pod(labels={"a": "1", "b": "2"}, annotations={"c": "3"})

    result = apply_patch(pod, {"metadata": {"labels": {"a": None}, "annotations": None, "never": None}})

    assert result["metadata"] == {"name": "p", "labels": {"b": "2"}}


def test_new_items_come_last() -> None:
    assert names(apply_patch(a_pod("a", "b"), containers({"name": "new"}))) == ["a", "b", "new"]


def test_an_item_can_be_deleted() -> None:
    assert names(apply_patch(a_pod("a", "b"), containers({"name": "a", "$patch": "delete"}))) == ["b"]


def test_a_list_can_be_replaced() -> None:
    assert names(apply_patch(a_pod("a", "b"), containers({"$patch": "replace"}, {"name": "c"}))) == ["c"]


def test_the_order_of_items_can_be_set_without_changing_them() -> None:
    assert names(apply_patch(a_pod("a", "b", "c"), {"spec": order("c", "a")})) == ["c", "a", "b"]


def test_an_object_can_be_replaced_or_emptied() -> None:
    pod = a_pod(labels={"a": "1"}, annotations={"b": "2"})

    result = apply_patch(
        pod, {"metadata": {"labels": {"$patch": "replace", "c": "3"}, "annotations": {"$patch": "delete"}}}
    )

    assert result["metadata"] == {"name": "p", "labels": {"c": "3"}, "annotations": {}}


def test_only_the_keys_to_retain_are_kept() -> None:
    pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    volume = {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}

    result = apply_patch(pod, {"spec": {"volumes": [volume]}})

    assert result["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_values_are_added_to_and_deleted_from_a_set() -> None:
    pod = a_pod(finalizers=["a", "b"])

    assert apply_patch(pod, {"metadata": {"finalizers": ["c", "a"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    deleted = apply_patch(pod, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "z"]}})
    assert deleted["metadata"]["finalizers"] == ["b"]


def test_a_list_without_a_strategy_is_replaced() -> None:
    node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}

    result = apply_patch(node, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, "Node")

    assert result["spec"]["taints"] == [{"key": "b", "effect": "NoExecute"}]


def test_directives_with_nothing_to_act_on_leave_no_trace() -> None:
    patch = {
        "metadata": {"labels": {"$patch": "delete"}, "$deleteFromPrimitiveList/finalizers": ["a"]},
        "spec": {
            "containers": [{"name": "new", "env": [{"name": "A", "$patch": "delete"}], "$setElementOrder/env": []}],
            "$setElementOrder/volumes": [],
        },
    }
    result = apply_patch({"metadata": {"finalizers": []}, "spec": {}}, patch)
    assert result == {"metadata": {"finalizers": []}, "spec": {"containers": [{"name": "new", "env": []}]}}


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        (containers({"tty": True}), 500),
        (containers({"$patch": "delete"}), 500),
        ({"spec": {"containers": ["b"]}}, 500),
        ({"spec": {"$setElementOrder/containers": ["a"]}}, 500),
        ({"spec": {"$setElementOrder/containers": None}}, 400),
        ({"spec": {"$patch": "x"}}, 400),
        ({"spec": {"$retainKeys": "x"}}, 400),
    ],
)
def test_an_invalid_patch_is_refused(patch: JsonObject, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        apply_patch(a_pod("a"), patch)
    assert refused.value.status["code"] == code
