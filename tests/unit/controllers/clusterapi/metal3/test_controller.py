"""The Metal3 controller with crashes at each write, stale caches, concurrent writers and without Metal3."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.clusterapi import BARE_METAL_HOSTS, ENABLED, MAINTENANCE, OUR_REBOOT_ANNOTATION, Machine
from haulout.api.objects import Node, NodeSpec, ObjectMeta
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.controllers.clusterapi.metal3 import Metal3Controller
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, Write
from haulout_sandbox.cluster import Cluster
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.faults.injected_responses import ResponseInjector
from support.platforms.metal3 import (
    FOREIGN_REBOOT,
    HOST,
    MACHINES,
    BareMetalCluster,
    a_bare_metal_cluster,
    a_crd,
    a_host,
    a_machine,
    metal3_controller,
)

SPACE = "metal3"
MINUTE = timedelta(minutes=1)
APPROVED = {ENABLED: "true", MAINTENANCE: "approved"}
CORDONED = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(unschedulable=True))
ABANDONED = {"annotations": {OUR_REBOOT_ANNOTATION: "", FOREIGN_REBOOT: ""}}


def a_client(api: ApiServer, clock: Clock) -> Client:
    return Client(api.transport(), clock=clock, random=Random(1))


async def bare_metal_cluster_of(clock: Clock) -> tuple[ApiServer, BareMetalCluster]:
    api = ApiServer(clock, namespaces=[SPACE])
    return api, await a_bare_metal_cluster(a_client(api, clock), SPACE)


def writes(history: Sequence[Write]) -> list[tuple[str, dict[str, str]]]:
    """Return the writes to hosts after their creation, with the annotations."""
    done = [
        write
        for write in history
        if write.kind.plural == BARE_METAL_HOSTS.plural and write.before is not None and write.after is not None
    ]
    return [(write.key, (write.after or {})["metadata"].get("annotations", {})) for write in done]


# Crashes


async def story(run: CrashRun) -> None:
    """Power a host off and on, delete a Machine while its host is off, and release an abandoned host."""
    cluster = Cluster(run.clock, api=ApiServer(run.clock, random=Random(1), namespaces=[SPACE]), events=False)
    async with cluster.running():
        bare_metal = await a_bare_metal_cluster(cluster.client("admin"), SPACE)
        await bare_metal.cordon()
        await bare_metal.create(
            a_host(), a_host("u13"), a_host("left", meta=ABANDONED), a_machine(), a_machine("m2", host="u13")
        )
        run.start_operator(cluster)
        for machine in ("m1", "m2"):
            await bare_metal.approve(machine)
        await bare_metal.eventually(lambda: bare_metal.annotations("left"), becomes={FOREIGN_REBOOT: ""})
        await bare_metal.eventually(bare_metal.is_powered_off)
        await bare_metal.eventually(lambda: bare_metal.is_powered_off("u13"))
        await bare_metal.label(None)
        await bare_metal.delete("m2")
        await bare_metal.eventually(bare_metal.is_powered_off, becomes=False)
        await bare_metal.eventually(lambda: bare_metal.is_powered_off("u13"), becomes=False)
        await bare_metal.clock.sleep(MINUTE)


def ends(history: Sequence[Write]) -> Any:
    """Return the sequence of annotations of each host."""
    found: dict[str, list[dict[str, str]]] = {}
    for key, annotations in writes(history):
        found.setdefault(key, []).append(annotations)
    return found


def test_successor_after_a_crash_at_any_write_reaches_the_same_end() -> None:
    assert assert_survives_crashes(story, operator=metal3_controller(), compare=ends, writes_only_to_api=True) == 5


# Stale caches


@asynccontextmanager
async def stale_controller(bare_metal: BareMetalCluster) -> AsyncIterator[None]:
    """Run a controller whose Machine informer has stopped."""
    client = bare_metal.client
    machines: Informer[Machine] = Informer(client, ListWatch(MACHINES), transform=as_is)
    events = EventRecorder(client, instance="test")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(machines.run())
        await machines.wait_synced()
        following.cancel()
        task = group.create_task(Metal3Controller(client, machines, node_of=lambda _: CORDONED, events=events).run())
        try:
            yield
        finally:
            task.cancel()


@pytest.mark.parametrize("change", ["taken back", "opted out", "deleted", "elsewhere"])
async def test_controller_with_a_stale_approved_machine_powers_off_no_host(clock: Clock, change: str) -> None:
    api, bare_metal = await bare_metal_cluster_of(clock)
    await bare_metal.create(a_machine(labels=APPROVED))
    async with stale_controller(bare_metal):
        await clock.sleep(MINUTE)
        match change:
            case "taken back":
                await bare_metal.label(None)
            case "opted out":
                await bare_metal.label(None, key=ENABLED)
            case "deleted":
                await bare_metal.delete()
            case _:
                await bare_metal.change(MACHINES, "m1", spec={"providerID": f"metal3://{SPACE}/other/m1"})
        await bare_metal.create(a_host())
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_controller_with_a_stale_unapproved_machine_powers_on_no_host(clock: Clock, *, is_known: bool) -> None:
    """The leading hub has powered the host off, and this hub has a stale cache."""
    api, bare_metal = await bare_metal_cluster_of(clock)
    if is_known:
        await bare_metal.create(a_machine())
    async with stale_controller(bare_metal):
        await clock.sleep(MINUTE)
        if is_known:
            await bare_metal.approve()
        else:
            await bare_metal.create(a_machine(labels=APPROVED))
        await bare_metal.create(a_host(meta=ABANDONED))
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


async def test_host_reassigned_meanwhile_is_not_powered_off(clock: Clock) -> None:
    """The patch requires the host version that the decision was made from."""
    api, bare_metal = await bare_metal_cluster_of(clock)
    await bare_metal.create(a_host(used_by="m1"), a_machine(labels=APPROVED))
    await bare_metal.cordon()
    passed = ResponseInjector()

    def meddle(request: Request) -> bool:
        if request.method == "PATCH" and BARE_METAL_HOSTS.plural in request.path:
            host = api.get(BARE_METAL_HOSTS.plural, HOST, SPACE)
            if host["spec"]["consumerRef"]["name"] == "m1":
                consumer = host["spec"]["consumerRef"] | {"name": "m2"}
                api.put(host | {"spec": host["spec"] | {"consumerRef": consumer}})
        return False

    passed.inject(500, matches=meddle)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(passed.wrap_program(metal3_controller())(bare_metal.client))
        await clock.sleep(5 * MINUTE)
        task.cancel()
    assert not await bare_metal.is_powered_off()
    assert [annotations for _, annotations in writes(api.history)] == [{}], "only the reassignment was written"


# Number of requests


async def test_unchanged_hosts_are_not_written(clock: Clock) -> None:
    api, bare_metal = await bare_metal_cluster_of(clock)
    await bare_metal.cordon()
    await bare_metal.create(
        a_host(meta={"annotations": {OUR_REBOOT_ANNOTATION: '{"mode":"hard"}'}}),
        a_host("u13"),
        a_host("u14"),
        a_machine(labels=APPROVED),
        a_machine("m2", host="u13"),
        a_machine("m3", host="u14", labels={}),
    )
    async with bare_metal.running_controller(bare_metal.client):
        await clock.sleep(timedelta(hours=3))
        for machine in ("m1", "m2", "m3"):
            await bare_metal.label("new", machine=machine, key="somebody")
        await clock.sleep(MINUTE)
    assert writes(api.history) == []
    assert await bare_metal.annotations() == {OUR_REBOOT_ANNOTATION: '{"mode":"hard"}'}


async def test_host_that_another_writer_powers_on_again_and_again_is_paused(clock: Clock) -> None:
    api, bare_metal = await bare_metal_cluster_of(clock)
    await bare_metal.cordon()
    await bare_metal.create(a_host(), a_machine(labels=APPROVED))

    async def oppose() -> None:
        while True:
            await bare_metal.eventually(bare_metal.is_powered_off)
            await bare_metal.change(BARE_METAL_HOSTS, HOST, metadata={"annotations": {OUR_REBOOT_ANNOTATION: None}})

    async with bare_metal.running_controller(bare_metal.client), asyncio.TaskGroup() as group:
        task = group.create_task(oppose())
        await clock.sleep(2 * MINUTE)
        task.cancel()
    powered_off = [annotations for _, annotations in writes(api.history) if annotations]
    assert 20 < len(powered_off) < 200, "30 changes in 30 seconds at most"


async def test_missing_host_is_awaited_and_reported_once(clock: Clock) -> None:
    _, bare_metal = await bare_metal_cluster_of(clock)
    await bare_metal.cordon()
    await bare_metal.create(a_machine(labels=APPROVED))
    async with bare_metal.running_controller(bare_metal.client):
        note = "BareMetalHost metal3/rack7-u12 is not powered off yet: it does not exist"
        await bare_metal.eventually(bare_metal.event_notes, becomes=[note])
        await clock.sleep(10 * MINUTE)
        assert await bare_metal.event_notes() == [note], "it is reported once"
        await bare_metal.create(a_host())
        await bare_metal.eventually(bare_metal.is_powered_off)


async def test_controller_waits_for_the_metal3_crd_and_watches_no_hosts(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer(clock, namespaces=[SPACE])
    client = a_client(api, clock)
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(MACHINES))
    passed = ResponseInjector()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(passed.wrap_program(metal3_controller())(client))
        await clock.sleep(timedelta(minutes=20))
        requested = [item.path for item in passed.requests if "metal3.io" in item.path]
        assert set(requested) == {"/apis/metal3.io/v1alpha1"}
        assert len(requested) < 15
        messages = [item.message for item in caplog.records if "Metal3" in item.message]
        assert messages == ["Metal3 is not installed in this cluster: there are no baremetalhosts.metal3.io; retrying"]
        bare_metal = await a_bare_metal_cluster(client, SPACE)
        await bare_metal.cordon()
        await bare_metal.create(a_host(), a_machine(labels=APPROVED))
        await bare_metal.eventually(bare_metal.is_powered_off, within=timedelta(minutes=10))
        task.cancel()
