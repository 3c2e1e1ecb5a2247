"""The configuration that is in force where there are no profiles: when it counts, and what becomes of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.api.maintenancenotice import NoticeCondition, NoticeStage
from haulout.api.objects import NodeConditionType
from haulout.app import permissions
from haulout.app.http_endpoints import ProfilesLeader
from haulout.app.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.operator_status import OperatorStatus
from haulout.app.profiles import ProfilesComponent
from haulout.app.profiles_file import ProfilesFile
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.dashboard.leader_client import NoLeader
from haulout.kube import rbac
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.expectations.end_state import end_state
from support.fakes.external_client import FakeExternalClient
from support.faults.crash_test import CrashRun as Scene
from support.faults.crash_test import assert_survives_crashes, counts_as_write
from support.invariants import PodDisruptionBudgetsRespected
from support.operators.announced_maintenance import (
    MISSING_FILE,
    AnnouncedMaintenance,
    notice_operator,
    own_metadata,
    with_notices,
)
from support.operators.nodemaintenance import with_blocking_pods
from support.operators.profiles import state
from support.operators.profiles_controller import invariants, is_cordoned

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
async def a_world(
    plan: ClusterPlan, file: Path | None = None, *, most: int | None = None
) -> AsyncIterator[AnnouncedMaintenance]:
    async with with_notices(plan, max_unavailable=most).on_the_sandbox() as cluster:
        cluster.run(notice_operator(file) if file else notice_operator())
        yield AnnouncedMaintenance(cluster, "n1")


def leases(cluster: SandboxCluster) -> set[str]:
    return {it["metadata"]["name"] for it in cluster.objects("leases", namespace="haulout")}


async def taken_out(cloud: AnnouncedMaintenance) -> None:
    """Begin a maintenance, and wait until the node is empty."""
    await cloud.report(NoticeStage.STARTED)
    await cloud.cluster.eventually(lambda: state(cloud.cluster, cloud.node), becomes="in-maintenance")


async def given_back(cloud: AnnouncedMaintenance) -> None:
    """Wait until nothing of a maintenance is left on the node."""
    await cloud.cluster.eventually(lambda: is_untouched(cloud))


def is_untouched(cloud: AnnouncedMaintenance) -> bool:
    """Tell whether nothing of ours is on the node."""
    node = cloud.cluster.get("nodes", cloud.node)
    return not own_metadata(node) and not node["spec"].get("unschedulable")


async def test_no_lease_is_taken_before_the_first_notice(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await cloud.wait_until_minute(2)
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
        await cloud.wait_until_minute(3)
        assert state(cloud.cluster, "n2") == "operational", "the file is in force"
        assert state(cloud.cluster, "n1") == "in-maintenance"
        await cloud.report(NoticeStage.ENDED)
        await cloud.wait_until_minute(5)
        assert not is_cordoned(cloud.cluster, "n1")
        assert '"default"' in own_metadata(cloud.cluster.get("nodes", "n1"))["cloud.sap/maintenance-data"]
        another = AnnouncedMaintenance(cloud.cluster, "n2")
        await another.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(8)
        assert not is_cordoned(cloud.cluster, "n2"), "of the default nothing is left"


async def test_what_it_has_begun_is_brought_to_its_end_though_the_node_has_not_said_so_yet(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written to a node a moment ago may not be in our copy of it when the file appears."""

    async def is_not_heard_of(_: ProfilesController, _test: object) -> bool:
        return False

    monkeypatch.setattr(ProfilesController, "any_node", is_not_heard_of)
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await taken_out(cloud)
        file.write_text(OS)
        await cloud.wait_until_minute(3)
        assert state(cloud.cluster, "n2") == "operational", "the file is in force"
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_profiles_from_the_beginning_are_all_there_is_where_nothing_is_begun(
    clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    async with a_world(a_plan(clock), file) as cloud:
        await cloud.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(5)
        assert not is_cordoned(cloud.cluster, "n1")


async def test_a_notice_says_when_the_profile_of_its_node_empties_it(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(AHEAD.replace("LEAD", "40m"))
    async with a_world(a_plan(clock), file) as cloud:
        await cloud.report(start=60, end=80)

        def drain_at() -> object:
            return cloud.cluster.get("maintenancenotices", "oci-of-n1").get("status", {}).get("drainAt")

        await cloud.cluster.eventually(lambda: drain_at() == cloud.format_minute(20).replace(".000000", ""))
        file.write_text(AHEAD.replace("LEAD", "30m"))
        await cloud.wait_until_minute(15)
        assert drain_at() == cloud.format_minute(30).replace(".000000", "")
        await cloud.wait_until_minute(28)
        assert not is_cordoned(cloud.cluster, "n1")
        await cloud.wait_until_minute(32)
        assert is_cordoned(cloud.cluster, "n1")


async def test_a_successor_with_other_profiles_brings_it_to_its_end(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await taken_out(cloud)
        process = cloud.cluster.processes["operator"]
        process.kill()
        file.write_text(OS)
        await cloud.report(NoticeStage.ENDED)
        process.start()
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_a_budget_alone_counts_for_it(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text("budget: [{max: 1}]")
    async with a_world(a_plan(clock, nodes=3), file, most=1) as cloud:
        other = AnnouncedMaintenance(cloud.cluster, "n2")
        await taken_out(cloud)
        await other.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(5)
        assert state(cloud.cluster, "n2") == "maintenance-required"
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: state(cloud.cluster, "n2"), becomes="in-maintenance")
        await other.report(NoticeStage.ENDED)
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
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: own_metadata(cloud.cluster.get("nodes", "n1")), becomes={})
        assert is_cordoned(cloud.cluster, "n1")


async def test_a_node_that_cannot_be_emptied_is_given_back_when_it_need_not_be(clock: Clock) -> None:
    async with a_world(with_blocking_pods(a_plan(clock), "n1")) as cloud:
        await cloud.report(start=10, end=60)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"))
        await cloud.wait_until_minute(5)
        assert state(cloud.cluster, "n1") == "maintenance-required"
        await cloud.report(NoticeStage.CANCELLED)
        await given_back(cloud)
        assert len(cloud.cluster.pods_of("shop/on-n1")) == 1


def test_whichever_write_is_the_last_its_successor_comes_to_the_same_end() -> None:
    async def story(scene: Scene) -> None:
        plan = with_notices(a_cluster(scene.clock).with_nodes(2).with_deployment("shop/web", replicas=2))
        async with plan.on_the_sandbox() as cluster:
            scene.start_operator(cluster.cluster)
            cloud = AnnouncedMaintenance(cluster, "n1")
            await taken_out(cloud)
            await cloud.report(NoticeStage.ENDED)
            await given_back(cloud)
            await cluster.pass_time(seconds=3)
            entries = cluster.get("maintenancerecords", "n1")["entries"]
            assert [it["to"] for it in entries if "to" in it] == [
                "maintenance-required",
                "in-maintenance",
                "operational",
            ]
            assert not [
                it
                for it in cluster.history
                if it.kind.plural == "nodes" and it.key == "n2" and it.username == "operator"
            ]

    held = (*invariants(own_metadata=(*NoticeCondition, *NodeConditionType)), PodDisruptionBudgetsRespected())
    writes = assert_survives_crashes(
        story,
        operator=notice_operator(),
        invariants=held,
        counts=counts_as_write,
        compare=lambda it: {key: end for key, end in end_state(it).items() if key.startswith("nodes ")},
    )
    assert writes >= 8


def test_what_it_needs_is_granted_where_no_configuration_is_known() -> None:
    usual = rbac.without_redundant(permissions.profile_permissions(None, namespace="haulout"))
    granted = {(it.group, it.resource, verb) for it in usual if not it.names for verb in it.verbs}
    wanted = permissions.profile_permissions(default_profile.configuration(), namespace="haulout")
    missing = {(it.group, it.resource, verb) for it in wanted if not it.names for verb in it.verbs} - granted
    assert missing == set()


def test_what_it_needs_is_granted_beside_a_budget_alone() -> None:
    budget = loader.load(b"budget: [{max: 1}]", registries(), {}).configuration
    wanted = {
        (it.resource, verb) for it in permissions.profile_permissions(budget, namespace="haulout") for verb in it.verbs
    }
    assert {("pods/eviction", "create"), ("maintenancenotices", "watch")} <= wanted


class Nobody:
    """A leader that there is none."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Tell so."""
        del headers
        raise NoLeader("no replica is the leader at the moment")


async def test_a_follower_knows_of_no_nodes_while_nobody_sees_to_profiles(clock: Clock, tmp_path: Path) -> None:
    idle = ProfilesFile(MISSING_FILE, environ={}, clock=clock, is_optional=True)
    assert await ProfilesLeader(Nobody(), OperatorStatus(ProfilesComponent(idle, FakeExternalClient()))).info() == b"[]"
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    busy = ProfilesFile(file, environ={}, clock=clock)
    with pytest.raises(NoLeader):
        await ProfilesLeader(Nobody(), OperatorStatus(ProfilesComponent(busy, FakeExternalClient()))).info()


@pytest.mark.parametrize("text", ["notices", "onNotice: true", "leadTime: 15m"])
def test_it_is_short_and_says_what_it_does(text: str) -> None:
    lines = [it for it in default_profile.text().splitlines() if not it.startswith("#")]
    assert len(lines) < 25
    assert text in default_profile.text()
