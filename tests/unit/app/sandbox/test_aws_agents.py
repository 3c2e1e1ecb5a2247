"""The operator with an AWS queue and an agent on each node that report the same event: one notice, one drain."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.app.operator_status import OperatorStatus
from haulout.app.sandbox.operators import install, run_scenario_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout.providers.aws.imds_event_source import ImdsEventSource
from haulout.providers.aws.instance_events import SHOWN_BY_IMDS
from haulout.providers.notice_writer import NoticeWriter
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loader import load
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from support.expectations.invariant_checks import assert_invariants
from support.fakes.external_client import FakeExternalClient
from support.invariants import GracePeriodRespected, PodDisruptionBudgetsRespected

MINUTE = timedelta(minutes=1)
SCENARIO = """
pools:
- {name: np1, count: 3, cloud: aws}
workloads:
- {kind: Deployment, name: web, namespace: shop, replicas: 4, budget: {minAvailable: 3}}
"""


@pytest.mark.parametrize("has_queue", [True, False])
async def test_agent_and_queue_drain_the_node_of_one_event_once(
    clock: Clock, tmp_path: Path, *, has_queue: bool
) -> None:
    file = tmp_path / "aws.yaml"
    file.write_text(SCENARIO)
    cluster = Cluster(clock, seed=1, heartbeat=timedelta(seconds=40), latency=timedelta())
    scenario_cluster = ScenarioCluster(cluster, load(str(file)))
    async with cluster.running():
        await scenario_cluster.deploy()
        await install(scenario_cluster)
        await clock.sleep(MINUTE)
        configured = ProfilesFile(tmp_path / "none.yaml", environ={}, clock=clock, is_optional=True)
        vitals = OperatorStatus(profiles=ProfilesComponent(configured, FakeExternalClient()))
        cloud = scenario_cluster.fleet.aws.cloud
        instances = {it: scenario_cluster.fleet.member(it) for it in ("np1-01", "np1-02", "np1-03")}
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(run_scenario_operator(cluster.client("haulout"), scenario_cluster, vitals))]
            for node, member in instances.items():
                assert member is not None
                client = cluster.client(f"agent-{node}")
                source = ImdsEventSource(cloud.metadata(member.instance), node=node, clock=clock, random=client.random)
                running.append(tasks.create_task(source.run(NoticeWriter(client))))
            await clock.sleep(MINUTE)
            taken = instances["np1-01"]
            assert taken is not None
            cloud.interrupt_spot(taken.instance, silent=not has_queue)
            await clock.sleep(1.5 * MINUTE)
            (notice,) = (await cluster.client("me").list(MAINTENANCE_NOTICES)).items
            pods = [it for it in cluster.api.objects("pods") if it["spec"].get("nodeName") == "np1-01"]
            history = cluster.api.history
            for task in running:
                task.cancel()
    assert (notice.node, SHOWN_BY_IMDS in notice.metadata.annotations) == ("np1-01", True)
    assert [it for it in pods if it["metadata"]["namespace"] == "shop"] == []
    assert _cordons(history, "np1-01") == 1
    assert_invariants(
        history, PodDisruptionBudgetsRespected(), GracePeriodRespected(operator={"haulout"}), until=clock.now()
    )


def _cordons(history: Sequence[Write], node: str) -> int:
    """Return how often a node was cordoned."""
    writes = [it for it in history if it.kind.plural == "nodes" and it.key == node and it.before and it.after]
    return sum(_is_cordoned(it.after) and not _is_cordoned(it.before) for it in writes)


def _is_cordoned(node: JsonObject | None) -> bool:
    return bool(node and node["spec"].get("unschedulable"))
