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
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.resources import LEASES, NODES, PODS
from haulout.app.manifests import operator_manifests
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.clouds.aws import AwsCloud
from haulout_sandbox.clouds.aws.server import serve as serving_aws
from haulout_sandbox.clouds.http_server import serve_app
from support.builders.objects import a_node, a_pod
from support.expectations.eventually import eventually
from support.faults.leader_kills import CONFIGURATION, QUEUE, SHOP, KillRounds, observed_reboots
from support.operators.event_sources import a_notice
from support.operators.replica_processes import ReplicaProcesses, replica_processes

pytestmark = pytest.mark.real_time

NAMESPACE = "haulout"
LOOPBACK = "127.0.0.1"
KILLS = int(os.environ.get("HAULOUT_KILLS", "2"))
SEED = int(os.environ.get("HAULOUT_SEED", "7"))
AWS_ENVIRONMENT = {
    "QUEUE_URL": QUEUE,
    "CHECK_TAG_BEFORE_DRAINING": "false",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
}
CLOCK = RealClock()
TIMEOUT = timedelta(minutes=2)


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane with our definitions."""
    with ControlPlane() as cluster:
        cluster.kubectl("apply", "-f", "-", input=operator_manifests.as_yaml(operator_manifests.definitions()))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
        for name in (NAMESPACE, SHOP):
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
    """Create a node with a pod, and a notice that its machine terminates in 30 seconds."""
    await client.create(NODES, a_node(node))
    await client.create(PODS, a_pod(f"web-{node}", on=node, grace=0), namespace=SHOP)
    start = CLOCK.now() + timedelta(seconds=30)
    notice = a_notice(f"preempt-{node}", node, start=start, source="azure", kind="Terminate")
    await client.create(MAINTENANCE_NOTICES, notice)


async def wait_until_empty(client: Client, replicas: ReplicaProcesses, node: str) -> None:
    """Return when no pod is on a node."""

    async def pods_on_node() -> list[str]:
        return [pod.name for pod in (await client.list(PODS, fields=f"spec.nodeName={node}")).items]

    await eventually(CLOCK, pods_on_node, becomes=[], within=TIMEOUT, recent_events=replicas.recent_log_lines)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda it: it.name)
async def test_standby_acquires_both_leases_and_drains(plane: ControlPlane, number: signal.Signals) -> None:
    """A leader that is stopped and continued does nothing any more, and holds no lease."""
    async with (
        connected(plane) as client,
        replica_processes(plane.kubeconfig(), clock=CLOCK, namespace=NAMESPACE) as replicas,
    ):
        replicas.leases = (LEADER_LEASE,)
        await replicas.wait_for_standby()
        await announce(client, "warm-up")
        await wait_until_empty(client, replicas, "warm-up")
        replicas.leases = (LEADER_LEASE, PROFILES_LEASE)
        await replicas.wait_for_standby()
        (standby,) = (lease for lease in replicas.running if lease is not replicas.leader)
        former = replicas.signal_leader(number)
        await announce(client, "n1")
        await wait_until_empty(client, replicas, "n1")
        assert standby.leases == {LEADER_LEASE, PROFILES_LEASE}
        if number == signal.SIGSTOP:
            former.send(signal.SIGCONT)
            replicas.running.append(former)
            await eventually(
                CLOCK,
                lambda: former.has_observed_leader(LEADER_LEASE),
                within=TIMEOUT,
                recent_events=replicas.recent_log_lines,
            )
            assert not former.leases
        holders = [
            (await client.get(LEASES, lease, namespace=NAMESPACE)).spec.holder_identity for lease in replicas.leases
        ]
        assert len(set(holders)) == 1
        if number == signal.SIGTERM:
            await former.process.wait()
            released = [line for line in former.log if " released lease " in line]
            assert len(released) == 2


@asynccontextmanager
async def a_slack_server(messages: list[str]) -> AsyncIterator[int]:
    """Take messages as Slack does; yield the port."""

    async def take(request: web.Request) -> web.Response:
        messages.append((await request.json())["text"])
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_post("/", take)
    async with serve_app(app, socket.create_server((LOOPBACK, 0))) as port:
        yield port


async def test_leader_kills_at_random_instants_lose_and_repeat_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    cloud, messages = AwsCloud(CLOCK), list[str]()
    async with (
        connected(plane) as client,
        serving_aws(cloud, host=LOOPBACK) as port,
        a_slack_server(messages) as hook,
        replica_processes(
            plane.kubeconfig(),
            clock=CLOCK,
            namespace=NAMESPACE,
            flags=("--config", str(file)),
            environ=AWS_ENVIRONMENT
            | {"AWS_ENDPOINT": f"http://{LOOPBACK}:{port}", "HOOK": f"http://{LOOPBACK}:{hook}/"},
        ) as replicas,
        observed_reboots(client) as observer,
    ):
        replicas.messages = messages
        kill_rounds = KillRounds(client, cloud, replicas, observer, random=Random(SEED))
        await kill_rounds.prepare()
        for _ in range(KILLS):
            await kill_rounds.run_round()
        kill_rounds.expect_nothing_lost_or_repeated()
        assert len(messages) <= 4
