"""Profiles on a whole cluster, by a file that the SAP maintenance-controller would read the same way."""

from datetime import timedelta
from pathlib import Path

import pytest

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.controllers.profiles.component import ProfilesComponent
from support.builders.objects import a_lease
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import create_maintenance, end_maintenance, wait_for_success, with_operator_rbac
from support.operators.profiles import (
    NAMESPACE,
    annotate,
    annotation,
    operator_with_profiles,
    profile_data,
    set_profiles,
    state,
    states,
)

NEEDED = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed"
ALLOWED = "flatcar-linux-update.v1.flatcar-linux.net/reboot-ok"
APPROVED = "cloud.sap/maintenance-approved"
OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"

FLATCAR = f"""
intervals:
  requeue: 60s
  notify: 5h
instances:
  notify:
  - type: slack
    name: approval_required
    config:
      hook: https://hooks.example.com/services/T0/B0/x
      channel: "#ops"
      message: Node {{{{ .Node.Name }}}} with kubelet {{{{ .Node.Status.NodeInfo.KubeletVersion }}}} waits for approval.
    schedule:
      type: periodic
      config:
        interval: 24h
  check:
  - type: hasAnnotation
    name: reboot_needed
    config:
      key: {NEEDED}
      value: "true"
  - type: hasAnnotation
    name: check_approval
    config:
      key: {APPROVED}
      value: "true"
  trigger:
  - type: alterAnnotation
    name: reboot-ok
    config:
      key: {ALLOWED}
      value: "true"
  - type: alterAnnotation
    name: remove_approval
    config:
      key: {APPROVED}
      remove: true
  - type: alterAnnotation
    name: remove_reboot_ok
    config:
      key: {ALLOWED}
      remove: true
profiles:
- name: flatcar
  operational:
    transitions:
    - check: reboot_needed
      next: maintenance-required
  maintenance-required:
    notify: approval_required
    transitions:
    - check: check_approval
      trigger: remove_approval && reboot-ok
      next: in-maintenance
  in-maintenance:
    transitions:
    - check: "!reboot_needed"
      trigger: remove_reboot_ok
      next: operational
"""

DRAINING = """
intervals:
  requeue: 60s
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: maxMaintenance, name: one, config: {max: 1}}
  - {type: capacity, name: fits}
  - {type: recovered, name: well, config: {workloads: true}}
  trigger:
  - {type: eviction, name: cordon, config: {action: cordon}}
  - {type: eviction, name: drain, config: {action: drain, deletionTimeout: 5m, evictionTimeout: 5m}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions:
    - {check: wanted, next: maintenance-required}
  maintenance-required:
    transitions:
    - {check: one && fits, trigger: cordon && drain, next: in-maintenance}
  in-maintenance:
    transitions:
    - {check: "!wanted && well", trigger: uncordon, next: operational}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    return tmp_path / "maintenance.yaml"


def write(file: Path, text: str) -> None:
    """Write a file in place, as an editor does."""
    file.write_text(text)


async def test_flatcar_nodes_reboot_after_approval(a_cluster: PlanFactory, file: Path) -> None:
    write(file, FLATCAR)
    external_client = FakeExternalClient()
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        cluster.run(operator_with_profiles(file, external_client=external_client))
        await cluster.eventually(lambda: (state(cluster, "n1"), state(cluster, "n2")), becomes=(OPERATIONAL,) * 2)
        await set_profiles(cluster, "n1", "flatcar")
        await annotate(cluster, "n1", NEEDED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        await cluster.eventually(lambda: len(external_client.requests), becomes=1)
        assert external_client.requests[0].json["text"].startswith("Node n1 with kubelet v")
        await annotate(cluster, "n1", APPROVED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        assert (annotation(cluster, "n1", ALLOWED), annotation(cluster, "n1", APPROVED)) == ("true", None)
        await annotate(cluster, "n1", NEEDED, "false")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert annotation(cluster, "n1", ALLOWED) is None
        assert states(cluster, "n2")[-1] == OPERATIONAL
        assert profile_data(cluster, "n1")["Profiles"]["flatcar"]["Current"] == OPERATIONAL
        assert len(external_client.requests) == 1


async def test_nodes_are_drained_one_at_a_time_and_return_when_healthy(a_cluster: PlanFactory, file: Path) -> None:
    write(file, DRAINING)
    plan = with_operator_rbac(a_cluster()).with_nodes(3).with_deployment("shop/cart", replicas=3, budget=2)
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(file))
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "os")
            await cluster.patch("nodes", node, metadata={"labels": {"patch": "yes"}})
        inside = await cluster.eventually(lambda: _in_maintenance(cluster))
        assert len(inside) == 1
        assert cluster.pods_on(inside[0]) == []
        await cluster.pass_time(seconds=3)
        assert _in_maintenance(cluster) == inside
        await cluster.patch("nodes", inside[0], metadata={"labels": {"patch": None}})
        (other,) = {"n1", "n2"} - set(inside)
        await cluster.eventually(lambda: _in_maintenance(cluster), becomes=[other])
        assert state(cluster, inside[0]) == OPERATIONAL
        assert not cluster.get("nodes", inside[0])["spec"].get("unschedulable")


async def test_evicted_pods_have_an_event_and_are_counted(a_cluster: PlanFactory, file: Path) -> None:
    write(file, DRAINING)
    components: list[ProfilesComponent] = []
    plan = with_operator_rbac(a_cluster()).with_nodes(2).with_deployment("shop/cart", replicas=2)
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(file, on_started=components.append))
        node = str(cluster.pods_of("shop/cart")[0]["spec"]["nodeName"])
        leaving = {item.partition("/")[2] for item in cluster.pods_on(node)}
        await set_profiles(cluster, node, "os")
        await cluster.patch("nodes", node, metadata={"labels": {"patch": "yes"}})
        await cluster.eventually(lambda: state(cluster, node), becomes=IN_MAINTENANCE)
        await cluster.eventually(lambda: leaving <= _evicted(cluster))
        count = ("deployment_cart", "os")
        await cluster.eventually(lambda: components[0].counters.rescheduled.values.get(count), becomes=len(leaving))
        assert components[0].counters.rescheduled_per_replica.values[count] == len(leaving) / 2


async def test_profiles_wait_while_the_go_controller_leads_and_maintenances_do_not(
    a_cluster: PlanFactory, file: Path
) -> None:
    write(file, FLATCAR)
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await _take_lease(cluster, holder="maintenance-controller-7c_1")
        cluster.run(operator_with_profiles(file))
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert state(cluster, "n1") == ""
        await end_maintenance(cluster)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL, within=timedelta(minutes=1))
        for name in (LEADER_LEASE, PROFILES_LEASE):
            assert cluster.get("leases", f"{NAMESPACE}/{name}")["spec"]["holderIdentity"] == "operator_1"


async def test_configuration_edit_takes_effect_and_an_invalid_one_is_refused(
    a_cluster: PlanFactory, file: Path
) -> None:
    write(file, FLATCAR)
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(operator_with_profiles(file))
        await set_profiles(cluster, "n1", "flatcar")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        write(file, FLATCAR.replace("hasAnnotation", "hasAnotation"))
        refusals = await cluster.eventually(lambda: _refusals(cluster, file))
        assert "found 'hasAnotation'; did you mean hasAnnotation?" in refusals[0]
        await annotate(cluster, "n1", NEEDED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        write(file, FLATCAR.replace(APPROVED, "example.com/go"))
        await cluster.pass_time(seconds=3)
        await annotate(cluster, "n1", "example.com/go", "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)


def _in_maintenance(cluster: LiveCluster) -> list[str]:
    return [node for node in ("n1", "n2") if state(cluster, node) == IN_MAINTENANCE]


def _evicted(cluster: LiveCluster) -> set[str]:
    """Return the pods that Events report as evicted."""
    found = [event for event in cluster.by_key("events").values() if event["reason"] == "Evicting"]
    return {str((event.get("regarding") or event["involvedObject"])["name"]) for event in found}


def _refusals(cluster: LiveCluster, file: Path) -> list[str]:
    """Return the notes of Events about a configuration; a real cluster keeps those of other tests."""
    found = [event for event in cluster.by_key("events").values() if event["reason"] == "ConfigurationRefused"]
    return [note for event in found if str(file) in (note := str(event.get("note") or event.get("message")))]


async def _take_lease(cluster: LiveCluster, *, holder: str) -> None:
    """Hold the lease of the SAP maintenance-controller from now on, and never renew it."""
    stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": stamp, "renewTime": stamp}
    if cluster.has("leases", f"{NAMESPACE}/{PROFILES_LEASE}"):  # a real cluster keeps it from test to test
        await cluster.patch("leases", f"{NAMESPACE}/{PROFILES_LEASE}", spec=spec)
    else:
        await cluster.create(a_lease(f"{NAMESPACE}/{PROFILES_LEASE}").with_spec(**spec))
