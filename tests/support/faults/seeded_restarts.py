"""Rolling restarts on twenty nodes, for the test that runs are reproducible: prints a digest of the whole history.

`python -m support.faults.seeded_restarts SEED` prints the digest and the number of writes.
"""

import logging
import sys
from collections.abc import Sequence

from haulout_sandbox.apiserver import Write
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.clusters.cluster_plan import a_cluster
from support.faults.seeded_chaos import digest


async def run_scenario(seed: int) -> Sequence[Write]:
    """Restart some workloads at a time, one after the other, while machines reboot."""
    plan = a_cluster(VirtualClock()).with_nodes(20, zones=3).with_seed(seed).with_daemon_set("shop/logs")
    for number in range(4):
        plan = plan.with_deployment(f"shop/app-{number}", replicas=10, budget="20%")
    async with plan.on_the_sandbox() as cluster:
        for number in range(4):
            await cluster.restart_rollout(f"shop/app-{number}")
            await cluster.pass_time(seconds=30)
            cluster.reboot(f"n{number + 1}")
        await cluster.pass_time(minutes=3)
    return cluster.history


def main(seed: str) -> None:
    """Print the digest of one run."""
    logging.disable(logging.CRITICAL)
    sys.stdout.write(digest(run_virtual(run_scenario(int(seed)))))


if __name__ == "__main__":
    main(sys.argv[1])
