"""Events are accepted by the server and read well."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.api.objects import RawObject
from haulout.api.resources import EVENTS, NODES, PODS
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder, object_reference
from support.builders.objects import a_node, a_pod
from support.clusters.backends import ClusterBackend
from support.expectations.eventually import eventually


@asynccontextmanager
async def running_recorder(client: Client) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, instance="test-1")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(recorder.run())
        yield recorder
        running.cancel()


async def events_about(client: Client, uid: str, *, namespace: str) -> list[RawObject]:
    listed = await client.list(EVENTS, namespace=namespace)
    return [event for event in listed.items if event["regarding"].get("uid") == uid]


async def test_event_names_its_object_reason_and_related_object(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pod = await client.create(PODS, a_pod("p1"), namespace=cluster.namespace)
    node = await client.create(NODES, a_node(f"{cluster.prefix}-n1"))
    async with running_recorder(client) as recorder:
        recorder.event(
            object_reference(PODS, pod), reason="Evicting", action="Evict", note="leaving n1 for maintenance",
            related=object_reference(NODES, node),
        )  # fmt: skip
        recorder.event(
            object_reference(NODES, node), type="Warning", reason="DrainStuck", action="Drain", note="x" * 5000
        )

        async def are_events_listed() -> bool:
            about_pod = await events_about(client, pod.uid, namespace=cluster.namespace)
            return bool(about_pod and await events_about(client, node.uid, namespace="default"))

        await eventually(cluster.clock, are_events_listed)
    (about_pod,) = await events_about(client, pod.uid, namespace=cluster.namespace)
    assert (about_pod["reason"], about_pod["type"], about_pod["note"]) == (
        "Evicting",
        "Normal",
        "leaving n1 for maintenance",
    )
    assert about_pod["related"]["name"] == node.name
    (about_node,) = await events_about(client, node.uid, namespace="default")
    assert about_node["type"] == "Warning"
    assert len(about_node["note"].encode()) <= 1024


async def test_repeated_event_is_counted_in_a_series(cluster: ClusterBackend) -> None:
    client = await cluster.client()
    pod = await client.create(PODS, a_pod("p1"), namespace=cluster.namespace)
    async with running_recorder(client) as recorder:
        for _ in range(5):
            recorder.event(object_reference(PODS, pod), reason="Waiting", action="Evict", note="for its budget")
            await cluster.clock.sleep(timedelta(milliseconds=100))
        await recorder.flush(within=timedelta(seconds=20))
    (event,) = await events_about(client, pod.uid, namespace=cluster.namespace)
    assert event["series"]["count"] == 5
