"""Server-side apply; `tests/cluster/test_applies_match.py` compares whole stories with the real server."""

import copy
from typing import Any

import pytest

from haulout_sandbox.apiserver.apply import ApplyConflict, apply, manager_of, track
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.shapes import Shape, from_schema, shape_of
from haulout_sandbox.apiserver.status import Refused

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
CONFIG_MAP = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap")
POD = Kind(group="", version="v1", plural="pods", kind="Pod", has_status=True)
NODE = Kind(group="", version="v1", plural="nodes", kind="Node", namespaced=False, has_status=True)
DEPLOYMENT = Kind(group="apps", version="v1", plural="deployments", kind="Deployment", has_status=True)


def shape(kind: Kind) -> Shape:
    found = shape_of(kind.api_version, kind.kind)
    assert found
    return found


def config(**data: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def applied(
    current: JsonObject | None, body: JsonObject, who: str = "a", *, kind: Kind = CONFIG_MAP, **more: Any
) -> JsonObject:
    about: dict[str, Any] = {"kind": kind, "shape": shape(kind), "manager": who, "now": NOW} | more
    return apply(copy.deepcopy(current), copy.deepcopy(body), **about)


def written(
    old: JsonObject | None, new: JsonObject, who: str = "hand", *, kind: Kind = CONFIG_MAP, **more: Any
) -> JsonObject:
    about: dict[str, Any] = {"kind": kind, "shape": shape(kind), "manager": who, "now": NOW} | more
    return track(copy.deepcopy(old), copy.deepcopy(new), **about)


def owned(obj: JsonObject) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", [])}


def data(*names: str) -> JsonObject:
    return {"f:data": {f"f:{name}": {} for name in names}}


def conflict_of(current: JsonObject, body: JsonObject, who: str, **more: Any) -> JsonObject:
    with pytest.raises(ApplyConflict) as refused:
        applied(current, body, who, **more)
    return refused.value.status


# What an apply does


def test_an_apply_of_nothing_yet_creates() -> None:
    result = applied(None, config(x="1"))

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
    assert applied(applied(None, config(x="1", y="2")), config(y="2"))["data"] == {"y": "2"}


def test_a_field_that_another_applies_too_stays() -> None:
    shared = applied(applied(None, config(x="1", y="2")), config(x="1"), "b")

    result = applied(shared, config(y="2"))

    assert result["data"] == {"x": "1", "y": "2"}
    assert owned(result) == {"a": data("y"), "b": data("x")}


def test_what_others_wrote_stays() -> None:
    old = applied(None, config(x="1"))
    by_hand = written(old, old | {"data": {"x": "1", "mine": "2"}})

    result = applied(by_hand, config())

    assert result["data"] == {"mine": "2"}


def test_applying_the_same_again_changes_nothing() -> None:
    once = applied(None, config(x="1"), now=EARLIER)

    assert applied(once, config(x="1")) == once


def test_items_of_a_list_with_keys_are_owned_one_by_one() -> None:
    def deployment(*containers: JsonObject) -> JsonObject:
        spec = {"template": {"spec": {"containers": list(containers)}}}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    first = applied(None, deployment({"name": "web", "image": "1"}, {"name": "old"}), kind=DEPLOYMENT)
    second = applied(first, deployment({"name": "side", "image": "1"}), "b", kind=DEPLOYMENT)
    result = applied(second, deployment({"name": "web", "image": "2"}), kind=DEPLOYMENT)

    assert result["spec"]["template"]["spec"]["containers"] == [
        {"name": "web", "image": "2"},
        {"name": "side", "image": "1"},
    ]
    containers: JsonObject = {'k:{"name":"side"}': {".": {}, "f:image": {}, "f:name": {}}}
    assert owned(result)["b"] == {"f:spec": {"f:template": {"f:spec": {"f:containers": containers}}}}


def env_of(*names: str) -> JsonObject:
    env = [{"name": name, "value": "1"} for name in names]
    meta, spec = {"name": "p"}, {"containers": [{"name": "web", "env": env}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("abc", "ca", "bca"),
        ("abc", "xb", "axbc"),
        ("abcd", "dxa", "bcdxa"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("abc", "cba", "cba"),
    ],
)
def test_the_applier_gives_its_items_their_order_and_others_stay_between(first: str, second: str, result: str) -> None:
    live = applied(None, env_of(*first), kind=POD)

    both = applied(live, env_of(*second), "b", kind=POD)

    assert "".join(each["name"] for each in both["spec"]["containers"][0]["env"]) == result


def test_items_that_are_there_twice_are_one_piece() -> None:
    twice, once = env_of("a", "b", "a"), env_of("a", "b")
    old = written(None, twice, kind=POD, always=True)

    assert owned(old)["hand"]["f:spec"]["f:containers"]['k:{"name":"web"}']["f:env"] == {
        ".": {},
        'k:{"name":"a"}': {},
        'k:{"name":"b"}': {".": {}, "f:name": {}, "f:value": {}},
    }
    mended = written(old, once, "other", kind=POD)
    item: JsonObject = {".": {}, "f:name": {}, "f:value": {}}
    assert owned(mended)["other"]["f:spec"]["f:containers"]['k:{"name":"web"}']["f:env"] == {'k:{"name":"a"}': item}
    broken = written(mended, twice, "third", kind=POD)
    assert owned(broken)["third"]["f:spec"]["f:containers"]['k:{"name":"web"}']["f:env"] == {'k:{"name":"a"}': {}}


# Conflicts


def test_a_field_of_another_manager_is_a_conflict() -> None:
    status = conflict_of(applied(None, config(x="1")), config(x="2"), "b")

    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "a": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".data.x"}
    ]


def test_a_conflict_with_a_write_that_was_no_apply_names_its_version() -> None:
    status = conflict_of(written(None, config(x="1"), always=True), config(x="2"), "b")

    assert status["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.x'


def test_several_conflicts_are_told_by_manager() -> None:
    shared = applied(applied(None, config(x="1", y="1")), config(x="1"), "b")

    status = conflict_of(shared, config(x="2", y="2"), "c")

    assert status["message"] == (
        'Apply failed with 3 conflicts: conflicts with "a":\n- .data.x\n- .data.y\nconflicts with "b":\n- .data.x'
    )


def test_the_same_value_is_no_conflict_but_shared() -> None:
    result = applied(applied(None, config(x="1")), config(x="1"), "b")

    assert owned(result) == {"a": data("x"), "b": data("x")}


def test_force_takes_the_fields() -> None:
    result = applied(applied(None, config(x="1", y="1")), config(x="2"), "b", force=True)

    assert result["data"] == {"x": "2", "y": "1"}
    assert owned(result) == {"a": data("y"), "b": data("x")}


def test_the_status_has_owners_of_its_own() -> None:
    def node(**status: Any) -> JsonObject:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}

    ready, pressed = {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}
    old = applied(None, node(), kind=NODE)
    first = applied(old, node(conditions=[ready]), "kubelet", kind=NODE, subresource="status")
    result = applied(first, node(conditions=[pressed]), kind=NODE, subresource="status")

    assert result["status"]["conditions"] == [ready, pressed]
    changed = conflict_of(result, node(conditions=[ready | {"status": "False"}]), "a", kind=NODE, subresource="status")
    assert (
        'conflict with "kubelet" with subresource "status": .status.conditions[type="Ready"].status'
        in changed["message"]
    )


# Other writes


def test_an_object_that_was_never_applied_is_not_tracked() -> None:
    created = written(None, config(x="1"))

    assert owned(created) == {}
    assert owned(written(created, config(x="2"))) == {}


def test_the_first_apply_finds_all_fields_owned() -> None:
    untracked = written(None, config(x="1", y="2"))

    status = conflict_of(untracked, config(x="2"), "a")

    assert status["message"] == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x'
    result = applied(untracked, config(x="1"))
    assert owned(result) == {"a": data("x"), "before-first-apply": {"f:data": {".": {}, "f:x": {}, "f:y": {}}}}


def test_a_write_takes_the_fields_that_it_changes() -> None:
    old = applied(None, config(x="1", y="2"))

    result = written(old, old | {"data": {"x": "9", "y": "2"}})

    assert owned(result) == {"a": data("y"), "hand": data("x")}


def test_a_write_that_removes_a_field_removes_its_owners() -> None:
    old = applied(None, config(x="1", y="2"))

    assert owned(written(old, old | {"data": {"y": "2"}})) == {"a": data("y")}


def test_a_write_that_changes_nothing_changes_no_owner() -> None:
    old = applied(None, config(x="1"), now=EARLIER)

    assert written(old, config(x="1")) == old


def test_a_client_that_does_not_know_of_owners_does_not_lose_them() -> None:
    old = applied(None, config(x="1"))

    assert owned(written(old, config(x="1", y="2"))) == {"a": data("x"), "hand": data("y")}


def test_a_client_can_clear_the_owners() -> None:
    old = applied(None, config(x="1"))
    cleared = config(x="1")
    cleared["metadata"]["managedFields"] = [{}]

    assert owned(written(old, cleared)) == {}


@pytest.mark.parametrize("entry", [5, {"operation": "Apply"}, {"operation": "Other", "apiVersion": "v1"}])
def test_owners_that_cannot_be_understood_are_not_taken(entry: Any) -> None:
    old = applied(None, config(x="1"))
    broken = config(x="1")
    broken["metadata"]["managedFields"] = [entry]

    assert owned(written(old, broken)) == {"a": data("x")}


@pytest.mark.parametrize("fields", [{"f:data": 5}, {"k:nonsense": {}}, [1]])
def test_fields_that_cannot_be_understood_are_not_taken(fields: Any) -> None:
    old = applied(None, config(x="1"))
    broken = copy.deepcopy(old)
    broken["metadata"]["managedFields"][0]["fieldsV1"] = fields

    assert owned(written(old, broken)) == {"a": data("x")}


def test_many_writers_become_one() -> None:
    obj = applied(None, config(x="1"), now=EARLIER)
    for number in range(12):
        obj = written(obj, obj | {"data": obj["data"] | {f"w{number}": "1"}}, f"w{number:02}")

    assert len(owned(obj)) == 11
    assert owned(obj)["ancient-changes"] == data("w0", "w1", "w2")


# Coming from client-side apply


def test_kubectl_takes_over_what_it_had_applied_from_the_client() -> None:
    annotation = {"kubectl.kubernetes.io/last-applied-configuration": '{"apiVersion":"v1","data":{"x":"1","y":"1"}}'}
    live = config(x="1", y="changed")
    live["metadata"]["annotations"] = annotation
    live = written(None, live, "kubectl-client-side-apply", always=True)

    result = applied(live, config(x="2"), "kubectl")

    assert result["data"] == {"x": "2", "y": "changed"}
    (renewed,) = result["metadata"]["annotations"].values()
    assert renewed == '{"apiVersion":"v1","data":{"x":"2"},"kind":"ConfigMap","metadata":{"name":"c"}}\n'
    status = conflict_of(live, config(x="2", y="2"), "kubectl")
    assert [cause["field"] for cause in status["details"]["causes"]] == [".data.y"]
    assert conflict_of(live, config(x="2"), "other")


# What cannot be applied


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (config() | {"kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        (config() | {"metadata": {"name": "c", "managedFields": []}}, "metadata.managedFields must be nil"),
        ({}, "invalid object type: /, Kind="),
    ],
)
def test_what_is_no_configuration_of_this_kind_is_refused(body: JsonObject, message: str) -> None:
    with pytest.raises(Refused) as refused:
        applied(None, body)

    assert (refused.value.status["code"], refused.value.status["message"]) == (400, message)


def pod_spec(**spec: Any) -> JsonObject:
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"unheardOf": 1}, ".unheardOf: field not declared in schema"),
        ({"spec": [1]}, ".spec: expected map, got &{[1]}"),
        ({"spec": {"replicas": "x"}}, ".spec.replicas: expected numeric (int or float), got string"),
        ({"spec": {"paused": 1.5}}, ".spec.paused: expected boolean, got &{1.5}"),
        (
            {"spec": {"paused": "y", "replicas": True}},
            (
                "errors:\n  .spec.paused: expected boolean, got &{y}"
                "\n  .spec.replicas: expected numeric (int or float), got bool"
            ),
        ),
        (pod_spec(containers={}), ".spec.template.spec.containers: expected list, got &{map[]}"),
        (
            pod_spec(containers=["a"]),
            ".spec.template.spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        (
            pod_spec(containers=[{"name": "a"}, {"name": "a"}]),
            '.spec.template.spec.containers: duplicate entries for key [name="a"]',
        ),
        (
            pod_spec(containers=[{"name": "a", "args": [{"b": [None, "c"]}]}]),
            (
                '.spec.template.spec.containers[name="a"].args[0]: expected string, got &value.valueUnstructured'
                '{Value:map[string]interface {}{"b":[]interface {}{interface {}(nil), "c"}}}'
            ),
        ),
        (
            pod_spec(containers=[{"name": "a", "resources": {"limits": {"cpu": [1]}}}]),
            '.spec.template.spec.containers[name="a"].resources.limits.cpu: expected any scalar, got &{[1]}',
        ),
        (
            {"metadata": {"name": "d", "finalizers": ["a", "a"]}},
            '.metadata.finalizers: duplicate entries for key [="a"]',
        ),
        (
            {"metadata": {"name": "d", "finalizers": [{}]}},
            ".metadata.finalizers: element 0: associative list without keys has an element that's a map type",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_its_kind_is_refused(body: JsonObject, message: str) -> None:
    whole = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}} | body
    with pytest.raises(Refused) as refused:
        applied(None, whole, kind=DEPLOYMENT)

    said = f"failed to create typed patch object (/d; apps/v1, Kind=Deployment): {message}"
    assert (refused.value.status["code"], refused.value.status["message"]) == (500, said)


def test_an_apply_needs_a_manager() -> None:
    with pytest.raises(Refused, match="fieldManager: Required value: is required for apply patch"):
        applied(None, config(), "")


def test_a_custom_resource_is_applied_by_its_schema() -> None:
    rows = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    kind = Kind(group="example.com", version="v1", plural="things", kind="Thing", custom=True)
    shape = from_schema({"type": "object", "properties": {"rows": rows}})

    def thing(*names: str) -> JsonObject:
        return {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t"},
            "rows": [{"name": name} for name in names],
        }

    first = apply(None, thing("a", "b"), kind=kind, shape=shape, manager="x", now=NOW)
    second = apply(first, thing("c"), kind=kind, shape=shape, manager="y", now=NOW)
    result = apply(second, thing("b"), kind=kind, shape=shape, manager="x", now=NOW)

    assert result["rows"] == [{"name": "b"}, {"name": "c"}]


def test_in_a_field_that_is_open_objects_merge_and_all_else_is_one_piece() -> None:
    kind = Kind(group="example.com", version="v1", plural="things", kind="Thing", custom=True)
    shape = from_schema({"type": "object", "properties": {"free": {"type": "object"}}})

    def thing(**free: Any) -> JsonObject:
        return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "free": free}

    first = apply(None, thing(a={"x": 1}, b=[1, 2]), kind=kind, shape=shape, manager="x", now=NOW)
    second = apply(first, thing(a={"y": 1}), kind=kind, shape=shape, manager="y", now=NOW)
    assert second["free"] == {"a": {"x": 1, "y": 1}, "b": [1, 2]}
    with pytest.raises(ApplyConflict, match=r"conflict with \"x\": \.free\.b$"):
        apply(second, thing(a={"y": 1}, b=[1]), kind=kind, shape=shape, manager="y", now=NOW)
    flat = track(second, second | {"free": {"a": "flat"}}, kind=kind, shape=shape, manager="hand", now=NOW)
    assert owned(flat) == {"hand": {"f:free": {"f:a": {}}}}


@pytest.mark.parametrize(
    ("said", "agent", "manager"),
    [
        ("me", "kubectl/v1.36.3", "me"),
        ("", "kubectl/v1.36.3 (linux)", "kubectl"),
        ("", "a\tb", "ab"),
        ("", "", ""),
        ("", "é" * 100, "é" * 64),
    ],
)
def test_who_does_not_say_its_name_is_known_by_its_program(said: str, agent: str, manager: str) -> None:
    assert manager_of(said, agent) == manager
