"""Metrics of a whole cluster on simulated time, and the alerts that they fire."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.api import maintenancenotice as notices
from haulout.api import maintenancerecord
from haulout.api import nodemaintenance as orders
from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeStage
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.notice_reports import MaintenancePlan
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugin import PROFILE_LABEL
from haulout.core.clock import Clock
from haulout.core.metrics import MetricKind
from haulout.httpserver.metrics import Exposition
from haulout.kube.client import Client
from support.builders.objects import a_namespace
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster
from support.fakes.external_client import FakeExternalClient
from support.metrics.promql import Scrapes, fires, seconds
from support.operators.event_sources import FakeCloud, event_sources_of
from support.operators.profiles import NAMESPACE
from tools.metrics import catalogue
from tools.metrics.alerts import ALERTS

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
STUCK = "stuck"

FILE = """
intervals: {requeue: 10m}
budget: [{max: 2}, {max: 50%, groupBy: [topology.kubernetes.io/zone]}]
instances:
  check:
  - {name: wanted, type: hasAnnotation, config: {key: wanted}}
  - {name: due, type: notice}
  - {name: long_enough, type: wait, config: {duration: 2m}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain, deletionTimeout: 1h}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: "long_enough && !wanted", next: operational, trigger: uncordon}]
- name: cloud
  onNotice: true
  operational:
    transitions: [{check: due, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: due, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: "!due", next: operational, trigger: uncordon}]
"""


@dataclass
class Scenario:
    """A cluster with an operator, whose metrics are scraped every minute."""

    cluster: LiveCluster
    file: Path
    cloud: FakeCloud
    vitals: OperatorStatus
    scrapes: Scrapes = field(default_factory=Scrapes)

    def read(self) -> None:
        """Scrape the metrics."""
        text = Exposition(self.vitals.collect_metrics).text().decode()
        self.scrapes.add(at=self.cluster.clock.now().timestamp(), text=text)

    async def passes(self, time: timedelta) -> None:
        """Let time pass."""
        ends = self.cluster.clock.now() + time
        while self.cluster.clock.now() < ends:
            await self.cluster.clock.sleep(MINUTE)
            self.read()

    async def order(self, name: str, node: str, **spec: Any) -> None:
        """Create a NodeMaintenance."""
        await self.cluster.create(
            {
                "apiVersion": NODE_MAINTENANCES.api_version,
                "kind": NODE_MAINTENANCES.kind,
                "metadata": {"name": name},
                "spec": {"nodeName": node, **spec},
            }
        )

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of a metric as it is now, of the series with these labels."""
        now = self.scrapes.times[-1]
        found = self.scrapes.at(name, now, window=None)
        return sum(values[-1] for has, values in found if labels.items() <= dict(has).items())

    def fired(self) -> set[str]:
        """Return the alerts that have fired so far, with a tenth of the `for` time of each."""
        return {it.name for it in ALERTS if fires(it.expr, self.scrapes, for_seconds=seconds(it.for_) / 10)}


@asynccontextmanager
async def a_metrics_scenario(clock: Clock, folder: Path) -> AsyncIterator[Scenario]:
    """Yield a cluster with six nodes; one has a pod whose PodDisruptionBudget refuses eviction."""
    file = folder / "maintenance.yaml"
    file.write_text(FILE)
    plan = ClusterPlan(clock)
    for definition in (
        orders.custom_resource_definition(),
        notices.definition(),
        maintenancerecord.custom_resource_definition(),
    ):
        plan = plan.with_crd(definition)
    plan = plan.with_objects(a_namespace(NAMESPACE)).with_nodes(6, zones=2).with_deployment("shop/cart", replicas=6)
    plan = plan.with_deployment(f"shop/{STUCK}", replicas=1, budget=1)
    async with plan.running() as cluster:
        cloud, vitals = FakeCloud("cloud"), OperatorStatus()
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=clock), FakeExternalClient())

        async def program(client: Client) -> None:
            await run_operator(
                client,
                OperatorSettings(namespace=NAMESPACE, identity="operator_1"),
                profiles=profiles,
                notices=NoticesComponent(event_sources_of(cloud)),
                status=vitals,
            )

        cluster.run(program)
        scenario = Scenario(cluster, file, cloud, vitals)
        await scenario.passes(2 * MINUTE)
        yield scenario


def node_of(cluster: LiveCluster, app: str) -> str:
    """Return the node of the only pod of an app."""
    [pod] = [it for it in cluster.by_key("pods").values() if it["metadata"]["labels"]["app"] == app]
    return str(pod["spec"]["nodeName"])


async def test_metrics_of_a_healthy_cluster_fire_no_alert(clock: Clock, tmp_path: Path) -> None:
    async with a_metrics_scenario(clock, tmp_path) as scenario:
        cluster = scenario.cluster
        stuck = node_of(cluster, STUCK)
        first, second, third, fourth, *_ = [it for it in sorted(cluster.by_key("nodes")) if it != stuck]
        await scenario.order("patch", first)
        wanted = {"labels": {PROFILE_LABEL: "os"}, "annotations": {"wanted": "yes"}}
        await cluster.patch("nodes", second, metadata=wanted)
        start = clock.now() + 20 * MINUTE
        scenario.cloud.report("e1", at=clock.now(), node_name=third, plan=MaintenancePlan(start=start))
        await scenario.passes(2 * MINUTE)
        assert (
            scenario.value("haulout_drain_duration_seconds_count", controller="nodemaintenance", result="Drained") == 1
        )
        assert scenario.value("haulout_drain_duration_seconds_count", controller="profiles", result="Drained") == 1
        assert 0 < scenario.value("haulout_drain_duration_seconds_sum", controller="nodemaintenance") < 60
        assert scenario.value("haulout_drain_pods_total", method="evict") >= 2
        assert scenario.value("haulout_drains_running") == 0
        assert scenario.value("haulout_nodes") == 6
        assert scenario.value("haulout_nodes_unavailable") == 2
        assert scenario.value("haulout_budget_used", group="the whole cluster") == 2
        assert scenario.value("haulout_budget_limit", group="topology.kubernetes.io/zone=z1") == 1
        assert scenario.value("haulout_notices_lead_seconds_count", source="cloud") == 1
        assert scenario.value("haulout_notices_lead_seconds_sum") == pytest.approx(20 * 60, abs=5)
        assert scenario.value("haulout_watch_objects", resource="nodes") >= 6
        assert scenario.value("haulout_watch_age_seconds", resource="nodes") < 120
        assert scenario.value("haulout_watch_not_synced") == 0
        assert scenario.value("haulout_queue_lag_seconds_count", queue="profiles") > 0
        assert scenario.value("haulout_api_requests_total", verb="watch", resource="nodes", code="200") >= 1
        await scenario.order("next", fourth)
        await scenario.passes(MINUTE)
        assert scenario.value("haulout_budget_waiting", controller="nodemaintenance") == 1
        await cluster.admin.delete(NODE_MAINTENANCES, "patch")
        await cluster.patch("nodes", second, metadata={"annotations": {"wanted": None}})
        await scenario.passes(2 * MINUTE)
        assert scenario.value("haulout_budget_waiting", controller="nodemaintenance") == 0
        await cluster.admin.delete(NODE_MAINTENANCES, "next")
        await scenario.passes(start + SECOND - clock.now())
        await cluster.patch(MAINTENANCE_NOTICES.plural, "cloud-e1", spec={"stage": NoticeStage.STARTED})
        await scenario.passes(MINUTE)
        assert scenario.value("haulout_notices", phase="Active") == 1
        assert 600 < scenario.value("haulout_notices_empty_before_start_seconds_sum", source="cloud") <= 900
        assert scenario.value("haulout_queue_scheduled_lag_seconds_count", queue="notices") > 0
        assert scenario.value("haulout_queue_scheduled_lag_seconds_sum", queue="notices") < 1
        assert scenario.fired() == set()


async def test_alerts_fire_for_blocked_drains_late_notices_and_invalid_configuration(
    clock: Clock, tmp_path: Path
) -> None:
    async with a_metrics_scenario(clock, tmp_path) as scenario:
        cluster = scenario.cluster
        stuck = node_of(cluster, STUCK)
        await scenario.order("patch", stuck)
        await scenario.passes(5 * MINUTE)
        assert scenario.fired() == {"HauloutDrainBlocked"}
        assert scenario.value("haulout_drains_blocked", kind="DisruptionBudget", controller="nodemaintenance") == 1
        assert 240 < scenario.value("haulout_drain_blocked_seconds_total", kind="DisruptionBudget") <= 300
        assert scenario.value("haulout_drain_refusals_total", kind="DisruptionBudget") > 1
        assert scenario.value("haulout_drains_running", controller="nodemaintenance") == 1
        assert scenario.value("haulout_drain_pods_left", controller="nodemaintenance") == 1

        scenario.cloud.report(
            "e1", at=clock.now(), node_name=stuck, plan=MaintenancePlan(start=clock.now() + 3 * MINUTE)
        )
        await scenario.passes(2 * MINUTE)
        assert scenario.fired() == {"HauloutDrainBlocked", "HauloutNoticesLate"}
        await cluster.patch(MAINTENANCE_NOTICES.plural, "cloud-e1", spec={"stage": NoticeStage.STARTED})
        await scenario.passes(MINUTE)
        assert scenario.value("haulout_notices_empty_before_start_seconds_bucket", le="0") == 1
        announced = {"HauloutNoticesLate", "HauloutNodeNotEmptyInTime"}
        assert scenario.fired() == {"HauloutDrainBlocked", *announced}

        await cluster.admin.delete(NODE_MAINTENANCES, "patch")
        await scenario.passes(MINUTE)
        assert (
            scenario.value("haulout_drain_duration_seconds_count", result="Cancelled", controller="nodemaintenance")
            == 1
        )
        scenario.file.write_text("profiles: [{")
        await scenario.passes(2 * MINUTE)
        assert scenario.fired() == {"HauloutDrainBlocked", "HauloutConfigurationBroken", *announced}


ELSEWHERE = (  # not in this scenario, and process metrics are exposed separately
    *("haulout_machine_", "haulout_webhook_", "haulout_esx_", "haulout_kubernikus_", "haulout_hub_"),
    "haulout_agent_",
    *("process_", "python_", "haulout_http_"),
)


async def test_every_exposed_metric_is_declared_in_the_catalogue(clock: Clock, tmp_path: Path) -> None:
    async with a_metrics_scenario(clock, tmp_path) as scenario:
        exposed = {it.metric.name for it in scenario.vitals.collect_metrics()}
        declared = {it.name for it in catalogue.metrics()}
        assert exposed <= declared
        assert declared - exposed == {it for it in declared if it.startswith(ELSEWHERE)}
        for it in scenario.vitals.collect_metrics():
            samples = list(it.samples())
            endings = ("_bucket", "_sum", "_count") if it.metric.kind is MetricKind.HISTOGRAM else ("",)
            assert {sample.name for sample in samples} <= {it.metric.name + ending for ending in endings}


# Alerts that are hard to cause in a scenario: for each, samples that should fire it, and others that should not

LAG = 'haulout_{}_lag_seconds_bucket{{queue="q",le="{}"}} {}'
LIMIT = 'limit="at most 1",group="all"'


def lags(name: str, *, quick: float, slow: float) -> Callable[[int], str]:
    ends = (("0.1", quick), ("60", quick + slow), ("+Inf", quick + slow))
    return lambda at: "\n".join(LAG.format(name, end, at * number) for end, number in ends)


def leads(*, operator: int, hub: int) -> Callable[[int], str]:
    names = (("135b1886.medik8s.io", operator), (EXTENSION_LEASE, hub), ("somebody.else", 0))
    return lambda _: "\n".join(f'leader_election_master_status{{name="{name}"}} {it}' for name, it in names)


def used_up(used: int, waiting: int) -> Callable[[int], str]:
    return lambda _: (
        f"haulout_budget_used{{{LIMIT}}} {used}\nhaulout_budget_limit{{{LIMIT}}} 1\n"
        f'haulout_budget_waiting{{controller="nodemaintenance"}} {waiting}'
    )


def cluster_budget_used_up(used: int, waiting: int) -> Callable[[int], str]:
    """One of two limits always has free slots: the waiting cluster is not counted for that one."""
    numbers = (("at most 1", used, 1, waiting), ("at most 5", used, 5, waiting))
    return lambda _: "\n".join(
        f'haulout_hub_budget_{name}{{limit="{limit}"}} {number}'
        for limit, *of_it in numbers
        for name, number in zip(("used", "limit", "waiting"), of_it, strict=True)
    )


def answers(good: int, bad: int) -> Callable[[int], str]:
    codes = (("200", good), ("409", good), ("503", bad))
    line = 'haulout_api_requests_total{{verb="get",resource="pods",code="{}"}} {}'
    return lambda at: "\n".join(line.format(code, at * number) for code, number in codes)


def gauge(series: str, number: float) -> Callable[[int], str]:
    return lambda _: f"{series} {number}"


def counter(series: str, step: float) -> Callable[[int], str]:
    return lambda at: f"{series} {at * step}"


SERIES = {
    "HauloutNodesSkipped": (gauge, "haulout_profiles_nodes_skipped", 2, 0),
    "HauloutTransitionsFailing": (counter, 'maintenance_controller_transition_failure_count{profile="os"}', 1, 0),
    "HauloutDrainsFailing": (
        counter,
        'haulout_drain_duration_seconds_count{controller="nodemaintenance",result="TimedOut"}',
        1,
        0,
    ),
    "HauloutCloudSourceDown": (gauge, 'haulout_notices_source_up{source="aws"}', 0, 1),
    "HauloutAgentSourceDown": (gauge, 'haulout_agent_up{cloud="azure",instance="n1"}', 0, 1),
    "HauloutCloudMessagesQuarantined": (counter, 'haulout_notices_quarantined_total{source="aws"}', 1, 0),
    "HauloutMachinesNotReplaced": (gauge, 'haulout_machine_maintenances{phase="Refused"}', 1, 0),
    "HauloutVCenterDown": (gauge, 'haulout_esx_vcenter_up{zone="a"}', 0, 1),
    "HauloutEsxHostWaiting": (gauge, 'haulout_esx_hosts{state="alarm"}', 1, 0),
    "HauloutEsxNodesStuck": (gauge, 'haulout_esx_nodes{stuck="true"}', 1, 0),
    "HauloutClustersUnreachable": (gauge, 'haulout_hub_clusters{connection="unreachable"}', 1, 0),
    "HauloutApprovalOverdue": (gauge, 'haulout_hub_longest_wait_seconds{request="deletion"}', 20_000, 600),
    "HauloutHostNotPoweredOff": (gauge, 'haulout_hub_hosts{state="waiting"}', 1, 0),
    "HauloutServersNotDeleted": (gauge, 'haulout_kubernikus_deletions{stuck="true"}', 1, 0),
    "HauloutWatchSilent": (gauge, 'haulout_watch_age_seconds{resource="nodes"}', 400, 40),
    "HauloutHistoryEntriesDropped": (counter, 'haulout_dropped_total{type="events"}', 1, 0),
}
CASES = {
    **{name: (how(series, bad), how(series, good)) for name, (how, series, bad, good) in SERIES.items()},
    "HauloutAbsent": (lambda _: "other 1", leads(operator=0, hub=0)),
    "HauloutNoLeader": (leads(operator=1, hub=0), leads(operator=1, hub=1)),
    "HauloutBudgetExhausted": (used_up(1, 1), used_up(1, 0)),
    "HauloutClusterBudgetExhausted": (cluster_budget_used_up(1, 1), cluster_budget_used_up(1, 0)),
    "HauloutQueueLagHigh": (lags("queue", quick=1, slow=9), lags("queue", quick=10, slow=0)),
    "HauloutTimersLate": (lags("queue_scheduled", quick=1, slow=9), lags("queue_scheduled", quick=10, slow=0)),
    "HauloutApiErrors": (answers(1, 1), answers(20, 1)),
}
IN_SCENARIOS = {
    *("HauloutDrainBlocked", "HauloutNoticesLate", "HauloutNodeNotEmptyInTime", "HauloutConfigurationBroken"),
}


def test_each_alert_has_a_test() -> None:
    assert {it.name for it in ALERTS} == IN_SCENARIOS | set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_alert_fires_exactly_for_its_condition(name: str) -> None:
    [alert] = [it for it in ALERTS if it.name == name]
    for numbers, should_fire in zip(CASES[name], (True, False), strict=True):
        scrapes = Scrapes()
        for minute in range(300):
            scrapes.add(at=60 * minute, text=numbers(minute))
        assert fires(alert.expr, scrapes, for_seconds=seconds(alert.for_)) is should_fire
