"""The chart on a real control plane, by the real helm: installed, upgraded, at work with what it grants, and removed.

There are no kubelets, so the pods of the Deployment never run. The operator runs in this process instead, as its
ServiceAccount (with a token of it), with the arguments, variables and file that its pods would have.
"""

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controlplane import ControlPlane, ControlPlaneError, free_port
from haulout.api.objects import RawObject
from haulout.app.manifests import hub_manifests, operator_manifests
from haulout.app.manifests.hub_manifests import HubInstallation
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.plugin import PROFILE_LABEL, STATE_LABEL
from haulout.core.clock import RealClock
from haulout.httpserver.listener import ListenAddress
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout.webhook.registration import CONFIGURATION, PATH
from haulout.webhook.settings import WebhookSettings, parse_certificate_source
from support.builders.objects import a_node, a_pod
from support.expectations.eventually import eventually
from support.operators.profiles import LABEL_CONFIGURATION
from support.packaging.helm import (
    ALL_VALUES,
    CHART,
    DEPLOY,
    MINIMAL_VALUES,
    HelmFailed,
    helm,
    only_object,
    render_chart,
    values_file,
)

(PREVIOUS,) = (Path(__file__).parent / "charts").glob("haulout-*.tgz")
RELEASE, NAMESPACE, LEASES = "haulout", "haulout", "medik8s-leases"
LOCAL = "127.0.0.1"
_MAX_RETRIES = 300  # looks, of half a second and more each
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Tested"}]}}
FILE = f"budget: [{{max: 1}}]{LABEL_CONFIGURATION}"


class HelmCluster:
    """A control plane, used with helm and kubectl."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane

    def helm(self, *args: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm on it."""
        with values_file(values or {}) as file:
            given = ("--values", str(file)) if values else ()
            return helm(*args, *given, "--namespace", NAMESPACE, kubeconfig=self.control_plane.kubeconfig())

    def kubectl(self, *args: str, text: str | None = None) -> str:
        """Run kubectl on it."""
        return self.control_plane.kubectl(*args, input=text).stdout

    def get(self, *args: str) -> Any:
        """Return something as kubectl gets it."""
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    def merge(self, kind: str, name: str, change: RawObject, *more: str) -> None:
        """Change an object."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change), *more)

    def inventory(self) -> set[str]:
        """Return all objects once none of them is terminating."""
        for _ in range(_MAX_RETRIES):
            if (found := self._objects()) is not None:
                return found
        raise AssertionError("something is about to go, and does not")

    def _objects(self) -> set[str] | None:
        """Return all objects except Events and heartbeats; None if one is terminating, or its kind was just deleted."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        passing = ("events", "events.events.k8s.io", "componentstatuses", "apiservices.apiregistration.k8s.io")
        listed = ",".join(item for item in kinds if item not in passing)
        template = "{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.deletionTimestamp}"
        range_template = f"{{range .items[*]}}{template}{{'\\n'}}{{end}}"
        done = self.control_plane.kubectl("get", listed, "-A", "-o", f"jsonpath={range_template}", check=False)
        lines = [item.partition(" ") for item in done.stdout.splitlines()]
        if "could not find the requested resource" in done.stderr or any(item[2] for item in lines):
            return None
        assert done.returncode == 0, done.stderr
        return {item[0] for item in lines if not item[0].startswith(("Lease/kube-system/", "IPAddress/"))}


@pytest.fixture(scope="module")
def site() -> Iterator[HelmCluster]:
    """Run a cluster for these tests alone, because they compare all of its objects."""
    with ControlPlane() as control_plane:
        control_plane.start_controllers(("namespace-controller", "serviceaccount-controller"), scheduler=False)
        yield HelmCluster(control_plane)


@pytest.fixture
def before(site: HelmCluster) -> set[str]:
    """Return all objects before a test, which must leave the same."""
    return site.inventory()


def assert_deployed_revision(site: HelmCluster, revision: int) -> None:
    """Check the deployed revision of the release."""
    status = json.loads(site.helm("status", RELEASE, "-o", "json"))
    assert (status["info"]["status"], status["version"]) == ("deployed", revision)


def uninstall(site: HelmCluster, *more: str) -> set[str]:
    """Remove the release as the page says, and the namespaces that it leaves; return what is there then."""
    site.helm("uninstall", RELEASE)
    assert {phase(site, item) for item in (LEASES, *more)} == {"Active"}
    site.kubectl("delete", "namespace", NAMESPACE, LEASES, *more)
    return site.inventory()


def phase(site: HelmCluster, namespace: str) -> str:
    """Return the phase of a namespace."""
    return str(site.get("namespace", namespace)["status"]["phase"])


# At work


def deployed_container(site: HelmCluster) -> tuple[RawObject, RawObject]:
    """Return the container that would run, and its variables."""
    pod = site.get("deployment", "haulout", "-n", NAMESPACE)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return container, {item["name"]: item.get("value", "") for item in container["env"]}


async def client_of(site: HelmCluster, folder: Path, *, account: str, namespace: str) -> Client:
    """Return a client with a token of a ServiceAccount, and nothing else."""
    token = site.kubectl("create", "token", account, "-n", namespace).strip()
    admin = yaml.safe_load(site.control_plane.kubeconfig().read_text())
    admin["users"] = [{"name": user["name"], "user": {"token": token}} for user in admin["users"]]
    file = folder / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(admin))
    clock = RealClock()
    connection = config.load(kubeconfig=str(file))
    return Client(HttpTransport(connection, clock=clock), clock=clock, random=random.Random(7))


@asynccontextmanager
async def running_operator(site: HelmCluster, folder: Path) -> AsyncIterator[tuple[OperatorStatus, int]]:
    """Run the operator as its pods would, from what helm has put into the cluster; yields the port of HTTPS metrics."""
    container, variables = deployed_container(site)
    arguments = dict(argument.removeprefix("--").partition("=")[::2] for argument in container["args"][1:])
    https = free_port()
    settings = OperatorSettings(
        namespace=NAMESPACE,
        identity="haulout-0_1",
        lease_namespace=variables["LEASE_NAMESPACE"],
        webhook=WebhookSettings(
            host=LOCAL,
            port=0,
            more_hosts=(LOCAL,),
            namespace=NAMESPACE,
            certificate=parse_certificate_source(arguments["webhook"]),
        ),
        secure_metrics_address=ListenAddress(https, LOCAL),
    )
    file = folder / "maintenance.yaml"
    file.write_text(site.get("configmap", "haulout-profiles", "-n", NAMESPACE)["data"][file.name])
    client = await client_of(site, folder, account="haulout", namespace=NAMESPACE)
    network, operator_status = NetworkClient(client=client), OperatorStatus()
    try:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), network)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(run_operator(client, settings, profiles=profiles, status=operator_status))
            yield operator_status, https
            work.cancel()
    finally:
        await network.close()
        await client.close()


def some_nodes(site: HelmCluster, *names: str) -> None:
    """Create nodes, each with a pod without a grace period."""
    for name in names:
        site.kubectl("create", "-f", "-", text=json.dumps(a_node(name)))
        site.merge("node", name, READY, "--subresource=status")
        site.kubectl("create", "-n", "default", "-f", "-", text=json.dumps(a_pod(f"on-{name}", on=name, grace=0)))


def an_order(node: str) -> str:
    """Return a NodeMaintenance, named after its node."""
    kind = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    return json.dumps({**kind, "metadata": {"name": node}, "spec": {"nodeName": node}})


def a_notice(node: str) -> str:
    """Return a notice of maintenance far away."""
    spec = {"nodeName": node, "source": "people", "noticeID": node, "kind": "Reboot", "start": "2036-01-01T00:00:00Z"}
    kind = {"apiVersion": "haulout.dev/v1alpha1", "kind": "MaintenanceNotice"}
    return json.dumps({**kind, "metadata": {"name": node}, "spec": spec})


@pytest.mark.real_time
async def test_operator_works_with_exactly_the_permissions_of_the_chart(
    site: HelmCluster, before: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The previous version is installed and upgraded, and the operator then runs all of its features."""
    reader = {"namespace": "default", "name": "default"}
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace")
    values = {"profiles": {"config": FILE}, "metrics": {"readers": [reader]}, "crds": {"keep": False}}
    site.helm("upgrade", RELEASE, str(CHART), values=values)
    assert_deployed_revision(site, 2)
    some_nodes(site, "n1", "n2")
    async with running_operator(site, tmp_path) as (operator_status, https):

        async def kubectl(*args: str, text: str | None = None) -> str:
            return await asyncio.to_thread(site.kubectl, *args, text=text)

        async def field(kind: str, name: str, path: str) -> str:
            return await kubectl("get", kind, name, "-o", f"jsonpath={path}")

        port = await eventually(RealClock(), lambda: operator_status.webhook and operator_status.webhook.port)
        url = json.dumps(
            [
                {"op": "replace", "path": "/webhooks/0/clientConfig/service", "value": None},
                {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": f"https://{LOCAL}:{port}{PATH}"},
            ]
        )
        await kubectl("patch", "validatingwebhookconfiguration", CONFIGURATION, "--type=json", "-p", url)
        bundle = "{.webhooks[0].clientConfig.caBundle}"
        await eventually(RealClock(), lambda: field("validatingwebhookconfiguration", CONFIGURATION, bundle))

        # The webhook, and a NodeMaintenance
        refused = await asyncio.to_thread(
            site.control_plane.kubectl, "create", "-f", "-", input=an_order("absent"), check=False
        )
        assert "no node with name absent found" in refused.stderr
        await kubectl("create", "-f", "-", text=an_order("n1"))
        await eventually(RealClock(), lambda: field("nm", "n1", "{.status.phase}"), becomes="Succeeded")
        assert "on-n1" not in await kubectl("get", "pods", "-n", "default")
        assert await field("node", "n1", "{.spec.unschedulable}") == "true"
        await kubectl("delete", "nm", "n1")
        assert await field("node", "n1", "{.spec.unschedulable}") == ""

        # A profile
        await kubectl("label", "node", "n2", f"{PROFILE_LABEL}=os", "patch=1")
        state = "{.metadata.labels." + STATE_LABEL.replace(".", "\\.") + "}"
        await eventually(RealClock(), lambda: field("node", "n2", state), becomes="in-maintenance")
        assert "on-n2" not in await kubectl("get", "pods", "-n", "default")
        await kubectl("label", "node", "n2", "patch-")
        await eventually(RealClock(), lambda: field("node", "n2", state), becomes="operational")

        # A notice, the history, and metrics for who may read them
        await kubectl("create", "-f", "-", text=a_notice("n1"))
        await eventually(RealClock(), lambda: field("mn", "n1", "{.status.phase}"), becomes="Planned")
        assert "n1" in await kubectl("get", "mr")
        assert await metrics_status(site, https, account="default") == 200
        assert (list(operator_status.unready()), list(operator_status.troubles())) == ([], [])
    assert not [record.getMessage() for record in caplog.records if "forbidden" in record.getMessage().lower()]

    site.kubectl("delete", "mn,mr", "--all")
    site.kubectl("delete", "nodes", "n1", "n2")
    assert uninstall(site) == before


async def metrics_status(site: HelmCluster, port: int, *, account: str) -> int:
    """Return the status of a metrics request by a service account."""
    token = await asyncio.to_thread(site.kubectl, "create", "token", account, "-n", "default")
    headers = {"Authorization": f"Bearer {token.strip()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"https://{LOCAL}:{port}/metrics", ssl=False) as answer,
    ):
        return answer.status


# Installed, upgraded, removed


def test_definitions_and_objects_survive_uninstall_and_the_next_install(site: HelmCluster, before: set[str]) -> None:
    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"webhook": {"enabled": False}})
    site.kubectl("create", "-f", "-", text=a_notice("kept"))
    left = uninstall(site) - before
    kept = {item for item in left if not item.startswith(("CustomResourceDefinition/", "MaintenanceNotice/"))}
    assert (kept, "MaintenanceNotice//kept" in left) == (set(), True)

    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"crds": {"keep": False}})
    assert site.get("mn", "kept")["spec"]["nodeName"] == "kept"
    assert uninstall(site) == before


def test_upgrade_adds_definitions_and_features_and_rollback_removes_them(site: HelmCluster, before: set[str]) -> None:
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace", values={"crds": {"keep": False}})
    name = "nodemaintenances.nodemaintenance.medik8s.io"
    site.kubectl("annotate", "crd", name, "note=mine")
    site.kubectl("create", "namespace", "openshift-machine-api")
    site.helm("upgrade", RELEASE, str(CHART), values={"machines": {"enabled": True}, "crds": {"keep": False}})
    assert site.get("crd", name)["metadata"]["labels"]["helm.sh/chart"].startswith("haulout-0.1")
    assert site.get("crd", name)["metadata"]["annotations"]["note"] == "mine"
    assert site.get("role", "-n", "openshift-machine-api")["items"]
    site.helm("rollback", RELEASE, "1")
    assert_deployed_revision(site, 3)
    assert not site.get("role", "-n", "openshift-machine-api")["items"]
    site.helm("upgrade", RELEASE, str(CHART), values={"crds": {"keep": False}})
    site.kubectl("delete", "namespace", "openshift-machine-api")
    assert uninstall(site, "machine-maintenance-operator") == before


def test_upgrade_applies_secure_defaults(site: HelmCluster, before: set[str]) -> None:
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace", values={"crds": {"keep": False}})
    site.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values")
    assert_deployed_revision(site, 2)
    container, _ = deployed_container(site)
    assert "--dashboard-auth=token" in container["args"]
    operator = "--as=system:serviceaccount:haulout:haulout"
    for question in (("create", "namespaces"), ("delete", "pods", "-A"), ("impersonate", "users")):
        done = site.control_plane.kubectl("auth", "can-i", *question, operator, check=False)
        assert done.stdout.strip() == "no", question
    assert uninstall(site) == before


def test_ca_bundle_survives_an_upgrade(site: HelmCluster, before: set[str]) -> None:
    """The authorities of the webhook's certificate: without them no NodeMaintenance could be created."""
    values = {"crds": {"keep": False}}
    site.helm("install", RELEASE, str(CHART), "--create-namespace", values=values)
    trusted = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "Q0E="}]
    kind = "validatingwebhookconfiguration"
    pem = site.kubectl(
        "get",
        "configmap",
        "-n",
        "kube-system",
        "extension-apiserver-authentication",
        "-o",
        "jsonpath={.data.client-ca-file}",
    )
    trusted[0]["value"] = base64.b64encode(pem.encode()).decode()
    site.kubectl("patch", kind, CONFIGURATION, "--type=json", "-p", json.dumps(trusted))
    site.helm("upgrade", RELEASE, str(CHART), values=values | {"webhook": {"timeoutSeconds": 7}})
    (hook,) = site.get(kind, CONFIGURATION)["webhooks"]
    assert (hook["timeoutSeconds"], hook["clientConfig"]["caBundle"]) == (7, trusted[0]["value"])
    assert uninstall(site) == before


def test_foreign_namespace_survives_uninstall(site: HelmCluster, before: set[str]) -> None:
    site.kubectl("create", "namespace", LEASES)
    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"crds": {"keep": False}})
    site.helm("uninstall", RELEASE)
    assert site.get("namespace", LEASES)["status"]["phase"] == "Active"
    site.kubectl("delete", "namespace", NAMESPACE, LEASES)
    assert site.inventory() == before


def a_lease(name: str) -> str:
    """Return the lease of a node, as another operator of medik8s holds it."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return json.dumps({**kind, "metadata": {"name": name, "namespace": LEASES}, "spec": {"holderIdentity": "other"}})


def test_foreign_leases_and_their_namespace_survive_uninstall_and_reinstall(
    site: HelmCluster, before: set[str]
) -> None:
    """Also one that was installed by a chart that did not keep it, and a next one of another name."""
    values = {"crds": {"keep": False}}
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace", values=values)
    site.kubectl("create", "-f", "-", text=a_lease("node-n1"))
    site.helm("upgrade", RELEASE, str(CHART), values=values)
    assert f"[Namespace] {LEASES}" in site.helm("uninstall", RELEASE)
    for release in (RELEASE, "other"):
        site.helm("install", release, str(CHART), values=values)
        site.helm("uninstall", release)
        assert phase(site, LEASES) == "Active"
    assert site.get("lease", "-n", LEASES, "node-n1")["spec"]["holderIdentity"] == "other"
    site.kubectl("delete", "namespace", NAMESPACE, LEASES)
    assert site.inventory() == before


def test_manifests_applied_by_hand_are_adopted_with_take_ownership(site: HelmCluster, before: set[str]) -> None:
    site.kubectl("apply", "--server-side", "-f", str(DEPLOY / "manifests" / "haulout.yaml"))
    with pytest.raises(HelmFailed, match="cannot be imported into the current release"):
        site.helm("install", RELEASE, str(CHART))
    site.kubectl("delete", "rolebindings,roles", "-n", LEASES, "haulout")
    site.kubectl("delete", "rolebindings,roles", "-n", "kube-system", "haulout")
    site.kubectl("delete", "rolebindings,roles", "-n", "default", "haulout", "--ignore-not-found")
    site.helm("install", RELEASE, str(CHART), "--take-ownership", values={"crds": {"keep": False}})
    site.helm("uninstall", RELEASE)
    site.kubectl("delete", "namespace", NAMESPACE, LEASES, "--ignore-not-found")
    assert site.inventory() == before


# Everything else in deploy/


def test_api_server_accepts_every_package(site: HelmCluster, before: set[str]) -> None:
    """Field by field: a server-side dry run refuses what it does not know."""
    namespaces = (NAMESPACE, LEASES, "machine-maintenance-operator", "openshift-machine-api")
    for name in namespaces:
        site.kubectl("create", "namespace", name)
    for folder in ("base", "overlays/openshift", "overlays/guarded"):
        built = yaml.safe_load_all(site.kubectl("kustomize", str(DEPLOY / "kustomize" / folder)))
        assert_accepted(site, [path for path in built if path["apiVersion"] != "monitoring.coreos.com/v1"])
    bundle = [yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "olm" / "manifests").glob("*.yaml"))]
    assert_accepted(site, [path for path in bundle if path["kind"] != "ClusterServiceVersion"])
    (csv,) = [path for path in bundle if path["kind"] == "ClusterServiceVersion"]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    metadata = {"name": deployment["name"], "namespace": NAMESPACE}
    assert_accepted(
        site, [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment["spec"]}]
    )
    site.kubectl("delete", "namespace", *namespaces)
    assert site.inventory() == before


def assert_accepted(site: HelmCluster, objects: list[RawObject]) -> None:
    """Check that the API server accepts them with strict validation."""
    text = "---\n".join(yaml.safe_dump(obj) for obj in objects)
    done = site.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    assert done.count("serverside-applied (server dry run)") == len(objects)


@pytest.mark.parametrize("name", ["everything", "least"])
def test_api_server_accepts_the_chart(site: HelmCluster, name: str, before: set[str]) -> None:
    values = {"everything": {**ALL_VALUES, "webhook": {"certificate": {"from": "secret"}}}, "least": MINIMAL_VALUES}[
        name
    ]
    foreign = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
    objects = [item for item in render_chart(values, definitions=True) if item["apiVersion"] not in foreign]
    namespaces = {item["metadata"].get("namespace", "default") for item in objects} - {"default", "kube-system"}
    for item in sorted(namespaces):
        site.kubectl("create", "namespace", item)
    assert_accepted(site, objects)
    site.kubectl("delete", "namespace", *namespaces)
    assert site.inventory() == before


def a_pod_of(workload: RawObject) -> RawObject:
    """Return a pod as a controller would make it of a Deployment or a DaemonSet."""
    spec, metadata = workload["spec"]["template"]["spec"], {"name": "try", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_operator_namespace_admits_only_restricted_pods(site: HelmCluster, before: set[str]) -> None:
    image = "example/haulout:1"
    operator = operator_manifests.all_objects(Installation(image=image))
    deployments = [
        *(only_object("Deployment", item) for item in (render_chart(), operator)),
        only_object("Deployment", hub_manifests.hub_objects(HubInstallation(image=image))),
    ]
    site.kubectl("apply", "-f", "-", text=json.dumps(only_object("Namespace", operator, name=NAMESPACE)))
    for deployment in deployments:
        pod = a_pod_of(deployment)
        assert_accepted(site, [pod])
        pod["spec"]["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": True}
        with pytest.raises(ControlPlaneError, match='violates PodSecurity "restricted:latest"'):
            assert_accepted(site, [pod])
    site.kubectl("delete", "namespace", NAMESPACE)
    assert site.inventory() == before


def test_namespace_created_with_agents_admits_agents(site: HelmCluster, before: set[str], tmp_path: Path) -> None:
    with_agents = operator_manifests.all_objects(Installation(image="example/haulout:1", agent=True))
    agent = a_pod_of(only_object("DaemonSet", with_agents))
    site.kubectl("create", "namespace", NAMESPACE)
    site.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(ControlPlaneError, match=r'violates PodSecurity "restricted:latest".*hostNetwork'):
        assert_accepted(site, [agent])
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "with-agents").mkdir()
    parts = "resources: [../deploy/kustomize/base]\ncomponents: [../deploy/kustomize/components/agent]\n"
    (tmp_path / "with-agents" / "kustomization.yaml").write_text(parts)
    built = list(yaml.safe_load_all(site.kubectl("kustomize", str(tmp_path / "with-agents"))))
    for namespace in (
        only_object("Namespace", with_agents, name=NAMESPACE),
        only_object("Namespace", built, name=NAMESPACE),
    ):
        site.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
        site.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(namespace))
        assert_accepted(site, [agent])
    site.kubectl("delete", "namespace", NAMESPACE)
    assert site.inventory() == before
