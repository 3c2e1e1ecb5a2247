"""The whole operator with a queue of AWS, and an agent on each node that hears of the same: one notice, one drain."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.app.configured import Configured
from haulout.app.profiles import Profiles
from haulout.app.sandbox.operators import install, operate
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.metadata_source import AwsMetadataSource
from haulout.notices.sources.aws.readings import METADATA
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.store import Write
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loading import load
from haulout_sandbox.scenarios.stage import Stage
from support.invariants import GraceHonoured, PodBudgetsKept
from support.outside import FakeOutside
from support.upheld import assert_upheld

MINUTE = timedelta(minutes=1)
SCENARIO = """
pools:
- {name: np1, count: 3, cloud: aws}
workloads:
- {kind: Deployment, name: web, namespace: shop, replicas: 4, budget: {minAvailable: 3}}
"""


@pytest.mark.parametrize("has_queue", [True, False])
async def test_an_agent_and_a_queue_have_a_node_drained_once(clock: Clock, tmp_path: Path, *, has_queue: bool) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(SCENARIO)
    cluster = Cluster(clock, seed=1, heartbeat=timedelta(seconds=40), latency=timedelta())
    stage = Stage(cluster, load(str(file)))
    async with cluster.running():
        await stage.put_up()
        await install(stage)
        await clock.sleep(MINUTE)
        configured = Configured(tmp_path / "none.yaml", environ={}, clock=clock, may_lack=True)
        vitals = Vitals(profiles=Profiles(configured, FakeOutside()))
        cloud = stage.fleet.aws.cloud
        instances = {it: stage.fleet.member(it) for it in ("np1-01", "np1-02", "np1-03")}
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(operate(cluster.client("haulout"), stage, vitals))]
            for node, member in instances.items():
                assert member is not None
                client = cluster.client(f"agent-{node}")
                source = AwsMetadataSource(
                    cloud.metadata(member.instance), node=node, clock=clock, random=client.random
                )
                running.append(tasks.create_task(source.run(Inbox(client))))
            await clock.sleep(MINUTE)
            taken = instances["np1-01"]
            assert taken is not None
            cloud.interrupt(taken.instance, silent=not has_queue)
            await clock.sleep(1.5 * MINUTE)
            (notice,) = (await cluster.client("me").list(MAINTENANCE_NOTICES)).items
            pods = [it for it in cluster.api.objects("pods") if it["spec"].get("nodeName") == "np1-01"]
            history = cluster.api.history
            for task in running:
                task.cancel()
    assert (notice.node, METADATA in notice.metadata.annotations) == ("np1-01", True)
    assert [it for it in pods if it["metadata"]["namespace"] == "shop"] == []
    assert _cordons(history, "np1-01") == 1
    assert_upheld(history, PodBudgetsKept(), GraceHonoured(operator={"haulout"}), until=clock.now())


def _cordons(history: Sequence[Write], node: str) -> int:
    """Return how often a node was cordoned."""
    writes = [it for it in history if it.kind.plural == "nodes" and it.key == node and it.before and it.after]
    return sum(_is_cordoned(it.after) and not _is_cordoned(it.before) for it in writes)


def _is_cordoned(node: JsonObject | None) -> bool:
    return bool(node and node["spec"].get("unschedulable"))
