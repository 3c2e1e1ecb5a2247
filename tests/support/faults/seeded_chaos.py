"""A run with many faults, for the test that all randomness comes from seeds: prints a digest of the whole history.

`python -m support.faults.seeded_chaos SEED` prints the digest and the number of writes.
"""

import asyncio
import hashlib
import logging
import sys
from collections.abc import Sequence

import msgspec

from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clusters.cluster_plan import a_cluster
from support.fakes.labeller import crash_safe_labeller
from support.faults.named_faults import fault_mixture


async def run_scenario(seed: int) -> Sequence[Write]:
    """Run a cluster through rollouts, drains, losses and faults."""
    plan = a_cluster(VirtualClock()).with_nodes(4, zones=2).with_seed(seed)
    plan = plan.with_deployment("shop/cart", replicas=4, budget="50%").with_stateful_set("shop/db", replicas=2)
    plan = plan.with_daemon_set("shop/logs")
    async with plan.on_the_sandbox() as cluster, asyncio.TaskGroup() as tasks:
        cluster.run(crash_safe_labeller)
        tasks.create_task(cluster.inject_fault(fault_mixture(seed, count=8), seed=seed))
        await cluster.restart_rollout("shop/cart")
        await cluster.pass_time(seconds=20)
        await cluster.drain("n1")
        cluster.stop_kubelet("n2")
        cluster.reboot("n3")
        await cluster.pass_time(minutes=8)
    return cluster.history


def digest(history: Sequence[Write]) -> str:
    """Return the digest of a history."""
    checksum = hashlib.sha256()
    for write in history:
        parts = (write.revision, write.written_at, write.username, write.verb, write.path, write.before, write.after)
        checksum.update(msgspec.json.encode(parts))
    return f"{checksum.hexdigest()} {len(history)}"


def main(seed: str) -> None:
    """Print the digest of one run."""
    logging.disable(logging.CRITICAL)
    sys.stdout.write(digest(run_virtual(run_scenario(int(seed)))))


if __name__ == "__main__":
    main(sys.argv[1])
