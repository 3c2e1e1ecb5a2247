"""Every namespace has its default account, and pods run as it."""

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.controllers.namespace import NamespaceController
from haulout_sandbox.controllers.objects import PODS, SERVICE_ACCOUNTS
from haulout_sandbox.controllers.serviceaccount import ServiceAccountController
from support.builders.objects import SHOP, a_pod
from support.clusters.controller_cluster import ControllerCluster


@pytest.fixture
async def world(clock: Clock) -> ControllerCluster:
    world = ControllerCluster(clock, kinds=(ServiceAccountController, NamespaceController))
    world.cluster.put(a_namespace(SHOP))
    return world


def a_namespace(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


async def test_namespaces_old_and_new_get_one(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle()
        world.cluster.put(a_namespace("other"))
        await world.settle()
    accounts = world.cluster.objects("serviceaccounts")
    assert {item["metadata"]["name"] for item in accounts} == {"default"}
    namespaces = [item["metadata"]["name"] for item in world.cluster.objects("namespaces")]
    assert {"default", "other", SHOP} <= set(namespaces)
    assert [item["metadata"]["namespace"] for item in accounts] == namespaces


async def test_one_that_is_deleted_comes_back_and_others_are_nobodys_business(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle()
        robot = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        await world.client.create(SERVICE_ACCOUNTS, robot, namespace=SHOP)
        before = world.cluster.get("serviceaccounts", "default", SHOP)["metadata"]["uid"]
        for name in ("default", "robot"):
            await world.client.delete(SERVICE_ACCOUNTS, name, namespace=SHOP)
        await world.settle()
    assert world.object_names("serviceaccounts") == ["default"]
    assert world.cluster.get("serviceaccounts", "default", SHOP)["metadata"]["uid"] != before


async def test_a_namespace_that_goes_takes_it_along_for_good(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle()
        ending = a_namespace(SHOP)
        world.cluster.put(ending | {"metadata": {"name": SHOP, "deletionTimestamp": "2026-01-05T09:00:00Z"}})
        await world.settle(60)
    assert not world.cluster.has("namespaces", SHOP)
    assert world.object_names("serviceaccounts") == []


async def test_pods_run_as_the_default_account_unless_they_say_otherwise(world: ControllerCluster) -> None:
    robots = a_pod("robots")
    robots["spec"]["serviceAccountName"] = "robot"
    for pod in (a_pod("anyones"), robots):
        await world.client.create(PODS, pod, namespace="default")
    named = {
        item["metadata"]["name"]: (item["spec"]["serviceAccountName"], item["spec"]["serviceAccount"])
        for item in world.cluster.objects("pods")
    }
    assert named == {"anyones": ("default", "default"), "robots": ("robot", "robot")}
