"""Profiles with exactly the permissions that their configuration needs: all works, and nothing is granted in vain.

The configurations cover all plugins that need something in the cluster.
"""

import base64
import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from haulout.app import needs
from haulout.app.names import PROFILES_LEASE
from haulout.drain.permissions import DELETION
from haulout.kube import access
from haulout.kube.objects import RawObject
from haulout.maintenance import permissions as maintenance
from haulout.maintenance.controller import Settings
from haulout.profiles import config
from haulout.profiles.model import Configuration
from haulout.profiles.plugins.registry import registries
from support.clusters import ACCOUNT, Plans
from support.definitions import HYPERVISORS
from support.live import LiveCluster
from support.maintaining import (
    LEASES,
    NAME,
    PLURAL,
    a_lease,
    blocked_on,
    is_blocked,
    maintained,
    operate,
    order,
    over,
    status,
    succeeded,
)
from support.outside import Asked, FakeSlack, Given
from support.permitting import OutsideAndSecrets, rights, unused
from support.profiled import NAMESPACE, attach, operating, state
from support.volumes import attached

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
SELDOM = (
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
    return config.load(file.read_bytes(), registries(), {}, file=str(file)).configuration


def granted_in_vain(cluster: LiveCluster, configuration: Configuration) -> list[str]:
    """Return what a configuration is granted and has not used, as far as that can be told."""
    return [it for it in unused(cluster, needs.of_profiles(configuration, namespace=NAMESPACE)) if it not in SELDOM]


async def want(cluster: LiveCluster, node: str, *, is_wanted: bool = True) -> None:
    """Ask for a maintenance of a node, or end it."""
    await cluster.change("nodes", node, metadata={"labels": {"patch": "yes" if is_wanted else None}})


async def test_a_profile_that_drains_needs_what_it_is_granted(a_cluster: Plans, file: Path) -> None:
    configuration = loaded(file, DRAINING)
    plan = maintained(a_cluster()).with_rights(*rights(configuration)).with_nodes(3)
    plan = plan.with_deployment("shop/cart", replicas=6, budget=5).with_daemon_set("shop/logs")
    async with plan.running() as cluster:
        cluster.run(operating(file))
        for node in ("n1", "n2"):
            await attach(cluster, node, "os")
            await want(cluster, node)
            await cluster.eventually(partial(state, cluster, node), becomes=IN_MAINTENANCE)
            await want(cluster, node, is_wanted=False)
            await cluster.eventually(partial(state, cluster, node), becomes=OPERATIONAL)
        await cluster.pass_time(seconds=5)
        assert granted_in_vain(cluster, configuration) == []
        assert _missing(cluster) == []


async def test_leases_are_needed_where_they_are_and_nowhere_else(a_cluster: Plans, file: Path) -> None:
    configuration = loaded(file, STAGGERED)
    slack = FakeSlack()
    outside = OutsideAndSecrets(behave=slack)
    async with maintained(a_cluster()).with_rights(*rights(configuration)).with_nodes(2).running() as cluster:
        cluster.run(operating(file, outside=outside))
        for node in ("n1", "n2"):
            await attach(cluster, node, "os")
            await want(cluster, node)
            await cluster.eventually(partial(state, cluster, node), becomes=REQUIRED)
            await cluster.eventually(partial(_was_told, slack, node))
        assert slack.titles == ["Today"]
        await cluster.pass_time(seconds=5)
        assert granted_in_vain(cluster, configuration) == []
        granted = [(it["kind"], rule) for it in rights(configuration) for rule in it.get("rules", ())]
        leases = [(kind, rule) for kind, rule in granted if rule.get("resources") == ["leases"]]
        assert {kind for kind, _ in leases} == {"Role"}
        assert {it for _, rule in leases for it in rule.get("resourceNames", ())} >= {
            "turn-0",
            "thread",
            PROFILES_LEASE,
        }


async def test_hypervisors_and_secrets_are_granted_to_who_configures_them(a_cluster: Plans, file: Path) -> None:
    configuration = loaded(file, ELSEWHERE)
    outside = OutsideAndSecrets(behave=_kubernikus)
    plan = maintained(a_cluster()).with_definition(HYPERVISORS).with_rights(*rights(configuration)).with_nodes(1)
    async with plan.running() as cluster:
        await cluster.create(_secret(), _hypervisor("n1"))
        cluster.run(outside.known_to(operating(file, outside=outside)))
        await attach(cluster, "n1", "os")
        await want(cluster, "n1")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        assert cluster.get("hypervisors", "n1")["spec"] == {"maintenance": "manual"}
        await cluster.change("hypervisors", "n1", status={"evicted": True})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await cluster.pass_time(seconds=5)
        assert granted_in_vain(cluster, configuration) == []


async def test_maintenances_need_what_they_are_granted(a_cluster: Plans) -> None:
    """All but EvictionRequests, which few clusters have, and the webhook's certificate; these have their own tests."""
    granted = rights(None, pod_deletion=True)
    plan = maintained(a_cluster()).with_rights(*granted).with_control_plane(1).with_nodes(2)
    plan = blocked_on(plan.with_daemon_set("shop/logs"), "n1")
    rule = {"name": "all", "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}
    async with plan.running() as cluster:
        cluster.run(operate)
        await attached(cluster, "granted-1", "data")
        await order(cluster, "n1", drain={"rules": [rule], "volumeDetachTimeout": "2s"}, recovery={})
        await is_blocked(cluster)
        await cluster.change(PLURAL, NAME, spec={"drain": {"evictionTimeout": "1s"}})
        await succeeded(cluster)
        await order(cluster, "cp1", name="cp")
        await cluster.eventually(lambda: status(cluster, "cp"))
        ran_out = cluster.clock.now() - timedelta(hours=2)
        await cluster.create(a_lease("n2", holder="somebody-before", now=ran_out))  # one that is there is looked at
        await order(cluster, "n2", name="next")
        await succeeded(cluster, "next")
        await over(cluster)
        wanted = (*maintenance.permissions(lease_namespace=LEASES), DELETION)
        found = unused(cluster, [it for it in wanted if it.group != "lifecycle.k8s.io"])
        assert [it for it in found if it not in SELDOM] == []


async def test_a_maintenance_that_may_delete_pods_does_not_start_without_the_right_to(a_cluster: Plans) -> None:
    async with maintained(a_cluster()).with_rights(*rights(None)).with_nodes(1).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1", drain={"evictionTimeout": "1s"})
        said = await cluster.eventually(lambda: status(cluster).get("lastError"))
        assert said.startswith("the operator may not delete pods; the policy deletes pods")
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        await cluster.eventually(lambda: any("may not delete pods" in it for it in _warnings(cluster)))
        await cluster.grant(*rights(None, pod_deletion=True))
        await succeeded(cluster)
        await over(cluster)


async def test_a_policy_that_comes_to_delete_pods_names_the_right_that_it_lacks_and_goes_on_when_it_is_granted(
    a_cluster: Plans,
) -> None:
    plan = blocked_on(maintained(a_cluster()).with_rights(*rights(None)).with_nodes(1), "n1")
    async with plan.running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.change(PLURAL, NAME, spec={"drain": {"evictionTimeout": "1s"}})
        (advice,) = await cluster.eventually(lambda: _advice(cluster, kind="Permission"))
        assert "`rbac.podDeletion` of the chart or `haulout manifests --allow-pod-deletion`" in advice
        assert [it for it in cluster.all("pods") if it.startswith("shop/on-n1")]
        await cluster.grant(*rights(None, pod_deletion=True))
        await succeeded(cluster)
        await over(cluster)


async def test_a_namespace_of_leases_that_is_not_there_is_named_with_the_remedy(a_cluster: Plans) -> None:
    """As OLM installs it: it grants leases in all namespaces, and cannot bring one of them."""
    settings = Settings(lease_namespace="absent-leases")
    everywhere = [replace(it, namespace=None) for it in needs.permissions(namespace=NAMESPACE)]
    subject = {"kind": "ServiceAccount", "namespace": ACCOUNT[0], "name": ACCOUNT[1]}
    plan = maintained(a_cluster()).with_rights(*access.roles("as-olm", access.lean(everywhere), subject)).with_nodes(1)
    async with plan.running() as cluster:
        cluster.run(partial(operate, settings=settings))
        await order(cluster, "n1")
        said = await cluster.eventually(lambda: status(cluster).get("lastError"))
        assert "run `kubectl create namespace absent-leases`" in said
        assert not cluster.has("namespaces", "absent-leases")
        assert "unschedulable" not in cluster.get("nodes", "n1")["spec"]
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "absent-leases"}})
        await succeeded(cluster)
        await over(cluster)
        await cluster.delete("namespaces", "absent-leases")


async def test_a_namespace_of_leases_that_may_be_created_enforces_pod_security(a_cluster: Plans) -> None:
    async with maintained(a_cluster()).with_nodes(1).running() as cluster:
        cluster.run(partial(operate, settings=Settings(lease_namespace="created-leases")))
        await order(cluster, "n1")
        await succeeded(cluster)
        labels = cluster.get("namespaces", "created-leases")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        await over(cluster)
        await cluster.delete("namespaces", "created-leases")


async def test_a_reload_that_needs_more_says_so_and_stops_nothing_else(a_cluster: Plans, file: Path) -> None:
    """The first configuration is permitted; the next one also wants leases that nobody has granted."""
    before = loaded(file, DRAINING)
    plan = maintained(a_cluster()).with_rights(*rights(before)).with_nodes(2)
    async with plan.running() as cluster:
        cluster.run(operating(file))
        for node in ("n1", "n2"):
            await attach(cluster, node, "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        wanted = loaded(file, STAGGERED_DRAINS)
        (said,) = await cluster.eventually(lambda: _missing(cluster))
        assert "list, watch leases.coordination.k8s.io in kube-public" in said
        assert "patch leases.coordination.k8s.io in kube-public t-0 (to stagger)" in said
        await want(cluster, "n1")
        await cluster.change("nodes", "n2", metadata={"labels": {"patch": "yes", "calm": ""}})
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=IN_MAINTENANCE)
        assert state(cluster, "n1") == OPERATIONAL
        await want(cluster, "n2", is_wanted=False)
        await cluster.grant(*rights(wanted))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)


def _advice(cluster: LiveCluster, *, kind: str) -> list[str]:
    """Return what to do about blockers of a kind."""
    return [it["advice"] for it in status(cluster).get("blockers", ()) if it["kind"] == kind]


def _warnings(cluster: LiveCluster) -> list[str]:
    """Return what warnings say."""
    found = [it for it in cluster.all("events").values() if it["type"] == "Warning"]
    return [str(it.get("note") or it.get("message")) for it in found]


def _missing(cluster: LiveCluster) -> list[str]:
    """Return what events say that the operator lacks."""
    found = [it for it in cluster.all("events").values() if it["reason"] == "PermissionsMissing"]
    return [str(it.get("note") or it.get("message")) for it in found]


def _was_told(slack: FakeSlack, node: str) -> bool:
    return any(it["text"] == node for it in slack.posts)


def _kubernikus(asked: Asked) -> Given:
    if asked.method == "POST":
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
