"""`haulout run` as processes on a real API server, whose leader is killed, told to end, or stopped for a while.

How long a failover takes is asserted in virtual time (`tests/unit/app/test_failover.py`) and measured by
`benchmarks/run.py --only failover`. Here only the order of things counts. HAULOUT_KILLS is how many leaders are killed
at random instants; HAULOUT_SEED decides at which.
"""

import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from aiohttp import web

from controlplane import ControlPlane
from haulout.app import manifests
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.core.clock import RealClock
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.resources import LEASES, NODES, PODS
from haulout_sandbox.clouds.answering import answering
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.front import serving as serving_aws
from support.builders import a_node, a_pod
from support.eventually import eventually
from support.kills import CONFIGURATION, QUEUE, SHOP, Story, judged
from support.listening import a_notice
from support.replica_processes import ReplicaProcesses, replica_processes

pytestmark = pytest.mark.real_time

HOME = "haulout"
HERE = "127.0.0.1"
KILLS = int(os.environ.get("HAULOUT_KILLS", "2"))
SEED = int(os.environ.get("HAULOUT_SEED", "7"))
OF_AWS = {
    "QUEUE_URL": QUEUE,
    "CHECK_TAG_BEFORE_DRAINING": "false",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
CLOCK = RealClock()
WITHIN = timedelta(minutes=2)


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane with our definitions."""
    with ControlPlane() as cluster:
        cluster.kubectl("apply", "-f", "-", input=manifests.as_yaml(manifests.definitions()))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        for name in (HOME, SHOP):
            cluster.kubectl("create", "namespace", name)
        yield cluster


@asynccontextmanager
async def connected(plane: ControlPlane) -> AsyncIterator[Client]:
    """Yield a client of the administrator."""
    transport = HttpTransport(config.load(kubeconfig=str(plane.kubeconfig()), clock=CLOCK), clock=CLOCK)
    client = Client(transport, clock=CLOCK, random=Random(1))
    try:
        yield client
    finally:
        await client.close()


async def announce(client: Client, node: str) -> None:
    """Have a node with a pod, and a notice that its machine is taken back in 30 seconds."""
    await client.create(NODES, a_node(node))
    await client.create(PODS, a_pod(f"web-{node}", on=node, grace=0), namespace=SHOP)
    start = CLOCK.now() + timedelta(seconds=30)
    notice = a_notice(f"preempt-{node}", node, start=start, source="azure", kind="Terminate")
    await client.create(MAINTENANCE_NOTICES, notice)


async def emptied(client: Client, replicas: ReplicaProcesses, node: str) -> None:
    """Return when no pod is on a node."""

    async def look() -> list[str]:
        return [it.name for it in (await client.list(PODS, fields=f"spec.nodeName={node}")).items]

    await eventually(CLOCK, look, becomes=[], within=WITHIN, happened=replicas.last_logged)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda it: it.name)
async def test_a_standby_takes_both_leases_and_drains(plane: ControlPlane, number: signal.Signals) -> None:
    """With a leader that stands still for a while, and then goes on: it works no more, and keeps no lease."""
    async with (
        connected(plane) as client,
        replica_processes(plane.kubeconfig(), clock=CLOCK, namespace=HOME) as replicas,
    ):
        replicas.leases = (LEADER_LEASE,)
        await replicas.wait_for_standby()
        await announce(client, "warm-up")
        await emptied(client, replicas, "warm-up")
        replicas.leases = (LEADER_LEASE, PROFILES_LEASE)
        await replicas.wait_for_standby()
        (standby,) = (it for it in replicas.running if it is not replicas.leader)
        former = replicas.signal_leader(number)
        await announce(client, "n1")
        await emptied(client, replicas, "n1")
        assert standby.leases == {LEADER_LEASE, PROFILES_LEASE}
        if number == signal.SIGSTOP:
            former.send(signal.SIGCONT)
            replicas.running.append(former)
            await eventually(CLOCK, lambda: former.has_seen(LEADER_LEASE), within=WITHIN, happened=replicas.last_logged)
            assert not former.leases
        holders = [(await client.get(LEASES, it, namespace=HOME)).spec.holder_identity for it in replicas.leases]
        assert len(set(holders)) == 1
        if number == signal.SIGTERM:
            await former.process.wait()
            released = [line for line in former.log if " released lease " in line]
            assert len(released) == 2


@asynccontextmanager
async def a_hook(messages: list[str]) -> AsyncIterator[int]:
    """Take messages as Slack does; yield the port."""

    async def take(request: web.Request) -> web.Response:
        messages.append((await request.json())["text"])
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/", take)
    async with answering(app, socket.create_server((HERE, 0))) as port:
        yield port


async def test_kills_at_random_instants_lose_nothing_and_repeat_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    cloud, messages = AwsCloud(CLOCK), list[str]()
    async with (
        connected(plane) as client,
        serving_aws(cloud, host=HERE) as port,
        a_hook(messages) as hook,
        replica_processes(
            plane.kubeconfig(),
            clock=CLOCK,
            namespace=HOME,
            flags=("--config", str(file)),
            environ=OF_AWS | {"AWS_ENDPOINT": f"http://{HERE}:{port}", "HOOK": f"http://{HERE}:{hook}/"},
        ) as replicas,
        judged(client) as judge,
    ):
        replicas.messages = messages
        story = Story(client, cloud, replicas, judge, random=Random(SEED))
        await story.prepare()
        for _ in range(KILLS):
            await story.round()
        story.expect_nothing_lost_or_told_twice()
        assert len(messages) <= 4
