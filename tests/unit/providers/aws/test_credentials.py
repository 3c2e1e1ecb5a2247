"""The sources of region and credentials, as in the Machine Maintenance Operator."""

import base64
from datetime import timedelta

import pytest
import yaml

from haulout.api.objects import RawObject
from haulout.api.resources import SECRETS, Resource
from haulout.core.clock import Clock
from haulout.errors import CredentialsError
from haulout.kube.client import Client
from haulout.providers.aws.credentials import AwsCredentials, ClusterCredentials
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd

NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, model=RawObject)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)
NAMESPACE, NAME = "machine-maintenance-operator", "machine-maintenance-operator-credentials"
SECRET = f"{NAMESPACE}/{NAME}"
INFRASTRUCTURES = Resource(
    "config.openshift.io", "v1", "infrastructures", "Infrastructure", namespaced=False, model=RawObject
)
INFRASTRUCTURE: RawObject = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: infrastructures.config.openshift.io}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: Infrastructure, listKind: InfrastructureList, plural: infrastructures, singular: infrastructure}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
""")
KEYS = {"aws_access_key_id": "AKIA1", "aws_secret_access_key": "very secret"}


async def a_client(clock: Clock, *, data: dict[str, str] | None = None) -> Client:
    client = await SandboxBackend(clock).client()
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    if data is not None:
        await client.create(SECRETS, a_secret(data), namespace=NAMESPACE)
    return client


def a_secret(data: dict[str, str]) -> RawObject:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": encoded}


async def test_credentials_are_read_from_the_secret_of_the_machine_maintenance_operator(clock: Clock) -> None:
    client = await a_client(clock, data=KEYS)
    found = await ClusterCredentials(client, region="eu-west-1", secret=SECRET).current()
    assert found == AwsCredentials("eu-west-1", "AKIA1", "very secret")
    assert "very secret" not in repr(found)


async def test_rotated_keys_are_used_without_a_restart_and_at_once_after_a_rejection(clock: Clock) -> None:
    client = await a_client(clock, data=KEYS)
    access = ClusterCredentials(client, region="eu-west-1", secret=SECRET)
    await access.current()
    await client.delete(SECRETS, NAME, namespace=NAMESPACE)
    await client.create(SECRETS, a_secret(KEYS | {"aws_access_key_id": "AKIA2"}), namespace=NAMESPACE)
    assert (await access.current()).key == "AKIA1"
    access.forget()
    assert (await access.current()).key == "AKIA2"
    await client.delete(SECRETS, NAME, namespace=NAMESPACE)
    await clock.sleep(timedelta(minutes=6))
    with pytest.raises(CredentialsError, match="there is no Secret"):
        await access.current()


@pytest.mark.parametrize("missing", KEYS)
async def test_missing_key_of_the_secret_is_named_in_the_error(clock: Clock, missing: str) -> None:
    client = await a_client(clock, data={key: value for key, value in KEYS.items() if key != missing})
    with pytest.raises(CredentialsError, match=f"has no {missing}"):
        await ClusterCredentials(client, region="r", secret=SECRET).current()


async def test_missing_secret_leaves_credentials_to_boto3(clock: Clock) -> None:
    assert await ClusterCredentials(await a_client(clock)).current() == AwsCredentials()


@pytest.mark.parametrize(
    ("status", "installed", "region"),
    [
        ({"platformStatus": {"aws": {"region": "eu-west-1"}}}, None, "eu-west-1"),
        ({"platformStatus": {"gcp": {}}}, None, ""),
        ({}, "platform: {aws: {region: us-east-2}}", "us-east-2"),
    ],
)
async def test_region_is_read_from_an_openshift_cluster(
    clock: Clock, status: RawObject, installed: str | None, region: str
) -> None:
    client = await an_openshift(clock, status, installed)
    assert (await ClusterCredentials(client).current()).region == region


@pytest.mark.parametrize("installed", ["[", "platform: 7", "", "platform: {aws: {}}"])
async def test_install_config_without_a_region_is_an_error(clock: Clock, installed: str) -> None:
    client = await an_openshift(clock, {}, installed)
    with pytest.raises(CredentialsError, match="AWS needs a region: install-config"):
        await ClusterCredentials(client).current()


async def test_missing_install_config_is_an_error(clock: Clock) -> None:
    client = await an_openshift(clock, {}, None)
    with pytest.raises(CredentialsError, match="there is no ConfigMap kube-system/cluster-config-v1"):
        await ClusterCredentials(client).current()


async def an_openshift(clock: Clock, status: RawObject, installed: str | None) -> Client:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, INFRASTRUCTURES, INFRASTRUCTURE)
    await client.create(
        INFRASTRUCTURES,
        {
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": "cluster"},
            "status": status,
        },
    )
    if installed is not None:
        found = {"metadata": {"name": "cluster-config-v1"}, "data": {"install-config": installed}}
        await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap"} | found, namespace="kube-system")
    return client
