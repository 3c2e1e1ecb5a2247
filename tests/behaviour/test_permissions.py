"""Profiles with exactly the permissions that their configuration needs: all works, and every permission is used.

The configurations cover all plugins that need something in the cluster.
"""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from haulout.api.leases import PROFILES_LEASE
from haulout.api.objects import RawObject
from haulout.app import permissions
from haulout.controllers.nodemaintenance import permissions as maintenance
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.missing_permissions import profile_permissions
from haulout.controllers.profiles.plugins.registry import registries
from haulout.drain.permissions import POD_DELETION
from haulout.kube import rbac
from support.builders.crds import HYPERVISOR_CRD
from support.clusters.cluster_plan import SERVICE_ACCOUNT, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.clusters.rbac import ExternalClientWithSecrets, shipped_rbac, unused_verbs
from support.clusters.volume_attachments import attach_volume
from support.fakes.external_client import FakeReply, FakeSlack, SentRequest
from support.operators.nodemaintenance import (
    LEASE_NAMESPACE,
    NAME,
    PLURAL,
    a_lease,
    create_maintenance,
    end_maintenance,
    run_controller,
    status,
    wait_for_success,
    wait_until_blocked,
    with_blocking_pods,
    with_nodemaintenance_crd,
)
from support.operators.profiles import NAMESPACE, operator_with_profiles, set_profiles, state

OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"

DRAINING = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: maxMaintenance, name: one, config: {max: 1}}
  - {type: capacity, name: fits}
  - {type: recovered, name: well, config: {workloads: true}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: one && fits, trigger: drain, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted && well", trigger: uncordon, next: operational}]
"""
STAGGERED = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: stagger, name: turn, config: {duration: 1s, leaseName: turn, leaseNamespace: kube-public}}
  - {type: affinity, name: alone}
  notify:
  - type: slackThread
    name: told
    config:
      token: xoxb-1
      channel: "#ops"
      title: Today
      message: "{{ .Node.Name }}"
      leaseName: thread
      leaseNamespace: NAMESPACE
      period: 24h
    schedule: {type: periodic, config: {interval: 24h}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted && turn, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: "!wanted && alone", next: operational}]
"""
ELSEWHERE = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: checkHypervisor, name: evicted, config: {evicted: true}}
  - {type: hypervisorCondition, name: ready, config: {type: Ready, status: "True"}}
  - type: kubernikusCount
    name: complete
    config: {cluster: shop, cloudProviderSecret: {name: cloud, namespace: kube-public}}
  trigger:
  - {type: alterHypervisor, name: evacuate, config: {maintenance: manual}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted && ready && complete, trigger: evacuate, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: evicted, next: in-maintenance}]
"""
_TURN = """
  - {type: stagger, name: turn, config: {duration: 1s, leaseName: t, leaseNamespace: kube-public}}
  - {type: hasLabel, name: calm, config: {key: calm}}
  trigger:"""
STAGGERED_DRAINS = DRAINING.replace("\n  trigger:", _TURN).replace("check: wanted,", "check: wanted && (turn || calm),")
RARELY_USED = (
    "get nodes",  # after a conflict, and for the text of a message
    "get nodemaintenances.nodemaintenance.medik8s.io",  # if the server has not just told of it, as when it is slow
    "patch leases.coordination.k8s.io in medik8s-leases",  # they are renewed after half an hour
    f"get pods in {NAMESPACE}",  # when a replica that does not lead is asked what is decided
    "patch events.events.k8s.io",  # when the same is told of a pod again
    *(f"get {kind}.apps" for kind in ("daemonsets", "replicasets", "deployments", "statefulsets")),  # whose pods left
)
CLOUD = """
[Global]
auth-url = "https://identity.example/v3/"
username = "k"
password = "s"
region = "qa"
domain-name = k
tenant-id = "p1"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    return tmp_path / "maintenance.yaml"


def loaded(file: Path, text: str) -> Configuration:
    """Write a configuration, and return it."""
    file.write_text(text.replace("NAMESPACE", NAMESPACE))
    return loader.load(file.read_bytes(), registries(), {}, file=str(file)).configuration


def unused_grants(cluster: LiveCluster, configuration: Configuration) -> list[str]:
    """Return the unused permissions of a configuration, as far as they are known."""
    return [
        item
        for item in unused_verbs(cluster, profile_permissions(configuration, namespace=NAMESPACE))
        if item not in RARELY_USED
    ]


async def request_maintenance(cluster: LiveCluster, node: str, *, is_wanted: bool = True) -> None:
    """Ask for a maintenance of a node, or end it."""
    await cluster.patch("nodes", node, metadata={"labels": {"patch": "yes" if is_wanted else None}})


async def test_draining_profile_uses_all_granted_permissions(a_cluster: PlanFactory, file: Path) -> None:
    configuration = loaded(file, DRAINING)
    plan = with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(configuration)).with_nodes(3)
    plan = plan.with_deployment("shop/cart", replicas=6, budget=5).with_daemon_set("shop/logs")
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(file))
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "os")
            await request_maintenance(cluster, node)
            await cluster.eventually(partial(state, cluster, node), becomes=IN_MAINTENANCE)
            await request_maintenance(cluster, node, is_wanted=False)
            await cluster.eventually(partial(state, cluster, node), becomes=OPERATIONAL)
        await cluster.pass_time(seconds=5)
        assert unused_grants(cluster, configuration) == []
        assert _missing(cluster) == []


async def test_lease_permissions_are_limited_to_the_configured_leases(a_cluster: PlanFactory, file: Path) -> None:
    configuration = loaded(file, STAGGERED)
    slack = FakeSlack()
    external_client = ExternalClientWithSecrets(reply_to=slack)
    async with (
        with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(configuration)).with_nodes(2).running() as cluster
    ):
        cluster.run(operator_with_profiles(file, external_client=external_client))
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "os")
            await request_maintenance(cluster, node)
            await cluster.eventually(partial(state, cluster, node), becomes=REQUIRED)
            await cluster.eventually(partial(_was_notified, slack, node))
        assert slack.titles == ["Today"]
        await cluster.pass_time(seconds=5)
        assert unused_grants(cluster, configuration) == []
        granted = [(item["kind"], rule) for item in shipped_rbac(configuration) for rule in item.get("rules", ())]
        leases = [(kind, rule) for kind, rule in granted if rule.get("resources") == ["leases"]]
        assert {kind for kind, _ in leases} == {"Role"}
        assert {item for _, rule in leases for item in rule.get("resourceNames", ())} >= {
            "turn-0",
            "thread",
            PROFILES_LEASE,
        }


async def test_hypervisor_and_secret_permissions_follow_the_configuration(a_cluster: PlanFactory, file: Path) -> None:
    configuration = loaded(file, ELSEWHERE)
    external_client = ExternalClientWithSecrets(reply_to=_kubernikus)
    plan = (
        with_nodemaintenance_crd(a_cluster())
        .with_crd(HYPERVISOR_CRD)
        .with_rbac(*shipped_rbac(configuration))
        .with_nodes(1)
    )
    async with plan.running() as cluster:
        await cluster.create(_secret(), _hypervisor("n1"))
        cluster.run(external_client.for_program(operator_with_profiles(file, external_client=external_client)))
        await set_profiles(cluster, "n1", "os")
        await request_maintenance(cluster, "n1")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        assert cluster.get("hypervisors", "n1")["spec"] == {"maintenance": "manual"}
        await cluster.patch("hypervisors", "n1", status={"evicted": True})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await cluster.pass_time(seconds=5)
        assert unused_grants(cluster, configuration) == []


async def test_maintenances_use_all_granted_permissions(a_cluster: PlanFactory) -> None:
    """All but EvictionRequests, which few clusters have, and the webhook's certificate; these have their own tests."""
    granted = shipped_rbac(None, pod_deletion=True)
    plan = with_nodemaintenance_crd(a_cluster()).with_rbac(*granted).with_control_plane(1).with_nodes(2)
    plan = with_blocking_pods(plan.with_daemon_set("shop/logs"), "n1")
    rule = {"name": "all", "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await attach_volume(cluster, "granted-1", "data")
        await create_maintenance(cluster, "n1", drain={"rules": [rule], "volumeDetachTimeout": "2s"}, recovery={})
        await wait_until_blocked(cluster)
        await cluster.patch(PLURAL, NAME, spec={"drain": {"evictionTimeout": "1s"}})
        await wait_for_success(cluster)
        await create_maintenance(cluster, "cp1", name="cp")
        await cluster.eventually(lambda: status(cluster, "cp"))
        ran_out = cluster.clock.now() - timedelta(hours=2)
        await cluster.create(a_lease("n2", holder="somebody-before", now=ran_out))  # one that is there is looked at
        await create_maintenance(cluster, "n2", name="next")
        await wait_for_success(cluster, "next")
        await end_maintenance(cluster)
        wanted = (*maintenance.permissions(lease_namespace=LEASE_NAMESPACE), POD_DELETION)
        found = unused_verbs(cluster, [item for item in wanted if item.group != "lifecycle.k8s.io"])
        assert [item for item in found if item not in RARELY_USED] == []


async def test_maintenance_that_may_delete_pods_does_not_start_without_the_permission(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(None)).with_nodes(1).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"evictionTimeout": "1s"})
        error_text = await cluster.eventually(lambda: status(cluster).get("lastError"))
        assert error_text.startswith(
            "the operator is not allowed to delete pods; the drain policy needs the permission to delete pods"
        )
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        await cluster.eventually(lambda: any("not allowed to delete pods" in warning for warning in _warnings(cluster)))
        await cluster.apply_rbac(*shipped_rbac(None, pod_deletion=True))
        await wait_for_success(cluster)
        await end_maintenance(cluster)


async def test_policy_changed_to_delete_pods_reports_the_missing_permission_and_resumes_once_granted(
    a_cluster: PlanFactory,
) -> None:
    plan = with_blocking_pods(with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(None)).with_nodes(1), "n1")
    async with plan.running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await wait_until_blocked(cluster)
        await cluster.patch(PLURAL, NAME, spec={"drain": {"evictionTimeout": "1s"}})
        (advice,) = await cluster.eventually(lambda: _advice(cluster, kind="Permission"))
        assert "`rbac.podDeletion` of the chart or `haulout manifests --allow-pod-deletion`" in advice
        assert [pod for pod in cluster.by_key("pods") if pod.startswith("shop/on-n1")]
        await cluster.apply_rbac(*shipped_rbac(None, pod_deletion=True))
        await wait_for_success(cluster)
        await end_maintenance(cluster)


async def test_missing_lease_namespace_is_reported_with_a_remedy(a_cluster: PlanFactory) -> None:
    """As OLM installs it: it grants leases in all namespaces, and cannot bring one of them."""
    settings = NodeMaintenanceSettings(lease_namespace="absent-leases")
    everywhere = [
        replace(permission, namespace=None) for permission in permissions.operator_permissions(namespace=NAMESPACE)
    ]
    subject = {"kind": "ServiceAccount", "namespace": SERVICE_ACCOUNT[0], "name": SERVICE_ACCOUNT[1]}
    plan = (
        with_nodemaintenance_crd(a_cluster())
        .with_rbac(*rbac.roles("as-olm", rbac.without_redundant(everywhere), subject))
        .with_nodes(1)
    )
    async with plan.running() as cluster:
        cluster.run(partial(run_controller, settings=settings))
        await create_maintenance(cluster, "n1")
        error_text = await cluster.eventually(lambda: status(cluster).get("lastError"))
        assert "run `kubectl create namespace absent-leases`" in error_text
        assert not cluster.has("namespaces", "absent-leases")
        assert "unschedulable" not in cluster.get("nodes", "n1")["spec"]
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "absent-leases"}})
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        await cluster.delete("namespaces", "absent-leases")


async def test_created_lease_namespace_enforces_pod_security(a_cluster: PlanFactory) -> None:
    async with with_nodemaintenance_crd(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(partial(run_controller, settings=NodeMaintenanceSettings(lease_namespace="created-leases")))
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        labels = cluster.get("namespaces", "created-leases")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        await end_maintenance(cluster)
        await cluster.delete("namespaces", "created-leases")


async def test_reload_that_needs_more_permissions_reports_them_and_other_profiles_continue(
    a_cluster: PlanFactory, file: Path
) -> None:
    """The first configuration is permitted; the next one also wants leases that nobody has granted."""
    before = loaded(file, DRAINING)
    plan = with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(before)).with_nodes(2)
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(file))
        for node in ("n1", "n2"):
            await set_profiles(cluster, node, "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        wanted = loaded(file, STAGGERED_DRAINS)
        (message,) = await cluster.eventually(lambda: _missing(cluster))
        assert "list, watch leases.coordination.k8s.io in kube-public" in message
        assert "patch leases.coordination.k8s.io in kube-public t-0 (to stagger)" in message
        await request_maintenance(cluster, "n1")
        await cluster.patch("nodes", "n2", metadata={"labels": {"patch": "yes", "calm": ""}})
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=IN_MAINTENANCE)
        assert state(cluster, "n1") == OPERATIONAL
        await request_maintenance(cluster, "n2", is_wanted=False)
        await cluster.apply_rbac(*shipped_rbac(wanted))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)


def _advice(cluster: LiveCluster, *, kind: str) -> list[str]:
    """Return the advice of blockers of a kind."""
    return [blocker["remedy"] for blocker in status(cluster).get("blockers", ()) if blocker["kind"] == kind]


def _warnings(cluster: LiveCluster) -> list[str]:
    """Return the notes of warning Events."""
    found = [event for event in cluster.by_key("events").values() if event["type"] == "Warning"]
    return [str(event.get("note") or event.get("message")) for event in found]


def _missing(cluster: LiveCluster) -> list[str]:
    """Return the missing permissions that Events report."""
    found = [event for event in cluster.by_key("events").values() if event["reason"] == "PermissionsMissing"]
    return [str(event.get("note") or event.get("message")) for event in found]


def _was_notified(slack: FakeSlack, node: str) -> bool:
    return any(post["text"] == node for post in slack.posts)


def _kubernikus(request: SentRequest) -> FakeReply:
    if request.method == "POST":
        return 201, b"{}"
    return 200, json.dumps({"spec": {"nodePools": [{"size": 1}]}}).encode()


def _secret() -> RawObject:
    data = {"cloudprovider.conf": base64.b64encode(CLOUD.encode()).decode()}
    meta = {"name": "cloud", "namespace": "kube-public"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}


def _hypervisor(name: str) -> RawObject:
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "apiVersion": "kvm.cloud.sap/v1",
        "kind": "Hypervisor",
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": conditions},
    }
