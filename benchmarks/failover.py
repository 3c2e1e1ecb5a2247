"""Part nine: failover on a real kube-apiserver: how soon a node is empty after the leader was killed or told to end.

Two replicas run as processes (`haulout run`), without any configuration. In each round the leader gets a signal at a
random instant between two renewals of its lease, and at the same moment a cloud announces that a node is taken back in
30 seconds. Measured is the time from the signal until the node has no pod left.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from statistics import median

import uvloop

from haulout.app import manifests
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.core.clock import Clock, RealClock
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube.client import Client
from haulout.kube.lease_timing import LeaseTiming
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.resources import DEFINITIONS, NAMESPACES, NODES, PODS
from haulout.kube.timestamps import whole_seconds
from real import control_plane
from report import SECONDS, Judge, Section

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.builders import a_node, a_pod
from support.replica_processes import ReplicaProcesses, replica_processes

Say = Callable[[str], None]

_HOME, _SHOP = "haulout", "shop"
_LOOK_EVERY = timedelta(milliseconds=20)
_NOTICE = timedelta(seconds=30)
_WITHIN_SECONDS = 900
_KILLED_WITHIN_SECONDS, _ENDED_WITHIN_SECONDS = 12.0, 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    rounds: int  # of each signal


FULL = Scale(rounds=10)
QUICK = Scale(rounds=1)


def run(scale: Scale, say: Say) -> list[Section]:
    """Measure on a control plane that is made for it."""
    with control_plane(say, apart=False) as (kubeconfig, _):
        killed, ended = uvloop.run(_measured(scale, kubeconfig, say))
    judge = Judge(is_fair=scale is FULL)
    rows = [
        _row(judge, "node empty after SIGKILL of the leader", killed, _KILLED_WITHIN_SECONDS),
        _row(judge, "node empty after SIGTERM of the leader", ended, _ENDED_WITHIN_SECONDS),
    ]
    timing = LeaseTiming()
    text = _TEXT.format(
        rounds=scale.rounds,
        lease=f"{timing.lease_duration.total_seconds():g}",
        renew=f"{timing.renew_deadline.total_seconds():g}",
        retry=f"{timing.retry_period.total_seconds():g}",
    )
    return [Section("Failover", text, ("What", "Worst", "Besides", "Target", ""), rows)]


def _row(judge: Judge, what: str, figures: Sequence[float], target: float) -> tuple[str, ...]:
    beside = f"median {SECONDS.show(median(figures))}, best {SECONDS.show(min(figures))}, {len(figures)} rounds"
    return judge.row(what, [max(figures)], SECONDS, target=target, beside=beside)


async def _measured(scale: Scale, kubeconfig: str, say: Say) -> tuple[list[float], list[float]]:
    clock, random = RealClock(), Random(1)
    client = Client(
        HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock), clock=clock, random=random
    )
    found: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    async with asyncio.timeout(_WITHIN_SECONDS):
        await _prepare(client)
        async with replica_processes(Path(kubeconfig), clock=clock, namespace=_HOME) as replicas:
            replicas.leases = (LEADER_LEASE,)
            await replicas.wait_for_standby()
            await _announce(client, "warm-up")  # from the first notice on, the leader holds both leases
            await _emptied(client, "warm-up")
            replicas.leases = (LEADER_LEASE, PROFILES_LEASE)
            for number in range(scale.rounds):
                for what, figures in found.items():
                    say(f"round {number + 1} of {scale.rounds}: {what.name}")
                    figures.append(
                        await _round(client, clock, replicas, random, what, f"n-{number}-{what.name.lower()}")
                    )
    await client.close()
    return found[signal.SIGKILL], found[signal.SIGTERM]


async def _round(
    client: Client, clock: Clock, replicas: ReplicaProcesses, random: Random, what: signal.Signals, node: str
) -> float:
    await replicas.wait_for_standby()
    await clock.sleep(LeaseTiming().retry_period * random.random())
    began = clock.monotonic()
    replicas.signal_leader(what)
    await _announce(client, node)
    await _emptied(client, node)
    took = clock.monotonic() - began
    await replicas.start()
    return took


async def _prepare(client: Client) -> None:
    for definition in manifests.definitions():
        await client.create(DEFINITIONS, definition)
    for name in (_HOME, _SHOP):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def _announce(client: Client, node: str) -> None:
    """Have a node with a pod, and a notice of 30 seconds for it."""
    await client.create(NODES, a_node(node))
    await client.create(PODS, a_pod(f"web-{node}", on=node, grace=0), namespace=_SHOP)
    start = whole_seconds(client.clock.now() + _NOTICE)
    body = {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": f"preempt-{node}"},
        "spec": {"nodeName": node, "source": "azure", "kind": "Terminate", "start": start},
    }
    await client.create(MAINTENANCE_NOTICES, body)


async def _emptied(client: Client, node: str) -> None:
    while (await client.list(PODS, fields=f"spec.nodeName={node}")).items:
        await client.clock.sleep(_LOOK_EVERY)


_TEXT = """
A real etcd and kube-apiserver over TLS, and two replicas as processes, all on the cores of one machine; leases of
{lease} s, renewed every {retry} s, with a renew deadline of {renew} s. The leader gets the signal at a random instant
between two renewals. At that moment a notice of 30 seconds is written. The time ends when the node has no pod left.
Rounds: {rounds} of each signal, in turn; then another standby is started. The worst of all rounds counts.
"""
