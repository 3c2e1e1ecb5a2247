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
from haulout.app import hub_manifests, manifests
from haulout.app.configured import Configured
from haulout.app.hub_manifests import HubInstallation
from haulout.app.manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.app.vitals import Vitals
from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.network import config
from haulout.kube.network.http import HttpTransport
from haulout.kube.objects import RawObject
from haulout.profiles.outside import Network
from haulout.profiles.plugin import PROFILE_LABEL, STATE_LABEL
from haulout.web.listening import Address
from haulout.web.registration import CONFIGURATION, PATH
from haulout.web.wishes import WebhookSettings, certificate_from
from support.builders import a_node, a_pod
from support.eventually import eventually
from support.helm import CHART, DEPLOY, EVERYTHING, LEAST, HelmFailed, helm, one, template, written
from support.profiled import BY_LABEL

(PREVIOUS,) = (Path(__file__).parent / "charts").glob("haulout-*.tgz")
RELEASE, HOME, LEASES = "haulout", "haulout", "medik8s-leases"
LOCAL = "127.0.0.1"
_PATIENCE = 300  # looks, of half a second and more each
READY = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Tested"}]}}
FILE = f"budget: [{{max: 1}}]{BY_LABEL}"


class Site:
    """A control plane, as one who uses helm and kubectl sees it."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane

    def helm(self, *args: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm on it."""
        with written(values or {}) as file:
            given = ("--values", str(file)) if values else ()
            return helm(*args, *given, "--namespace", HOME, kubeconfig=self.control_plane.kubeconfig())

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
        """Return all objects that there are, when none is about to go any more."""
        for _ in range(_PATIENCE):
            if (found := self._objects()) is not None:
                return found
        raise AssertionError("something is about to go, and does not")

    def _objects(self) -> set[str] | None:
        """Return them, but what tells of the past, or beats; None if one is about to go, or its kind just went."""
        kinds = self.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        passing = ("events", "events.events.k8s.io", "componentstatuses", "apiservices.apiregistration.k8s.io")
        listed = ",".join(it for it in kinds if it not in passing)
        told = "{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.deletionTimestamp}"
        line = f"{{range .items[*]}}{told}{{'\\n'}}{{end}}"
        done = self.control_plane.kubectl("get", listed, "-A", "-o", f"jsonpath={line}", check=False)
        lines = [it.partition(" ") for it in done.stdout.splitlines()]
        if "could not find the requested resource" in done.stderr or any(it[2] for it in lines):
            return None
        assert done.returncode == 0, done.stderr
        return {it[0] for it in lines if not it[0].startswith(("Lease/kube-system/", "IPAddress/"))}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Have a cluster for these tests alone: they are about what is in it as a whole."""
    with ControlPlane() as control_plane:
        control_plane.start_controllers(("namespace-controller", "serviceaccount-controller"), scheduler=False)
        yield Site(control_plane)


@pytest.fixture
def before(site: Site) -> set[str]:
    """Return what there is before a test; each leaves it so."""
    return site.inventory()


def deployed(site: Site, revision: int) -> None:
    """Check that helm takes this for the revision in force."""
    status = json.loads(site.helm("status", RELEASE, "-o", "json"))
    assert (status["info"]["status"], status["version"]) == ("deployed", revision)


def cleared(site: Site, *more: str) -> set[str]:
    """Remove the release as the page says, and the namespaces that it leaves; return what is there then."""
    site.helm("uninstall", RELEASE)
    assert {phase(site, it) for it in (LEASES, *more)} == {"Active"}
    site.kubectl("delete", "namespace", HOME, LEASES, *more)
    return site.inventory()


def phase(site: Site, namespace: str) -> str:
    """Return that of a namespace."""
    return str(site.get("namespace", namespace)["status"]["phase"])


# At work


def in_force(site: Site) -> tuple[RawObject, RawObject]:
    """Return the container that would run, and its variables."""
    pod = site.get("deployment", "haulout", "-n", HOME)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return container, {it["name"]: it.get("value", "") for it in container["env"]}


async def client_of(site: Site, folder: Path, *, account: str, namespace: str) -> Client:
    """Return a client with a token of a ServiceAccount, and nothing else."""
    token = site.kubectl("create", "token", account, "-n", namespace).strip()
    admin = yaml.safe_load(site.control_plane.kubeconfig().read_text())
    admin["users"] = [{"name": it["name"], "user": {"token": token}} for it in admin["users"]]
    file = folder / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(admin))
    clock = RealClock()
    connection = config.load(kubeconfig=str(file))
    return Client(HttpTransport(connection, clock=clock), clock=clock, random=random.Random(7))


@asynccontextmanager
async def operating(site: Site, folder: Path) -> AsyncIterator[tuple[Vitals, int]]:
    """Run the operator as its pods would, from what helm has put into the cluster; yields the port of HTTPS metrics."""
    container, variables = in_force(site)
    arguments = dict(it.removeprefix("--").partition("=")[::2] for it in container["args"][1:])
    https = free_port()
    settings = OperatorSettings(
        namespace=HOME,
        identity="haulout-0_1",
        lease_namespace=variables["LEASE_NAMESPACE"],
        webhook=WebhookSettings(
            host=LOCAL,
            port=0,
            more_hosts=(LOCAL,),
            namespace=HOME,
            certificate=certificate_from(arguments["webhook"]),
        ),
        guarded_metrics=Address(https, LOCAL),
    )
    file = folder / "maintenance.yaml"
    file.write_text(site.get("configmap", "haulout-profiles", "-n", HOME)["data"][file.name])
    client = await client_of(site, folder, account="haulout", namespace=HOME)
    network, vitals = Network(client=client), Vitals()
    try:
        profiles = Profiles(Configured(file, environ={}, clock=client.clock), network)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(run_operator(client, settings, profiles=profiles, vitals=vitals))
            yield vitals, https
            work.cancel()
    finally:
        await network.close()
        await client.close()


def some_nodes(site: Site, *names: str) -> None:
    """Make nodes, each with a pod that goes as soon as it is asked to."""
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
async def test_the_whole_story_with_exactly_what_the_chart_grants(
    site: Site, before: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is installed as it was before, upgraded, and the operator then does all that it is for."""
    reader = {"namespace": "default", "name": "default"}
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace")
    values = {"profiles": {"config": FILE}, "metrics": {"readers": [reader]}, "crds": {"keep": False}}
    site.helm("upgrade", RELEASE, str(CHART), values=values)
    deployed(site, 2)
    some_nodes(site, "n1", "n2")
    async with operating(site, tmp_path) as (vitals, https):

        async def kubectl(*args: str, text: str | None = None) -> str:
            return await asyncio.to_thread(site.kubectl, *args, text=text)

        async def field(kind: str, name: str, path: str) -> str:
            return await kubectl("get", kind, name, "-o", f"jsonpath={path}")

        port = await eventually(RealClock(), lambda: vitals.webhook and vitals.webhook.port)
        url = json.dumps(
            [
                {"op": "replace", "path": "/webhooks/0/clientConfig/service", "value": None},
                {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": f"https://{LOCAL}:{port}{PATH}"},
            ]
        )
        await kubectl("patch", "validatingwebhookconfiguration", CONFIGURATION, "--type=json", "-p", url)
        bundle = "{.webhooks[0].clientConfig.caBundle}"
        await eventually(RealClock(), lambda: field("validatingwebhookconfiguration", CONFIGURATION, bundle))

        # The webhook, and a person's order
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
        assert await read(site, https, account="default") == 200
        assert (list(vitals.unready()), list(vitals.troubles())) == ([], [])
    assert not [it.getMessage() for it in caplog.records if "forbidden" in it.getMessage().lower()]

    site.kubectl("delete", "mn,mr", "--all")
    site.kubectl("delete", "nodes", "n1", "n2")
    assert cleared(site) == before


async def read(site: Site, port: int, *, account: str) -> int:
    """Return the status with which somebody's call for metrics is answered."""
    token = await asyncio.to_thread(site.kubectl, "create", "token", account, "-n", "default")
    headers = {"Authorization": f"Bearer {token.strip()}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"https://{LOCAL}:{port}/metrics", ssl=False) as answer,
    ):
        return answer.status


# Installed, upgraded, removed


def test_definitions_stay_with_what_people_wrote_and_the_next_release_takes_them_on(
    site: Site, before: set[str]
) -> None:
    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"webhook": {"enabled": False}})
    site.kubectl("create", "-f", "-", text=a_notice("kept"))
    left = cleared(site) - before
    kept = {it for it in left if not it.startswith(("CustomResourceDefinition/", "MaintenanceNotice/"))}
    assert (kept, "MaintenanceNotice//kept" in left) == (set(), True)

    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"crds": {"keep": False}})
    assert site.get("mn", "kept")["spec"]["nodeName"] == "kept"
    assert cleared(site) == before


def test_an_upgrade_brings_definitions_and_features_and_another_takes_them_back(site: Site, before: set[str]) -> None:
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace", values={"crds": {"keep": False}})
    name = "nodemaintenances.nodemaintenance.medik8s.io"
    site.kubectl("annotate", "crd", name, "note=mine")
    site.kubectl("create", "namespace", "openshift-machine-api")
    site.helm("upgrade", RELEASE, str(CHART), values={"machines": {"enabled": True}, "crds": {"keep": False}})
    assert site.get("crd", name)["metadata"]["labels"]["helm.sh/chart"].startswith("haulout-0.1")
    assert site.get("crd", name)["metadata"]["annotations"]["note"] == "mine"
    assert site.get("role", "-n", "openshift-machine-api")["items"]
    site.helm("rollback", RELEASE, "1")
    deployed(site, 3)
    assert not site.get("role", "-n", "openshift-machine-api")["items"]
    site.helm("upgrade", RELEASE, str(CHART), values={"crds": {"keep": False}})
    site.kubectl("delete", "namespace", "openshift-machine-api")
    assert cleared(site, "machine-maintenance-operator") == before


def test_an_upgrade_closes_what_is_closed_by_default(site: Site, before: set[str]) -> None:
    site.helm("install", RELEASE, str(PREVIOUS), "--create-namespace", values={"crds": {"keep": False}})
    site.helm("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values")
    deployed(site, 2)
    container, _ = in_force(site)
    assert "--dashboard-auth=token" in container["args"]
    operator = "--as=system:serviceaccount:haulout:haulout"
    for question in (("create", "namespaces"), ("delete", "pods", "-A"), ("impersonate", "users")):
        done = site.control_plane.kubectl("auth", "can-i", *question, operator, check=False)
        assert done.stdout.strip() == "no", question
    assert cleared(site) == before


def test_what_the_operator_wrote_outlives_an_upgrade(site: Site, before: set[str]) -> None:
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
    assert cleared(site) == before


def test_a_namespace_of_somebody_elses_is_left_to_them(site: Site, before: set[str]) -> None:
    site.kubectl("create", "namespace", LEASES)
    site.helm("install", RELEASE, str(CHART), "--create-namespace", values={"crds": {"keep": False}})
    site.helm("uninstall", RELEASE)
    assert site.get("namespace", LEASES)["status"]["phase"] == "Active"
    site.kubectl("delete", "namespace", HOME, LEASES)
    assert site.inventory() == before


def a_lease(name: str) -> str:
    """Return the lease of a node, as another operator of medik8s holds it."""
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return json.dumps({**kind, "metadata": {"name": name, "namespace": LEASES}, "spec": {"holderIdentity": "other"}})


def test_leases_of_others_outlive_the_release_and_the_next_one_takes_their_namespace_on(
    site: Site, before: set[str]
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
    site.kubectl("delete", "namespace", HOME, LEASES)
    assert site.inventory() == before


def test_what_was_applied_by_hand_is_taken_over_when_helm_is_told_to(site: Site, before: set[str]) -> None:
    site.kubectl("apply", "--server-side", "-f", str(DEPLOY / "manifests" / "haulout.yaml"))
    with pytest.raises(HelmFailed, match="cannot be imported into the current release"):
        site.helm("install", RELEASE, str(CHART))
    site.kubectl("delete", "rolebindings,roles", "-n", LEASES, "haulout")
    site.kubectl("delete", "rolebindings,roles", "-n", "kube-system", "haulout")
    site.kubectl("delete", "rolebindings,roles", "-n", "default", "haulout", "--ignore-not-found")
    site.helm("install", RELEASE, str(CHART), "--take-ownership", values={"crds": {"keep": False}})
    site.helm("uninstall", RELEASE)
    site.kubectl("delete", "namespace", HOME, LEASES, "--ignore-not-found")
    assert site.inventory() == before


# Everything else in deploy/


def test_the_api_server_finds_nothing_wrong_with_any_package(site: Site, before: set[str]) -> None:
    """Field by field: a server-side dry run refuses what it does not know."""
    namespaces = (HOME, LEASES, "machine-maintenance-operator", "openshift-machine-api")
    for name in namespaces:
        site.kubectl("create", "namespace", name)
    for folder in ("base", "overlays/openshift", "overlays/guarded"):
        built = yaml.safe_load_all(site.kubectl("kustomize", str(DEPLOY / "kustomize" / folder)))
        accepted(site, [it for it in built if it["apiVersion"] != "monitoring.coreos.com/v1"])
    bundle = [yaml.safe_load(it.read_text()) for it in sorted((DEPLOY / "olm" / "manifests").glob("*.yaml"))]
    accepted(site, [it for it in bundle if it["kind"] != "ClusterServiceVersion"])
    (csv,) = [it for it in bundle if it["kind"] == "ClusterServiceVersion"]
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    metadata = {"name": deployment["name"], "namespace": HOME}
    accepted(site, [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment["spec"]}])
    site.kubectl("delete", "namespace", *namespaces)
    assert site.inventory() == before


def accepted(site: Site, objects: list[RawObject]) -> None:
    """Check that the API server would take them as they are, strictly."""
    text = "---\n".join(yaml.safe_dump(it) for it in objects)
    done = site.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=text)
    assert done.count("serverside-applied (server dry run)") == len(objects)


@pytest.mark.parametrize("name", ["everything", "least"])
def test_the_api_server_finds_nothing_wrong_with_the_chart(site: Site, name: str, before: set[str]) -> None:
    values = {"everything": {**EVERYTHING, "webhook": {"certificate": {"from": "secret"}}}, "least": LEAST}[name]
    foreign = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
    objects = [it for it in template(values, definitions=True) if it["apiVersion"] not in foreign]
    namespaces = {it["metadata"].get("namespace", "default") for it in objects} - {"default", "kube-system"}
    for it in sorted(namespaces):
        site.kubectl("create", "namespace", it)
    accepted(site, objects)
    site.kubectl("delete", "namespace", *namespaces)
    assert site.inventory() == before


def a_pod_of(workload: RawObject) -> RawObject:
    """Return a pod as a controller would make it of a Deployment or a DaemonSet."""
    spec, metadata = workload["spec"]["template"]["spec"], {"name": "try", "namespace": HOME}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_our_namespaces_let_in_our_pods_and_no_pod_with_more_rights(site: Site, before: set[str]) -> None:
    image = "example/haulout:1"
    operator = manifests.everything(Installation(image=image))
    deployments = [
        *(one("Deployment", it) for it in (template(), operator)),
        one("Deployment", hub_manifests.everything(HubInstallation(image=image))),
    ]
    site.kubectl("apply", "-f", "-", text=json.dumps(one("Namespace", operator, name=HOME)))
    for deployment in deployments:
        pod = a_pod_of(deployment)
        accepted(site, [pod])
        pod["spec"]["containers"][0]["securityContext"] = {"allowPrivilegeEscalation": True}
        with pytest.raises(ControlPlaneError, match='violates PodSecurity "restricted:latest"'):
            accepted(site, [pod])
    site.kubectl("delete", "namespace", HOME)
    assert site.inventory() == before


def test_agents_are_let_into_a_namespace_that_was_made_with_them(site: Site, before: set[str], tmp_path: Path) -> None:
    with_agents = manifests.everything(Installation(image="example/haulout:1", agent=True))
    agent = a_pod_of(one("DaemonSet", with_agents))
    site.kubectl("create", "namespace", HOME)
    site.kubectl("label", "namespace", HOME, "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(ControlPlaneError, match=r'violates PodSecurity "restricted:latest".*hostNetwork'):
        accepted(site, [agent])
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "with-agents").mkdir()
    parts = "resources: [../deploy/kustomize/base]\ncomponents: [../deploy/kustomize/components/agent]\n"
    (tmp_path / "with-agents" / "kustomization.yaml").write_text(parts)
    built = list(yaml.safe_load_all(site.kubectl("kustomize", str(tmp_path / "with-agents"))))
    for namespace in (one("Namespace", with_agents, name=HOME), one("Namespace", built, name=HOME)):
        site.kubectl("label", "namespace", HOME, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
        site.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(namespace))
        accepted(site, [agent])
    site.kubectl("delete", "namespace", HOME)
    assert site.inventory() == before
