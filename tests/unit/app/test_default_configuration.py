"""The configuration that is in force where there are no profiles: when it counts, and what becomes of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.app import needs
from haulout.app.configured import Configured
from haulout.app.exposing import Asked
from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.drain.lifecycle import NodeCondition
from haulout.kinds.notice import NoticeCondition, Stage
from haulout.kube import access
from haulout.profiles import config, default
from haulout.profiles.controller import Controller
from haulout.profiles.plugins.registry import registries
from haulout.web.leading import NobodyLeads
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage as Scene
from support.crashes import is_counted, survives_crashes
from support.endings import end_state
from support.forewarned import NOWHERE, Cloud, noticed, operating, ours
from support.invariants import PodBudgetsKept
from support.live import SandboxCluster
from support.maintaining import blocked_on
from support.outside import FakeOutside
from support.profiled import state
from support.profiling import invariants, is_cordoned

OS = """
intervals: {requeue: 1m}
instances: {check: [{name: wanted, type: hasLabel, config: {key: wanted}}]}
profiles: [{name: os, selector: pool=os, operational: {transitions: [{check: wanted, next: maintenance-required}]}}]
"""


AHEAD = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: due, type: notice, config: {leadTime: LEAD}}
  - {name: over, type: notice, config: {when: over, leadTime: LEAD}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain, evictionTimeout: 10m, deletionTimeout: 2m}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: ahead
  onNotice: true
  operational: {transitions: [{check: due, next: in-maintenance, trigger: drain}]}
  in-maintenance: {transitions: [{check: over, next: operational, trigger: uncordon}]}
"""


def a_plan(clock: Clock, nodes: int = 2) -> ClusterPlan:
    return a_cluster(clock).with_nodes(nodes).with_deployment("shop/web", replicas=4, budget=2)


@asynccontextmanager
async def a_world(plan: ClusterPlan, file: Path | None = None, *, most: int | None = None) -> AsyncIterator[Cloud]:
    async with noticed(plan, most=most).on_the_sandbox() as cluster:
        cluster.run(operating(file) if file else operating())
        yield Cloud(cluster, "n1")


def leases(cluster: SandboxCluster) -> set[str]:
    return {it["metadata"]["name"] for it in cluster.objects("leases", namespace="haulout")}


async def taken_out(cloud: Cloud) -> None:
    """Begin a maintenance, and wait until the node is empty."""
    await cloud.say(Stage.STARTED)
    await cloud.cluster.eventually(lambda: state(cloud.cluster, cloud.node), becomes="in-maintenance")


async def given_back(cloud: Cloud) -> None:
    """Wait until nothing of a maintenance is left on the node."""
    await cloud.cluster.eventually(lambda: is_untouched(cloud))


def is_untouched(cloud: Cloud) -> bool:
    """Tell whether nothing of ours is on the node."""
    node = cloud.cluster.get("nodes", cloud.node)
    return not ours(node) and not node["spec"].get("unschedulable")


async def test_no_lease_is_taken_before_the_first_notice(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await cloud.until(2)
        assert leases(cloud.cluster) == {LEADER_LEASE}
        await taken_out(cloud)
        assert leases(cloud.cluster) == {LEADER_LEASE, PROFILES_LEASE}


async def test_profiles_that_appear_replace_it_and_what_it_has_begun_is_brought_to_its_end(
    clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await taken_out(cloud)
        file.write_text(OS)
        await cloud.until(3)
        assert state(cloud.cluster, "n2") == "operational", "the file is in force"
        assert state(cloud.cluster, "n1") == "in-maintenance"
        await cloud.say(Stage.ENDED)
        await cloud.until(5)
        assert not is_cordoned(cloud.cluster, "n1")
        assert '"default"' in ours(cloud.cluster.get("nodes", "n1"))["cloud.sap/maintenance-data"]
        another = Cloud(cloud.cluster, "n2")
        await another.say(Stage.STARTED)
        await cloud.until(8)
        assert not is_cordoned(cloud.cluster, "n2"), "of the default nothing is left"


async def test_what_it_has_begun_is_brought_to_its_end_though_the_node_has_not_said_so_yet(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written to a node a moment ago may not be in our copy of it when the file appears."""

    async def is_not_heard_of(_: Controller, _test: object) -> bool:
        return False

    monkeypatch.setattr(Controller, "any_node", is_not_heard_of)
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await taken_out(cloud)
        file.write_text(OS)
        await cloud.until(3)
        assert state(cloud.cluster, "n2") == "operational", "the file is in force"
        await cloud.say(Stage.ENDED)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_profiles_from_the_beginning_are_all_there_is_where_nothing_is_begun(
    clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    async with a_world(a_plan(clock), file) as cloud:
        await cloud.say(Stage.STARTED)
        await cloud.until(5)
        assert not is_cordoned(cloud.cluster, "n1")


async def test_a_notice_says_when_the_profile_of_its_node_empties_it(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(AHEAD.replace("LEAD", "40m"))
    async with a_world(a_plan(clock), file) as cloud:
        await cloud.say(start=60, end=80)

        def drain_at() -> object:
            return cloud.cluster.get("maintenancenotices", "oci-of-n1").get("status", {}).get("drainAt")

        await cloud.cluster.eventually(lambda: drain_at() == cloud.at(20).replace(".000000", ""))
        file.write_text(AHEAD.replace("LEAD", "30m"))
        await cloud.until(15)
        assert drain_at() == cloud.at(30).replace(".000000", "")
        await cloud.until(28)
        assert not is_cordoned(cloud.cluster, "n1")
        await cloud.until(32)
        assert is_cordoned(cloud.cluster, "n1")


async def test_a_successor_with_other_profiles_brings_it_to_its_end(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await taken_out(cloud)
        process = cloud.cluster.processes["operator"]
        process.kill()
        file.write_text(OS)
        await cloud.say(Stage.ENDED)
        process.start()
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_a_budget_alone_counts_for_it(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text("budget: [{max: 1}]")
    async with a_world(a_plan(clock, nodes=3), file, most=1) as cloud:
        other = Cloud(cloud.cluster, "n2")
        await taken_out(cloud)
        await other.say(Stage.STARTED)
        await cloud.until(5)
        assert state(cloud.cluster, "n2") == "maintenance-required"
        await cloud.say(Stage.ENDED)
        await cloud.cluster.eventually(lambda: state(cloud.cluster, "n2"), becomes="in-maintenance")
        await other.say(Stage.ENDED)
        await given_back(other)


async def test_a_notice_that_was_deleted_leaves_no_node_cordoned(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await taken_out(cloud)
        process = cloud.cluster.processes["operator"]
        process.kill()
        await cloud.cluster.delete("maintenancenotices", "oci-of-n1")
        process.start()
        await given_back(cloud)


async def test_a_node_that_a_person_had_cordoned_stays_cordoned(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await cloud.cluster.cordon("n1")
        await taken_out(cloud)
        await cloud.say(Stage.ENDED)
        await cloud.cluster.eventually(lambda: ours(cloud.cluster.get("nodes", "n1")), becomes={})
        assert is_cordoned(cloud.cluster, "n1")


async def test_a_node_that_cannot_be_emptied_is_given_back_when_it_need_not_be(clock: Clock) -> None:
    async with a_world(blocked_on(a_plan(clock), "n1")) as cloud:
        await cloud.say(start=10, end=60)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"))
        await cloud.until(5)
        assert state(cloud.cluster, "n1") == "maintenance-required"
        await cloud.say(Stage.CANCELLED)
        await given_back(cloud)
        assert len(cloud.cluster.pods_of("shop/on-n1")) == 1


def test_whichever_write_is_the_last_its_successor_comes_to_the_same_end() -> None:
    async def story(scene: Scene) -> None:
        plan = noticed(a_cluster(scene.clock).with_nodes(2).with_deployment("shop/web", replicas=2))
        async with plan.on_the_sandbox() as cluster:
            scene.begin(cluster.cluster)
            cloud = Cloud(cluster, "n1")
            await taken_out(cloud)
            await cloud.say(Stage.ENDED)
            await given_back(cloud)
            await cluster.pass_time(seconds=3)
            entries = cluster.get("maintenancerecords", "n1")["entries"]
            assert [it["to"] for it in entries if "to" in it] == [
                "maintenance-required",
                "in-maintenance",
                "operational",
            ]
            assert not [
                it for it in cluster.history if it.kind.plural == "nodes" and it.key == "n2" and it.who == "operator"
            ]

    held = (*invariants(ours=(*NoticeCondition, *NodeCondition)), PodBudgetsKept())
    writes = survives_crashes(
        story,
        operator=operating(),
        invariants=held,
        counts=is_counted,
        compare=lambda it: {key: end for key, end in end_state(it).items() if key.startswith("nodes ")},
    )
    assert writes >= 8


def test_what_it_needs_is_granted_where_no_configuration_is_known() -> None:
    usual = access.lean(needs.of_profiles(None, namespace="haulout"))
    granted = {(it.group, it.resource, verb) for it in usual if not it.names for verb in it.verbs}
    wanted = needs.of_profiles(default.configuration(), namespace="haulout")
    missing = {(it.group, it.resource, verb) for it in wanted if not it.names for verb in it.verbs} - granted
    assert missing == set()


def test_what_it_needs_is_granted_beside_a_budget_alone() -> None:
    budget = config.load(b"budget: [{max: 1}]", registries(), {}).configuration
    wanted = {(it.resource, verb) for it in needs.of_profiles(budget, namespace="haulout") for verb in it.verbs}
    assert {("pods/eviction", "create"), ("maintenancenotices", "watch")} <= wanted


class Nobody:
    """A leader that there is none."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Tell so."""
        del headers
        raise NobodyLeads("nobody leads at the moment")


async def test_a_follower_knows_of_no_nodes_while_nobody_sees_to_profiles(clock: Clock, tmp_path: Path) -> None:
    idle = Configured(NOWHERE, environ={}, clock=clock, may_lack=True)
    assert await Asked(Nobody(), Vitals(Profiles(idle, FakeOutside()))).info() == b"[]"
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    busy = Configured(file, environ={}, clock=clock)
    with pytest.raises(NobodyLeads):
        await Asked(Nobody(), Vitals(Profiles(busy, FakeOutside()))).info()


@pytest.mark.parametrize("text", ["notices", "onNotice: true", "leadTime: 15m"])
def test_it_is_short_and_says_what_it_does(text: str) -> None:
    lines = [it for it in default.text().splitlines() if not it.startswith("#")]
    assert len(lines) < 25
    assert text in default.text()
