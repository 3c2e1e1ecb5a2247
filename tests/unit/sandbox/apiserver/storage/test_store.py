"""What the store promises: values that nobody changes, kept once, and for as long as somebody may ask for them."""

import asyncio
import copy
from datetime import timedelta

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.storage.stored_object import StoredObject
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.controllers.objects import DEPLOYMENTS
from haulout_sandbox.nodes import Machine
from support.apiserver.requests import (
    CONFIG_MAPS,
    NODES,
    PODS,
    a_config_map,
    a_node,
    a_pod,
    event_names,
    merge,
    patch,
    request_json,
    watch,
)
from support.builders.objects import SHOP, a_pdb, a_workload

WINDOW = 10


@pytest.fixture
def without_history(clock: Clock) -> ApiServer:
    """Return a server that keeps no more than it must."""
    return ApiServer(clock, window=WINDOW, keep_history=False, namespaces=["shop"])


# Values


@pytest.mark.parametrize("latency", [timedelta(), timedelta(milliseconds=1)])
async def test_nothing_that_was_stored_is_ever_changed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, latency: timedelta
) -> None:
    """Whatever the controllers do: the JSON of each state at the end is what it was when it was written."""
    encoded: list[bytes] = []
    write = Store.write

    def record(self: Store, *args: object, **kwargs: object) -> JsonObject:
        result = write(self, *args, **kwargs)  # type: ignore[arg-type]  # whatever it is, it is passed on
        encoded.append(msgspec.json.encode(self.history[-1].after))
        return result

    monkeypatch.setattr(Store, "write", record)
    cluster = Cluster(clock, seed=3, latency=latency)
    for number in range(3):
        cluster.kubelets.add(Machine(name=f"n{number}", zone=f"z{number}"))
    async with cluster.running():
        for kind in ("Deployment", "StatefulSet"):
            cluster.api.put(a_workload(kind, f"shop/{kind.lower()}", replicas=3))
        cluster.api.put(a_workload("DaemonSet", "shop/daemonset"))
        cluster.api.put(a_pdb("shop/deployment", minAvailable=1))
        await clock.sleep(timedelta(minutes=2))
        await cluster.client("people").evict(_a_name(cluster), namespace=SHOP)
        cluster.kubelets.reboot("n1", timedelta(minutes=1))
        await cluster.client("people").delete(DEPLOYMENTS, "deployment", namespace=SHOP)
        await clock.sleep(timedelta(minutes=5))
    assert len(encoded) > 200
    assert encoded == [msgspec.json.encode(written.after) for written in cluster.api.history]


def _a_name(cluster: Cluster) -> str:
    pods = cluster.api.objects("pods", labels="app=deployment")
    name: str = pods[0]["metadata"]["name"]
    return name


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, dict, StoredObject.copy])
def test_a_copy_of_what_is_stored_may_be_changed(duplicate: object) -> None:
    stored = StoredObject({"metadata": {"name": "a"}})
    assert stored.json == b'{"metadata":{"name":"a"}}'
    copied = duplicate(stored)  # type: ignore[operator]  # all of them are functions
    copied["spec"] = {}
    assert type(copied) is dict
    assert msgspec.json.encode(copied) == b'{"metadata":{"name":"a"},"spec":{}}'
    assert stored.json == msgspec.json.encode(stored) == b'{"metadata":{"name":"a"}}'


def test_parts_of_a_deep_copy_may_be_changed() -> None:
    stored = StoredObject({"metadata": {"labels": {"app": "cart"}}})
    copy.deepcopy(stored)["metadata"]["labels"]["app"] = "till"
    assert stored == {"metadata": {"labels": {"app": "cart"}}}


async def test_replicas_share_what_they_have_in_common(cluster: ApiServer, api: InProcessTransport) -> None:
    for name in ("a", "b"):
        await request_json(api, "POST", PODS, a_pod(name))
    one, other = (cluster.objects_by_key("pods")[f"{SHOP}/{name}"] for name in ("a", "b"))
    assert one["spec"]["containers"] is other["spec"]["containers"]
    await patch(api, f"{PODS}/a", {"op": "replace", "path": "/spec/containers/0/image", "value": "example/other"})
    one, other = (cluster.objects_by_key("pods")[f"{SHOP}/{name}"] for name in ("a", "b"))
    assert one["spec"]["containers"][0]["image"] != other["spec"]["containers"][0]["image"]


async def test_a_status_shares_its_spec_with_the_state_before(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    await merge(api, f"{PODS}/cart-0/status", status={"message": "slow"}, spec={"nodeName": "elsewhere"})
    before, after = cluster.history[-1].before, cluster.history[-1].after
    assert before is not None
    assert after is not None
    assert before["spec"] is after["spec"]
    assert "message" not in before["status"]


async def test_a_null_inside_a_patched_list_is_not_kept(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    condition = {"type": "Odd", "status": "True", "message": None}
    await merge(api, f"{PODS}/cart-0/status", status={"conditions": [condition]})
    assert cluster.get("pods", "cart-0", SHOP)["status"]["conditions"] == [{"type": "Odd", "status": "True"}]


# What is forgotten


async def test_a_server_that_keeps_no_history_takes_no_more_and_more_memory(without_history: ApiServer) -> None:
    api = without_history.transport()
    for number in range(100):
        await request_json(api, "POST", CONFIG_MAPS, a_config_map(f"m{number}"))
    assert WINDOW <= len(without_history.history) <= 2 * WINDOW
    assert api.requests == []
    _, listed = await request_json(api, "GET", CONFIG_MAPS)
    assert len(listed["items"]) == 100


async def test_what_clients_may_ask_for_is_never_forgotten(without_history: ApiServer) -> None:
    api = without_history.transport()
    for number in range(100):
        without_history.put(a_config_map("m", count=str(number)))
        oldest = max(100, without_history.revision - WINDOW)
        events = await watch(api, CONFIG_MAPS, resourceVersion=str(oldest))
        assert len(events) == min(number + 1, WINDOW)
    ((kind, status),) = await watch(api, CONFIG_MAPS, resourceVersion=str(oldest - 1))
    assert (kind, status["code"]) == ("ERROR", 410)


async def test_a_watch_of_what_is_rarely_written_outlives_all_that_is_forgotten(
    without_history: ApiServer, clock: Clock
) -> None:
    api = without_history.transport()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(
            watch(api, CONFIG_MAPS, timeoutSeconds="10", resourceVersion=str(without_history.revision))
        )
        await clock.sleep(timedelta(seconds=1))
        for _ in range(100):
            without_history.put(a_node())
        await clock.sleep(timedelta(seconds=1))
        without_history.put(a_config_map("m"))
    assert event_names(watching.result()) == [("ADDED", "m")]


async def test_a_blocked_watch_whose_writes_were_compacted_gets_410(without_history: ApiServer, clock: Clock) -> None:
    api = without_history.transport()
    query = (("watch", "1"), ("resourceVersion", str(without_history.revision)))
    async with api.stream(Request(method="GET", path=NODES, query=query)) as stream:
        api.silence()
        for _ in range(100):
            without_history.put(a_node())
        await clock.sleep(timedelta(seconds=1))
        api.mend()
        lines = [msgspec.json.decode(line) async for line in stream.lines()]
    assert [(line["type"], line["object"]["code"]) for line in lines] == [("ERROR", 410)]
