"""The real kubectl scales, deletes in every way, looks into pods and ends namespaces, on a sandbox that runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import Delays, Machine
from support.cli.kubectl import Kubectl, serve_sandbox

pytestmark = pytest.mark.real_time
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: noticed}
involvedObject: {apiVersion: v1, kind: Node, name: n1}
reason: Noticed
message: seen
count: 2
type: Normal
"""


@pytest_asyncio.fixture
async def kubectl(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """Run a cluster with a node, where things take no time, and a Deployment that is rolled out."""
    cluster = Cluster(RealClock(), delays=Delays.zero())
    cluster.kubelets.add(Machine(name="n1"))
    async with cluster.running(), serve_sandbox(cluster.api, tmp_path) as kubeconfig:
        kubectl = Kubectl(control_plane.assets.path("kubectl"), kubeconfig=kubeconfig, folder=tmp_path)
        await kubectl(f"apply -f {kubectl.file('web.yaml', WEB)}")
        assert "successfully rolled out" in await kubectl("rollout status deployment/web --timeout=60s")
        yield kubectl


async def test_scale_checks_its_preconditions(kubectl: Kubectl) -> None:
    refused = await kubectl.run("scale", "deployment/web", "--replicas=3", "--current-replicas=7")
    assert refused.err == "error: Expected replicas to be 7, was 2\n"
    assert await kubectl("scale deployment/web --replicas=3 --current-replicas=2") == "deployment.apps/web scaled\n"
    refused = await kubectl.run("scale", "deployment/web", "--replicas=4", "--resource-version=1")
    assert refused.err.startswith("error: Expected resource version to be 1, was ")
    await kubectl("wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=60s")
    table = (await kubectl("get deployment web --subresource=scale")).splitlines()
    assert [line.split()[:3] for line in table] == [["NAME", "DESIRED", "AVAILABLE"], ["web", "3", "3"]]
    await kubectl('patch deployment web --subresource=scale --type=merge -p {"spec":{"replicas":1}}')
    await kubectl("wait --for=jsonpath={.status.replicas}=1 deployment/web --timeout=60s")


async def test_get_all_lists_the_all_category(kubectl: Kubectl) -> None:
    listed = await kubectl("get all -o name")
    kinds = [line.partition("/")[0] for line in listed.splitlines()]
    assert kinds == ["pod", "pod", "deployment.apps", "replicaset.apps"]


async def test_cascading_deletion_is_foreground_or_orphan(kubectl: Kubectl) -> None:
    await kubectl("delete deployment web --cascade=orphan --timeout=60s")
    assert len((await kubectl("get pods -o name")).splitlines()) == 2
    await kubectl("apply -f web.yaml")
    await kubectl("rollout status deployment/web --timeout=60s")
    assert len((await kubectl("get replicasets -o name")).splitlines()) == 1, "it took its orphans back"
    await kubectl("delete deployment web --cascade=foreground --timeout=60s")
    assert await kubectl("get pods,replicasets,deployments -o name") == ""


async def test_pods_are_deleted_by_force_or_with_grace(kubectl: Kubectl) -> None:
    for name in ("one", "two"):
        await kubectl(f"run {name} --image=example/bare")
    await kubectl("wait --for=condition=Ready pod/one pod/two --timeout=60s")
    forced = await kubectl.run("delete", "pod", "one", "--force", "--grace-period=0")
    assert forced.out == 'pod "one" force deleted from default namespace\n'
    assert "Immediate deletion does not wait" in forced.err
    assert 'pod "two" deleted' in await kubectl("delete pods --all --timeout=60s")
    await kubectl("rollout status deployment/web --timeout=60s")


async def test_logs_are_served_and_exec_is_refused(kubectl: Kubectl) -> None:
    log = await kubectl("logs deployment/web")
    assert "container web started at" in log
    assert "in the sandbox it runs nothing" in log
    assert await kubectl("logs deployment/web --tail=0") == ""
    for command in ("exec deployment/web -- ls", "port-forward deployment/web 8080:80", "attach deployment/web"):
        refused = await kubectl.run(*command.split())
        assert (refused.code, "the pods of the sandbox run nothing" in refused.err) == (1, True), refused


async def test_namespace_deletion_removes_its_objects(kubectl: Kubectl) -> None:
    refused = await kubectl.run("create", "configmap", "c", "-n", "shop")
    assert refused.err == 'error: failed to create configmap: namespaces "shop" not found\n'
    await kubectl("create namespace shop")
    await kubectl("apply -n shop -f web.yaml")
    await kubectl("rollout status -n shop deployment/web --timeout=60s")
    assert await kubectl("delete namespace shop --timeout=60s") == 'namespace "shop" deleted\n'
    assert await kubectl("get pods,deployments -n shop -o name") == ""
    refused = await kubectl.run("delete", "namespace", "kube-system")
    assert 'namespaces "kube-system" is forbidden: this namespace may not be deleted' in refused.err


async def test_event_is_served_by_both_api_groups(kubectl: Kubectl) -> None:
    await kubectl(f"create -f {kubectl.file('event.yaml', EVENT)}")
    new = await kubectl("get events.v1.events.k8s.io noticed -o jsonpath={.regarding.name},{.note},{.deprecatedCount}")
    assert new == "n1,seen,2"
    assert "Noticed" in await kubectl("get events --field-selector involvedObject.name=n1,reason=Noticed")
    assert "Noticed" in await kubectl("events --for node/n1")
