"""Advice on shorter lease durations for clouds with short notices."""

from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import definition
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.notices.lease_advice import lease_advice
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from support.clusters.drain_cluster import DrainCluster
from support.clusters.process import Process
from support.operators.event_sources import FakeCloud, a_notice, event_sources_of
from support.operators.replicas import NAMESPACE, a_replica_cluster

LONG = LeaderElectionConfig(
    lease_duration=timedelta(seconds=15), renew_deadline=timedelta(seconds=10), retry_period=timedelta(seconds=2)
)
FLAGS = "--lease-duration=8s --renew-deadline=6s --retry-period=1.5s"


@pytest.mark.parametrize("source", ["azure", "gcp", "aws", "oci", "gke", "tickets"])
def test_default_lease_durations_need_no_advice(source: str) -> None:
    assert lease_advice(LeaderElectionConfig(), [source]) == ""


@pytest.mark.parametrize("source", ["azure", "gcp"])
def test_long_leases_cause_advice_for_clouds_with_short_notices(source: str) -> None:
    assert lease_advice(LONG, ["aws", source]) == (
        f"{source} may announce maintenance only 30s ahead, and after a crash of the leader a standby begins to drain"
        f" within 19s: consider {FLAGS}"
    )


@pytest.mark.parametrize("source", ["aws", "oci", "tickets"])
def test_client_go_lease_durations_need_no_advice_for_other_clouds(source: str) -> None:
    assert lease_advice(LONG, [source]) == ""


def operate(town: DrainCluster, leases: LeaderElectionConfig, *clouds: FakeCloud) -> OperatorStatus:
    """Run an operator with these lease durations; return its status."""
    town.put(definition())
    vitals = OperatorStatus()

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity="one", leases=leases)
        await run_operator(client, settings, notices=NoticesComponent(event_sources_of(*clouds)), status=vitals)

    Process(town.cluster, "one", program).start()
    return vitals


async def test_configured_cloud_source_causes_lease_advice(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        vitals = operate(town, LONG, FakeCloud("gcp"))
        await town.wait_until(lambda: any(FLAGS in it for it in vitals.troubles()))
        await town.wait_until(lambda: FLAGS in caplog.text)


async def test_notice_from_an_agent_causes_lease_advice_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        vitals = operate(town, LONG)
        for name in ("preempt-1", "preempt-2"):
            town.put(a_notice(name, "n1", start=clock.now() + timedelta(days=1), source="azure"))
        await town.wait_until(lambda: any(FLAGS in it for it in vitals.troubles()))
        await clock.sleep(timedelta(minutes=1))
    assert caplog.text.count(FLAGS) == 1


async def test_short_leases_cause_no_advice(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_replica_cluster(clock, "n1") as town:
        vitals = operate(town, LeaderElectionConfig(), FakeCloud("gcp"))
        await town.wait_until(lambda: vitals.notices is not None and any(it.source for it in vitals.notices.sources))
        await clock.sleep(timedelta(minutes=1))
        assert not any("--lease-duration" in it for it in vitals.troubles())
    assert "--lease-duration" not in caplog.text
