"""The page "Coming from the Node Maintenance Operator", command by command, on a cluster in which that one was at work.

It was stopped in the middle of a drain: its definition, its object, its leases and what it did to the node are there as
it leaves them, and so is its webhook, which nobody answers any more.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import ControlPlane
from haulout.api.nodemaintenance import FINALIZER, NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout.webhook import registration
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import LiveCluster
from support.docs.page_commands import Shell, page_commands
from support.operators.nodemaintenance import (
    NAME,
    PLURAL,
    condition_of,
    end_maintenance,
    has_lease,
    has_maintenance_marks,
    is_gone,
    is_released,
    lease,
    started_by_nmo,
    status,
    wait_for_success,
    with_blocking_pods,
)

PAGE = Path(__file__).parents[2] / "docs/migrating/node-maintenance-operator.md"
OLD_HOME = "node-maintenance-operator-system"
OLD = "node-maintenance-operator-controller-manager"
OLD_FIELDS = {
    "phase": "string",
    "drainProgress": "integer",
    "lastError": "string",
    "totalpods": "integer",
    "evictionPods": "integer",
    "errorOnLeaseCount": "integer",
}

pytestmark = pytest.mark.real_time


def old_definition() -> RawObject:
    """Return the definition that the other operator installs, as far as clients can tell."""
    pods = {"type": "array", "items": {"type": "object", "properties": _of(namespace="string", name="string")}}
    status_fields = {
        **_of(**OLD_FIELDS),
        "lastUpdate": {"type": "string", "format": "date-time"},
        "pendingPods": {"type": "array", "items": {"type": "string"}},
        "pendingPodsRefs": pods,
    }
    spec = {"type": "object", "required": ["nodeName"], "properties": _of(nodeName="string", reason="string")}
    properties = {
        **_of(apiVersion="string", kind="string", metadata="object"),
        "spec": spec,
        "status": {"type": "object", "properties": status_fields},
    }
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {
        "kind": NODE_MAINTENANCES.kind,
        "listKind": f"{NODE_MAINTENANCES.kind}List",
        "plural": NODE_MAINTENANCES.plural,
        "singular": "nodemaintenance",
        "shortNames": ["nm"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{NODE_MAINTENANCES.plural}.{NODE_MAINTENANCES.group}"},
        "spec": {"group": NODE_MAINTENANCES.group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _of(**types: str) -> dict[str, Any]:
    return {name: {"type": kind} for name, kind in types.items()}


def old_operator() -> list[RawObject]:
    """Return the Deployment of the other operator, and its leader lease."""
    labels = {"control-plane": "controller-manager"}
    containers = [{"name": "manager", "image": "example/manager"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    held = {"holderIdentity": f"{OLD}-7d9f_1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": OLD, "namespace": OLD_HOME}, "spec": spec},
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "135b1886.medik8s.io", "namespace": OLD_HOME},
            "spec": held,
        },
    ]


@pytest.fixture
def isolated() -> Iterator[ControlPlane]:
    """Run a control plane for this test alone, because it uses objects that exist once per cluster."""
    with ControlPlane() as plane:
        plane.start_controllers()
        yield plane


@pytest.fixture
def shell(isolated: ControlPlane, tmp_path: Path) -> Shell:
    """Return a reader's shell."""
    return Shell(tmp_path, kubeconfig=isolated.kubeconfig(), kubectl=isolated.assets.path("kubectl"))


async def stop_old_operator(cluster: LiveCluster) -> None:
    """Leave the cluster as the other operator leaves it when it is stopped while a pod does not leave."""
    await cluster.create(a_namespace("medik8s-leases"), *old_operator())
    await started_by_nmo(
        cluster,
        "n1",
        phase="Running",
        drainProgress=50,
        totalpods=2,
        evictionPods=2,
        pendingPods=["on-n1"],
        lastError='error when evicting pods/"on-n1" -n "shop": global timeout reached: 30s',
    )
    configuration = registration.configuration(service_name="webhook-service", namespace=OLD_HOME)
    await cluster.admin.create(CONFIGURATIONS, configuration)


async def test_page_commands_succeed(isolated: ControlPlane, shell: Shell, clock: Clock) -> None:
    steps = [candidate.text for candidate in page_commands(PAGE.read_text())]
    at_last = steps.index("kubectl get nm")
    migration_steps, rollback_steps = steps[: at_last + 1], steps[at_last + 1 :]
    plan = with_blocking_pods(a_cluster(clock, control_plane=isolated).with_crd(old_definition()).with_nodes(2), "n1")
    async with plan.with_objects(a_pod("shop/free", on="n2")).running() as cluster:
        await stop_old_operator(cluster)
        (start,) = [candidate for candidate in migration_steps if candidate == "haulout run"]
        in_cluster = next(candidate for candidate in migration_steps if "--image" in candidate)
        for command in migration_steps[: migration_steps.index(start)]:
            await asyncio.to_thread(shell.run, command)
        with shell.running(start):
            await cluster.eventually(lambda: condition_of(cluster, "Cordoned")[0], becomes="True")
            await cluster.eventually(lambda: condition_of(cluster, "Drained"), becomes=("False", "Blocked"))
            assert (status(cluster)["evictionPods"], status(cluster)["totalpods"]) == (2, 2)
            table = await asyncio.to_thread(shell.run, migration_steps[-1])
            assert [line.split()[:3] for line in table.splitlines()[1:]] == [[NAME, "n1", "Running"]]

        # The way back, in the middle: what the other operator looks for is there.
        assert cluster.get(PLURAL, NAME)["metadata"]["finalizers"] == [FINALIZER]
        assert lease(cluster, "n1")["spec"]["holderIdentity"] == "node-maintenance"
        assert has_maintenance_marks(cluster, "n1")

        with shell.running(start):
            await cluster.delete("poddisruptionbudgets", "shop/on-n1")
            await wait_for_success(cluster)
            await end_maintenance(cluster)
            assert is_gone(cluster)
            assert is_released(cluster, "n1")
            assert not has_lease(cluster, "n1")

        applied = await asyncio.to_thread(
            shell.run, in_cluster, substitutions={"REGISTRY/haulout:TAG": "example/haulout:1"}
        )
        assert "deployment.apps/haulout created" in applied
        for command in rollback_steps:
            await asyncio.to_thread(shell.run, command)
        old = yaml.safe_load(await asyncio.to_thread(shell.run, f"kubectl -n {OLD_HOME} get deployment {OLD} -o yaml"))
        new = yaml.safe_load(await asyncio.to_thread(shell.run, "kubectl -n haulout get deployment haulout -o yaml"))
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (1, 0)
