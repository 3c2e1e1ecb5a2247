"""What a deletion leaves to the garbage collector, and how a namespace begins and ends."""

from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from haulout_sandbox.apiserver.kinds.builtin import JOB
from haulout_sandbox.apiserver.kinds.kind import CONFIG_MAP, EVENT
from haulout_sandbox.apiserver.registry.deletion import finalizers_after
from support.apiserver.requests import CONFIG_MAPS, PODS, a_config_map, a_pod, an_eviction, merge, request_json

SHOP = "/api/v1/namespaces/shop"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        ([], {}, []),
        ([], {"propagationPolicy": "Foreground"}, [FOREGROUND]),
        ([], {"propagationPolicy": "Orphan"}, [ORPHAN]),
        ([], {"orphanDependents": True}, [ORPHAN]),
        ([], {"orphanDependents": False}, []),
        (["mine"], {"propagationPolicy": "Foreground"}, ["mine", FOREGROUND]),
        ([FOREGROUND, "mine"], {"propagationPolicy": "Foreground"}, [FOREGROUND, "mine"]),
        ([FOREGROUND, "mine"], {"propagationPolicy": "Orphan"}, ["mine", ORPHAN]),
        ([FOREGROUND, "mine"], {"propagationPolicy": "Background"}, ["mine"]),
        ([ORPHAN], {}, [ORPHAN]),
    ],
)
def test_a_policy_becomes_a_finalizer(before: list[str], options: JsonObject, after: list[str]) -> None:
    assert finalizers_after(CONFIG_MAP, before, options) == after


def test_jobs_orphan_their_pods_by_default() -> None:
    assert finalizers_after(JOB, [], {}) == [ORPHAN]
    assert finalizers_after(JOB, [], {"propagationPolicy": "Background"}) == []


def test_nothing_belongs_to_an_event() -> None:
    assert finalizers_after(EVENT, [], {"propagationPolicy": "Foreground"}) == []


async def test_an_owner_waits_until_its_finalizer_is_taken_off(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("owner"))
    _, begun = await request_json(api, "DELETE", f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert begun["metadata"]["finalizers"] == [FOREGROUND]
    assert "deletionTimestamp" in begun["metadata"]
    await merge(api, f"{CONFIG_MAPS}/owner", metadata={"finalizers": None})
    assert not cluster.has("configmaps", "owner", "shop")


async def test_a_graceful_deletion_keeps_its_finalizer_until_both_are_done(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_pod())
    _, begun = await request_json(api, "DELETE", f"{PODS}/cart-0", {"propagationPolicy": "Orphan"})
    assert (begun["metadata"]["deletionGracePeriodSeconds"], begun["metadata"]["finalizers"]) == (20, [ORPHAN])
    cluster.finish_deletion("cart-0", "shop")
    assert cluster.has("pods", "cart-0", "shop")
    await merge(api, f"{PODS}/cart-0", metadata={"finalizers": None})
    assert not cluster.has("pods", "cart-0", "shop")


async def test_orphan_dependents_false_answers_202(cluster: ApiServer, api: InProcessTransport) -> None:
    held = a_config_map("held")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    cluster.put(held)
    assert (await request_json(api, "DELETE", f"{CONFIG_MAPS}/held", orphanDependents="false"))[0] == 202
    assert (await request_json(api, "DELETE", f"{CONFIG_MAPS}/held", {"orphanDependents": True}))[0] == 200


async def test_with_a_body_the_query_is_ignored(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    await request_json(api, "DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": "Background"}, dryRun="All")
    assert not cluster.has("configmaps", "a", "shop")


# Namespaces


async def test_every_cluster_starts_with_the_same_namespaces(clock: Clock) -> None:
    cluster = ApiServer(clock)
    found = {item["metadata"]["name"]: item for item in cluster.objects("namespaces")}
    assert sorted(found) == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert found["default"]["metadata"]["labels"] == {"kubernetes.io/metadata.name": "default"}
    assert found["default"]["spec"] == {"finalizers": ["kubernetes"]}
    assert cluster.history == []


async def test_nothing_is_created_in_a_namespace_that_is_not_there(api: InProcessTransport) -> None:
    elsewhere = CONFIG_MAPS.replace("shop", "nowhere")
    status, refused = await request_json(api, "POST", elsewhere, {"metadata": {"name": "a"}})
    assert (status, refused["message"]) == (404, 'namespaces "nowhere" not found')
    assert refused["details"] == {"name": "nowhere", "kind": "namespaces"}


async def test_the_hand_of_a_test_makes_the_namespace_by_the_way(cluster: ApiServer) -> None:
    pod = a_pod()
    pod["metadata"]["namespace"] = "bank"
    cluster.put(pod)
    assert cluster.get("namespaces", "bank")["status"] == {"phase": "Active"}


async def test_in_a_terminating_namespace_nothing_is_created_and_all_can_be_deleted(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_pod())
    _, terminating = await request_json(api, "DELETE", SHOP)
    assert terminating["status"] == {"phase": "Terminating"}
    assert "deletionGracePeriodSeconds" not in terminating["metadata"]
    asked: list[tuple[str, Any]] = [(CONFIG_MAPS, a_config_map("a")), (f"{PODS}/cart-0/eviction", an_eviction())]
    for path, body in asked:
        status, refused = await request_json(api, "POST", path, body)
        assert (status, refused["reason"]) == (403, "Forbidden")
        assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await merge(api, f"{PODS}/cart-0", metadata={"labels": {"a": "b"}}))[0] == 200
    assert (await request_json(api, "DELETE", f"{PODS}/cart-0"))[0] == 200


async def test_a_namespace_goes_when_the_last_of_both_lists_is_gone(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    await merge(api, SHOP, metadata={"finalizers": ["example.com/wait"]})
    await request_json(api, "DELETE", SHOP)
    await request_json(api, "DELETE", SHOP)
    body = {"metadata": {"name": "shop", "finalizers": ["example.com/wait"]}, "spec": {}}
    status, _ = await request_json(api, "PUT", f"{SHOP}/finalize", body)
    assert (status, cluster.has("namespaces", "shop")) == (200, True)
    await merge(api, SHOP, metadata={"finalizers": None})
    assert not cluster.has("namespaces", "shop")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_some_namespaces_may_not_be_deleted(api: InProcessTransport, name: str) -> None:
    status, refused = await request_json(api, "DELETE", f"/api/v1/namespaces/{name}")
    assert (status, refused["message"]) == (
        403,
        f'namespaces "{name}" is forbidden: this namespace may not be deleted',
    )
