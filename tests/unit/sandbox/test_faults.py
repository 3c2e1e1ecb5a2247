"""The list of named faults: each is felt, each ends, and a good operator outlives them all."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from haulout.core.clock import Clock
from haulout.errors import Expired, KubeError, Unreachable
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES, PODS, Resource
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.builders import a_node
from support.clusters import a_cluster
from support.faults import FAULTS, Fault, befall, mixture
from support.invariants import ForeignThingsUntouched
from support.labeller import DONE, careful
from support.live import SandboxCluster
from support.processes import Process
from support.strategies import faults

OURS = ForeignThingsUntouched(operator={"operator", "operator-2"}, ours=("example.com/*",))


class Probe:
    """A program that reads, writes and watches, and remembers all that it meets."""

    def __init__(self) -> None:
        self.met: list[tuple[Any, ...]] = []

    async def run(self, client: Client) -> None:
        """Do so for ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (NODES.of(RawObject), PODS.of(RawObject)):
                tasks.create_task(self._watch(client, resource))
            tasks.create_task(self._write(client))

    async def _write(self, client: Client) -> None:
        for number in range(10_000):
            try:
                nodes = await client.list(NODES.of(RawObject))
                self._meet(client, "listed", nodes.metadata.resource_version)
                mark = {"metadata": {"annotations": {"example.com/probe": str(number)}}}
                await client.patch(NODES, "n1", merge_patch(mark))
                self._meet(client, "written", number)
            except KubeError as error:
                self._meet(client, "refused", type(error).__name__)
            await client.clock.sleep(timedelta(seconds=4))

    async def _watch(self, client: Client, resource: Resource[RawObject]) -> None:
        version = ""
        while True:
            try:
                async with client.watch(resource, initial_list=not version, resource_version=version) as events:
                    async for event in events:
                        told = getattr(event, "object", None)
                        version = told["metadata"]["resourceVersion"] if isinstance(told, dict) else version
                        self._meet(client, str(resource), version)
            except KubeError as error:
                version = "" if isinstance(error, Expired) else version
                self._meet(client, str(resource), type(error).__name__)
                await client.clock.sleep(timedelta(seconds=1))

    def _meet(self, client: Client, *what: Any) -> None:
        self.met.append((client.clock.now(), *what))


async def a_probing(fault: Fault | None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return what a probe met and what happened, with a fault or without."""
    probe = Probe()
    plan = a_cluster(VirtualClock()).with_nodes(1).with_deployment("shop/cart", replicas=1)
    async with plan.on_the_sandbox() as cluster, asyncio.TaskGroup() as tasks:
        cluster.run(probe.run)
        await cluster.pass_time(seconds=5)
        if fault is not None:
            tasks.create_task(cluster.suffer(fault))
        await cluster.pass_time(seconds=1)
        await cluster.restart_rollout("shop/cart")
        await cluster.pass_time(seconds=70)
    return probe.met, [(write.at, write.who, write.path) for write in cluster.history]


@pytest.fixture(scope="module")
def calm() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return run_virtual(a_probing(None))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_is_felt(fault: Fault, calm: Any) -> None:
    assert run_virtual(a_probing(fault)) != calm


async def outlives(clock: Clock, fault: Fault) -> None:
    """Let a good operator suffer a fault, with work to do all the while."""
    async with a_cluster(clock).with_nodes(1).upholding(OURS).on_the_sandbox() as cluster:
        cluster.run(careful)

        async def more_work() -> None:
            for number in range(5):
                await cluster.create(a_node(f"later-{number}"))
                await cluster.pass_time(seconds=10)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(more_work())
            tasks.create_task(cluster.suffer(fault))
        await cluster.eventually(lambda: left_out(cluster), becomes=[], within=timedelta(minutes=2))
        assert len(cluster.all("nodes")) == 6


def left_out(cluster: SandboxCluster) -> list[str]:
    nodes = cluster.all("nodes").items()
    return [name for name, node in nodes if DONE not in node["metadata"].get("labels", {})]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_good_operator_outlives_each_fault(clock: Clock, fault: Fault) -> None:
    await outlives(clock, fault)


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(fault=faults())
def test_a_good_operator_outlives_any_mixture(fault: Fault) -> None:
    run_virtual(outlives(VirtualClock(), fault))


def test_a_mixture_is_the_same_for_the_same_seed() -> None:
    assert str(mixture(7)) == str(mixture(7))
    assert len({str(mixture(seed)) for seed in range(20)}) == 20


async def test_a_clock_that_the_cluster_shares_cannot_jump(clock: Clock) -> None:
    (jump, *_) = (fault for fault in FAULTS if "clock" in fault.name)
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        process = Process(cluster.cluster, "operator", careful)
        process.start()
        with pytest.raises(TypeError, match="give it a VirtualClock of its own"):
            await befall(process, jump, random=Random(1))


# Processes


async def test_a_process_that_is_killed_has_no_last_word_and_its_successor_works(clock: Clock) -> None:
    async def loud(client: Client) -> None:
        try:
            await client.clock.sleep(timedelta(hours=1))
        finally:
            await client.patch(NODES, "n1", merge_patch({"metadata": {"labels": {"last": "word"}}}))

    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        process = cluster.run(loud)
        await cluster.pass_time(minutes=1)
        process.kill()
        await cluster.pass_time(minutes=1)
        assert not process.is_running
        assert "operator" not in {write.who for write in cluster.history}
        process.start()
        with pytest.raises(RuntimeError, match="operator is running already"):
            process.start()
        assert process.lives == 2


async def test_the_faults_told_of_a_process_befall_its_next_life_too(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        process = cluster.run(careful)
        rule = process.transport.faults.before(answer=500, times=None)
        process.restart()
        await cluster.pass_time(seconds=30)
        assert rule.hits > 1
        process.transport.faults.lift(rule)
        await cluster.eventually(lambda: DONE in cluster.get("nodes", "n1")["metadata"]["labels"])


async def test_a_process_that_fails_fails_its_cluster(clock: Clock) -> None:
    async def broken(client: Client) -> None:
        await client.clock.sleep(timedelta(seconds=1))
        raise LookupError("a bug")

    async def story() -> None:
        async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
            cluster.run(broken)
            await cluster.pass_time(minutes=1)

    with pytest.raises(ExceptionGroup) as caught:
        await story()
    assert caught.group_contains(LookupError, match="a bug")


# What the server can suffer


async def test_a_server_that_restarts_breaks_connections_keeps_its_objects_and_forgets_events(clock: Clock) -> None:
    server = ApiServer(clock)
    client = Client(server.transport(), clock=clock, random=Random(1))
    old = server.put(a_node("n1"))["metadata"]["resourceVersion"]
    now = server.put(a_node("n2"))["metadata"]["resourceVersion"]

    async def watch(version: str) -> None:
        async with client.watch(NODES, resource_version=version) as events:
            async for _ in events:
                raise AssertionError("there is nothing to tell")

    async with asyncio.TaskGroup() as tasks:
        broken = tasks.create_task(expecting(Unreachable, watch(now)))
        await clock.sleep(timedelta(seconds=1))
        tasks.create_task(server.restart(lasting=timedelta(seconds=5)))
        await clock.sleep(timedelta(seconds=1))
        assert broken.done()
        await expecting(Unreachable, watch(now))
    assert [node.name for node in (await client.list(NODES)).items] == ["n1", "n2"]
    await expecting(Expired, watch(old))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await watch(now)


async def expecting(error: type[Exception], doing: Any) -> None:
    with pytest.raises(error):
        await doing


async def test_reads_can_be_as_old_as_is_said(clock: Clock) -> None:
    server = ApiServer(clock)
    transport = server.transport()
    client = Client(transport, clock=clock, random=Random(1))
    for name in ("n1", "n2", "n3"):
        server.put(a_node(name))
        await clock.sleep(timedelta(minutes=1))
    transport.faults.stale(timedelta(seconds=150), times=1)
    assert [node.name for node in (await client.list(NODES)).items] == ["n1"]
    transport.faults.stale(timedelta(hours=1), times=1)
    assert (await client.list(NODES)).items == ()
    assert len((await client.list(NODES)).items) == 3


async def test_an_object_created_again_under_its_name_is_another_with_the_same_content(clock: Clock) -> None:
    server = ApiServer(clock)
    old = server.put(a_node("n1").cordoned().labelled({"pool": "x"}))
    new = server.recreate("nodes", "n1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert (new["spec"], new["metadata"]["labels"]) == (old["spec"], {"pool": "x"})
    assert [write.type for write in server.history] == ["ADDED", "DELETED", "ADDED"]


async def test_a_watch_can_expire_in_the_middle(clock: Clock) -> None:
    server = ApiServer(clock)
    transport = server.transport()
    client = Client(transport, clock=clock, random=Random(1))
    transport.faults.expire(skip=1)
    server.put(a_node("n1"))
    seen = []

    async def watch() -> None:
        async with client.watch(NODES, initial_list=True) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - what came before the error counts

    await expecting(Expired, watch())
    assert len(seen) == 1
