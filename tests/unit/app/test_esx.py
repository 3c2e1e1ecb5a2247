"""Nodes on ESX hosts as a part of the operator: beside profiles, never beside a SAP maintenance-controller."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.app import needs
from haulout.app.configured import Configured
from haulout.app.esx import Esx
from haulout.app.names import PROFILES_LEASE
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.sandbox.operators import install, operate
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.errors import ConfigError, ConfigErrors
from haulout.esx import permissions
from haulout.esx.keys import APPROVED, HOST
from haulout.esx.vcenter import VCenter
from haulout.history.record import MAINTENANCE_RECORDS, definition
from haulout.kube import locks
from haulout.kube.access import lean
from haulout.kube.client import Client
from haulout.profiles import config
from haulout.profiles.plugins.registry import registries
from haulout.web.metrics import Exposition
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios.loading import load, parse
from haulout_sandbox.scenarios.stage import Stage
from haulout_sandbox.scenarios.timeline import Timeline
from support.clusters import a_cluster
from support.esx import PATIENCE, SETTINGS, Site, a_site
from support.invariants import OnlyOurCordonsLifted, PodBudgetsKept
from support.outside import FakeOutside
from support.processes import Program
from support.remembering import words
from support.upheld import assert_upheld

HOME = "haulout"
MINUTE = timedelta(minutes=1)
EMPTY = config.load(b"intervals: {requeue: 1m}\nprofiles: [{name: idle}]\n", registries(), {}).configuration


def esx_of(site: Site) -> Esx:
    return Esx(read=lambda: SETTINGS, connect=lambda _: site.standing_in())


def operator(vitals: Vitals, *, who: str = "one") -> Program:
    """Return the whole operator as a program."""

    async def program(client: Client) -> None:
        await run_operator(
            client, OperatorSettings(namespace=HOME, identity=who), profiles=vitals.profiles, vitals=vitals
        )

    return program


@asynccontextmanager
async def at_home(clock: Clock, folder: Path) -> AsyncIterator[tuple[Site, Vitals]]:
    async with a_site(clock, plan=a_cluster(clock).with_definition(definition())) as site:
        await site.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        configured = Configured(folder / "none.yaml", environ={}, clock=clock, may_lack=True)
        yield site, Vitals(profiles=Profiles(configured, FakeOutside()), esx=esx_of(site))


def numbers(vitals: Vitals) -> dict[str, float]:
    lines = Exposition(vitals.tallies).text().decode().splitlines()
    return {name: float(it) for name, it in (line.rsplit(" ", 1) for line in lines if line.startswith("haulout_esx"))}


async def test_the_operator_sees_to_nodes_on_esx_hosts_and_tells_of_it(clock: Clock, tmp_path: Path) -> None:
    async with at_home(clock, tmp_path) as (site, vitals):
        site.cluster.run(operator(vitals))
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.labelled(n1="true", n2="true", n3="false", n4="false")
        await site.approve("n1", "n2")
        await site.is_down("n1", "n2")
        assert "[+] ESX: this replica sees to 3 hosts; in maintenance or alarm: 1" in vitals.told()
        assert numbers(vitals) == {
            'haulout_esx_hosts{state="true"}': 1,
            'haulout_esx_hosts{state="false"}': 2,
            'haulout_esx_hosts{state="alarm"}': 0,
            'haulout_esx_vcenter_up{zone="a"}': 1,
            'haulout_esx_vcenter_up{zone="b"}': 1,
            'haulout_esx_nodes{stuck="false"}': 2,
            'haulout_esx_nodes{stuck="true"}': 0,
        }
        assert site.label("n1", "cloud.sap/maintenance-state") is None, "without profiles nobody needs that label"
        site.vcenter("a").leave_maintenance("esx-a1")
        await site.is_back("n1", "n2")
        await site.cluster.eventually(lambda: words(site.cluster, "n1", "ESX")[-1:] == ["Running → Ended"])
        assert numbers(vitals)['haulout_esx_nodes{stuck="false"}'] == 0
        site.vcenter("b").faults.fail("Login", status=500, code="NoPermission", times=None)
        await site.cluster.eventually(lambda: any("ESX in zone b" in it for it in vitals.troubles()))
        assert numbers(vitals)['haulout_esx_vcenter_up{zone="b"}'] == 0
        assert any(it.startswith("[-] ESX: in zone b: ") for it in vitals.told())


async def test_nothing_is_done_while_a_sap_maintenance_controller_leads(clock: Clock, tmp_path: Path) -> None:
    async with at_home(clock, tmp_path) as (site, vitals):
        lasts = timedelta(seconds=15)
        await locks.acquire(site.cluster.me, PROFILES_LEASE, namespace=HOME, holder="sap_1", duration=lasts)
        site.cluster.run(operator(vitals))
        for _ in range(12):
            await site.cluster.pass_time(seconds=5)
            await locks.acquire(site.cluster.me, PROFILES_LEASE, namespace=HOME, holder="sap_1", duration=lasts)
        assert site.label("n1") is None
        assert (
            "[+] ESX: this replica does not see to it; the leader does, or a SAP maintenance-controller"
            in vitals.told()
        )
        await site.labelled(n1="false")


async def test_should_it_break_it_starts_again_and_all_else_goes_on(clock: Clock, tmp_path: Path) -> None:
    async with at_home(clock, tmp_path) as (site, vitals):
        broken = [RuntimeError("a defect")]

        async def connect(_: object) -> VCenter:
            raise broken[0]

        assert vitals.esx is not None
        vitals.esx.connect = lambda _: connect if broken else site.standing_in()
        site.cluster.run(operator(vitals))
        await site.cluster.eventually(lambda: any("ESX broke" in it for it in vitals.troubles()))
        assert vitals.leads
        broken.clear()
        await site.labelled(n1="false")


async def test_another_replica_goes_on_where_the_leader_died(clock: Clock, tmp_path: Path) -> None:
    async with at_home(clock, tmp_path) as (site, vitals):
        first = site.cluster.run(operator(vitals, who="one"), name="one")
        await site.labelled(n1="false")
        second = Vitals(profiles=vitals.profiles, esx=esx_of(site))
        site.cluster.run(operator(second, who="two"), name="two")
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        first.kill()
        await site.is_down("n1")
        site.vcenter("a").leave_maintenance("esx-a1")
        await site.is_back("n1")


def test_it_needs_little_that_not_every_operator_may_do() -> None:
    usual, lean_one = needs.permissions(namespace=HOME), needs.permissions(namespace=HOME, configuration=EMPTY)
    assert lean((*usual, *permissions.permissions(namespace=HOME))) == lean(usual)
    more = set(needs.permissions(namespace=HOME, configuration=EMPTY, with_esx=True)) - set(lean_one)
    assert {it.resource for it in more} <= {"events", "nodes", "configmaps"}
    without_force = permissions.permissions(SETTINGS.policy(in_a_hurry=False), namespace=HOME)
    assert not any("delete" in it.verbs for it in without_force)
    assert MAINTENANCE_RECORDS.plural not in {it.resource for it in without_force}


def test_a_broken_file_is_a_trouble() -> None:
    problem = ConfigErrors([ConfigError("expected more", file="esx.yaml", line=3, key="intervals")])
    esx = Esx(read=lambda: SETTINGS, connect=lambda _: pytest.fail("nobody connects"), problem=lambda: problem)
    told = "what the file for ESX said before stays in force: esx.yaml:3: intervals: expected more"
    assert list(esx.troubles()) == [told]


async def test_the_scenario_plays_a_host_that_enters_maintenance_and_its_nodes_come_back(
    clock: Clock, tmp_path: Path
) -> None:
    told: list[str] = []
    async with played(clock, tmp_path, told) as stage:
        nodes = stage.cluster.api.objects
        on_host = [it["metadata"]["name"] for it in nodes("nodes") if it["metadata"]["labels"][HOST] == "esx-worker-a1"]
        assert len(on_host) == 3
        await until(clock, lambda: any("nothing runs on esx-worker-a1" in it for it in told))
        down = [it["metadata"]["name"] for it in nodes("nodes") if it["spec"].get("unschedulable")]
        assert down == on_host
        await until(clock, lambda: not any(it["spec"].get("unschedulable") for it in nodes("nodes")))
        assert told[:4] == [
            "ESX host enters maintenance: esx-worker-a1",
            f"labelled {APPROVED}=true for 30m: {', '.join(on_host)}",
            "nothing runs on esx-worker-a1 any more: it is in maintenance, for 4m",
            "ESX host back: esx-worker-a1",
        ]
        await until(clock, lambda: any("alarm on ESX host" in it for it in told))
        await until(clock, lambda: sum(bool(it["spec"].get("unschedulable")) for it in nodes("nodes")) == 3)
        await until(clock, lambda: not any(it["spec"].get("unschedulable") for it in nodes("nodes")))
        upheld = PodBudgetsKept(), OnlyOurCordonsLifted(operator={HOME})
        assert_upheld(stage.cluster.api.history, *upheld, until=clock.now())


@asynccontextmanager
async def played(clock: Clock, folder: Path, told: list[str]) -> AsyncIterator[Stage]:
    """Have the scenario, and the operator in it."""
    loaded = load("esx")
    cluster = Cluster(clock, seed=0, heartbeat=timedelta(seconds=40), latency=timedelta())
    stage = Stage(cluster, loaded)
    async with cluster.running():
        await stage.put_up()
        await install(stage)
        await clock.sleep(3 * MINUTE)
        configured = Configured(folder / "none.yaml", environ={}, clock=clock, may_lack=True)
        vitals = Vitals(profiles=Profiles(configured, FakeOutside()))
        async with asyncio.TaskGroup() as tasks:
            timeline = Timeline(stage, tell=lambda _, what: told.append(what))
            running = [timeline.run(), operate(cluster.client(HOME), stage, vitals)]
            started = [tasks.create_task(it) for it in running]
            yield stage
            for task in started:
                task.cancel()


async def until(clock: Clock, holds: Callable[[], bool]) -> None:
    ends = clock.now() + PATIENCE
    while not holds():
        assert clock.now() < ends, "it did not come to that"
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
def test_scenarios_that_make_no_sense_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        parse(text.encode(), file="s.yaml", name="s")
    assert problem in str(refused.value)
