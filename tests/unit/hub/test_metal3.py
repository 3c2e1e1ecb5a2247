"""Hosts under trouble: crashes at each write, copies that are old, others who write, a cluster without Metal3."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.hub.metal3 import Metal3
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE, Machine
from haulout.kinds.metal3 import HOSTS, REBOOT_OURS
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Metadata, Node, NodeSpec
from haulout.kube.resources import DEFINITIONS
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, Write
from haulout_sandbox.cluster import Cluster
from support.bare_metal import FOREIGN, HOST, MACHINES, Yard, a_definition, a_host, a_machine, a_yard, operating
from support.crashes import Stage, survives_crashes
from support.interposed import Interposed

SPACE = "metal3"
MINUTE = timedelta(minutes=1)
APPROVED = {ENABLED: "true", MAINTENANCE: "approved"}
CORDONED = Node(metadata=Metadata(name="n1"), spec=NodeSpec(unschedulable=True))
LEFT = {"annotations": {REBOOT_OURS: "", FOREIGN: ""}}


def a_client(api: ApiServer, clock: Clock) -> Client:
    return Client(api.transport(), clock=clock, random=Random(1))


async def yard_of(clock: Clock) -> tuple[ApiServer, Yard]:
    api = ApiServer(clock, namespaces=[SPACE])
    return api, await a_yard(a_client(api, clock), SPACE)


def writes(history: Sequence[Write]) -> list[tuple[str, dict[str, str]]]:
    """Return what was done to hosts after they were made."""
    done = [it for it in history if it.kind.plural == HOSTS.plural and it.before is not None and it.after is not None]
    return [(it.key, (it.after or {})["metadata"].get("annotations", {})) for it in done]


# Crashes


async def story(stage: Stage) -> None:
    """Power a host off and on, lose a Machine while it is off, and find one that was left behind."""
    cluster = Cluster(stage.clock, api=ApiServer(stage.clock, random=Random(1), namespaces=[SPACE]), events=False)
    async with cluster.running():
        yard = await a_yard(cluster.client("admin"), SPACE)
        await yard.cordon()
        await yard.put(a_host(), a_host("u13"), a_host("left", meta=LEFT), a_machine(), a_machine("m2", host="u13"))
        stage.begin(cluster)
        for machine in ("m1", "m2"):
            await yard.approve(machine)
        await yard.eventually(lambda: yard.annotations("left"), becomes={FOREIGN: ""})
        await yard.eventually(yard.is_off)
        await yard.eventually(lambda: yard.is_off("u13"))
        await yard.label(None)
        await yard.delete("m2")
        await yard.eventually(yard.is_off, becomes=False)
        await yard.eventually(lambda: yard.is_off("u13"), becomes=False)
        await yard.clock.sleep(MINUTE)


def ends(history: Sequence[Write]) -> Any:
    """Return how each host came to its end: the annotations that it had, one after the other."""
    found: dict[str, list[dict[str, str]]] = {}
    for key, annotations in writes(history):
        found.setdefault(key, []).append(annotations)
    return found


def test_whoever_takes_over_after_a_crash_at_any_write_comes_to_the_same_end() -> None:
    assert survives_crashes(story, operator=operating(), compare=ends, inward=True) == 5


# Copies that are old


@asynccontextmanager
async def with_an_old_copy(yard: Yard) -> AsyncIterator[None]:
    """Have somebody see to hosts who hears nothing more of Machines."""
    client = yard.client
    machines: Cache[Machine] = Cache(client, Selection(MACHINES), row=as_is)
    events = EventRecorder(client, instance="test")
    async with asyncio.TaskGroup() as group:
        following = group.create_task(machines.run())
        await machines.wait_synced()
        following.cancel()
        task = group.create_task(Metal3(client, machines, node_of=lambda _: CORDONED, events=events).run())
        try:
            yield
        finally:
            task.cancel()


@pytest.mark.parametrize("change", ["taken back", "opted out", "deleted", "elsewhere"])
async def test_who_believes_that_a_machine_is_approved_powers_nothing_off(clock: Clock, change: str) -> None:
    api, yard = await yard_of(clock)
    await yard.put(a_machine(labels=APPROVED))
    async with with_an_old_copy(yard):
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
        await yard.put(a_host())
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
async def test_who_does_not_know_that_a_machine_is_approved_powers_nothing_on(clock: Clock, *, is_known: bool) -> None:
    """Another hub has powered the host off, which leads, and this one has yet to notice."""
    api, yard = await yard_of(clock)
    if is_known:
        await yard.put(a_machine())
    async with with_an_old_copy(yard):
        await clock.sleep(MINUTE)
        if is_known:
            await yard.approve()
        else:
            await yard.put(a_machine(labels=APPROVED))
        await yard.put(a_host(meta=LEFT))
        await clock.sleep(5 * MINUTE)
        assert writes(api.history) == []


async def test_a_host_that_was_given_to_another_meanwhile_is_not_powered_off(clock: Clock) -> None:
    """The write rests on the version of the host that was judged."""
    api, yard = await yard_of(clock)
    await yard.put(a_host(used_by="m1"), a_machine(labels=APPROVED))
    await yard.cordon()
    passed = Interposed()

    def meddle(request: Request) -> bool:
        if request.method == "PATCH" and HOSTS.plural in request.path:
            host = api.get(HOSTS.plural, HOST, SPACE)
            if host["spec"]["consumerRef"]["name"] == "m1":
                consumer = host["spec"]["consumerRef"] | {"name": "m2"}
                api.put(host | {"spec": host["spec"] | {"consumerRef": consumer}})
        return False

    passed.give(500, when=meddle)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(passed.before(operating())(yard.client))
        await clock.sleep(5 * MINUTE)
        task.cancel()
    assert not await yard.is_off()
    assert [annotations for _, annotations in writes(api.history)] == [{}], "only the one who gave it away wrote"


# What is asked, and how often


async def test_nothing_is_written_that_is_there_already(clock: Clock) -> None:
    api, yard = await yard_of(clock)
    await yard.cordon()
    await yard.put(
        a_host(meta={"annotations": {REBOOT_OURS: '{"mode":"hard"}'}}),
        a_host("u13"),
        a_host("u14"),
        a_machine(labels=APPROVED),
        a_machine("m2", host="u13"),
        a_machine("m3", host="u14", labels={}),
    )
    async with yard.operated(yard.client):
        await clock.sleep(timedelta(hours=3))
        for machine in ("m1", "m2", "m3"):
            await yard.label("new", machine=machine, key="somebody")
        await clock.sleep(MINUTE)
    assert writes(api.history) == []
    assert await yard.annotations() == {REBOOT_OURS: '{"mode":"hard"}'}


async def test_a_host_that_comes_later_is_waited_for(clock: Clock) -> None:
    _, yard = await yard_of(clock)
    await yard.cordon()
    await yard.put(a_machine(labels=APPROVED))
    async with yard.operated(yard.client):
        note = "BareMetalHost metal3/rack7-u12 is not powered off yet: it does not exist"
        await yard.eventually(yard.told, becomes=[note])
        await clock.sleep(10 * MINUTE)
        assert await yard.told() == [note], "it is told once"
        await yard.put(a_host())
        await yard.eventually(yard.is_off)


async def test_without_metal3_it_waits_for_that_and_follows_no_host(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    api = ApiServer(clock, namespaces=[SPACE])
    client = a_client(api, clock)
    await client.create(DEFINITIONS, a_definition(MACHINES))
    passed = Interposed()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(passed.before(operating())(client))
        await clock.sleep(timedelta(minutes=20))
        asked = [it.path for it in passed.asked if "metal3.io" in it.path]
        assert set(asked) == {"/apis/metal3.io/v1alpha1"}
        assert len(asked) < 15
        said = [it.message for it in caplog.records if "Metal3" in it.message]
        assert said == ["Metal3 is not installed in this cluster: there are no baremetalhosts.metal3.io; asking again"]
        yard = await a_yard(client, SPACE)
        await yard.cordon()
        await yard.put(a_host(), a_machine(labels=APPROVED))
        await yard.eventually(yard.is_off, within=timedelta(minutes=10))
        task.cancel()
