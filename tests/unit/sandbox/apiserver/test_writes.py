"""What the sandbox's API server promises: to take and refuse writes as Kubernetes 1.36 does."""

import json
from datetime import timedelta
from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.apiserver.requests import (
    CONFIG_MAPS,
    JSON_PATCH,
    LEASES,
    MERGE_PATCH,
    NODES,
    PODS,
    a_config_map,
    a_lease,
    a_node,
    a_pdb,
    a_pod,
    an_eviction,
    merge,
    patch,
    request_json,
)

# Creating


async def test_a_created_object_gets_name_uid_time_and_generation(cluster: ApiServer, api: InProcessTransport) -> None:
    pod = a_pod() | {"metadata": {"generateName": "cart-", "uid": "mine"}}
    code, made = await request_json(api, "POST", PODS, pod)
    meta = made["metadata"]
    assert code == 201
    assert meta["name"].startswith("cart-")
    assert len(meta["name"]) == len("cart-") + 5
    assert (meta["namespace"], meta["generation"], meta["resourceVersion"]) == ("shop", 1, "101")
    assert meta["uid"] != "mine"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert cluster.get("pods", meta["name"], "shop") == made


async def test_chance_is_the_same_in_every_run(clock: Clock) -> None:
    async def uid_with(seed: int) -> object:
        api = ApiServer(clock, random=Random(seed), namespaces=["shop"]).transport()
        _, made = await request_json(api, "POST", LEASES, a_lease())
        return made["metadata"]["uid"]

    assert await uid_with(7) == await uid_with(7) != await uid_with(8)


async def test_a_name_can_be_taken_once(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_lease(finalizers=["haulout.dev/hold"]))
    code, status = await request_json(api, "POST", LEASES, a_lease())
    assert (code, status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'leases.coordination.k8s.io "lock" already exists'
    assert status["details"] == {"name": "lock", "group": "coordination.k8s.io", "kind": "leases"}
    await request_json(api, "DELETE", f"{LEASES}/lock")
    _, status = await request_json(api, "POST", LEASES, a_lease())
    assert status["message"] == 'object is being deleted: leases.coordination.k8s.io "lock" already exists'


async def test_an_object_needs_a_name(api: InProcessTransport) -> None:
    code, status = await request_json(api, "POST", LEASES, {"metadata": {}})
    assert code == 422
    rule = "Required value"
    assert status["message"] == f'Lease.coordination.k8s.io "" is invalid: metadata.name: {rule}'
    assert status["details"]["causes"] == [{"reason": "FieldValueRequired", "message": rule, "field": "metadata.name"}]


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"name": "Not_A_Name"}, 422), ({"namespace": "other"}, 400), ({"resourceVersion": "5"}, 500)],
)
async def test_wrong_metadata_is_refused(
    cluster: ApiServer, api: InProcessTransport, changes: JsonObject, code: int
) -> None:
    assert (await request_json(api, "POST", LEASES, a_lease(**changes)))[0] == code
    assert cluster.history == []


async def test_a_body_that_is_no_object_is_a_bad_request(api: InProcessTransport) -> None:
    assert (await request_json(api, "POST", LEASES, [1]))[0] == 400
    assert (await request_json(api, "POST", LEASES))[0] == 400
    assert (await request_json(api, "POST", LEASES, a_config_map("a")))[0] == 400


# Updating


async def test_an_update_of_an_older_version_conflicts(cluster: ApiServer, api: InProcessTransport) -> None:
    lease = cluster.put(a_lease())
    cluster.put(a_lease() | {"spec": {"holderIdentity": "b"}})
    code, status = await request_json(api, "PUT", f"{LEASES}/lock", lease)
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "lock": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert status["details"] == {"name": "lock", "group": "coordination.k8s.io", "kind": "leases"}


async def test_an_update_of_another_object_of_that_name_conflicts(cluster: ApiServer, api: InProcessTransport) -> None:
    old = cluster.put(a_lease())
    cluster.remove("leases", "lock", "shop")
    new = cluster.put(a_lease())
    code, status = await request_json(api, "PUT", f"{LEASES}/lock", old)
    assert code == 409
    assert status["message"].endswith(
        f"UID in precondition: {old['metadata']['uid']}, UID in object meta: {new['metadata']['uid']}"
    )


async def test_a_lease_is_never_updated_without_a_version_but_a_node_may_be(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_lease())
    cluster.put(a_node())
    code, status = await request_json(api, "PUT", f"{LEASES}/lock", a_lease())
    assert code == 422
    assert status["message"] == (
        'leases.coordination.k8s.io "lock" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )
    assert (await request_json(api, "PUT", f"{NODES}/n1", a_node(unschedulable=True)))[0] == 200
    assert cluster.get("nodes", "n1")["spec"]["unschedulable"]


async def test_a_put_creates_a_lease_but_not_one_that_names_a_uid(cluster: ApiServer, api: InProcessTransport) -> None:
    """A deposed leader whose lease was deleted makes a new one unless it sends the uid."""
    assert (await request_json(api, "PUT", f"{LEASES}/lock", a_lease(uid="gone")))[0] == 409
    assert (await request_json(api, "PUT", f"{LEASES}/lock", a_lease(resourceVersion="77")))[0] == 201
    assert (await request_json(api, "PUT", f"{CONFIG_MAPS}/a", a_config_map("a")))[0] == 404
    assert [write.verb for write in cluster.history] == ["update"]


async def test_an_update_that_changes_nothing_is_no_write(cluster: ApiServer, api: InProcessTransport) -> None:
    lease = cluster.put(a_lease())
    code, answer = await request_json(api, "PUT", f"{LEASES}/lock", lease)
    assert (code, answer) == (200, lease)
    assert len(cluster.history) == 1


async def test_status_and_the_rest_are_changed_apart(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node() | {"status": {"phase": "Pending"}})
    await merge(api, f"{NODES}/n1", spec={"unschedulable": True}, status={"phase": "Running"})
    assert cluster.get("nodes", "n1")["status"]["phase"] == "Pending"
    await merge(api, f"{NODES}/n1/status", spec={"unschedulable": None}, status={"phase": "Running"})
    node = cluster.get("nodes", "n1")
    assert (node["spec"], node["status"]["phase"]) == ({"unschedulable": True}, "Running")


async def test_a_namespace_has_a_status_and_not_a_resource_of_that_name(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    condition = {"type": "NamespaceContentRemaining", "status": "True"}
    await merge(api, "/api/v1/namespaces/shop/status", status={"conditions": [condition]})
    assert cluster.get("namespaces", "shop")["status"] == {"phase": "Active", "conditions": [condition]}


async def test_a_change_of_the_spec_counts_up_the_generation(api: InProcessTransport) -> None:
    _, pod = await request_json(api, "POST", PODS, a_pod())
    _, pod = await merge(api, f"{PODS}/cart-0", metadata={"labels": {"a": "b"}, "generation": 9})
    assert pod["metadata"]["generation"] == 1
    _, pod = await merge(api, f"{PODS}/cart-0", spec={"activeDeadlineSeconds": 5})
    assert pod["metadata"]["generation"] == 2


async def test_what_the_server_gave_cannot_be_changed(cluster: ApiServer, api: InProcessTransport) -> None:
    node = cluster.put(a_node())
    await merge(api, f"{NODES}/n1", metadata={"creationTimestamp": None, "labels": {"a": "b"}})
    assert cluster.get("nodes", "n1")["metadata"]["creationTimestamp"] == node["metadata"]["creationTimestamp"]
    code, status = await merge(api, f"{NODES}/n1", metadata={"uid": "other"})
    assert code == 422
    assert status["message"] == 'Node "n1" is invalid: metadata.uid: Invalid value: "other": field is immutable'
    assert (await merge(api, f"{NODES}/n1", metadata={"name": "n2"}))[0] == 400


# Patching


async def test_every_operation_of_a_json_patch(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a", one="1", two="2"))
    code, result = await patch(
        api,
        f"{CONFIG_MAPS}/a",
        {"op": "test", "path": "/data/one", "value": "1"},
        {"op": "copy", "from": "/data/one", "path": "/data/copied"},
        {"op": "move", "from": "/data/two", "path": "/data/moved"},
        {"op": "replace", "path": "/data/one", "value": "uno"},
        {"op": "remove", "path": "/data/copied"},
        {"op": "copy", "from": "/data", "path": "/metadata/annotations"},
        {"op": "add", "path": "/metadata/annotations/with~1slash", "value": "here"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "a/d"},
        {"op": "add", "path": "/metadata/finalizers/1", "value": "a/c"},
    )
    assert code == 200
    assert result["data"] == {"one": "uno", "moved": "2"}
    assert result["metadata"]["annotations"] == {**result["data"], "with/slash": "here"}
    assert result["metadata"]["finalizers"] == ["a/b", "a/c", "a/d"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/unschedulable", "value": 1},
        {"op": "test", "path": "/spec/nothing", "value": False},
        {"op": "remove", "path": "/spec/nothing"},
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        {"op": "add", "path": "/spec/taints/5", "value": {}},
        {"op": "replace", "path": "/spec/taints/x", "value": {}},
        {"op": "move", "from": "/spec/nothing", "path": "/spec/podCIDR"},
        {"op": "copy", "from": "/spec/nothing", "path": "/spec/podCIDR"},
        {"op": "replace", "path": "", "value": 5},
        {"op": "conjure", "path": "/spec"},
    ],
)
async def test_a_patch_that_does_not_apply_is_invalid_and_changes_nothing(
    cluster: ApiServer, api: InProcessTransport, operation: JsonObject
) -> None:
    cluster.put(a_node(unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}]))
    code, status = await patch(api, f"{NODES}/n1", {"op": "add", "path": "/spec/providerID", "value": "x"}, operation)
    assert code == 422
    assert status["message"] == "the server rejected our request due to an error in our request"
    assert (status["reason"], status["details"]) == ("Invalid", {})
    assert len(cluster.history) == 1


async def test_a_test_of_null_holds_for_what_is_absent(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    assert (await patch(api, f"{NODES}/n1", {"op": "test", "path": "/spec/unschedulable", "value": None}))[0] == 200


async def test_a_replace_of_an_absent_key_sets_it_as_the_real_server_does(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_node())
    await patch(api, f"{NODES}/n1", {"op": "replace", "path": "/spec/unschedulable", "value": True})
    assert cluster.get("nodes", "n1")["spec"] == {"unschedulable": True}


async def test_empty_values_are_not_there(cluster: ApiServer, api: InProcessTransport) -> None:
    """The pitfall of JSON patches: what was emptied has no place any more to add to."""
    cluster.put(a_node(unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}]))
    _, node = await patch(
        api,
        f"{NODES}/n1",
        {"op": "remove", "path": "/spec/taints/0"},
        {"op": "replace", "path": "/spec/unschedulable", "value": False},
    )
    assert node["spec"] == {}
    assert (await patch(api, f"{NODES}/n1", {"op": "add", "path": "/spec/taints/-", "value": {}}))[0] == 422


async def test_a_merge_patch_merges_and_null_removes(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a", keep="1", drop="2"))
    _, result = await merge(api, f"{CONFIG_MAPS}/a", data={"drop": None, "new": "3"})
    assert result["data"] == {"keep": "1", "new": "3"}


async def test_a_version_in_a_merge_patch_is_a_precondition(cluster: ApiServer, api: InProcessTransport) -> None:
    version = cluster.put(a_node())["metadata"]["resourceVersion"]
    assert (await merge(api, f"{NODES}/n1", metadata={"resourceVersion": version}, spec={"unschedulable": True}))[
        0
    ] == 200
    code, status = await merge(api, f"{NODES}/n1", metadata={"resourceVersion": version}, spec={"podCIDR": "x"})
    assert (code, status["reason"]) == (409, "Conflict")


async def test_a_patch_of_an_unknown_kind_is_not_supported(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    code, status = await request_json(api, "PATCH", f"{NODES}/n1", {}, kind="application/magic-patch")
    assert (code, status["reason"]) == (415, "UnsupportedMediaType")


async def test_a_strategic_patch_merges_lists_by_their_keys(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    for condition in ("Drained", "MaintenancePlanned"):
        body = {"status": {"conditions": [{"type": condition, "status": "True"}]}}
        kind = "application/strategic-merge-patch+json"
        code, node = await request_json(api, "PATCH", f"{NODES}/n1/status", body, kind=kind)
        assert code == 200
    assert {condition["type"] for condition in node["status"]["conditions"]} == {"Drained", "MaintenancePlanned"}


async def test_an_apply_creates_and_then_owns_its_fields(cluster: ApiServer, api: InProcessTransport) -> None:
    def applying(manager: str, **more: str) -> Request:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        body = json.dumps(obj | {"data": {"since": "2026-01-05", "by": manager}}).encode()
        query = tuple({"fieldManager": manager, **more}.items())
        return Request(
            method="PATCH", path=f"{CONFIG_MAPS}/a", query=query, body=body, content_type="application/apply-patch+yaml"
        )

    assert (await api.send(applying("ada"))).status == 201
    assert cluster.get("configmaps", "a", "shop")["data"] == {"since": "2026-01-05", "by": "ada"}
    refused = await api.send(applying("bob"))
    assert refused.status == 409
    assert b'conflict with \\"ada\\"' in refused.body
    assert (await api.send(applying("bob", force="true"))).status == 200
    assert cluster.get("configmaps", "a", "shop")["data"]["by"] == "bob"


async def test_a_patch_that_cannot_be_read_is_a_bad_request(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    assert (await request_json(api, "PATCH", f"{NODES}/n1", {}, kind=JSON_PATCH))[0] == 400
    assert (await request_json(api, "PATCH", f"{NODES}/n1", [], kind=MERGE_PATCH))[0] == 400
    assert (await request_json(api, "PATCH", f"{NODES}/n1", kind=MERGE_PATCH))[0] == 400


# Deleting


async def test_a_deleted_lease_answers_a_status_and_a_pod_itself(cluster: ApiServer, api: InProcessTransport) -> None:
    lease = cluster.put(a_lease())
    _, status = await request_json(api, "DELETE", f"{LEASES}/lock")
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"]["uid"] == lease["metadata"]["uid"]
    cluster.put(a_pod(node=""))
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0")
    assert (pod["kind"], pod["metadata"]["name"]) == ("Pod", "cart-0")
    assert not cluster.objects("leases")
    assert not cluster.objects("pods")


async def test_preconditions_of_a_deletion_name_the_object_meant(cluster: ApiServer, api: InProcessTransport) -> None:
    meta = cluster.put(a_lease())["metadata"]
    code, status = await request_json(api, "DELETE", f"{LEASES}/lock", {"preconditions": {"uid": "x"}})
    assert (code, status["reason"]) == (409, "Conflict")
    assert status["message"] == (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "lock": the UID in the precondition (x) does not '
        f"match the UID in record ({meta['uid']})"
    )
    code, status = await request_json(api, "DELETE", f"{LEASES}/lock", {"preconditions": {"resourceVersion": "1"}})
    assert code == 409
    preconditions = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert (await request_json(api, "DELETE", f"{LEASES}/lock", {"preconditions": preconditions}))[0] == 200


async def test_finalizers_hold_an_object_until_the_last_is_gone(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_lease(finalizers=["a/b", "a/c"]))
    _, lease = await request_json(api, "DELETE", f"{LEASES}/lock", {"propagationPolicy": "Background"})
    assert lease["metadata"]["deletionTimestamp"] == "2026-01-05T09:00:00Z"
    assert lease["metadata"]["deletionGracePeriodSeconds"] == 0
    code, status = await merge(api, f"{LEASES}/lock", metadata={"finalizers": ["a/b", "a/new"]})
    assert code == 422
    assert "no finalizers can be added to an object that is being deleted" in status["message"]
    _, lease = await merge(api, f"{LEASES}/lock", metadata={"finalizers": ["a/b"]})
    assert lease["metadata"]["deletionGracePeriodSeconds"] == 0
    assert cluster.has("leases", "lock", "shop")
    await merge(api, f"{LEASES}/lock", metadata={"finalizers": None})
    assert not cluster.has("leases", "lock", "shop")


async def test_a_pod_on_a_node_gets_its_time_to_terminate(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    cluster.put(a_pod())
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert pod["metadata"]["deletionTimestamp"] == "2026-01-05T09:00:20Z"
    await clock.sleep(timedelta(hours=1))
    assert cluster.has("pods", "cart-0", "shop")
    cluster.finish_deletion("cart-0", "shop")
    assert not cluster.has("pods", "cart-0", "shop")
    assert cluster.history[-1].username == "kubelet"


async def test_the_time_to_terminate_can_only_be_shortened(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    await request_json(api, "DELETE", f"{PODS}/cart-0")
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0", {"gracePeriodSeconds": 60})
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0", gracePeriodSeconds="5")
    assert pod["metadata"]["deletionTimestamp"] == "2026-01-05T09:00:05Z"
    await request_json(api, "DELETE", f"{PODS}/cart-0", {"gracePeriodSeconds": 0})
    assert not cluster.has("pods", "cart-0", "shop")
    assert [write.type for write in cluster.history[-2:]] == ["MODIFIED", "DELETED"]


async def test_a_time_to_terminate_that_is_shortened_to_the_past_ends_in_a_second(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    cluster.put(a_pod())
    await request_json(api, "DELETE", f"{PODS}/cart-0")
    await clock.sleep(timedelta(seconds=15))
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0", {"gracePeriodSeconds": 5})
    assert pod["metadata"]["deletionTimestamp"] == "2026-01-05T09:00:15Z"
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_a_terminating_pod_can_still_report(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    await request_json(api, "DELETE", f"{PODS}/cart-0")
    await merge(api, f"{PODS}/cart-0/status", status={"phase": "Succeeded"})
    assert cluster.get("pods", "cart-0", "shop")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("pod", [a_pod(node=""), a_pod(phase="Failed"), a_pod(phase="Succeeded")])
async def test_a_pod_that_does_not_run_goes_at_once(
    cluster: ApiServer, api: InProcessTransport, pod: JsonObject
) -> None:
    cluster.put(pod)
    await request_json(api, "DELETE", f"{PODS}/cart-0")
    assert not cluster.has("pods", "cart-0", "shop")


async def test_a_collection_is_deleted_by_selector(cluster: ApiServer, api: InProcessTransport) -> None:
    for name in "abc":
        cluster.put(a_config_map(name, labels={"drop": str(name != "b").lower()}))
    code, deleted = await request_json(api, "DELETE", CONFIG_MAPS, labelSelector="drop=true")
    assert (code, len(deleted["items"])) == (200, 2)
    assert [item["metadata"]["name"] for item in cluster.objects("configmaps")] == ["b"]


async def test_a_dry_run_answers_the_same_and_does_nothing(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    cluster.put(a_pod())
    cluster.put(a_pdb(disruptionsAllowed=1))
    dry = {"dryRun": "All"}
    code, made = await request_json(api, "POST", LEASES, a_lease(), **dry)
    assert (code, "resourceVersion" in made["metadata"]) == (201, False)
    _, node = await request_json(api, "PUT", f"{NODES}/n1", a_node(unschedulable=True), **dry)
    assert node["spec"]["unschedulable"]
    _, pod = await request_json(api, "DELETE", f"{PODS}/cart-0", **dry)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert (await request_json(api, "POST", f"{PODS}/cart-0/eviction", an_eviction(), **dry))[0] == 201
    assert (await request_json(api, "DELETE", f"{NODES}/n1", {"dryRun": ["All"]}))[0] == 200
    assert len(cluster.history) == 3
