"""The real kubectl works on the sandbox: over TLS, with a token, without special flags."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from support.builders.objects import a_node, a_pod
from support.cli.kubectl import Kubectl, serve_sandbox

pytestmark = pytest.mark.real_time
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {color: red}
"""


A_LIST = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {color: red}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: two}, %s: {color: blue}}
"""


class Sandbox(Kubectl):
    """Runs kubectl against a sandbox, whose objects can also be read directly."""

    def __init__(self, binary: Path, api: ApiServer, *, kubeconfig: Path, folder: Path) -> None:
        super().__init__(binary, kubeconfig=kubeconfig, folder=folder)
        self.api = api


@pytest_asyncio.fixture
async def kubectl(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Sandbox]:
    """Serve a sandbox with two nodes and a pod."""
    api = ApiServer(RealClock())
    for kind in BUILTIN_KINDS:
        api.add_kind(kind)
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    api.put(a_node("n1", labels={"zone": "a"}))
    api.put(a_node("n2", labels={"zone": "b"}))
    api.put(a_pod("lonely", on="n1"))
    async with serve_sandbox(api, tmp_path) as kubeconfig:
        yield Sandbox(control_plane.assets.path("kubectl"), api, kubeconfig=kubeconfig, folder=tmp_path)


async def test_protobuf_objects_are_decoded_completely(kubectl: Sandbox) -> None:
    """Kubectl sends these as protobuf."""
    created = "create configmap settings --from-literal=color=red --from-literal=empty="
    assert await kubectl(created) == "configmap/settings created\n"
    assert kubectl.api.get("configmaps", "settings")["data"] == {"color": "red", "empty": ""}
    assert await kubectl("create secret generic login --from-literal=user=admin") == "secret/login created\n"
    assert kubectl.api.get("secrets", "login")["data"] == {"user": "YWRtaW4="}
    assert await kubectl("create namespace shop") == "namespace/shop created\n"
    assert kubectl.api.get("namespaces", "shop")["status"] == {"phase": "Active"}
    made = await kubectl("create deployment cart -n shop --image=cart:1 --replicas=2 --port=80")
    assert made == "deployment.apps/cart created\n"
    cart = kubectl.api.get("deployments", "cart", namespace="shop")["spec"]
    assert (cart["replicas"], cart["selector"]) == (2, {"matchLabels": {"app": "cart"}})
    assert cart["template"]["spec"]["containers"][0]["ports"][0]["containerPort"] == 80
    assert await kubectl("create job once --image=tool -- echo hi") == "job.batch/once created\n"
    assert kubectl.api.get("jobs", "once")["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "hi"]
    budget = "create poddisruptionbudget cart --selector=app=cart --min-available=50%"
    assert await kubectl(budget) == "poddisruptionbudget.policy/cart created\n"
    assert kubectl.api.get("poddisruptionbudgets", "cart")["spec"]["minAvailable"] == "50%"
    again = await kubectl.run("create", "configmap", "settings", "--from-literal=color=blue")
    assert (again.code, again.err) == (1, 'error: failed to create configmap: configmaps "settings" already exists\n')


async def test_auth_whoami_and_can_i_are_answered(kubectl: Sandbox) -> None:
    assert "Username    admin\n" in await kubectl("auth whoami")
    assert await kubectl("auth can-i get pods") == "yes\n"
    assert await kubectl("auth can-i create deployments.apps -n shop") == "yes\n"


async def test_nodes_are_labelled_tainted_cordoned_and_drained(kubectl: Sandbox) -> None:
    assert await kubectl("label node n1 tier=gold") == "node/n1 labeled\n"
    assert await kubectl("label node n1 tier-") == "node/n1 unlabeled\n"
    assert await kubectl("annotate node n1 note=hello") == "node/n1 annotated\n"
    assert await kubectl("taint node n1 dirty=yes:NoSchedule") == "node/n1 tainted\n"
    n1 = kubectl.api.get("nodes", "n1")
    assert (n1["metadata"]["labels"], n1["metadata"]["annotations"]) == ({"zone": "a"}, {"note": "hello"})
    assert n1["spec"]["taints"] == [{"key": "dirty", "value": "yes", "effect": "NoSchedule"}]
    assert await kubectl("taint node n1 dirty-") == "node/n1 untainted\n"
    assert await kubectl("cordon n2") == "node/n2 cordoned\n"
    assert kubectl.api.get("nodes", "n2")["spec"]["unschedulable"] is True
    assert await kubectl("uncordon n2") == "node/n2 uncordoned\n"
    drained = await kubectl("drain n1 --force --grace-period=0 --timeout=60s")
    assert drained.splitlines()[0] == "node/n1 cordoned"
    assert drained.splitlines()[-2:] == ["pod/lonely evicted", "node/n1 drained"]
    assert not kubectl.api.has("pods", "lonely")
    described = await kubectl("describe node n1")
    assert "Name:               n1\n" in described
    assert "Unschedulable:      true\n" in described


async def test_objects_are_printed_in_every_output_format(kubectl: Sandbox) -> None:
    header, *rows = (await kubectl("get nodes")).splitlines()
    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert [row.split()[0] for row in rows] == ["n1", "n2"]
    assert "KERNEL-VERSION" in await kubectl("get nodes -o wide")
    assert "zone: a\n" in await kubectl("get node n1 -o yaml")
    assert (await kubectl.json("get node n1"))["metadata"]["name"] == "n1"
    assert await kubectl("get nodes -l zone=b -o name") == "node/n2\n"
    assert await kubectl("get pods -A --field-selector spec.nodeName=n1 -o name") == "pod/lonely\n"
    assert await kubectl("get pod lonely -o jsonpath={.spec.nodeName}") == "n1"
    missing = await kubectl.run("get", "pod", "missing")
    assert (missing.code, missing.err) == (1, 'Error from server (NotFound): pods "missing" not found\n')


async def test_discovery_and_explain_are_served(kubectl: Sandbox) -> None:
    assert {"v1", "apps/v1", "policy/v1", "coordination.k8s.io/v1"} <= set((await kubectl("api-versions")).split())
    assert "poddisruptionbudgets.policy\n" in await kubectl("api-resources -o name")
    explained = (await kubectl("explain node.spec")).splitlines()
    assert explained[0].split() == ["KIND:", "Node"]
    assert "  taints\t<[]Taint>" in explained
    assert "  unschedulable\t<boolean>" in explained
    assert "<[]ContainerPort>" in await kubectl("explain pods.spec.containers.ports")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"data":{"color":"blue"}}'),
        ("merge", '{"data":{"color":"blue"}}'),
        ("json", '[{"op":"replace","path":"/data/color","value":"blue"}]'),
    ],
)
async def test_patches_of_every_type_are_applied(kubectl: Sandbox, kind: str, patch: str) -> None:
    await kubectl("create configmap settings --from-literal=color=red --from-literal=size=big")
    assert await kubectl(f"patch configmap settings --type={kind} -p {patch}") == "configmap/settings patched\n"
    assert kubectl.api.get("configmaps", "settings")["data"] == {"color": "blue", "size": "big"}


async def test_apply_creates_updates_and_leaves_unchanged(kubectl: Sandbox) -> None:
    """The manifest is validated by the server: nothing is turned off."""
    web = kubectl.file("web.yaml", WEB)
    assert await kubectl(f"apply -f {web}") == "deployment.apps/web created\nconfigmap/web created\n"
    assert await kubectl(f"apply -f {web}") == "deployment.apps/web unchanged\nconfigmap/web unchanged\n"
    kubectl.file("web.yaml", WEB.replace('image: "web:1"}', 'image: "web:2"}, {name: side, image: "side:1"}'))
    differs = await kubectl.run("diff", "-f", str(web))
    assert differs.code == 1
    assert "+      - image: web:2\n" in differs.out
    assert await kubectl(f"apply -f {web}") == "deployment.apps/web configured\nconfigmap/web unchanged\n"
    images = await kubectl("get deployment web -o jsonpath={.spec.template.spec.containers[*].image}")
    assert images == "web:2 side:1"
    kubectl.file("web.yaml", WEB)
    await kubectl(f"apply -f {web}")
    assert await kubectl("get deployment web -o jsonpath={.spec.template.spec.containers[*].name}") == "web"


async def test_list_is_created_and_applied_item_by_item(kubectl: Sandbox) -> None:
    whole = kubectl.file("list.yaml", A_LIST % "data")
    assert await kubectl(f"create -f {whole}") == "configmap/one created\nconfigmap/two created\n"
    assert await kubectl(f"apply -f {whole}") == "configmap/one configured\nconfigmap/two configured\n"
    assert kubectl.api.get("configmaps", "two")["data"] == {"color": "blue"}
    misspelt = await kubectl.run("create", "-f", str(kubectl.file("other.yaml", A_LIST % "date")))
    assert misspelt.code == 1
    assert 'unknown field "date"' in misspelt.err


async def test_server_side_apply_creates_and_takes_ownership(kubectl: Sandbox) -> None:
    web = kubectl.file("web.yaml", WEB)
    applied = "deployment.apps/web serverside-applied\nconfigmap/web serverside-applied\n"
    assert await kubectl(f"apply --server-side -f {web}") == applied
    kubectl.file("web.yaml", WEB.replace("color: red", "color: blue"))
    conflict = await kubectl.run("apply", "--server-side", "--field-manager=other", "-f", str(web))
    assert conflict.code == 1
    assert 'conflict with "kubectl": .data.color' in conflict.err
    assert await kubectl(f"apply --server-side --force-conflicts --field-manager=other -f {web}") == applied
    assert kubectl.api.get("configmaps", "web")["data"] == {"color": "blue"}


async def test_kubectl_waits_for_deletion(kubectl: Sandbox) -> None:
    web = kubectl.file("web.yaml", WEB)
    assert await kubectl(f"create -f {web}") == "deployment.apps/web created\nconfigmap/web created\n"
    assert await kubectl("delete configmap web") == 'configmap "web" deleted from default namespace\n'
    await kubectl("wait --for=delete configmap/web --timeout=60s")
    waited = await kubectl("wait --for=jsonpath={.spec.replicas}=2 deployment/web --timeout=60s")
    assert waited == "deployment.apps/web condition met\n"
    assert await kubectl("delete deployment web --cascade=orphan --grace-period=0 --wait=false")
    assert kubectl.api.get("deployments", "web")["metadata"]["finalizers"] == ["orphan"]


MISSPELT = """
apiVersion: v1
kind: Pod
metadata: {name: misspelt}
spec: {containers: [{name: a, image: a, imagePulPolicy: Never}], restartpolicy: Never}
"""
WRONG = """
apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec: {containers: [{name: A, image: ""}], terminationGracePeriodSeconds: 5}
"""


async def test_validation_errors_are_printed(kubectl: Kubectl) -> None:
    """All warnings come in one header, and kubectl prints a line for each."""
    misspelt, wrong = kubectl.file("misspelt.yaml", MISSPELT), kubectl.file("wrong.yaml", WRONG)
    for level, code in (("warn", 0), ("strict", 1)):
        result = await kubectl.run("create", "--dry-run=server", f"--validate={level}", "-f", str(misspelt))
        assert result.code == code
        assert 'unknown field "spec.' in result.err
    result = await kubectl.run("create", "--dry-run=server", "-f", str(wrong))
    assert result.code == 1
    assert "* spec.containers[0].image: Required value" in result.err
