"""A story with everything in it, for the test that chance comes from seeds alone: `python -m support.chaos SEED`.

It prints a digest of the whole history, and how many writes that was.
"""

import asyncio
import hashlib
import logging
import sys
from collections.abc import Sequence

import msgspec

from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.clusters import a_cluster
from support.faults import mixture
from support.labeller import careful


async def story(seed: int) -> Sequence[Write]:
    """Let a cluster live through rollouts, drains, losses and faults."""
    plan = a_cluster(VirtualClock()).with_nodes(4, zones=2).seeded(seed)
    plan = plan.with_deployment("shop/cart", replicas=4, budget="50%").with_stateful_set("shop/db", replicas=2)
    plan = plan.with_daemon_set("shop/logs")
    async with plan.on_the_sandbox() as cluster, asyncio.TaskGroup() as tasks:
        cluster.run(careful)
        tasks.create_task(cluster.suffer(mixture(seed, count=8), seed=seed))
        await cluster.restart_rollout("shop/cart")
        await cluster.pass_time(seconds=20)
        await cluster.drain("n1")
        cluster.kill("n2")
        cluster.reboot("n3")
        await cluster.pass_time(minutes=8)
    return cluster.history


def digest(history: Sequence[Write]) -> str:
    """Return what stands for a history, byte for byte."""
    seen = hashlib.sha256()
    for write in history:
        parts = (write.revision, write.at, write.who, write.verb, write.path, write.before, write.after)
        seen.update(msgspec.json.encode(parts))
    return f"{seen.hexdigest()} {len(history)}"


def main(seed: str) -> None:
    """Print the digest of one story."""
    logging.disable(logging.CRITICAL)
    sys.stdout.write(digest(run_virtual(story(int(seed)))))


if __name__ == "__main__":
    main(sys.argv[1])
