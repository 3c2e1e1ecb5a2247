"""The page "Coming from the Machine Maintenance Operator", command by command, where that one was at work.

It was stopped with one record that is done and one that is still to do. Its definition is the old one, as far as a
server of today takes it. The Machine API is a stand-in.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from controlplane import ControlPlane
from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout_sandbox.openshift.objects import custom_resource_definitions
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import LiveCluster
from support.docs.page_commands import Shell, page_commands
from support.platforms.machinemaintenance import create_machinemaintenance, is_deletion_scheduled, wait_until_completed
from support.platforms.openshift import create_machine_set, machine_api, machines

PAGE = Path(__file__).parents[2] / "docs/migrating/machine-maintenance-operator.md"
OLD = "machine-maintenance-operator"

pytestmark = pytest.mark.real_time


def old_definition() -> RawObject:
    """Return the definition that the other operator installs, in the version that servers take today."""
    text = {"type": "string"}
    fields = dict.fromkeys(("eventcode", "eventid", "machineid", "machinelink"), text)
    spec = {
        "type": "object",
        "required": ["machineid", "machinelink", "maintenancescheduled"],
        "properties": {**fields, "maintenancescheduled": {"type": "boolean"}},
    }
    properties = {"spec": spec, "status": {"type": "object"}}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    kind, plural = MACHINE_MAINTENANCES.kind, MACHINE_MAINTENANCES.plural
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": "machinemaintenance"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{MACHINE_MAINTENANCES.group}"},
        "spec": {"group": MACHINE_MAINTENANCES.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def old_operator() -> RawObject:
    """Return the Deployment of the other operator."""
    labels = {"name": OLD}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": OLD, "image": "example/old"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": OLD, "namespace": NAMESPACE}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def with_old_operator(plan: ClusterPlan) -> ClusterPlan:
    """Return a cluster of OpenShift in which the other operator is installed."""
    for definition in (*custom_resource_definitions(), old_definition()):
        plan = plan.with_crd(definition)
    return plan


@asynccontextmanager
async def on_a_control_plane(clock: Clock, folder: Path) -> AsyncIterator[tuple[LiveCluster, Shell]]:
    """Run a control plane for this test alone, because it uses objects that exist once per cluster."""
    with ControlPlane() as plane:
        plane.start_controllers()
        async with with_old_operator(a_cluster(clock, control_plane=plane)).running() as cluster:
            yield cluster, Shell(folder, kubeconfig=plane.kubeconfig(), kubectl=plane.assets.path("kubectl"))


async def replicas(shell: Shell, deployment: str) -> int:
    namespace, name = deployment.split("/")
    found = await asyncio.to_thread(shell.run, f"kubectl -n {namespace} get deployment {name} -o yaml")
    return int(yaml.safe_load(found)["spec"]["replicas"])


async def test_page_commands_succeed(clock: Clock, tmp_path: Path) -> None:
    steps = [candidate.text for candidate in page_commands(PAGE.read_text())]
    start = steps.index("haulout run")
    in_cluster, get_command = steps[start + 1], steps[start + 2]
    async with on_a_control_plane(clock, tmp_path) as (cluster, shell), machine_api(cluster):
        done, still, kept = await create_machine_set(cluster, "workers", replicas=3)
        await cluster.create(old_operator())
        await create_machinemaintenance(cluster, done, maintenancescheduled=True)
        await create_machinemaintenance(cluster, still, eventcode="instance-stop", eventid="instance-event-1")
        for command in steps[:start]:
            output = await asyncio.to_thread(shell.run, command)
            if "custom-columns" in command:
                rows = [line.split() for line in output.splitlines()[1:]]
                assert sorted(rows) == sorted([[f"mm-{done}", done, "true"], [f"mm-{still}", still, "false"]])
        assert await replicas(shell, f"{NAMESPACE}/{OLD}") == 0
        with shell.running("haulout run"):
            await wait_until_completed(cluster, still)
            assert is_deletion_scheduled(cluster, still)
            table = await asyncio.to_thread(shell.run, get_command)
            (row,) = [line.split() for line in table.splitlines() if line.startswith(f"mm-{still} ")]
            assert "Completed" in row
            await cluster.eventually(lambda: len(machines(cluster)), becomes=3)
            assert {done, kept} <= set(machines(cluster))
        applied = await asyncio.to_thread(
            shell.run, in_cluster, substitutions={"REGISTRY/haulout:TAG": "example/haulout:1"}
        )
        assert "deployment.apps/haulout created" in applied
        for command in steps[start + 3 :]:
            await asyncio.to_thread(shell.run, command)
        assert await replicas(shell, f"{NAMESPACE}/{OLD}") == 1
        assert await replicas(shell, "haulout/haulout") == 0
