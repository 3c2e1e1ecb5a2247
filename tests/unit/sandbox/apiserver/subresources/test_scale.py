"""The scale subresource: a view of how many there should be and are, which can be written."""

from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from haulout_sandbox.apiserver.kinds.kind import Kind, ScalePaths
from haulout_sandbox.apiserver.status import StatusError
from haulout_sandbox.apiserver.subresources.scale import apply_scale_change, scale_of
from support.apiserver.requests import merge, request_json
from support.builders.crds import INTEGER, STRING, a_crd, object_schema
from support.builders.objects import a_workload

DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
SCALE = f"{DEPLOYMENTS}/cart/scale"
CUSTOM = Kind(
    group="example.com",
    version="v1",
    plural="fleets",
    kind="Fleet",
    is_custom=True,
    scale_paths=ScalePaths(replicas=".spec.size", status_replicas=".status.size", selector=".status.chosen"),
)


def a_scale(replicas: int, **meta: str) -> JsonObject:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "cart", **meta}} | {
        "spec": {"replicas": replicas}
    }


@pytest.fixture
async def deployment(api: InProcessTransport) -> JsonObject:
    _, made = await request_json(api, "POST", DEPLOYMENTS, a_workload("Deployment", replicas=2))
    found: JsonObject = made
    return found


async def test_a_scale_shows_what_is_wanted_what_there_is_and_what_selects_it(
    api: InProcessTransport, deployment: JsonObject
) -> None:
    await merge(api, f"{DEPLOYMENTS}/cart/status", status={"replicas": 1})
    _, scale = await request_json(api, "GET", SCALE)
    assert scale["kind"] == "Scale"
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=cart"}
    assert scale["metadata"]["uid"] == deployment["metadata"]["uid"]


async def test_writing_a_scale_changes_the_object_and_its_generation(
    api: InProcessTransport, deployment: JsonObject
) -> None:
    _, scale = await request_json(api, "PUT", SCALE, a_scale(5))
    _, found = await request_json(api, "GET", f"{DEPLOYMENTS}/cart")
    assert (scale["spec"], found["spec"]["replicas"]) == ({"replicas": 5}, 5)
    assert found["metadata"]["generation"] == deployment["metadata"]["generation"] + 1
    assert scale["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_a_dry_run_of_a_scale_changes_nothing(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_workload("Deployment", "shop/cart", replicas=2))
    _, scale = await request_json(api, "PUT", SCALE, a_scale(5), dryRun="All")
    assert scale["spec"] == {"replicas": 5}
    assert cluster.get("deployments", "cart", "shop")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (a_scale(1, resourceVersion="1"), 409),
        (a_scale(1, uid="another"), 409),
        (a_scale(-1), 422),
        (a_scale(1) | {"metadata": {"name": "other"}}, 400),
    ],
)
async def test_a_scale_that_means_something_else_or_nothing_is_refused(
    api: InProcessTransport, deployment: JsonObject, body: JsonObject, status: int
) -> None:
    assert (await request_json(api, "PUT", SCALE, body))[0] == status
    _, found = await request_json(api, "GET", f"{DEPLOYMENTS}/cart")
    assert found == deployment


async def test_a_kind_without_replicas_has_no_scale(api: InProcessTransport) -> None:
    status, _ = await request_json(api, "GET", "/apis/apps/v1/namespaces/shop/daemonsets/cart/scale")
    assert status == 404


def test_a_custom_resource_defines_the_paths_of_its_scale() -> None:
    fleet = {"metadata": {"name": "f"}, "spec": {"size": 3}, "status": {"size": 2, "chosen": "app=f"}}
    assert scale_of(CUSTOM, fleet)["spec"] == {"replicas": 3}
    assert scale_of(CUSTOM, fleet)["status"] == {"replicas": 2, "selector": "app=f"}
    changed = apply_scale_change(CUSTOM, fleet, lambda scale: scale | {"spec": {"replicas": 0}})
    assert changed["spec"] == {"size": 0}
    assert fleet["spec"] == {"size": 3}


def test_a_custom_resource_without_replicas_has_no_scale() -> None:
    with pytest.raises(StatusError, match=r'the spec replicas field ".spec.size" does not exist'):
        scale_of(CUSTOM, {"metadata": {"name": "f"}})
    with pytest.raises(StatusError, match=r'the spec replicas field ".spec.size" cannot be empty'):
        apply_scale_change(CUSTOM, {"metadata": {"name": "f"}}, lambda scale: scale)


async def test_a_custom_resource_is_scaled(clock: Clock) -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    more: Any = {"subresources": {"status": {}, "scale": paths}}
    definition = a_crd("fleets", "Fleet", object_schema(size=INTEGER, note=STRING), **more)
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = object_schema(size=INTEGER)
    api = ApiServer(clock).transport()
    status, response_body = await request_json(
        api, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
    )
    assert status == 201, response_body
    fleets = "/apis/test.haulout.dev/v1/namespaces/default/fleets"
    fleet = {"apiVersion": "test.haulout.dev/v1", "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"size": 1}}
    assert (await request_json(api, "POST", fleets, fleet))[0] == 201
    status, scale = await merge(api, f"{fleets}/f/scale", spec={"replicas": 4})
    assert (status, scale["spec"], scale["status"]) == (200, {"replicas": 4}, {"replicas": 0})
    _, found = await request_json(api, "GET", f"{fleets}/f")
    assert (found["spec"]["size"], found["metadata"]["generation"]) == (4, 2)
    _, listed = await request_json(api, "GET", "/apis/test.haulout.dev/v1")
    assert "fleets/scale" in {item["name"] for item in listed["resources"]}
