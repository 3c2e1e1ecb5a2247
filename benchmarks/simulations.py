"""What is measured of the sandbox in its own process, one function each; `worker` runs each in a fresh process.

As with `tasks`, plain numbers come out of each.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from haulout.core.clock import RealClock
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from resource_usage import Stopwatch, peak_memory
from workload_cluster import Size, WorkloadCluster

Numbers = dict[str, float]

HEARTBEAT = timedelta(minutes=5)  # of simulated kubelets; one every ten seconds would be most of a quiet day's work
_REAL_HEARTBEAT = timedelta(seconds=10)


def day(*, nodes: int, deployments: int, replicas: int, hours: float, restart_every_seconds: float) -> Numbers:
    """Let virtual hours of rolling restarts pass in a cluster whose pods all run."""
    return run_virtual(
        _day(Size(nodes=nodes, deployments=deployments, replicas=replicas), hours, restart_every_seconds)
    )


async def _day(size: Size, hours: float, every_seconds: float) -> Numbers:
    workload = WorkloadCluster(VirtualClock(), size, heartbeat=HEARTBEAT)
    async with workload.running():
        await workload.deploy()
        writes = workload.cluster.api.revision
        with Stopwatch() as stopwatch:
            every, duration = timedelta(seconds=every_seconds), timedelta(hours=hours)
            restarts = await workload.restart(every=every, duration=duration)
        writes = workload.cluster.api.revision - writes
    return _used(stopwatch) | {"restarts": restarts, "writes": writes, "peak": peak_memory()}


def start(*, nodes: int, deployments: int, replicas: int) -> Numbers:
    """Start all pods of a cluster that has its nodes and nothing else."""
    return run_virtual(_start(Size(nodes=nodes, deployments=deployments, replicas=replicas)))


async def _start(size: Size) -> Numbers:
    workload = WorkloadCluster(VirtualClock(), size, heartbeat=HEARTBEAT)
    async with workload.running():
        writes = workload.cluster.api.revision
        with Stopwatch() as stopwatch:
            await workload.deploy()
        assert workload.all_pods_are_ready()
        writes = workload.cluster.api.revision - writes
    return _used(stopwatch) | {"pods": size.pods, "writes": writes, "peak": peak_memory()}


def idle(*, nodes: int, seconds: float) -> Numbers:
    """Do nothing with some nodes for a while of real time."""
    return asyncio.run(_idle(nodes, seconds))


async def _idle(nodes: int, seconds: float) -> Numbers:
    workload = WorkloadCluster(RealClock(), Size(nodes=nodes, deployments=0, replicas=0), heartbeat=_REAL_HEARTBEAT)
    async with workload.running():
        with Stopwatch() as stopwatch:
            await asyncio.sleep(seconds)
    return _used(stopwatch)


def _used(watch: Stopwatch) -> Numbers:
    return {"wall": watch.wall, "cpu": watch.cpu}


SIMULATIONS: dict[str, Callable[..., Numbers]] = {task.__name__: task for task in (day, start, idle)}
