"""Paused clusters, and `clusterctl move`, which deletes Machines whose nodes stay."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pytest

from haulout.api.clusterapi import DELETE_FOR_MOVE, MACHINE_DELETED, MACHINE_MAINTENANCE, PAUSED
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, SECRETS
from haulout.controllers.clusterapi.observation import DELETION_REQUEST, MAINTENANCE_REQUEST
from haulout.controllers.clusterapi.status import ConnectionState
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request, Response, Stream, Transport
from support.platforms.hub import HubClusters, WorkloadCluster

REQUESTS = {MACHINE_DELETED, MACHINE_MAINTENANCE}
REQUEST_ANNOTATIONS = {DELETION_REQUEST, MAINTENANCE_REQUEST}


@pytest.fixture
async def world(clock: Clock) -> HubClusters:
    return await HubClusters(clock).install_crds()


@pytest.fixture
async def prod(world: HubClusters) -> WorkloadCluster:
    return await world.add_cluster("team-a", "prod")


async def pause(world: HubClusters, side: WorkloadCluster, *, paused: bool = True) -> None:
    change = merge_patch({"spec": {"paused": paused}})
    await world.admin.patch(world.clusters, side.key.name, change, namespace=side.key.namespace)


async def delete_like_clusterctl_move(world: HubClusters, machine: str) -> None:
    """Delete a Machine as `clusterctl move` does: it takes the finalizers off, and leaves the node alone."""
    await world.patch_machine(machine, metadata={"finalizers": None})
    await world.delete_machine(machine)


def requests(world: HubClusters, side: WorkloadCluster, machine: str) -> set[str]:
    metadata = world.node_of(side, machine)["metadata"]
    return REQUESTS & set(metadata.get("labels", {})) | REQUEST_ANNOTATIONS & set(metadata.get("annotations", {}))


async def test_paused_cluster_gets_no_requests(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        leaving, asking = [await world.add_machine(prod, item) for item in ("m1", "m2")]
        await world.eventually(lambda: world.has_hook(leaving) and world.has_hook(asking))
        await pause(world, prod)
        await world.delete_machine(leaving)
        await world.label_machine(asking, maintenance="requested")
        await world.assert_stays(lambda: not requests(world, prod, leaving) and not requests(world, prod, asking))
        status = world.hub_status(prod)
        assert status is not None
        assert [item.reason for item in status.requests] == [
            "Cluster team-a/prod is paused: nothing is requested until it is resumed"
        ] * 2
        await pause(world, prod, paused=False)
        await world.eventually(
            lambda: world.is_marked_deleted(prod, leaving) and world.is_maintenance_requested(prod, asking), seconds=5
        )


async def test_cluster_paused_by_annotation_gets_no_requests(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        change = merge_patch({"metadata": {"annotations": {PAUSED: ""}}})
        await world.admin.patch(world.clusters, prod.key.name, change, namespace=prod.key.namespace)
        await world.delete_machine(machine)
        await world.assert_stays(lambda: not requests(world, prod, machine))


async def test_paused_machine_gets_no_requests(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.patch_machine(machine, metadata={"annotations": {PAUSED: ""}})
        await world.delete_machine(machine)
        await world.assert_stays(lambda: not requests(world, prod, machine))
        await world.patch_machine(machine, metadata={"annotations": {PAUSED: None}})
        await world.eventually(lambda: world.is_marked_deleted(prod, machine), seconds=5)


async def test_request_made_before_a_pause_is_kept(world: HubClusters, prod: WorkloadCluster) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await pause(world, prod)
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.assert_stays(
            lambda: world.is_maintenance_requested(prod, machine) and world.maintenance_label(machine) == "requested"
        )
        await pause(world, prod, paused=False)
        await world.eventually(lambda: world.maintenance_label(machine) == "approved", seconds=5)


async def test_clusterctl_move_changes_no_node(world: HubClusters, prod: WorkloadCluster) -> None:
    """`clusterctl move` annotates each Machine before it deletes its copy."""
    async with world.running_hub():
        machines = [await world.add_machine(prod, f"m{number}") for number in range(5)]
        await world.eventually(lambda: all(world.has_hook(moved) for moved in machines))
        before = world.hub_write_count(prod.api, "nodes")
        for machine in machines:
            await world.patch_machine(machine, metadata={"annotations": {DELETE_FOR_MOVE: ""}})
            await world.delete_machine(machine)
        await world.assert_stays(lambda: not any(requests(world, prod, moved) for moved in machines), seconds=10)
        for machine in machines:
            await world.patch_machine(machine, metadata={"finalizers": None})
        await world.assert_stays(lambda: not any(requests(world, prod, moved) for moved in machines), seconds=10)
        assert world.hub_write_count(prod.api, "nodes") == before


@pytest.mark.parametrize("how", ["wait", "honour"])
async def test_request_is_withdrawn_when_its_machine_disappears(
    world: HubClusters, prod: WorkloadCluster, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with world.running_hub(old_approvals=how):
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        await world.delete_machine(machine)
        await world.eventually(lambda: world.is_marked_deleted(prod, machine))
        await world.patch_machine(machine, metadata={"finalizers": None})
        await world.eventually(lambda: not requests(world, prod, machine), seconds=5)
    assert "RequestWithdrawn" in world.event_reasons(prod.api)
    assert [line.partition(": ")[0] for line in caplog.messages if "RequestWithdrawn" in line] == [f"Machine {machine}"]


async def test_request_is_withdrawn_although_the_cluster_was_unreachable_when_its_machine_disappeared(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        prod.stop_answering()
        await world.eventually(lambda: _connection_state(world, prod) is ConnectionState.UNREACHABLE, seconds=600)
        await delete_like_clusterctl_move(world, machine)
        await world.assert_stays(lambda: world.is_maintenance_requested(prod, machine))
        prod.recover()
        await world.eventually(lambda: not requests(world, prod, machine), seconds=120)


async def test_request_is_withdrawn_when_its_machine_disappeared_while_no_hub_ran(
    world: HubClusters, prod: WorkloadCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with world.running_hub():
        machine, other = [await world.add_machine(prod, name) for name in ("m1", "m2")]
        await world.label_machine(machine, maintenance="requested")
        await world.label_machine(other, maintenance="requested")
        await world.eventually(
            lambda: world.is_maintenance_requested(prod, machine) and world.is_maintenance_requested(prod, other)
        )
    await delete_like_clusterctl_move(world, machine)
    async with world.running_hub():
        await world.eventually(lambda: not requests(world, prod, machine), seconds=10)
        await world.assert_stays(lambda: world.is_maintenance_requested(prod, other), seconds=10)
    assert [line.partition(": ")[0] for line in caplog.messages if "RequestWithdrawn" in line] == ["node n-m1"]


async def test_paused_cluster_keeps_requests_without_their_machine(world: HubClusters, prod: WorkloadCluster) -> None:
    """Its Machines may be in another management cluster already, where a hub has requested this."""
    async with world.running_hub():
        machine, _ = [await world.add_machine(prod, name) for name in ("m1", "m2")]
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
    await pause(world, prod)
    await delete_like_clusterctl_move(world, machine)
    async with world.running_hub():
        await world.eventually(lambda: _connection_state(world, prod) is ConnectionState.CONNECTED)
        await world.assert_stays(lambda: world.is_maintenance_requested(prod, machine))


async def test_request_of_the_current_machine_of_a_node_is_kept(world: HubClusters, prod: WorkloadCluster) -> None:
    """While a cluster is moved, the hub of its new management cluster may have requested something already."""
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        note = msgspec.json.encode({"machine": "another", "since": "2026-11-18T03:00:00Z"}).decode()
        change = {"metadata": {"annotations": {MAINTENANCE_REQUEST: note}}}
        await pause(world, prod)
        await prod.client.patch(NODES, "n-m1", merge_patch(change))
        await delete_like_clusterctl_move(world, machine)
        await world.assert_stays(lambda: world.is_maintenance_requested(prod, machine))


async def test_invalid_kubeconfig_is_reloaded_as_soon_as_it_is_repaired(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    secret, namespace = prod.key.kubeconfig_secret, prod.key.namespace
    good = (await world.admin.get(SECRETS, secret, namespace=namespace)).data
    await world.admin.patch(SECRETS, secret, merge_patch({"data": {"value": None}}), namespace=namespace)
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.assert_stays(lambda: _connection_state(world, prod) is not ConnectionState.CONNECTED, seconds=200)
        await world.admin.patch(SECRETS, secret, merge_patch({"data": good}), namespace=namespace)
        await world.eventually(lambda: world.has_hook(machine), seconds=2)


async def test_missing_kubeconfig_is_loaded_as_soon_as_it_is_created(world: HubClusters, prod: WorkloadCluster) -> None:
    await world.admin.delete(SECRETS, prod.key.kubeconfig_secret, namespace=prod.key.namespace)
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.assert_stays(lambda: _connection_state(world, prod) is not ConnectionState.CONNECTED, seconds=200)
        await world.rotate_token(prod, "second")
        await world.eventually(lambda: world.has_hook(machine), seconds=2)


async def test_kubeconfig_secret_is_watched_only_while_it_is_unusable(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    """Hundreds of clusters must not cost hundreds of watches."""
    requested: list[str] = []
    world.wrap_transport = lambda key, transport: (
        _RecordingTransport(transport, requested) if key == "management" else transport
    )
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        await world.assert_stays(lambda: True, seconds=1200)
    assert not any("secrets" in request and "watch" in request for request in requested)


async def test_first_request_succeeds_at_once_on_a_node_under_constant_writes(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async def write(metadata: RawObject) -> None:
        await prod.client.patch(NODES, "n-m1", merge_patch({"metadata": metadata}))

    writes = _ConcurrentWriter(world.admin.clock, "/nodes/", write, times=4)
    world.wrap_transport = lambda key, transport: writes.over(transport) if key == str(prod.key) else transport
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook(machine))
        writes.begin()
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine), seconds=0.9)
    assert writes.left == 0


async def test_approval_is_passed_on_at_once_to_a_machine_under_constant_writes(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    async def write(metadata: RawObject) -> None:
        await world.patch_machine(machine, metadata=metadata)

    writes = _ConcurrentWriter(world.admin.clock, "/machines/", write, times=4)
    world.wrap_transport = lambda key, transport: writes.over(transport) if key == "management" else transport
    async with world.running_hub():
        machine = await world.add_machine(prod, "m1")
        await world.label_machine(machine, maintenance="requested")
        await world.eventually(lambda: world.is_maintenance_requested(prod, machine))
        writes.begin()
        await world.label_node(prod, machine, approve_maintenance="true")
        await world.eventually(lambda: world.maintenance_label(machine) == "approved", seconds=0.9)
    assert writes.left == 0


async def test_hub_without_permission_to_list_clusters_starts_without_them(
    world: HubClusters, prod: WorkloadCluster
) -> None:
    """The roles of the runtime-extension-maintenance-controller do not grant it."""
    machine = await world.add_machine(prod, "m1")
    world.wrap_transport = lambda key, transport: _ForbidsClusters(transport) if key == "management" else transport
    async with world.running_hub():
        await world.eventually(lambda: world.has_hook(machine), seconds=3)


def _connection_state(world: HubClusters, side: WorkloadCluster) -> ConnectionState | None:
    status = world.hub_status(side)
    return None if status is None else status.connection_state


class _PassThroughTransport:
    """A transport that changes nothing."""

    def __init__(self, transport: Transport) -> None:
        self.server = transport.server
        self._transport = transport

    async def send(self, request: Request) -> Response:
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


class _RecordingTransport(_PassThroughTransport):
    """Records the opened watches."""

    def __init__(self, transport: Transport, requested: list[str]) -> None:
        super().__init__(transport)
        self._requested = requested

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        self._requested.append(f"{request.path} watch")
        return super().stream(request)


class _ForbidsClusters(_PassThroughTransport):
    """Forbids everything about Clusters."""

    async def send(self, request: Request) -> Response:
        return _FORBIDDEN if request.path.endswith("/clusters") else await super().send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return super().stream(request) if not request.path.endswith("/clusters") else _RefusedWatch()


_STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
_FORBIDDEN = Response(403, {}, msgspec.json.encode(_STATUS | {"message": "clusters are forbidden"}))


class _Refusal:
    status = 403
    headers: ClassVar[dict[str, str]] = {}

    async def lines(self) -> AsyncIterator[bytes]:
        yield _FORBIDDEN.body


class _RefusedWatch:
    async def __aenter__(self) -> Any:
        return _Refusal()

    async def __aexit__(self, *_: object) -> None:
        return None


class _ConcurrentWriter:
    """Changes an object just before each of the hub's first patches, and delays watch events."""

    def __init__(self, clock: Clock, path: str, write: Callable[[RawObject], Awaitable[object]], *, times: int) -> None:
        self.left = 0
        self.has_started = False
        self.clock, self.path = clock, path
        self._write, self._times = write, times

    def begin(self) -> None:
        self.left, self.has_started = self._times, True

    def over(self, transport: Transport) -> Transport:
        return _WritingTransport(transport, self)

    async def write(self) -> None:
        if self.left:
            self.left -= 1
            await self._write({"annotations": {"example.com/written": str(self.left)}})


class _WritingTransport(_PassThroughTransport):
    def __init__(self, transport: Transport, writes: _ConcurrentWriter) -> None:
        super().__init__(transport)
        self._writes = writes

    async def send(self, request: Request) -> Response:
        if request.method == "PATCH" and self._writes.path in request.path:
            await self._writes.write()
        return await super().send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with super().stream(request) as stream:
            yield _LateWatch(stream, self._writes)


class _LateWatch:
    """A watch that is a second late during concurrent writes."""

    def __init__(self, stream: Stream, writes: _ConcurrentWriter) -> None:
        self.status, self.headers = stream.status, stream.headers
        self._stream, self._writes = stream, writes

    async def lines(self) -> AsyncIterator[bytes]:
        async for line in self._stream.lines():
            if self._writes.has_started:
                await self._writes.clock.sleep(timedelta(seconds=1))
            yield line
