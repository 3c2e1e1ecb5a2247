"""The ESX component of the operator: it runs with profiles, but never beside a SAP maintenance-controller."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.leases import PROFILES_LEASE
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, custom_resource_definition
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.app.permissions import operator_permissions
from haulout.app.sandbox.operators import install, run_scenario_operator
from haulout.controllers.esx import permissions
from haulout.controllers.esx.component import Esx
from haulout.controllers.esx.labels import APPROVED, HOST
from haulout.controllers.esx.settings_file import EsxFile
from haulout.controllers.esx.vcenter import VCenterLogin
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.dashboard.api.backend import HistoryQuery
from haulout.errors import ConfigErrors
from haulout.httpserver.metrics import Exposition
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.rbac import without_redundant
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loader import load, parse
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from haulout_sandbox.scenarios.timeline import Timeline
from support.clusters.cluster_plan import a_cluster
from support.clusters.process import Program
from support.expectations.history_entries import transition_texts
from support.expectations.invariant_checks import assert_invariants
from support.fakes.external_client import FakeExternalClient
from support.invariants import OnlyOwnCordonsRemoved, PodDisruptionBudgetsRespected
from support.platforms.esx import SETTINGS, TIMEOUT, EsxCluster, an_esx_cluster

HOME = "haulout"
MINUTE = timedelta(minutes=1)
ESX_FILE = """
intervals:
  check: {jitter: 0.1, period: 1m}
  podDeletion: {period: 20s, timeout: 5m}
  podEviction: {period: 20s, timeout: 5m}
  vmShutdown: {period: 20s, timeout: 5m}
vCenters: {templateUrl: https://vcenter-$AZ.example.com, credentials: {a: {username: maintenance}}}
"""
EMPTY = loader.load(b"intervals: {requeue: 1m}\nprofiles: [{name: idle}]\n", registries(), {}).configuration


def esx_of(site: EsxCluster) -> Esx:
    return Esx(lambda: SETTINGS, lambda _: site.connect_in_process())


def operator(vitals: OperatorStatus, *, identity: str = "one") -> Program:
    """Return the whole operator as a program."""

    async def program(client: Client) -> None:
        await run_operator(
            client, OperatorSettings(namespace=HOME, identity=identity), profiles=vitals.profiles, status=vitals
        )

    return program


@asynccontextmanager
async def esx_cluster_and_status(clock: Clock, folder: Path) -> AsyncIterator[tuple[EsxCluster, OperatorStatus]]:
    async with an_esx_cluster(clock, plan=a_cluster(clock).with_crd(custom_resource_definition())) as site:
        await site.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        configured = ProfilesFile(folder / "none.yaml", environ={}, clock=clock, is_optional=True)
        yield (
            site,
            OperatorStatus(profiles=ProfilesComponent(configured, FakeExternalClient()), components=(esx_of(site),)),
        )


def numbers(vitals: OperatorStatus) -> dict[str, float]:
    lines = Exposition(vitals.collect_metrics).text().decode().splitlines()
    return {name: float(it) for name, it in (line.rsplit(" ", 1) for line in lines if line.startswith("haulout_esx"))}


async def test_operator_manages_nodes_on_esx_hosts_and_reports_status_and_metrics(clock: Clock, tmp_path: Path) -> None:
    async with esx_cluster_and_status(clock, tmp_path) as (site, vitals):
        vitals.is_served.set()  # then the backend of the dashboard runs
        site.cluster.run(operator(vitals))
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.wait_for_labels(n1="true", n2="true", n3="false", n4="false")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        assert "[+] ESX: this replica manages 3 hosts; in maintenance or alarm: 1" in vitals.status_lines()
        assert numbers(vitals) == {
            'haulout_esx_hosts{state="true"}': 1,
            'haulout_esx_hosts{state="false"}': 2,
            'haulout_esx_hosts{state="alarm"}': 0,
            'haulout_esx_vcenter_up{zone="a"}': 1,
            'haulout_esx_vcenter_up{zone="b"}': 1,
            'haulout_esx_nodes{stuck="false"}': 2,
            'haulout_esx_nodes{stuck="true"}': 0,
        }
        assert site.label("n1", "cloud.sap/maintenance-state") is None, "without profiles that label is not set"
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1", "n2")
        await site.cluster.eventually(lambda: transition_texts(site.cluster, "n1", "ESX")[-1:] == ["Running → Ended"])
        assert vitals.source is not None
        assert (await vitals.source.history(HistoryQuery())).components == ("Kubernikus", "ESX")
        assert numbers(vitals)['haulout_esx_nodes{stuck="false"}'] == 0
        site.vcenter("b").faults.fail("Login", status=500, code="NoPermission", times=None)
        await site.cluster.eventually(lambda: any("ESX in zone b" in it for it in vitals.troubles()))
        assert numbers(vitals)['haulout_esx_vcenter_up{zone="b"}'] == 0
        assert any(it.startswith("[-] ESX: in zone b: ") for it in vitals.status_lines())


async def test_esx_component_is_idle_while_a_sap_maintenance_controller_leads(clock: Clock, tmp_path: Path) -> None:
    async with esx_cluster_and_status(clock, tmp_path) as (site, vitals):
        lasts = timedelta(seconds=15)
        await leases.acquire(site.cluster.admin, PROFILES_LEASE, namespace=HOME, holder="sap_1", duration=lasts)
        site.cluster.run(operator(vitals))
        for _ in range(12):
            await site.cluster.pass_time(seconds=5)
            await leases.acquire(site.cluster.admin, PROFILES_LEASE, namespace=HOME, holder="sap_1", duration=lasts)
        assert site.label("n1") is None
        assert (
            "[+] ESX: not running on this replica, but on the leader or in a SAP maintenance-controller"
            in vitals.status_lines()
        )
        await site.wait_for_labels(n1="false")


async def test_failed_esx_component_restarts_and_the_operator_keeps_leading(clock: Clock, tmp_path: Path) -> None:
    async with esx_cluster_and_status(clock, tmp_path) as (site, vitals):
        broken = [RuntimeError("a defect")]

        def connect(_: object) -> VCenterLogin:
            if broken:
                raise broken[0]
            return site.connect_in_process()

        (esx,) = vitals.components
        assert isinstance(esx, Esx)
        esx.connect = connect
        site.cluster.run(operator(vitals))
        await site.cluster.eventually(lambda: any("ESX failed" in it for it in vitals.troubles()))
        assert vitals.is_leader
        broken.clear()
        await site.wait_for_labels(n1="false")


async def test_successor_continues_esx_maintenance_of_a_killed_leader(clock: Clock, tmp_path: Path) -> None:
    async with esx_cluster_and_status(clock, tmp_path) as (site, vitals):
        first = site.cluster.run(operator(vitals, identity="one"), name="one")
        await site.wait_for_labels(n1="false")
        second = OperatorStatus(profiles=vitals.profiles, components=(esx_of(site),))
        site.cluster.run(operator(second, identity="two"), name="two")
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        first.kill()
        await site.wait_until_down("n1")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1")


def test_esx_component_needs_few_additional_permissions() -> None:
    usual, lean_one = (
        operator_permissions(namespace=HOME),
        operator_permissions(namespace=HOME, configuration=EMPTY),
    )
    assert without_redundant((*usual, *permissions.permissions(namespace=HOME))) == without_redundant(usual)
    more = set(operator_permissions(namespace=HOME, configuration=EMPTY, components={Esx: None})) - set(lean_one)
    assert {it.resource for it in more} <= {"events", "nodes", "configmaps"}
    without_force = permissions.permissions(SETTINGS.drain_policy(immediate=False), namespace=HOME)
    assert not any("delete" in it.verbs for it in without_force)
    assert MAINTENANCE_RECORDS.plural not in {it.resource for it in without_force}


def test_invalid_esx_file_is_reported_as_a_problem(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "esx.yaml"
    path.write_text(ESX_FILE)
    file = EsxFile(path, environ={}, clock=clock)
    path.write_text("alarms: {}\n")
    file.refresh()
    [problem] = Esx.from_file(file).problems()
    assert problem.startswith(f"the last valid ESX configuration stays in force: {path}")


async def test_esx_scenario_maintains_a_host_and_its_nodes_return(clock: Clock, tmp_path: Path) -> None:
    events: list[str] = []
    async with running_scenario(clock, tmp_path, events) as scenario_cluster:
        nodes = scenario_cluster.cluster.api.objects
        on_host = [it["metadata"]["name"] for it in nodes("nodes") if it["metadata"]["labels"][HOST] == "esx-worker-a1"]
        assert len(on_host) == 3
        await wait_until(clock, lambda: any("nothing runs on esx-worker-a1" in it for it in events))
        down = [it["metadata"]["name"] for it in nodes("nodes") if it["spec"].get("unschedulable")]
        assert down == on_host
        await wait_until(clock, lambda: not any(it["spec"].get("unschedulable") for it in nodes("nodes")))
        assert events[:4] == [
            "ESX host enters maintenance: esx-worker-a1",
            f"labelled {APPROVED}=true for 30m: {', '.join(on_host)}",
            "nothing runs on esx-worker-a1 any more: it is in maintenance, for 4m",
            "ESX host back: esx-worker-a1",
        ]
        await wait_until(clock, lambda: any("alarm on ESX host" in it for it in events))
        await wait_until(clock, lambda: sum(bool(it["spec"].get("unschedulable")) for it in nodes("nodes")) == 3)
        await wait_until(clock, lambda: not any(it["spec"].get("unschedulable") for it in nodes("nodes")))
        checked_invariants = PodDisruptionBudgetsRespected(), OnlyOwnCordonsRemoved(operator={HOME})
        assert_invariants(scenario_cluster.cluster.api.history, *checked_invariants, until=clock.now())


@asynccontextmanager
async def running_scenario(clock: Clock, folder: Path, events: list[str]) -> AsyncIterator[ScenarioCluster]:
    """Run the scenario, and the operator in it."""
    loaded = load("esx")
    cluster = Cluster(clock, seed=0, heartbeat=timedelta(seconds=40), latency=timedelta())
    scenario_cluster = ScenarioCluster(cluster, loaded)
    async with cluster.running():
        await scenario_cluster.deploy()
        await install(scenario_cluster)
        await clock.sleep(3 * MINUTE)
        configured = ProfilesFile(folder / "none.yaml", environ={}, clock=clock, is_optional=True)
        vitals = OperatorStatus(profiles=ProfilesComponent(configured, FakeExternalClient()))
        async with asyncio.TaskGroup() as tasks:
            timeline = Timeline(scenario_cluster, on_event=lambda _, what: events.append(what))
            running = [timeline.run(), run_scenario_operator(cluster.client(HOME), scenario_cluster, vitals)]
            started = [tasks.create_task(it) for it in running]
            yield scenario_cluster
            for task in started:
                task.cancel()


async def wait_until(clock: Clock, holds: Callable[[], bool]) -> None:
    ends = clock.now() + TIMEOUT
    while not holds():
        assert clock.now() < ends, "the condition did not become true"
        await clock.sleep(timedelta(seconds=1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pools: [{name: a, esxHosts: 2, cloud: aws}]", "pools[0].esxHosts: expected none beside cloud or machines"),
        (
            "pools: [{name: a}]\ntimeline: [{at: 1s, esxAlarm: {host: x}}]",
            "timeline[0].esxAlarm.host: expected a pool with esxHosts, found none",
        ),
    ],
)
def test_invalid_esx_scenarios_are_rejected(text: str, problem: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        parse(text.encode(), file="s.yaml", name="s")
    assert problem in str(refused.value)
