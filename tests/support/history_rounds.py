"""Rounds of maintenances on a real API server while something fails, judged by what etcd was told.

    judge = await run_rounds(control_plane, "the server dies", rounds=50, seed=1, file=maintenance_yaml)
    assert judge.missing() == 0

The operator runs in this process, as a service account with the roles that we ship and on a clock of its own that can
be set. There are no kubelets and no controllers: nodes are objects, and pods end when the story says so. The judge
follows etcd itself, which outlives the API server, so that no version of an object escapes it.
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
from haulout.core.clock import Alarm, RealClock
from haulout.errors import AlreadyExists, KubeError, NotFound, Unreachable
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout_sandbox.apiserver.rbac import account_user
from support.builders import a_node, a_pod
from support.clusters import ACCOUNT, granted
from support.eventually import eventually
from support.history_judge import DATA, MAINTENANCES, RECORDS, Judge
from support.history_judge import NODES as NODES_PLURAL
from support.live import RESOURCES
from support.maintaining import DEFINITION as ORDERS
from support.maintaining import RIGHTS, a_maintenance
from support.outside import FakeOutside
from support.profiled import operating
from support.recorded import DEFINITION as RECORD

log = logging.getLogger(__name__)

_PATIENCE = timedelta(minutes=4)
_LOOK_EVERY = timedelta(milliseconds=200)
_PREFIXES = {
    MAINTENANCES: "/registry/nodemaintenance.medik8s.io/nodemaintenances/",
    RECORDS: "/registry/haulout.dev/maintenancerecords/",
    NODES_PLURAL: "/registry/minions/",
}
_DATA = re.compile(rb'\{"Profiles":.*?"Notifications":\{[^}]*\}\}')  # in the protobuf of a node
_PROFILE = "cloud.sap/maintenance-profile"
_LED = 10  # nodes that a profile leads in turn: one that goes in circles is slowed down
_MOST_LINE = 64 * 1024 * 1024


class SettableClock(RealClock):
    """The time of this machine, off by what a test says."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def now(self) -> datetime:
        """Return the wall time of a machine whose clock was set."""
        return super().now() + self.offset

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` at an instant; that the clock was set is noticed within a second, where it takes a minute."""
        return Alarm(self, instant, callback, look_again=timedelta(seconds=1), set_back=set_back)


@dataclass(slots=True)
class Story:
    """The cluster, a person in it, the clock of the operator, and who counts."""

    plane: ControlPlane
    me: Client
    clock: SettableClock
    random: Random
    judge: Judge = field(default_factory=Judge)

    async def pause(self, up_to: float) -> None:
        """Let some time pass."""
        await self.me.clock.sleep(timedelta(seconds=self.random.uniform(0, up_to)))

    async def insist(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do something, as a person does who tries again while the server is away."""
        while True:
            try:
                return await act()
            except NotFound:
                raise
            except KubeError:
                await self.me.clock.sleep(_LOOK_EVERY)

    async def eventually(self, look: Callable[[], Any]) -> None:
        """Wait until something is so."""
        await eventually(self.me.clock, look, within=_PATIENCE, every=_LOOK_EVERY)

    async def round(self, number: int) -> None:
        """Have a node maintained by an order, and another one by its profile."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._order(f"patch-{number % 2}"))
            group.create_task(self._lead(f"p{number % _LED + 1}"))

    async def _order(self, name: str) -> None:
        pod = a_pod("default/cart", on="n1")
        await self.insist(lambda: self._create("pods", pod))
        await self.insist(lambda: self._create(MAINTENANCES, a_maintenance("n1", name=name)))
        await self.eventually(lambda: self._phase(name) == "Running")
        await self.pause(3)
        await self.insist(self._end_pod)
        await self.eventually(lambda: self._phase(name) == "Succeeded")
        await self.pause(2)
        await self.insist(lambda: self.me.delete(NODE_MAINTENANCES, name))
        await self.eventually(lambda: self.judge.latest(MAINTENANCES, name) is None)

    async def _create(self, plural: str, obj: RawObject) -> None:
        with suppress(AlreadyExists):  # an answer that was lost
            await self.me.create(RESOURCES[plural], obj, namespace=obj["metadata"].get("namespace"))

    async def _end_pod(self) -> None:
        with suppress(NotFound):
            await self.me.delete(RESOURCES["pods"], "cart", namespace="default", grace=timedelta())

    def _phase(self, name: str) -> str:
        return str((self.judge.latest(MAINTENANCES, name) or {}).get("status", {}).get("phase", ""))

    async def _lead(self, node: str) -> None:
        await self._annotate(node, wanted="", done=None)
        await self.eventually(lambda: self.judge.profiles(node) == {"os": "in-maintenance"})
        await self.pause(3)
        await self._annotate(node, wanted=None, done="")
        await self.eventually(lambda: self.judge.profiles(node) == {"os": "operational"})

    async def _annotate(self, node: str, **annotations: str | None) -> None:
        change = merge_patch({"metadata": {"annotations": annotations}})
        await self.insist(lambda: self.me.patch(NODES, node, change))


async def _server_dies(story: Story) -> None:
    await asyncio.to_thread(story.plane.kill_apiserver)
    await story.pause(3)
    await asyncio.to_thread(story.plane.start_apiserver)


async def _rights_are_withdrawn(story: Story) -> None:
    bindings = [it for it in RIGHTS if it["kind"].endswith("Binding")]
    for it in bindings:
        resource = RESOURCES[f"{it['kind'].lower()}s"]
        await story.me.delete(resource, it["metadata"]["name"], namespace=it["metadata"].get("namespace"))
    await story.pause(12)
    await granted(story.me, bindings)


async def _history_is_forbidden(story: Story) -> None:
    """Withdraw the rights to write the history, and no others."""
    (role,) = (it for it in RIGHTS if it["kind"] == "ClusterRole" and it["metadata"]["name"] == "haulout")
    rules = [it for it in role["rules"] if RECORDS not in it.get("resources", ())]
    resource = RESOURCES["clusterroles"]
    await story.me.patch(resource, "haulout", merge_patch({"rules": rules}))
    await story.pause(12)
    await story.me.patch(resource, "haulout", merge_patch({"rules": role["rules"]}))


async def _a_right_is_withdrawn(story: Story) -> None:
    await story.random.choice([_rights_are_withdrawn, _history_is_forbidden])(story)


async def _clock_is_set(story: Story) -> None:
    story.clock.offset = timedelta(hours=story.random.uniform(-2, 2))


FAULTS: Mapping[str, Callable[[Story], Awaitable[None]]] = {
    "the server dies": _server_dies,
    "rights are withdrawn": _a_right_is_withdrawn,
    "a clock is set": _clock_is_set,
}


async def run_rounds(plane: ControlPlane, fault: str, *, rounds: int, seed: int, file: Path) -> Judge:
    """Run rounds, each with a fault at a random instant; return who counted, when all is written or late."""
    async with _a_story(plane, Random(f"{fault} {seed}"), file) as story:
        for number in range(rounds):
            async with asyncio.TaskGroup() as group:
                group.create_task(story.round(number))
                await story.pause(4)
                await FAULTS[fault](story)
            with suppress(AssertionError):  # the caller looks, and what is missing now may be missing for ever
                await story.eventually(lambda: not story.judge.problems())
            log.info("round %d of %d: %d changes, %d missing", number + 1, rounds, *story.judge.counts())
    return story.judge


@asynccontextmanager
async def _a_story(plane: ControlPlane, random: Random, file: Path) -> AsyncIterator[Story]:
    async with AsyncExitStack() as stack:
        real, clock = RealClock(), SettableClock()
        me = await _client(stack, str(plane.kubeconfig()), real, real)
        user = account_user(*ACCOUNT)
        theirs = str(plane.kubeconfig(user.name, groups=user.groups))
        operator = await _client(stack, theirs, real, clock)
        story = Story(plane, me, clock, random)
        for definition in (ORDERS, RECORD):
            await me.create(RESOURCES["customresourcedefinitions"], definition)
        await granted(me, RIGHTS)
        await me.create(NODES, a_node("n1"))
        for number in range(_LED):
            await me.create(NODES, a_node(f"p{number + 1}", labels={_PROFILE: "os"}))
        await story.insist(lambda: _served(me))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        beside = [
            group.create_task(operating(file, outside=FakeOutside())(operator)),
            *(group.create_task(_follow(plane, it, story.judge)) for it in _PREFIXES),
        ]
        try:
            yield story
        finally:
            for task in beside:
                task.cancel()


async def _client(stack: AsyncExitStack, kubeconfig: str, real: RealClock, clock: RealClock) -> Client:
    connection = config.load(kubeconfig=kubeconfig, clock=real)
    client = Client(HttpTransport(connection, clock=real), clock=clock, random=Random())
    stack.push_async_callback(client.close)
    return client


async def _served(client: Client) -> None:
    for plural in (MAINTENANCES, RECORDS):
        try:
            await client.list(RESOURCES[plural])
        except NotFound as error:
            raise Unreachable(str(error), sent=False) from error  # not yet


async def _follow(plane: ControlPlane, plural: str, judge: Judge) -> None:
    """Tell the judge of every version of the objects of a kind, as etcd has them."""
    prefix = _PREFIXES[plural].encode()
    wanted = {"key": _b64(prefix), "range_end": _b64(prefix[:-1] + b"0"), "start_revision": "1"}
    no_limit = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=no_limit, read_bufsize=_MOST_LINE) as session,
        session.post(f"{plane.etcd}/v3/watch", json={"create_request": wanted}) as answer,
    ):
        async for line in answer.content:
            for event in json.loads(line)["result"].get("events", ()):
                name = base64.b64decode(event["kv"]["key"]).removeprefix(prefix).decode()
                value = base64.b64decode(event["kv"].get("value", ""))
                obj = None if event.get("type") == "DELETE" else _object(plural, value)
                if plural != RECORDS:
                    judge.observe(plural, name, obj)
                elif obj is not None:
                    judge.read(name, obj)


def _object(plural: str, value: bytes) -> RawObject:
    if plural != NODES_PLURAL:
        found: RawObject = json.loads(value)
        return found
    data = _DATA.search(value)
    return {"metadata": {"annotations": {DATA: data[0].decode()} if data else {}}}


def _b64(value: bytes) -> str:
    return base64.b64encode(value).decode()
