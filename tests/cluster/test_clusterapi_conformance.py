"""What the stand-ins for Cluster API and Metal3 define is served alike by the sandbox and by the real server."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from controlplane import ControlPlane
from haulout.api.clusterapi import GROUP, VERSIONS, ClusterKey
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer, JsonObject
from haulout_sandbox.clusterapi.objects import a_cluster, a_machine_deployment
from haulout_sandbox.clusterapi.objects import custom_resource_definitions as cluster_api_definitions
from haulout_sandbox.metal3.objects import a_host
from haulout_sandbox.metal3.objects import custom_resource_definitions as metal3_definitions
from support.apiserver.replay import (
    APPLY,
    MERGE_PATCH,
    TABLE,
    RealServer,
    RequestStep,
    SandboxServer,
    Server,
    comparable_response,
    response_when,
)

pytestmark = pytest.mark.real_time
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEY = ClusterKey("default", "prod")
NEW, OLD = (f"/apis/{GROUP}/{version}/namespaces/default" for version in VERSIONS)
HOSTS = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts"
ALL = (*cluster_api_definitions(), *metal3_definitions())


def a_machine(name: str, version: str = VERSIONS[0], **spec: object) -> JsonObject:
    meta = {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": "prod"}}
    spec = {"clusterName": "prod", **spec}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Machine", "metadata": meta, "spec": spec}


def a_rule(name: str, **spec: object) -> JsonObject:
    meta = {"name": name}
    return {"apiVersion": f"{GROUP}/{VERSIONS[0]}", "kind": "MachineDrainRule", "metadata": meta, "spec": spec}


def post(path: str, body: JsonObject) -> RequestStep:
    return RequestStep("POST", path, body)


def get(path: str, accept: str = "application/json") -> RequestStep:
    return RequestStep("GET", path, accept=accept)


def merge(path: str, body: JsonObject) -> RequestStep:
    return RequestStep("PATCH", path, body, content=MERGE_PATCH)


def apply(path: str, body: JsonObject) -> RequestStep:
    return RequestStep("PATCH", f"{path}?fieldManager=capi-machineset&force=true", body, content=APPLY)


def in_namespace(obj: JsonObject) -> JsonObject:
    return obj | {"metadata": obj["metadata"] | {"namespace": "default"}}


SELECTED = [{"selector": {"matchLabels": {"app": "web"}}}]
SCENARIOS: dict[str, list[RequestStep]] = {
    "both versions show the same Machine, and nothing is lost between them": [
        post(f"{NEW}/machines", a_machine("one", deletion={"nodeDrainTimeoutSeconds": 60}, providerID="x://1")),
        get(f"{OLD}/machines/one"),
        merge(f"{OLD}/machines/one", {"spec": {"nodeDrainTimeout": "90s"}}),
        get(f"{NEW}/machines/one"),
        merge(f"{NEW}/machines/one/status", {"status": {"nodeRef": {"name": "n1"}, "phase": "Running"}}),
        get(f"{OLD}/machines/one"),
        get(f"{OLD}/machines", TABLE),
        get(f"{NEW}/machines?labelSelector=cluster.x-k8s.io/cluster-name%3Dprod", TABLE),
        post(f"{OLD}/machines", a_machine("two", "v1beta1", nodeDrainTimeout="1m")),
        get(f"{NEW}/machines/two"),
    ],
    "what makes no sense is refused": [
        post(f"{NEW}/machines", a_machine("bad", clusterName="")),
        post(f"{NEW}/machines", a_machine("bad", deletion={"nodeDrainTimeoutSeconds": -1})),
        post(f"{NEW}/machines", a_machine("bad", deletion={"nodeDrainTimeoutSeconds": "1m"})),
        post(f"{OLD}/machines", a_machine("bad")),
        post(f"{NEW}/machines", {"apiVersion": f"{GROUP}/v1beta2", "kind": "Machine", "metadata": {"name": "bad"}}),
        post(f"{NEW}/machinedrainrules", a_rule("bad", drain={"behavior": "Wait"})),
        post(f"{NEW}/machinedrainrules", a_rule("bad", drain={"behavior": "Skip", "order": 1})),
        post(f"{NEW}/machinedrainrules", a_rule("bad", drain={"behavior": "Drain"}, pods=[{}])),
        post(HOSTS, {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": "bad"}}),
        post(HOSTS, a_host("bad", namespace="default") | {"spec": {}}),
    ],
    "sets are scaled, and templates applied": [
        post(f"{NEW}/machinedeployments", a_machine_deployment("workers", cluster=KEY, replicas=2)),
        get(f"{NEW}/machinedeployments/workers/scale"),
        merge(f"{NEW}/machinedeployments/workers/scale", {"spec": {"replicas": 5}}),
        get(f"{OLD}/machinedeployments", TABLE),
        merge(f"{OLD}/machinedeployments/workers", {"spec": {"replicas": -1}}),
        apply(f"{NEW}/machines/made", {**a_machine("made"), "metadata": {"name": "made"}}),
        get(f"{NEW}/machines/made"),
    ],
    "clusters, rules and hosts": [
        post(f"{NEW}/clusters", in_namespace(a_cluster(KEY))),
        get(f"{OLD}/clusters", TABLE),
        post(f"{NEW}/machinedrainrules", a_rule("last", drain={"behavior": "Drain", "order": 10}, pods=SELECTED)),
        post(f"{NEW}/machinedrainrules", a_rule("kept", drain={"behavior": "Skip"}, machines=SELECTED, odd=1)),
        get(f"{OLD}/machinedrainrules", TABLE),
        post(HOSTS, a_host("r1", namespace="default")),
        merge(f"{HOSTS}/r1/status", {"status": {"poweredOn": True, "provisioning": {"state": "provisioned"}}}),
        merge(f"{HOSTS}/r1/status", {"status": {"operationalStatus": "odd"}}),
        get(HOSTS, TABLE),
    ],
}


@pytest.fixture(scope="module")
def own_control_plane() -> Iterator[ControlPlane]:
    """Yield a control plane of our own: others define kinds of these names, too."""
    with ControlPlane() as found:
        yield found


@pytest.fixture(scope="module")
def api() -> ApiServer:
    """Return the sandbox's server, whose objects stay from scenario to scenario."""
    return ApiServer(RealClock())


@pytest_asyncio.fixture
async def servers(own_control_plane: ControlPlane, api: ApiServer) -> AsyncIterator[tuple[Server, Server]]:
    """Yield the real server and the sandbox, with the same definitions."""
    real, sandbox = RealServer(own_control_plane), SandboxServer(api.transport("me"))
    for definition in ALL:
        for server in (real, sandbox):
            await server.send_step(post(DEFINITIONS, definition), definition)
    for definition in ALL:
        spec = definition["spec"]
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/namespaces/default/{spec['names']['plural']}"
            await response_when(real, get(f"{path}/none"), await comparable_response(sandbox, get(f"{path}/none")))
    yield real, sandbox
    real.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_scenario_has_identical_responses(servers: tuple[Server, Server], scenario: str) -> None:
    real, sandbox = servers
    for at, step in enumerate(SCENARIOS[scenario]):
        real_response, sandbox_response = (
            await comparable_response(real, step),
            await comparable_response(sandbox, step),
        )
        assert sandbox_response == real_response, f"step {at}: {step}"


async def test_definitions_are_accepted_and_established(servers: tuple[Server, Server]) -> None:
    for definition in ALL:
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        real_response, sandbox_response = (
            await comparable_response(servers[0], get(path)),
            await comparable_response(servers[1], get(path)),
        )
        assert sandbox_response == real_response
        (found,) = sandbox_response[1]
        conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
