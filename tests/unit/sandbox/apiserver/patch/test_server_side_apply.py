"""Server-side apply, in the form that the sandbox has it."""

import copy
from typing import Any

import pytest

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, custom_resource_schema, merge_schema_of
from haulout_sandbox.apiserver.patch.server_side_apply import apply
from haulout_sandbox.apiserver.status import StatusError

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def merge_schema(kind: str = "ConfigMap", version: str = "v1") -> MergeSchema:
    schema = merge_schema_of(version, kind)
    assert schema
    return schema


def config(**data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def pod(**spec: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def apply_config(current: JsonObject | None, body: JsonObject, manager: str = "a", **kwargs: Any) -> JsonObject:
    entry_schema = kwargs.pop("schema", None) or merge_schema(body["kind"])
    about: dict[str, Any] = {"manager": manager, "now": NOW} | kwargs
    return apply(copy.deepcopy(current), copy.deepcopy(body), schema=entry_schema, **about)


def owned_fields(obj: JsonObject) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def data(*names: str) -> JsonObject:
    return {"f:data": {f"f:{name}": {} for name in names}}


def test_an_apply_of_nothing_yet_creates() -> None:
    result = apply_config(None, config(x="1"))
    assert result["data"] == {"x": "1"}
    assert result["metadata"]["managedFields"] == [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": data("x"),
        }
    ]


def test_a_field_not_applied_any_more_is_removed() -> None:
    assert apply_config(apply_config(None, config(x="1", y="2")), config(y="2"))["data"] == {"y": "2"}


def test_what_is_empty_after_that_is_removed_too() -> None:
    minimal = {name: part for name, part in config().items() if name != "data"}
    result = apply_config(apply_config(None, config(x="1")), minimal)
    assert "data" not in result
    assert owned_fields(result) == {}


def test_a_field_that_another_applies_too_stays() -> None:
    shared = apply_config(apply_config(None, config(x="1", y="2")), config(x="1"), "b")
    result = apply_config(shared, config(y="2"))
    assert result["data"] == {"x": "1", "y": "2"}
    assert owned_fields(result) == {"a": data("y"), "b": data("x")}


def test_what_others_wrote_stays() -> None:
    old = apply_config(None, config(x="1"))
    result = apply_config(old | {"data": {"x": "1", "mine": "2"}}, config())
    assert result["data"] == {"mine": "2"}


def test_applying_the_same_again_changes_nothing() -> None:
    once = apply_config(None, config(x="1"), now=EARLIER)
    assert apply_config(once, config(x="1")) == once


def test_a_field_of_another_applier_is_a_conflict_unless_forced() -> None:
    first = apply_config(None, config(x="1", y="1"))
    with pytest.raises(StatusError) as refused:
        apply_config(first, config(x="2", y="1"), "b")
    assert refused.value.status["code"] == 409
    assert refused.value.status["message"] == 'Apply failed with 1 conflict: conflict with "a": .data.x'
    assert [cause["field"] for cause in refused.value.status["details"]["causes"]] == [".data.x"]
    forced = apply_config(first, config(x="2"), "b", force=True)
    assert forced["data"] == {"x": "2", "y": "1"}
    assert owned_fields(forced) == {"a": data("y"), "b": data("x")}


def test_items_of_a_list_with_keys_are_owned_one_by_one() -> None:
    first = apply_config(None, pod(containers=[{"name": "web", "image": "1"}, {"name": "old", "image": "1"}]))
    first["spec"]["containers"][1]["imagePullPolicy"] = "Always"  # a default, which goes with its container
    second = apply_config(first, pod(containers=[{"name": "side", "image": "1"}]), "b")
    result = apply_config(second, pod(containers=[{"name": "web", "image": "2"}]))
    assert result["spec"]["containers"] == [{"name": "web", "image": "2"}, {"name": "side", "image": "1"}]
    containers: JsonObject = {'k:{"name":"side"}': {".": {}, "f:image": {}, "f:name": {}}}
    assert owned_fields(result)["b"] == {"f:spec": {"f:containers": containers}}
    with pytest.raises(StatusError, match=r'conflict with "b": .spec.containers\[name="side"\].image'):
        apply_config(result, pod(containers=[{"name": "side", "image": "2"}]), "c")


def test_a_key_that_has_a_default_need_not_be_applied() -> None:
    live = pod(containers=[{"name": "web", "ports": [{"containerPort": 80, "protocol": "TCP"}]}])
    result = apply_config(live, pod(containers=[{"name": "web", "ports": [{"containerPort": 80, "name": "http"}]}]))
    assert result["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]


def test_items_of_a_set_are_owned_one_by_one() -> None:
    def with_finalizers(*finalizers: str) -> JsonObject:
        return {**config(), "metadata": {"name": "c", "finalizers": list(finalizers)}}

    result = apply_config(
        apply_config(apply_config(None, with_finalizers("e/1", "e/2")), with_finalizers("e/3"), "b"),
        with_finalizers("e/2"),
    )
    assert result["metadata"]["finalizers"] == ["e/2", "e/3"]


def test_a_list_that_is_one_piece_is_replaced() -> None:
    live = apply_config(None, pod(tolerations=[{"key": "a"}, {"key": "b"}]))
    assert apply_config(live, pod(tolerations=[{"key": "c"}]))["spec"]["tolerations"] == [{"key": "c"}]


def test_the_lists_of_a_custom_resource_are_replaced() -> None:
    def custom_object(*keys: str) -> JsonObject:
        return {**config(), "kind": "Pair", "spec": {"pairs": [{"key": key} for key in keys]}}

    first = apply_config(None, custom_object("x"), schema=custom_resource_schema())
    result = apply_config(first, custom_object("y"), "b", schema=custom_resource_schema(), force=True)
    assert result["spec"]["pairs"] == [{"key": "y"}]


def test_managed_fields_cannot_be_applied() -> None:
    body = config() | {"metadata": {"name": "c", "managedFields": []}}
    with pytest.raises(StatusError, match="must be nil"):
        apply_config(None, body)


def test_what_updates_own_does_not_conflict() -> None:
    entry = {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": data("x")}
    live = config(x="1") | {"metadata": {"name": "c", "managedFields": [entry]}}
    assert apply_config(live, config(x="2"))["data"] == {"x": "2"}
