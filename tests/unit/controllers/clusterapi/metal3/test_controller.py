"""Hosts under trouble: crashes at each write, copies that are old, others who write, a cluster without Metal3."""

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


async def yard_of(clock: Clock) -> tuple[ApiServer, BareMetalCluster]:
    api = ApiServer(clock, namespaces=[SPACE])
    return api, await a_bare_metal_cluster(a_client(api, clock), SPACE)


def writes(history: Sequence[Write]) -> list[tuple[str, dict[str, str]]]:
    """Return what was done to hosts after they were made."""
    done = [
        write
        for write in history
        if write.kind.plural == BARE_METAL_HOSTS.plural and write.before is not None and write.after is not None
    ]
    return [(write.key, (write.after or {})["metadata"].get("annotations", {})) for write in done]


# Crashes


async def story(stage: CrashRun) -> None:
    """Power a host off and on, lose a Machine while it is off, and find one that was left behind."""
    cluster = Cluster(stage.clock, api=ApiServer(stage.clock, random=Random(1), namespaces=[SPACE]), events=False)
    async with cluster.running():
        yard = await a_bare_metal_cluster(cluster.client("admin"), SPACE)
        await yard.cordon()
        await yard.create(
            a_host(), a_host("u13"), a_host("left", meta=ABANDONED), a_machine(), a_machine("m2", host="u13")
        )
        stage.start_operator(cluster)
        for machine in ("m1", "m2"):
            await yard.approve(machine)
        await yard.eventually(lambda: yard.annotations("left"), becomes={FOREIGN_REBOOT: ""})
        await yard.eventually(yard.is_powered_off)
        await yard.eventually(lambda: yard.is_powered_off("u13"))
        await yard.label(None)
        await yard.delete("m2")
        await yard.eventually(yard.is_powered_off, becomes=False)
        await yard.eventually(lambda: yard.is_powered_off("u13"), becomes=False)
        await yard.clock.sleep(MINUTE)


def ends(history: Sequence[Write]) -> Any:
    """Return how each host came to its end: the annotations that it had, one after the other."""
    found: dict[str, list[dict[str, str]]] = {}
    for key, annotations in writes(history):
        found.setdefault(key, []).append(annotations)
    return found


def test_whoever_takes_over_after_a_crash_at_any_write_comes_to_the_same_end() -> None:
    assert assert_survives_crashes(story, operator=metal3_controller(), compare=ends, writes_only_to_api=True) == 5


# Copies that are old


@asynccontextmanager
async def stale_controller(yard: BareMetalCluster) -> AsyncIterator[None]:
    """Have somebody see to hosts who hears nothing more of Machines."""
    client = yard.client
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
async def test_who_believes_that_a_machine_is_approved_powers_nothing_off(clock: Clock, change: str) -> None:
    api, yard = await yard_of(clock)
    await yard.create(a_machine(labels=APPROVED))
    async with stale_controller(yard):
        await clock.sleep(MINUTE)
        match change:
            case "taken back":
                await yard.label(None)
            case "opted out":
                await yard.label(None, key=ENABLED)
            case "deleted":
                await yard.delete()
            case _:
                await yard.change(MACHINES, "m1", spec={"providerID": f"metal3://{SPACE}/other/m1"})
        await yard.create(a_host())
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_who_does_not_know_that_a_machine_is_approved_powers_nothing_on(clock: Clock, *, is_known: bool) -> None:
    """Another hub has powered the host off, which leads, and this one has yet to notice."""
    api, yard = await yard_of(clock)
    if is_known:
        await yard.create(a_machine())
    async with stale_controller(yard):
        await clock.sleep(MINUTE)
        if is_known:
            await yard.approve()
        else:
            await yard.create(a_machine(labels=APPROVED))
        await yard.create(a_host(meta=ABANDONED))
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


async def test_a_host_that_was_given_to_another_meanwhile_is_not_powered_off(clock: Clock) -> None:
    """The write rests on the version of the host that was judged."""
    api, yard = await yard_of(clock)
    await yard.create(a_host(used_by="m1"), a_machine(labels=APPROVED))
    await yard.cordon()
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
        task = group.create_task(passed.wrap_program(metal3_controller())(yard.client))
        await clock.sleep(5 * MINUTE)
        task.cancel()
    assert not await yard.is_powered_off()
    assert [annotations for _, annotations in writes(api.history)] == [{}], "only the one who gave it away wrote"


# What is asked, and how often


async def test_nothing_is_written_that_is_there_already(clock: Clock) -> None:
    api, yard = await yard_of(clock)
    await yard.cordon()
    await yard.create(
        a_host(meta={"annotations": {OUR_REBOOT_ANNOTATION: '{"mode":"hard"}'}}),
        a_host("u13"),
        a_host("u14"),
        a_machine(labels=APPROVED),
        a_machine("m2", host="u13"),
        a_machine("m3", host="u14", labels={}),
    )
    async with yard.running_controller(yard.client):
        await clock.sleep(timedelta(hours=3))
        for machine in ("m1", "m2", "m3"):
            await yard.label("new", machine=machine, key="somebody")
        await clock.sleep(MINUTE)
    assert writes(api.history) == []
    assert await yard.annotations() == {OUR_REBOOT_ANNOTATION: '{"mode":"hard"}'}


async def test_a_host_that_comes_later_is_waited_for(clock: Clock) -> None:
    _, yard = await yard_of(clock)
    await yard.cordon()
    await yard.create(a_machine(labels=APPROVED))
    async with yard.running_controller(yard.client):
        note = "BareMetalHost metal3/rack7-u12 is not powered off yet: it does not exist"
        await yard.eventually(yard.event_notes, becomes=[note])
        await clock.sleep(10 * MINUTE)
        assert await yard.event_notes() == [note], "it is told once"
        await yard.create(a_host())
        await yard.eventually(yard.is_powered_off)


async def test_without_metal3_it_waits_for_that_and_follows_no_host(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer(clock, namespaces=[SPACE])
    client = a_client(api, clock)
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(MACHINES))
    passed = ResponseInjector()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(passed.wrap_program(metal3_controller())(client))
        await clock.sleep(timedelta(minutes=20))
        asked = [item.path for item in passed.requests if "metal3.io" in item.path]
        assert set(asked) == {"/apis/metal3.io/v1alpha1"}
        assert len(asked) < 15
        messages = [item.message for item in caplog.records if "Metal3" in item.message]
        assert messages == ["Metal3 is not installed in this cluster: there are no baremetalhosts.metal3.io; retrying"]
        yard = await a_bare_metal_cluster(client, SPACE)
        await yard.cordon()
        await yard.create(a_host(), a_machine(labels=APPROVED))
        await yard.eventually(yard.is_powered_off, within=timedelta(minutes=10))
        task.cancel()
