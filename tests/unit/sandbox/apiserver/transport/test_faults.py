"""The list of named faults: each is felt, each ends, and a good operator outlives them all."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from haulout.api.objects import RawObject
from haulout.api.resources import NODES, PODS, Resource
from haulout.core.clock import Clock
from haulout.errors import Expired, KubeError, Unreachable
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.builders.objects import a_node
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.clusters.process import Process
from support.fakes.labeller import DONE_LABEL, crash_safe_labeller
from support.faults.named_faults import FAULTS, Fault, fault_mixture, inject_fault
from support.faults.strategies import any_fault
from support.invariants import ForeignMetadataUntouched

OURS = ForeignMetadataUntouched(operator={"operator", "operator-2"}, ours=("example.com/*",))


class Probe:
    """A program that reads, writes and watches, and remembers all that it meets."""

    def __init__(self) -> None:
        self.observed: list[tuple[Any, ...]] = []

    async def run(self, client: Client) -> None:
        """Do so for ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource in (NODES.with_model(RawObject), PODS.with_model(RawObject)):
                tasks.create_task(self._watch(client, resource))
            tasks.create_task(self._write(client))

    async def _write(self, client: Client) -> None:
        for number in range(10_000):
            try:
                nodes = await client.list(NODES.with_model(RawObject))
                self._record(client, "listed", nodes.metadata.resource_version)
                patch = {"metadata": {"annotations": {"example.com/probe": str(number)}}}
                await client.patch(NODES, "n1", merge_patch(patch))
                self._record(client, "written", number)
            except KubeError as error:
                self._record(client, "refused", type(error).__name__)
            await client.clock.sleep(timedelta(seconds=4))

    async def _watch(self, client: Client, resource: Resource[RawObject]) -> None:
        version = ""
        while True:
            try:
                async with client.watch(resource, initial_list=not version, resource_version=version) as events:
                    async for event in events:
                        obj = getattr(event, "object", None)
                        version = obj["metadata"]["resourceVersion"] if isinstance(obj, dict) else version
                        self._record(client, str(resource), version)
            except KubeError as error:
                version = "" if isinstance(error, Expired) else version
                self._record(client, str(resource), type(error).__name__)
                await client.clock.sleep(timedelta(seconds=1))

    def _record(self, client: Client, *what: Any) -> None:
        self.observed.append((client.clock.now(), *what))


async def run_probe(fault: Fault | None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return what a probe met and what happened, with a fault or without."""
    probe = Probe()
    plan = a_cluster(VirtualClock()).with_nodes(1).with_deployment("shop/cart", replicas=1)
    async with plan.on_the_sandbox() as cluster, asyncio.TaskGroup() as tasks:
        cluster.run(probe.run)
        await cluster.pass_time(seconds=5)
        if fault is not None:
            tasks.create_task(cluster.inject_fault(fault))
        await cluster.pass_time(seconds=1)
        await cluster.restart_rollout("shop/cart")
        await cluster.pass_time(seconds=70)
    return probe.observed, [(write.written_at, write.username, write.path) for write in cluster.history]


@pytest.fixture(scope="module")
def without_fault() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return run_virtual(run_probe(None))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_each_fault_is_felt(fault: Fault, without_fault: Any) -> None:
    assert run_virtual(run_probe(fault)) != without_fault


async def assert_survives(clock: Clock, fault: Fault) -> None:
    """Let a good operator suffer a fault, with work to do all the while."""
    async with a_cluster(clock).with_nodes(1).with_invariants(OURS).on_the_sandbox() as cluster:
        cluster.run(crash_safe_labeller)

        async def more_work() -> None:
            for number in range(5):
                await cluster.create(a_node(f"later-{number}"))
                await cluster.pass_time(seconds=10)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(more_work())
            tasks.create_task(cluster.inject_fault(fault))
        await cluster.eventually(lambda: skipped_nodes(cluster), becomes=[], within=timedelta(minutes=2))
        assert len(cluster.by_key("nodes")) == 6


def skipped_nodes(cluster: SandboxCluster) -> list[str]:
    nodes = cluster.by_key("nodes").items()
    return [name for name, node in nodes if DONE_LABEL not in node["metadata"].get("labels", {})]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_good_operator_outlives_each_fault(clock: Clock, fault: Fault) -> None:
    await assert_survives(clock, fault)


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(fault=any_fault())
def test_a_good_operator_outlives_any_mixture(fault: Fault) -> None:
    run_virtual(assert_survives(VirtualClock(), fault))


def test_a_mixture_is_the_same_for_the_same_seed() -> None:
    assert str(fault_mixture(7)) == str(fault_mixture(7))
    assert len({str(fault_mixture(seed)) for seed in range(20)}) == 20


async def test_a_clock_that_the_cluster_shares_cannot_jump(clock: Clock) -> None:
    (jump, *_) = (fault for fault in FAULTS if "clock" in fault.name)
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        process = Process(cluster.cluster, "operator", crash_safe_labeller)
        process.start()
        with pytest.raises(TypeError, match="give it a VirtualClock of its own"):
            await inject_fault(process, jump, random=Random(1))


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
        assert "operator" not in {write.username for write in cluster.history}
        process.start()
        with pytest.raises(RuntimeError, match="operator is running already"):
            process.start()
        assert process.start_count == 2


async def test_the_faults_of_a_process_outlast_its_restart(clock: Clock) -> None:
    async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
        process = cluster.run(crash_safe_labeller)
        rule = process.transport.faults.fail_before_effect(response=500, times=None)
        process.restart()
        await cluster.pass_time(seconds=30)
        assert rule.hits > 1
        process.transport.faults.remove(rule)
        await cluster.eventually(lambda: DONE_LABEL in cluster.get("nodes", "n1")["metadata"]["labels"])


async def test_a_process_that_fails_fails_its_cluster(clock: Clock) -> None:
    async def broken(client: Client) -> None:
        await client.clock.sleep(timedelta(seconds=1))
        raise LookupError("a bug")

    async def story() -> None:
        async with a_cluster(clock).with_nodes(1).on_the_sandbox() as cluster:
            cluster.run(broken)
            await cluster.pass_time(minutes=1)

    with pytest.raises(ExceptionGroup) as raised:
        await story()
    assert raised.group_contains(LookupError, match="a bug")


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
        tasks.create_task(server.restart(downtime=timedelta(seconds=5)))
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


async def test_reads_can_be_as_stale_as_a_fault_requires(clock: Clock) -> None:
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
    transport.faults.expire_watch(skip=1)
    server.put(a_node("n1"))
    received = []

    async def watch() -> None:
        async with client.watch(NODES, initial_list=True) as events:
            async for event in events:
                received.append(event)  # noqa: PERF401 - what came before the error counts

    await expecting(Expired, watch())
    assert len(received) == 1
