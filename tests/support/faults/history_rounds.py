"""Rounds of maintenances on a real API server during a fault, audited with the events of etcd.

    audit = await run_rounds(control_plane, "the server dies", rounds=50, seed=1, file=maintenance_yaml)
    assert audit.missing_count() == 0

The operator runs in this process, as a service account with the shipped roles and on a clock that can be set. There are
no kubelets and no controllers: nodes are plain objects, and the test ends the pods. The audit watches etcd itself,
which outlives the API server, so that it misses no version of an object.
"""

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from controlplane import ControlPlane
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.core.clock import Alarm, RealClock
from haulout.errors import AlreadyExists, KubeError, NotFound, Unreachable
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from support.builders.objects import a_node, a_pod
from support.clusters.cluster_plan import SERVICE_ACCOUNT, apply_rbac
from support.clusters.live_cluster import RESOURCES
from support.expectations.eventually import eventually
from support.expectations.maintenance_records import CRD as RECORD
from support.fakes.external_client import FakeExternalClient
from support.faults.history_audit import DATA_ANNOTATION, MAINTENANCES, RECORDS, HistoryAudit
from support.faults.history_audit import NODES as NODES_PLURAL
from support.operators.nodemaintenance import CRD as ORDERS
from support.operators.nodemaintenance import OPERATOR_RBAC, a_maintenance
from support.operators.profiles import operator_with_profiles

log = logging.getLogger(__name__)

_TIMEOUT = timedelta(minutes=4)
_POLL_INTERVAL = timedelta(milliseconds=200)
_PREFIXES = {
    MAINTENANCES: "/registry/nodemaintenance.medik8s.io/nodemaintenances/",
    RECORDS: "/registry/haulout.dev/maintenancerecords/",
    NODES_PLURAL: "/registry/minions/",
}
_DATA = re.compile(rb'\{"Profiles":.*?"Notifications":\{[^}]*\}\}')  # in the protobuf of a node
_PROFILE = "cloud.sap/maintenance-profile"
_PROFILE_NODE_COUNT = 10  # nodes that a profile maintains in turn: a node that repeats its cycle is slowed down
_MAX_LINE_BYTES = 64 * 1024 * 1024


class SettableClock(RealClock):
    """The time of this machine, off by what a test says."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        """Return the wall time of a machine whose clock was set."""
        return super().now() + self.offset

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` at an instant; that the clock was set is noticed within a second, where it takes a minute."""
        return Alarm(self, instant, callback, recheck_interval=timedelta(seconds=1), on_set_back=on_set_back)


@dataclass(slots=True)
class RoundContext:
    """The cluster, a user, the clock of the operator, and the audit."""

    control_plane: ControlPlane
    admin: Client
    clock: SettableClock
    random: Random
    audit: HistoryAudit = field(default_factory=HistoryAudit)

    async def pause(self, up_to: float) -> None:
        """Let some time pass."""
        await self.admin.clock.sleep(timedelta(seconds=self.random.uniform(0, up_to)))

    async def retry(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Do something, and retry while the server is unavailable."""
        while True:
            try:
                return await send()
            except NotFound:
                raise
            except KubeError:
                await self.admin.clock.sleep(_POLL_INTERVAL)

    async def eventually(self, probe: Callable[[], Any]) -> None:
        """Wait until a condition holds."""
        await eventually(self.admin.clock, probe, within=_TIMEOUT, every=_POLL_INTERVAL)

    async def run_round(self, number: int) -> None:
        """Maintain one node by a NodeMaintenance, and another one by its profile."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_maintenance(f"patch-{number % 2}"))
            group.create_task(self._run_profile(f"p{number % _PROFILE_NODE_COUNT + 1}"))

    async def _run_maintenance(self, name: str) -> None:
        pod = a_pod("default/cart", on="n1")
        await self.retry(lambda: self._create("pods", pod))
        await self.retry(lambda: self._create(MAINTENANCES, a_maintenance("n1", name=name)))
        await self.eventually(lambda: self._phase(name) == "Running")
        await self.pause(3)
        await self.retry(self._end_pod)
        await self.eventually(lambda: self._phase(name) == "Succeeded")
        await self.pause(2)
        await self.retry(lambda: self.admin.delete(NODE_MAINTENANCES, name))
        await self.eventually(lambda: self.audit.latest(MAINTENANCES, name) is None)

    async def _create(self, plural: str, obj: RawObject) -> None:
        with suppress(AlreadyExists):  # an answer that was lost
            await self.admin.create(RESOURCES[plural], obj, namespace=obj["metadata"].get("namespace"))

    async def _end_pod(self) -> None:
        with suppress(NotFound):
            await self.admin.delete(RESOURCES["pods"], "cart", namespace="default", grace=timedelta())

    def _phase(self, name: str) -> str:
        return str((self.audit.latest(MAINTENANCES, name) or {}).get("status", {}).get("phase", ""))

    async def _run_profile(self, node: str) -> None:
        await self._annotate(node, wanted="", done=None)
        await self.eventually(lambda: self.audit.profiles(node) == {"os": "in-maintenance"})
        await self.pause(3)
        await self._annotate(node, wanted=None, done="")
        await self.eventually(lambda: self.audit.profiles(node) == {"os": "operational"})

    async def _annotate(self, node: str, **annotations: str | None) -> None:
        change = merge_patch({"metadata": {"annotations": annotations}})
        await self.retry(lambda: self.admin.patch(NODES, node, change))


async def _kill_apiserver(context: RoundContext) -> None:
    await asyncio.to_thread(context.control_plane.kill_apiserver)
    await context.pause(3)
    await asyncio.to_thread(context.control_plane.start_apiserver)


async def _withdraw_rbac(context: RoundContext) -> None:
    bindings = [rbac_object for rbac_object in OPERATOR_RBAC if rbac_object["kind"].endswith("Binding")]
    for rbac_object in bindings:
        resource = RESOURCES[f"{rbac_object['kind'].lower()}s"]
        await context.admin.delete(
            resource, rbac_object["metadata"]["name"], namespace=rbac_object["metadata"].get("namespace")
        )
    await context.pause(12)
    await apply_rbac(context.admin, bindings)


async def _forbid_records(context: RoundContext) -> None:
    """Withdraw the rights to write the history, and no others."""
    (role,) = (
        item for item in OPERATOR_RBAC if item["kind"] == "ClusterRole" and item["metadata"]["name"] == "haulout"
    )
    rules = [item for item in role["rules"] if RECORDS not in item.get("resources", ())]
    resource = RESOURCES["clusterroles"]
    await context.admin.patch(resource, "haulout", merge_patch({"rules": rules}))
    await context.pause(12)
    await context.admin.patch(resource, "haulout", merge_patch({"rules": role["rules"]}))


async def _withdraw_some_rbac(context: RoundContext) -> None:
    await context.random.choice([_withdraw_rbac, _forbid_records])(context)


async def _set_clock(context: RoundContext) -> None:
    context.clock.offset = timedelta(hours=context.random.uniform(-2, 2))


FAULTS: Mapping[str, Callable[[RoundContext], Awaitable[None]]] = {
    "the server dies": _kill_apiserver,
    "rights are withdrawn": _withdraw_some_rbac,
    "a clock is set": _set_clock,
}


async def run_rounds(control_plane: ControlPlane, fault: str, *, rounds: int, seed: int, file: Path) -> HistoryAudit:
    """Run rounds, each with a fault at a random instant; return the audit once all is written or overdue."""
    async with _round_context(control_plane, Random(f"{fault} {seed}"), file) as context:
        for number in range(rounds):
            async with asyncio.TaskGroup() as group:
                group.create_task(context.run_round(number))
                await context.pause(4)
                await FAULTS[fault](context)
            with suppress(AssertionError):  # the caller checks: entries that are missing now may be lost
                await context.eventually(lambda: not context.audit.problems())
            log.info("round %d of %d: %d changes, %d missing", number + 1, rounds, *context.audit.counts())
    return context.audit


@asynccontextmanager
async def _round_context(control_plane: ControlPlane, random: Random, file: Path) -> AsyncIterator[RoundContext]:
    async with AsyncExitStack() as stack:
        real, clock = RealClock(), SettableClock()
        admin = await _client(stack, str(control_plane.kubeconfig()), real, real)
        user = service_account_user(*SERVICE_ACCOUNT)
        operator_kubeconfig = str(control_plane.kubeconfig(user.name, groups=user.groups))
        operator = await _client(stack, operator_kubeconfig, real, clock)
        context = RoundContext(control_plane, admin, clock, random)
        for definition in (ORDERS, RECORD):
            await admin.create(RESOURCES["customresourcedefinitions"], definition)
        await apply_rbac(admin, OPERATOR_RBAC)
        await admin.create(NODES, a_node("n1"))
        for number in range(_PROFILE_NODE_COUNT):
            await admin.create(NODES, a_node(f"p{number + 1}", labels={_PROFILE: "os"}))
        await context.retry(lambda: _wait_until_served(admin))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            group.create_task(operator_with_profiles(file, external_client=FakeExternalClient())(operator)),
            *(group.create_task(_watch_etcd(control_plane, prefix, context.audit)) for prefix in _PREFIXES),
        ]
        try:
            yield context
        finally:
            for task in tasks:
                task.cancel()


async def _client(stack: AsyncExitStack, kubeconfig: str, real: RealClock, clock: RealClock) -> Client:
    connection = config.load(kubeconfig=kubeconfig, clock=real)
    client = Client(HttpTransport(connection, clock=real), clock=clock, random=Random())
    stack.push_async_callback(client.close)
    return client


async def _wait_until_served(client: Client) -> None:
    for plural in (MAINTENANCES, RECORDS):
        try:
            await client.list(RESOURCES[plural])
        except NotFound as error:
            raise Unreachable(str(error), sent=False) from error  # not yet


async def _watch_etcd(control_plane: ControlPlane, plural: str, audit: HistoryAudit) -> None:
    """Pass every version of the objects of a kind in etcd to the audit."""
    prefix = _PREFIXES[plural].encode()
    wanted = {"key": _b64(prefix), "range_end": _b64(prefix[:-1] + b"0"), "start_revision": "1"}
    no_limit = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=no_limit, read_bufsize=_MAX_LINE_BYTES) as session,
        session.post(f"{control_plane.etcd}/v3/watch", json={"create_request": wanted}) as answer,
    ):
        async for line in answer.content:
            for event in json.loads(line)["result"].get("events", ()):
                name = base64.b64decode(event["kv"]["key"]).removeprefix(prefix).decode()
                value = base64.b64decode(event["kv"].get("value", ""))
                obj = None if event.get("type") == "DELETE" else _object(plural, value)
                if plural != RECORDS:
                    audit.observe(plural, name, obj)
                elif obj is not None:
                    audit.read_record(name, obj)


def _object(plural: str, value: bytes) -> RawObject:
    if plural != NODES_PLURAL:
        found: RawObject = json.loads(value)
        return found
    data = _DATA.search(value)
    return {"metadata": {"annotations": {DATA_ANNOTATION: data[0].decode()} if data else {}}}


def _b64(value: bytes) -> str:
    return base64.b64encode(value).decode()
