"""The default configuration that applies without profiles: when it applies, and its effects."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.maintenancenotice import NoticeCondition, NoticeStage
from haulout.api.objects import NodeConditionType
from haulout.app.http_endpoints import ProfilesLeader
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.missing_permissions import profile_permissions
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


async def start_maintenance(cloud: AnnouncedMaintenance) -> None:
    """Start a maintenance, and wait until the node is empty."""
    await cloud.report(NoticeStage.STARTED)
    await cloud.cluster.eventually(lambda: state(cloud.cluster, cloud.node), becomes="in-maintenance")


async def wait_until_untouched(cloud: AnnouncedMaintenance) -> None:
    """Wait until no label, annotation or cordon of ours is left on the node."""
    await cloud.cluster.eventually(lambda: is_untouched(cloud))


def is_untouched(cloud: AnnouncedMaintenance) -> bool:
    """Return whether the node has no label, annotation or cordon of ours."""
    node = cloud.cluster.get("nodes", cloud.node)
    return not own_metadata(node) and not node["spec"].get("unschedulable")


async def test_default_profile_takes_no_lease_before_the_first_notice(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await cloud.wait_until_minute(2)
        assert leases(cloud.cluster) == {LEADER_LEASE}
        await start_maintenance(cloud)
        assert leases(cloud.cluster) == {LEADER_LEASE, PROFILES_LEASE}


async def test_new_profiles_replace_the_default_profile_and_its_maintenance_is_finished(
    clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await start_maintenance(cloud)
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
        assert not is_cordoned(cloud.cluster, "n2"), "the default profile does not apply any more"


async def test_default_maintenance_is_finished_although_the_informer_is_stale(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recent write to a node may not be in the informer's cache when the file appears."""

    async def no_node(_: ProfilesController, _test: object) -> bool:
        return False

    monkeypatch.setattr(ProfilesController, "any_node", no_node)
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await start_maintenance(cloud)
        file.write_text(OS)
        await cloud.wait_until_minute(3)
        assert state(cloud.cluster, "n2") == "operational", "the file is in force"
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_default_profile_is_not_used_if_profiles_exist_from_the_start(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    async with a_world(a_plan(clock), file) as cloud:
        await cloud.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(5)
        assert not is_cordoned(cloud.cluster, "n1")


async def test_notice_status_has_the_drain_time_of_the_profile(clock: Clock, tmp_path: Path) -> None:
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


async def test_successor_with_other_profiles_finishes_default_maintenance(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    async with a_world(a_plan(clock), file) as cloud:
        await start_maintenance(cloud)
        process = cloud.cluster.processes["operator"]
        process.kill()
        file.write_text(OS)
        await cloud.report(NoticeStage.ENDED)
        process.start()
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"), becomes=False)


async def test_budget_without_profiles_applies_to_the_default_profile(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text("budget: [{max: 1}]")
    async with a_world(a_plan(clock, nodes=3), file, most=1) as cloud:
        other = AnnouncedMaintenance(cloud.cluster, "n2")
        await start_maintenance(cloud)
        await other.report(NoticeStage.STARTED)
        await cloud.wait_until_minute(5)
        assert state(cloud.cluster, "n2") == "maintenance-required"
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: state(cloud.cluster, "n2"), becomes="in-maintenance")
        await other.report(NoticeStage.ENDED)
        await wait_until_untouched(other)


async def test_deleted_notice_leaves_no_node_cordoned(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await start_maintenance(cloud)
        process = cloud.cluster.processes["operator"]
        process.kill()
        await cloud.cluster.delete("maintenancenotices", "oci-of-n1")
        process.start()
        await wait_until_untouched(cloud)


async def test_node_cordoned_by_a_user_stays_cordoned(clock: Clock) -> None:
    async with a_world(a_plan(clock)) as cloud:
        await cloud.cluster.cordon("n1")
        await start_maintenance(cloud)
        await cloud.report(NoticeStage.ENDED)
        await cloud.cluster.eventually(lambda: own_metadata(cloud.cluster.get("nodes", "n1")), becomes={})
        assert is_cordoned(cloud.cluster, "n1")


async def test_node_with_a_blocked_drain_is_uncordoned_when_its_notice_is_cancelled(clock: Clock) -> None:
    async with a_world(with_blocking_pods(a_plan(clock), "n1")) as cloud:
        await cloud.report(start=10, end=60)
        await cloud.cluster.eventually(lambda: is_cordoned(cloud.cluster, "n1"))
        await cloud.wait_until_minute(5)
        assert state(cloud.cluster, "n1") == "maintenance-required"
        await cloud.report(NoticeStage.CANCELLED)
        await wait_until_untouched(cloud)
        assert len(cloud.cluster.pods_of("shop/on-n1")) == 1


def test_default_maintenance_survives_a_crash_after_any_write() -> None:
    async def scenario(crash_run: Scene) -> None:
        plan = with_notices(a_cluster(crash_run.clock).with_nodes(2).with_deployment("shop/web", replicas=2))
        async with plan.on_the_sandbox() as cluster:
            crash_run.start_operator(cluster.cluster)
            cloud = AnnouncedMaintenance(cluster, "n1")
            await start_maintenance(cloud)
            await cloud.report(NoticeStage.ENDED)
            await wait_until_untouched(cloud)
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

    checked_invariants = (
        *invariants(own_metadata=(*NoticeCondition, *NodeConditionType)),
        PodDisruptionBudgetsRespected(),
    )
    writes = assert_survives_crashes(
        scenario,
        operator=notice_operator(),
        invariants=checked_invariants,
        counts=counts_as_write,
        compare=lambda it: {key: end for key, end in end_state(it).items() if key.startswith("nodes ")},
    )
    assert writes >= 8


def test_permissions_of_the_default_profile_are_granted_without_a_configuration() -> None:
    usual = rbac.without_redundant(profile_permissions(None, namespace="haulout"))
    granted = {(it.group, it.resource, verb) for it in usual if not it.names for verb in it.verbs}
    wanted = profile_permissions(default_profile.configuration(), namespace="haulout")
    missing = {(it.group, it.resource, verb) for it in wanted if not it.names for verb in it.verbs} - granted
    assert missing == set()


def test_permissions_of_the_default_profile_are_granted_with_a_budget_only() -> None:
    budget = loader.load(b"budget: [{max: 1}]", registries(), {}).configuration
    wanted = {(it.resource, verb) for it in profile_permissions(budget, namespace="haulout") for verb in it.verbs}
    assert {("pods/eviction", "create"), ("maintenancenotices", "watch")} <= wanted


class NoLeaderClient:
    """A client of the leader when there is no leader."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Raise NoLeader."""
        del headers
        raise NoLeader("no replica is the leader at the moment")


async def test_follower_has_no_node_infos_while_profiles_are_idle(clock: Clock, tmp_path: Path) -> None:
    idle = ProfilesFile(MISSING_FILE, environ={}, clock=clock, is_optional=True)
    assert (
        await ProfilesLeader(
            NoLeaderClient(), OperatorStatus(profiles=ProfilesComponent(idle, FakeExternalClient()))
        ).info()
        == b"[]"
    )
    file = tmp_path / "maintenance.yaml"
    file.write_text(OS)
    busy = ProfilesFile(file, environ={}, clock=clock)
    with pytest.raises(NoLeader):
        await ProfilesLeader(
            NoLeaderClient(), OperatorStatus(profiles=ProfilesComponent(busy, FakeExternalClient()))
        ).info()


@pytest.mark.parametrize("text", ["notices", "onNotice: true", "leadTime: 15m"])
def test_default_profile_is_short_and_documents_itself(text: str) -> None:
    lines = [it for it in default_profile.text().splitlines() if not it.startswith("#")]
    assert len(lines) < 25
    assert text in default_profile.text()
