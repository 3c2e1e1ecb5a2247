"""The sandbox's controllers on a real kube-apiserver, and beside the real kube-controller-manager.

They know a cluster only through `haulout.kube`, so they must do there what they do on the sandbox's own server; and the
objects that they leave must be those that the real controllers leave.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.core.clock import Clock
from haulout.errors import NotFound, TooManyRequests
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.controllers import ALL_CONTROLLERS
from haulout_sandbox.controllers.base import ControllerManager
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Pod,
)
from support.builders.objects import a_job, a_node, a_pdb, a_template, a_workload
from support.clusters.controller_cluster import FakeKubelets
from support.expectations.eventually import eventually

pytestmark = pytest.mark.real_time

NODE = "sandbox-controllers"


@dataclass
class ControllerNamespace:
    """A namespace of the real cluster, with kubelets."""

    client: Client
    clock: Clock
    namespace: str
    kubelets: FakeKubelets
    control_plane: ControlPlane

    async def create(self, resource: Resource[Any], body: RawObject) -> None:
        """Create an object here."""
        body["metadata"].pop("namespace", None)
        await self.client.create(resource, body, namespace=self.namespace)

    async def get(self, resource: Resource[Any], name: str) -> RawObject:
        """Return an object as it is."""
        found: RawObject = await self.client.get(resource.with_model(dict[str, Any]), name, namespace=self.namespace)
        return found

    async def list(self, resource: Resource[Any], labels: str = "") -> list[RawObject]:
        """Return the objects of a kind."""
        page = await self.client.list(resource.with_model(dict[str, Any]), namespace=self.namespace, labels=labels)
        return list(page.items)

    async def eventually(self, resource: Resource[Any], name: str, **status: Any) -> None:
        """Wait for a status."""

        async def has_status() -> bool:
            current_status = (await self.get(resource, name)).get("status", {})
            return all(current_status.get(key, 0) == value for key, value in status.items())

        await eventually(self.clock, has_status, within=timedelta(minutes=1))

    async def kubectl(self, *arguments: str) -> str:
        """Return the output of kubectl."""
        done = await asyncio.to_thread(self.control_plane.kubectl, *arguments, "-n", self.namespace)
        return done.stdout


@asynccontextmanager
async def a_client(control_plane: ControlPlane, clock: Clock) -> AsyncIterator[Client]:
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()), clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(7))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def a_controller_namespace(
    control_plane: ControlPlane, clock: Clock, namespace: str, *, in_sandbox: bool
) -> AsyncIterator[ControllerNamespace]:
    """Yield a namespace in which the sandbox's controllers run, or not."""
    async with a_client(control_plane, clock) as client, asyncio.TaskGroup() as tasks:

        async def bind(pod: Pod, node: str) -> None:
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target}
            await client.create(
                PODS.with_model(dict[str, Any]), binding, name=pod.name, namespace=pod.namespace, subresource="binding"
            )

        kubelets = FakeKubelets(InformerFactory(client), Random(7), bind=bind)
        kubelets.nodes = [NODE]
        kubelets.start = kubelets.stop = kubelets.job_duration = timedelta(milliseconds=50)
        kubelets.outcome = lambda pod: "Succeeded" if "job-name" in pod.labels else ""
        running: Sequence[asyncio.Task[Any]] = [
            *(tasks.create_task(cache.run()) for cache in kubelets.informers.all()),
            tasks.create_task(kubelets.queue.run()),
            *(
                [tasks.create_task(ControllerManager(client, random=Random(7), factories=ALL_CONTROLLERS).run())]
                if in_sandbox
                else []
            ),
        ]
        yield ControllerNamespace(client, clock, namespace, kubelets, control_plane)
        for task in running:
            task.cancel()


@pytest.fixture
async def controller_namespace(
    control_plane: ControlPlane, clock: Clock, namespace: str
) -> AsyncIterator[ControllerNamespace]:
    """Yield a namespace in which the sandbox's controllers run."""
    async with a_controller_namespace(control_plane, clock, namespace, in_sandbox=True) as made:
        yield made


async def test_deployment_is_rolled_out_restarted_protected_and_garbage_collected(
    controller_namespace: ControllerNamespace,
) -> None:
    await controller_namespace.create(DEPLOYMENTS, a_workload("Deployment", replicas=4))
    await controller_namespace.create(POD_DISRUPTION_BUDGETS, a_pdb(maxUnavailable=1))
    assert "successfully rolled out" in await controller_namespace.kubectl(
        "rollout", "status", "deployment/cart", "--timeout=60s"
    )
    await controller_namespace.eventually(
        POD_DISRUPTION_BUDGETS, "cart", disruptionsAllowed=1, currentHealthy=4, desiredHealthy=3, expectedPods=4
    )

    controller_namespace.kubelets.start = timedelta(seconds=1)
    one, other, *_ = await controller_namespace.list(PODS)
    await controller_namespace.client.evict(one["metadata"]["name"], namespace=controller_namespace.namespace)
    with pytest.raises(TooManyRequests):
        await controller_namespace.client.evict(other["metadata"]["name"], namespace=controller_namespace.namespace)
    await controller_namespace.eventually(POD_DISRUPTION_BUDGETS, "cart", disruptionsAllowed=1, currentHealthy=4)
    controller_namespace.kubelets.start = timedelta(milliseconds=50)

    before = {pod["metadata"]["uid"] for pod in await controller_namespace.list(PODS)}
    await controller_namespace.kubectl("rollout", "restart", "deployment/cart")
    await controller_namespace.kubectl("rollout", "status", "deployment/cart", "--timeout=60s")
    staying = [pod for pod in await controller_namespace.list(PODS) if "deletionTimestamp" not in pod["metadata"]]
    assert before.isdisjoint({pod["metadata"]["uid"] for pod in staying})
    assert "2" in await controller_namespace.kubectl("rollout", "history", "deployment/cart")
    await controller_namespace.kubectl("rollout", "undo", "deployment/cart")
    await controller_namespace.kubectl("rollout", "status", "deployment/cart", "--timeout=60s")
    await controller_namespace.kubectl("scale", "deployment/cart", "--replicas=1")
    await controller_namespace.eventually(DEPLOYMENTS, "cart", replicas=1, availableReplicas=1, observedGeneration=4)

    await controller_namespace.kubectl("delete", "deployment", "cart", "--cascade=foreground", "--timeout=60s")
    assert await controller_namespace.list(PODS) == await controller_namespace.list(REPLICA_SETS) == []


async def test_namespace_is_emptied_before_it_is_deleted(controller_namespace: ControllerNamespace) -> None:
    await controller_namespace.create(DEPLOYMENTS, a_workload("Deployment", replicas=2))
    await controller_namespace.eventually(DEPLOYMENTS, "cart", availableReplicas=2)
    await controller_namespace.client.delete(NAMESPACES, controller_namespace.namespace)

    async def gone() -> bool:
        try:
            await controller_namespace.client.get(NAMESPACES, controller_namespace.namespace)
        except NotFound:
            return True
        return False

    await eventually(controller_namespace.clock, gone, within=timedelta(minutes=1))


async def test_sandbox_controllers_leave_the_same_objects_as_the_real_ones(
    control_plane: ControlPlane, clock: Clock, namespace: str
) -> None:
    theirs = f"{namespace}-theirs"
    async with a_client(control_plane, clock) as client:
        await client.create(NODES, a_node(NODE))
        await client.patch(NODES, NODE, merge_patch({"spec": {"taints": None}}))  # a new node is taken for not ready
        await client.create(NAMESPACES, {"metadata": {"name": theirs}})
    try:
        async with a_controller_namespace(control_plane, clock, namespace, in_sandbox=True) as workspace:
            sandbox_objects = await run_workloads(workspace)
        await asyncio.to_thread(
            control_plane.start_controllers,
            ("*", "-node-lifecycle-controller", "-pod-garbage-collector-controller"),
            scheduler=False,
        )
        async with a_controller_namespace(control_plane, clock, theirs, in_sandbox=False) as workspace:
            real_objects = await run_workloads(workspace)
    finally:
        await asyncio.to_thread(control_plane.stop_controllers)
        control_plane.request("DELETE", f"/api/v1/nodes/{NODE}")
        control_plane.request("DELETE", f"/api/v1/namespaces/{theirs}")
    for title, expected in real_objects.items():
        assert (title, sandbox_objects[title]) == (title, expected)


async def run_workloads(namespace: ControllerNamespace) -> dict[str, Any]:
    """Let every workload come up, update some, and return what there is then."""
    await namespace.create(DEPLOYMENTS, a_workload("Deployment", "cart", replicas=3))
    await namespace.create(STATEFUL_SETS, a_workload("StatefulSet", "db", replicas=2, serviceName="db"))
    await namespace.create(DAEMON_SETS, a_workload("DaemonSet", "logs"))
    await namespace.create(JOBS, a_job("report", completions=2, parallelism=2))
    await namespace.create(POD_DISRUPTION_BUDGETS, a_pdb("percent", app="cart", minAvailable="50%"))
    await namespace.create(POD_DISRUPTION_BUDGETS, a_pdb("number", app="db", minAvailable=1))
    await namespace.create(POD_DISRUPTION_BUDGETS, a_pdb("empty", app="nobody", maxUnavailable=1))
    await namespace.eventually(DEPLOYMENTS, "cart", availableReplicas=3)
    await namespace.eventually(STATEFUL_SETS, "db", availableReplicas=2)
    await namespace.eventually(DAEMON_SETS, "logs", numberAvailable=1, desiredNumberScheduled=1)
    await namespace.eventually(JOBS, "report", succeeded=2, active=0)
    updated: tuple[tuple[Resource[Any], str], ...] = (
        (DEPLOYMENTS, "cart"),
        (STATEFUL_SETS, "db"),
        (DAEMON_SETS, "logs"),
    )
    for resource, name in updated:
        template = a_template({"app": name}, image="example/main:2")
        patch = merge_patch({"spec": {"template": template}})
        await namespace.client.patch(resource, name, patch, namespace=namespace.namespace)
    for kind, name in (("deployment", "cart"), ("statefulset", "db"), ("daemonset", "logs")):
        await namespace.kubectl("rollout", "status", f"{kind}/{name}", "--timeout=60s")
    await namespace.kubectl("wait", "job/report", "--for=condition=Complete", "--timeout=60s")
    await namespace.eventually(DEPLOYMENTS, "cart", replicas=3, terminatingReplicas=0)
    await namespace.eventually(STATEFUL_SETS, "db", currentReplicas=2, readyReplicas=2, availableReplicas=2)
    await namespace.eventually(DAEMON_SETS, "logs", numberAvailable=1, updatedNumberScheduled=1, observedGeneration=2)
    await namespace.eventually(POD_DISRUPTION_BUDGETS, "percent", currentHealthy=3)
    await namespace.eventually(POD_DISRUPTION_BUDGETS, "number", currentHealthy=2)
    results: dict[str, Any] = {}
    for resource, name in (
        *updated,
        (JOBS, "report"),
        (POD_DISRUPTION_BUDGETS, "percent"),
        (POD_DISRUPTION_BUDGETS, "number"),
        (POD_DISRUPTION_BUDGETS, "empty"),
    ):
        results[f"{resource} {name}"] = normalized((await namespace.get(resource, name))["status"])
    for app in ("cart", "db", "logs"):
        results[f"pods of {app}"] = sorted(map(stable_fields, await namespace.list(PODS, f"app={app}")), key=str)
        results[f"sets of {app}"] = sorted(
            map(stable_fields, await namespace.list(REPLICA_SETS, f"app={app}")), key=str
        )
    results["pods of report"] = sorted(map(stable_fields, await namespace.list(PODS, "job-name=report")), key=str)
    return results


def normalized(value: Any) -> Any:
    """Return a status without times and hashes, its conditions in order of their type."""
    if isinstance(value, dict):
        return {
            name: normalized(item)
            for name, item in value.items()
            if not name.endswith(("Time", "Revision", "message")) and item not in ({}, [])
        }
    if isinstance(value, list):
        return sorted((normalized(item) for item in value), key=str)
    return value


def stable_fields(obj: RawObject) -> RawObject:
    """Return of an object what does not depend on chance."""
    meta, spec = obj["metadata"], obj["spec"]
    hashes = ("pod-template-hash", "controller-revision-hash", "controller-uid", "pod-template-generation")
    return {
        "labels": {name: text for name, text in meta.get("labels", {}).items() if not name.endswith(hashes)},
        "marks": sorted(name for name in meta.get("labels", {}) if name != "pod-template-generation"),
        "annotations": meta.get("annotations", {}),
        "finalizers": meta.get("finalizers", []),
        "owners": [{**owner, "uid": "", "name": ""} for owner in meta["ownerReferences"]],
        "hostname": spec.get("hostname"),
        "tolerations": sorted(spec.get("tolerations", []), key=str),
        "affinity": spec.get("affinity"),
        "status": normalized({name: obj["status"].get(name) for name in ("phase", "replicas", "observedGeneration")}),
    }
