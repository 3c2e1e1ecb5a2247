"""The sandbox's scheduler, kubelets and node lifecycle controller on a real control plane."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.api.objects import Taint
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.nodes import (
    DelayDistribution,
    Delays,
    Kubelets,
    Machine,
    NodeInformers,
    NodeLifecycleController,
    Scheduler,
)

pytestmark = pytest.mark.real_time

SANDBOX_SCHEDULER = "sandbox-scheduler"
DELAYS = Delays(
    start=DelayDistribution(0.2, 0.6),
    ready=DelayDistribution(0.1, 0.3),
    stop=DelayDistribution(0.3, 1),
    boot=DelayDistribution(0, 0),
    ignores_sigterm=0,
)


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """Run a control plane of our own: these tests are about all the nodes there are."""
    with ControlPlane() as alone:
        yield alone


@pytest.fixture
def controllers(control_plane: ControlPlane) -> Iterator[None]:
    """Run all controllers of Kubernetes but those that ours stand in for."""
    disabled_controllers = ("-node-lifecycle-controller", "-taint-eviction-controller")
    control_plane.start_controllers(("*", *disabled_controllers), scheduler=False)
    yield
    control_plane.stop_controllers()


@asynccontextmanager
async def running_nodes(control_plane: ControlPlane, *machines: Machine, scheduler: str) -> AsyncIterator[Kubelets]:
    """Yield the kubelets of these machines, with a scheduler and a node lifecycle controller."""
    clock = RealClock()
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()))
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(1))
    view = NodeInformers(client)
    kubelets = Kubelets(client, view, delays=DELAYS, heartbeat=timedelta(seconds=1))
    for machine in machines:
        kubelets.add(machine)
    parts = (view, kubelets, Scheduler(client, view, name=scheduler), NodeLifecycleController(client, view))
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(part.run()) for part in parts]
            try:
                yield kubelets
            finally:
                for name in kubelets.names:
                    await kubelets.remove(name)
                for task in running:
                    task.cancel()
    finally:
        await client.close()


class KubectlCluster:
    """A cluster, accessed with kubectl."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self._namespace = namespace

    async def kubectl(self, *arguments: str, document: Any = None) -> str:
        """Return the output of a command."""
        text = None if document is None else json.dumps(document)
        done = await asyncio.to_thread(
            self._control_plane.kubectl, "-n", self._namespace, *arguments, input=text, check=True
        )
        return str(done.stdout)

    async def get(self, resource: str) -> Any:
        """Return objects."""
        return json.loads(await self.kubectl("get", *resource.split(), "-o", "json"))

    async def wait_until(self, resource: str, check: Callable[[Any], bool]) -> Any:
        """Return objects as soon as they pass."""
        async with asyncio.timeout(60):
            while not check(found := await self.get(resource)):
                await RealClock().sleep(timedelta(milliseconds=100))
        return found


def _spread(pods: Any) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]}


def _ready(node: Any) -> str:
    return str(next(condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"))


@pytest.mark.usefixtures("controllers")
async def test_deployment_survives_a_drain_and_the_loss_of_a_node(control_plane: ControlPlane, namespace: str) -> None:
    cluster = KubectlCluster(control_plane, namespace)
    names = [f"{letter}-{namespace[-6:]}" for letter in "abc"]
    machines = [Machine(name=name, zone=f"z{number}", cpu="4") for number, name in enumerate(names)]
    async with running_nodes(control_plane, *machines, scheduler="default-scheduler") as kubelets:
        await cluster.wait_until("nodes", lambda taint: len(taint["items"]) == 3 and not _not_ready_taints(taint))
        await cluster.kubectl("create", "deployment", "web", "--image=web", "--replicas=6")
        await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        pods = await cluster.get("pods")
        assert _spread(pods) == set(names)
        assert {pod["metadata"]["labels"]["topology.kubernetes.io/zone"] for pod in pods["items"]} == {"z0", "z1", "z2"}
        wide = await cluster.kubectl("get", "nodes", "-o", "wide")
        assert wide.count(" Ready ") == 3
        assert "Haulout Sandbox" in wide

        await cluster.kubectl("drain", names[0], "--timeout=60s")
        await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        assert _spread(await cluster.get("pods")) == set(names[1:])
        node = await cluster.get(f"node {names[0]}")
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
        await cluster.kubectl("uncordon", names[0])

        kubelets.kill(names[1])
        lost_node = await cluster.wait_until(f"node {names[1]}", lambda taint: _ready(taint) == "Unknown")
        assert lost_node["status"]["conditions"][-1]["reason"] == "NodeStatusUnknown"
        await cluster.wait_until(f"node {names[1]}", lambda taint: len(taint["spec"].get("taints", [])) == 2)
        kubelets.revive(names[1])
        await cluster.wait_until(
            f"node {names[1]}", lambda taint: _ready(taint) == "True" and "taints" not in taint["spec"]
        )
        await cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")


async def test_unschedulable_pods_have_the_messages_of_kube_scheduler(
    control_plane: ControlPlane, namespace: str
) -> None:
    cluster, suffix = KubectlCluster(control_plane, namespace), namespace[-6:]
    taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    machines = [
        Machine(name=f"small-{suffix}", cpu="1"),
        Machine(name=f"large-{suffix}", cpu="4"),
        Machine(name=f"tainted-{suffix}", taints=(taint,)),
        Machine(name=f"labelled-{suffix}", cpu="1", labels={"disk": "ssd"}, zone="z1"),
    ]
    full = {"app": "full"}
    avoid = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": full}}
    by_zone = avoid | {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    absent = avoid | {"labelSelector": {"matchLabels": {"app": "absent"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod_specs: dict[str, dict[str, Any]] = {
        "large": {"cpu": "6"},
        "picky": {"nodeSelector": {"disk": "hdd"}},
        "both": {"cpu": "2", "memory": "100Gi", "tolerations": [{"operator": "Exists"}]},
        "spread": {"labels": full, "topologySpreadConstraints": [by_zone | {"minDomains": 2}]},
        "shy": {"affinity": {"podAntiAffinity": {required: [avoid]}}, "nodeSelector": {"disk": "ssd"}},
        "fond": {"affinity": {"podAffinity": {required: [absent]}}},
        "pinned": {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [_named("nobody")]}}}},
    }
    async with running_nodes(control_plane, *machines, scheduler=SANDBOX_SCHEDULER):
        await cluster.wait_until("nodes", lambda item: len(item["items"]) == 4 and not _not_ready_taints(item))
        first = _pod("first", SANDBOX_SCHEDULER, nodeName=f"labelled-{suffix}", labels=full)
        second = _pod("second", SANDBOX_SCHEDULER, nodeName=f"large-{suffix}", cpu="3")
        await cluster.kubectl("create", "-f", "-", document=_list(first, second))
        await cluster.wait_until("pods", lambda item: all(pod["status"]["phase"] == "Running" for pod in item["items"]))
        await asyncio.to_thread(control_plane.start_controllers, ("ttl-controller",), scheduler=True)
        try:
            pods = [
                _pod(f"{name}-{owner}", scheduler, **pod_spec)
                for name, pod_spec in pod_specs.items()
                for owner, scheduler in (("ours", SANDBOX_SCHEDULER), ("theirs", "default-scheduler"))
            ]
            await cluster.kubectl("create", "-f", "-", document=_list(*pods))
            pending = await cluster.wait_until("pods", lambda item: len(_messages(item)) == len(pods))
        finally:
            await asyncio.to_thread(control_plane.stop_controllers)
    messages = _messages(pending)
    sandbox_messages = {name: messages[f"{name}-ours"] for name in pod_specs}
    assert sandbox_messages == {name: messages[f"{name}-theirs"] for name in pod_specs}


def _pod(name: str, scheduler: str, *, labels: Any = None, cpu: str = "", memory: str = "", **spec: Any) -> Any:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    containers = [{"name": "main", "image": "main", "resources": {"requests": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }


def _list(*items: Any) -> Any:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _named(node: str) -> Any:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def _not_ready_taints(found: Any) -> list[str]:
    taints = [taint["key"] for node in found["items"] for taint in node["spec"].get("taints", [])]
    return [key for key in taints if key.startswith("node.kubernetes.io")]


def _messages(pods: Any) -> dict[str, str]:
    """Return the messages of unschedulable pods."""
    return {
        pod["metadata"]["name"]: condition["message"]
        for pod in pods["items"]
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }
