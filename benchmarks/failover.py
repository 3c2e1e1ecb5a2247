"""Part nine: failover on a real kube-apiserver: how soon a node is empty after the leader got SIGKILL or SIGTERM.

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

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, PODS
from haulout.app.manifests import operator_manifests
from haulout.core.clock import Clock, RealClock
from haulout.core.timestamps import whole_seconds
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from real_apiserver import control_plane
from report import SECONDS, Section, TargetComparison

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from support.builders.objects import a_node, a_pod
from support.operators.replica_processes import ReplicaProcesses, replica_processes

Log = Callable[[str], None]

_NAMESPACE, _SHOP = "haulout", "shop"
_POLL_INTERVAL = timedelta(milliseconds=20)
_NOTICE_TIME = timedelta(seconds=30)
_TIMEOUT_SECONDS = 900
_KILLED_WITHIN_SECONDS, _ENDED_WITHIN_SECONDS = 12.0, 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a run is."""

    rounds: int  # of each signal


FULL = Scale(rounds=10)
QUICK = Scale(rounds=1)


def run(scale: Scale, log: Log) -> list[Section]:
    """Measure on a control plane that is made for it."""
    with control_plane(log, separate_cores=False) as (kubeconfig, _):
        killed, ended = uvloop.run(_measured(scale, kubeconfig, log))
    comparison = TargetComparison(is_fair=scale is FULL)
    rows = [
        _row(comparison, "node empty after SIGKILL of the leader", killed, _KILLED_WITHIN_SECONDS),
        _row(comparison, "node empty after SIGTERM of the leader", ended, _ENDED_WITHIN_SECONDS),
    ]
    timing = LeaderElectionConfig()
    text = _TEXT.format(
        rounds=scale.rounds,
        lease=f"{timing.lease_duration.total_seconds():g}",
        renew=f"{timing.renew_deadline.total_seconds():g}",
        retry=f"{timing.retry_period.total_seconds():g}",
    )
    return [Section("Failover", text, ("Measurement", "Worst", "Details", "Target", ""), rows)]


def _row(comparison: TargetComparison, label: str, figures: Sequence[float], target: float) -> tuple[str, ...]:
    note = f"median {SECONDS.show(median(figures))}, best {SECONDS.show(min(figures))}, {len(figures)} rounds"
    return comparison.row(label, [max(figures)], SECONDS, target=target, note=note)


async def _measured(scale: Scale, kubeconfig: str, log: Log) -> tuple[list[float], list[float]]:
    clock, random = RealClock(), Random(1)
    client = Client(
        HttpTransport(config.load(kubeconfig=kubeconfig, clock=clock), clock=clock), clock=clock, random=random
    )
    found: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        await _prepare(client)
        async with replica_processes(Path(kubeconfig), clock=clock, namespace=_NAMESPACE) as replicas:
            replicas.leases = (LEADER_LEASE,)
            await replicas.wait_for_standby()
            await _announce(client, "warm-up")  # from the first notice on, the leader holds both leases
            await _wait_until_empty(client, "warm-up")
            replicas.leases = (LEADER_LEASE, PROFILES_LEASE)
            for number in range(scale.rounds):
                for signal_number, figures in found.items():
                    log(f"round {number + 1} of {scale.rounds}: {signal_number.name}")
                    figures.append(
                        await _round(
                            client, clock, replicas, random, signal_number, f"n-{number}-{signal_number.name.lower()}"
                        )
                    )
    await client.close()
    return found[signal.SIGKILL], found[signal.SIGTERM]


async def _round(
    client: Client, clock: Clock, replicas: ReplicaProcesses, random: Random, signal_number: signal.Signals, node: str
) -> float:
    await replicas.wait_for_standby()
    await clock.sleep(LeaderElectionConfig().retry_period * random.random())
    began = clock.monotonic()
    replicas.signal_leader(signal_number)
    await _announce(client, node)
    await _wait_until_empty(client, node)
    took = clock.monotonic() - began
    await replicas.start()
    return took


async def _prepare(client: Client) -> None:
    for definition in operator_manifests.definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    for name in (_NAMESPACE, _SHOP):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def _announce(client: Client, node: str) -> None:
    """Have a node with a pod, and a notice of 30 seconds for it."""
    await client.create(NODES, a_node(node))
    await client.create(PODS, a_pod(f"web-{node}", on=node, grace=0), namespace=_SHOP)
    start = whole_seconds(client.clock.now() + _NOTICE_TIME)
    body = {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": f"preempt-{node}"},
        "spec": {"nodeName": node, "source": "azure", "kind": "Terminate", "start": start},
    }
    await client.create(MAINTENANCE_NOTICES, body)


async def _wait_until_empty(client: Client, node: str) -> None:
    while (await client.list(PODS, fields=f"spec.nodeName={node}")).items:
        await client.clock.sleep(_POLL_INTERVAL)


_TEXT = """
A real etcd and kube-apiserver over TLS, and two replicas as processes, all on the cores of one machine. Leases last
{lease} s, are renewed every {retry} s, and have a renew deadline of {renew} s. The leader gets the signal at a random
instant between two renewals. At the same time a notice of 30 seconds is created. The time ends when the node has no
pod. Rounds: {rounds} of each signal, in turn; after each, another standby is started. The worst of all rounds counts.
"""
