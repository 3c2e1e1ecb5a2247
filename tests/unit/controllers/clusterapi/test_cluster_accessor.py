"""Kubeconfigs from Secrets are untrusted: anybody who may write Secrets may have written them."""

import base64
from random import Random
from typing import Any

import pytest
import yaml

from haulout.api.clusterapi import ClusterKey
from haulout.api.objects import Secret
from haulout.controllers.clusterapi.cluster_accessor import network_client_factory, read_kubeconfig
from haulout.core.clock import RealClock
from haulout.errors import ConfigError, KubeconfigError
from haulout.kube.limits import WorkloadClusterMemory
from support.platforms.hub import kubeconfig

KEY = ClusterKey("team-a", "prod")
GOOD = kubeconfig("https://prod.example:6443", "secret")


def with_user(**user: Any) -> bytes:
    described = yaml.safe_load(GOOD)
    described["users"][0]["user"] = user
    return yaml.safe_dump(described).encode()


async def connect(text: bytes) -> str:
    clock = RealClock()
    memory = WorkloadClusterMemory(400 << 20, clock=clock)
    async with network_client_factory(clock=clock, random=Random(1), memory=memory)(text, KEY) as client:
        return client.transport.server


async def test_kubeconfig_connects_to_its_server() -> None:
    assert await connect(GOOD) == "https://prod.example:6443"


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never"}},
        {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"},
        {"client-certificate": "/etc/cert.pem", "client-key": "/etc/key.pem"},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "/bin/sh"}}},
    ],
)
async def test_kubeconfig_with_exec_or_files_is_refused(user: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError, match="not taken from others") as refused:
        await connect(with_user(**user))
    assert str(refused.value).startswith("Secret team-a/prod-kubeconfig:")
    assert refused.value.line is not None


async def test_kubeconfig_with_a_certificate_authority_file_is_refused() -> None:
    described = yaml.safe_load(GOOD)
    described["clusters"][0]["cluster"]["certificate-authority"] = "/etc/hosts"
    with pytest.raises(KubeconfigError, match="certificate-authority: not taken from others"):
        await connect(yaml.safe_dump(described).encode())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "value: expected a kubeconfig, found nothing"),
        ({"value": ""}, "value: expected a kubeconfig, found nothing"),
        ({"other": "eA=="}, "value: expected a kubeconfig, found nothing"),
        ({"value": "?"}, "value: expected base64"),
    ],
)
def test_secret_without_kubeconfig_is_reported(data: dict[str, str] | None, problem: str) -> None:
    with pytest.raises(KubeconfigError) as refused:
        read_kubeconfig(Secret(data=data), KEY)
    assert str(refused.value) == f"Secret team-a/prod-kubeconfig: {problem}"


@pytest.mark.parametrize("text", [b"", b"- a list", b"{", b"\xff\xfe", b"kind: Pod"])
async def test_invalid_kubeconfig_is_refused_with_the_secret_name(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^Secret team-a/prod-kubeconfig"):
        await connect(text)


def test_kubeconfig_is_base64_decoded() -> None:
    assert read_kubeconfig(Secret(data={"value": base64.b64encode(GOOD).decode()}), KEY) == GOOD
