"""A node has recovered when the workloads evicted from it are available again, also after a restart of the operator."""

from datetime import timedelta
from pathlib import Path

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, definition
from haulout.api.workloads import WORKLOADS_ANNOTATION
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.default_profile import RECOVERY
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.event_sources import a_notice
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import a_configuration_file, annotation, operator_with_profiles, set_profiles, state
from support.operators.profiles_controller import event_reasons, is_cordoned

IN_MAINTENANCE, OPERATIONAL = "in-maintenance", "operational"
RECOVERED = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: recovered, name: well, config: {workloads: true}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, trigger: drain, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted && well", trigger: uncordon, next: operational}]
"""
NOT_RECOVERED = "evicted from node n1 and not fully available again: Deployment shop/cart (0 of 1)"


def with_pinned_deployment(plan: ClusterPlan) -> ClusterPlan:
    """Add a Deployment that requires node n1, and so is unavailable while that is cordoned."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    return plan.with_nodes(2).with_deployment("shop/cart", replicas=1, pods=pods)


async def unpin_deployment(cluster: LiveCluster) -> None:
    """Let the Deployment run elsewhere."""
    selector = {"kubernetes.io/hostname": "n2"}
    await cluster.patch("deployments", "shop/cart", spec={"template": {"spec": {"nodeSelector": selector}}})


async def set_foreign_hostname(cluster: LiveCluster, node: str, name: str = "elsewhere") -> None:
    """Change the hostname label of a node, so that the Deployment cannot be scheduled."""
    await cluster.patch("nodes", node, metadata={"labels": {"kubernetes.io/hostname": name}})


async def start_maintenance(cluster: LiveCluster, node: str) -> None:
    """Have a profile take a node into maintenance."""
    await set_profiles(cluster, node, "os")
    await cluster.patch("nodes", node, metadata={"labels": {"patch": "yes"}})
    await cluster.eventually(lambda: state(cluster, node), becomes=IN_MAINTENANCE)


def wait_reasons(profiles: list[ProfilesComponent]) -> str:
    """Return the node infos of the last operator as text."""
    return str(profiles[-1].infos()) if profiles else ""


async def test_restarted_operator_waits_for_workloads_evicted_before_the_restart(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    components: list[ProfilesComponent] = []
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).running() as cluster:
        operator = cluster.run(
            operator_with_profiles(a_configuration_file(tmp_path, RECOVERED), on_started=components.append)
        )
        await start_maintenance(cluster, "n1")
        operator.kill()
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": None}})
        operator.start()
        await cluster.eventually(lambda: NOT_RECOVERED in wait_reasons(components), within=timedelta(minutes=2))
        assert state(cluster, "n1") == IN_MAINTENANCE
        await unpin_deployment(cluster)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert annotation(cluster, "n1", WORKLOADS_ANNOTATION) is None


async def test_invalid_workload_record_blocks_recovery_until_it_is_removed(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    components: list[ProfilesComponent] = []
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, RECOVERED), on_started=components.append))
        await start_maintenance(cluster, "n1")
        await cluster.patch("nodes", "n1", metadata={"annotations": {WORKLOADS_ANNOTATION: "[all of them]"}})
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": None}})
        await cluster.eventually(lambda: f"annotation {WORKLOADS_ANNOTATION} is invalid" in wait_reasons(components))
        await unpin_deployment(cluster)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=1)
        assert state(cluster, "n1") == IN_MAINTENANCE
        await cluster.patch("nodes", "n1", metadata={"annotations": {WORKLOADS_ANNOTATION: None}})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)


async def test_profile_without_workload_check_writes_no_record(a_cluster: PlanFactory, tmp_path: Path) -> None:
    text = RECOVERED.replace("workloads: true", "readyFor: 1s")
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, text)))
        await start_maintenance(cluster, "n1")
        assert annotation(cluster, "n1", WORKLOADS_ANNOTATION) is None


# The default profile, for what is announced


async def announce(cluster: LiveCluster, node: str) -> None:
    """Announce a maintenance that is due, and wait until the node is drained for it."""
    await cluster.create(a_notice("disk", node, start=cluster.clock.now() + timedelta(minutes=5)))
    await cluster.eventually(lambda: state(cluster, node), becomes=IN_MAINTENANCE)


async def test_node_returns_after_a_notice_when_its_workloads_have_recovered(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """It is uncordoned first, or what can run nowhere else would never recover."""
    components: list[ProfilesComponent] = []
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).with_crd(definition()).running() as cluster:
        file, environ = tmp_path / "none.yaml", {RECOVERY: "1h"}
        operator = cluster.run(operator_with_profiles(file, environ=environ, on_started=components.append))
        await announce(cluster, "n1")
        await set_foreign_hostname(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: NOT_RECOVERED in wait_reasons(components))
        assert not is_cordoned(cluster, "n1")
        operator.kill()
        operator.start()
        await cluster.eventually(
            lambda: len(components) > 1 and NOT_RECOVERED in wait_reasons(components), within=timedelta(minutes=2)
        )
        assert state(cluster, "n1") == IN_MAINTENANCE
        await set_foreign_hostname(cluster, "n1", "n1")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        assert cluster.ready_pod_count("shop/cart") == 1
        assert annotation(cluster, "n1", WORKLOADS_ANNOTATION) is None


async def test_recovery_after_a_notice_times_out_with_an_event(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).with_crd(definition()).running() as cluster:
        cluster.run(operator_with_profiles(tmp_path / "none.yaml", environ={RECOVERY: "2s"}))
        await announce(cluster, "n1")
        await set_foreign_hostname(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        await cluster.eventually(lambda: "RecoveryTimedOut" in event_reasons(cluster, "n1"))


async def test_new_notice_during_recovery_drains_the_node_again(a_cluster: PlanFactory, tmp_path: Path) -> None:
    components: list[ProfilesComponent] = []
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).with_crd(definition()).running() as cluster:
        environ = {RECOVERY: "1h"}
        cluster.run(operator_with_profiles(tmp_path / "none.yaml", environ=environ, on_started=components.append))
        await announce(cluster, "n1")
        await set_foreign_hostname(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: not is_cordoned(cluster, "n1"))
        await cluster.create(a_notice("power", "n1", start=cluster.clock.now() + timedelta(minutes=5)))
        await cluster.eventually(lambda: is_cordoned(cluster, "n1") and state(cluster, "n1") == IN_MAINTENANCE)


async def test_node_without_the_recovery_setting_returns_when_it_is_ready(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_pinned_deployment(with_operator_rbac(a_cluster())).with_crd(definition()).running() as cluster:
        cluster.run(operator_with_profiles(tmp_path / "none.yaml"))
        await announce(cluster, "n1")
        assert annotation(cluster, "n1", WORKLOADS_ANNOTATION) is None
        await set_foreign_hostname(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        assert cluster.ready_pod_count("shop/cart") == 0
