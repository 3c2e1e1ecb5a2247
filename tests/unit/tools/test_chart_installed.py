"""The real helm installs the chart on the built-in cluster, upgrades and removes it.

Tests on a real control plane are in tests/cluster/test_helm.py.
"""

import asyncio
from pathlib import Path

import pytest

from haulout.api.objects import object_key
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from support.cli.kubectl import serve_sandbox
from support.packaging.helm import CHART, helm

NAMES = ("haulout", "-n", "ops")
LEASES = "medik8s-leases"
KINDS = (
    "deployments",
    "services",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "customresourcedefinitions",
    "networkpolicies",
    "poddisruptionbudgets",
    "validatingwebhookconfigurations",
)


@pytest.mark.real_time
async def test_helm_installs_upgrades_and_removes_the_chart(tmp_path: Path) -> None:
    api = ApiServer(RealClock())
    for kind in BUILTIN_KINDS:
        api.add_kind(kind)

    def there() -> set[str]:
        found = ((kind, item["metadata"]) for kind in KINDS for item in api.objects(kind))
        return {f"{kind} {object_key(item['name'], item.get('namespace'))}" for kind, item in found}

    before = there()
    async with serve_sandbox(api, tmp_path) as kubeconfig:

        async def run(*args: str) -> str:
            return await asyncio.to_thread(helm, *args, kubeconfig=kubeconfig)

        await run("install", *NAMES, str(CHART), "--create-namespace", "--set", "crds.keep=false")
        await run("upgrade", *NAMES, str(CHART), "--set", "crds.keep=false,replicas=3,webhook.enabled=false")
        (deployment,) = api.objects("deployments")
        assert deployment["spec"]["replicas"] == 3
        services = {item for item in there() if item.startswith("services ")}
        assert services == {"services ops/haulout"}, "the other services belong to the webhook"
        await run("uninstall", *NAMES)
    assert there() == before


@pytest.mark.real_time
async def test_lease_namespace_is_kept_on_uninstall_and_adopted_by_the_next_release(
    tmp_path: Path,
) -> None:
    api = ApiServer(RealClock())
    for kind in BUILTIN_KINDS:
        api.add_kind(kind)

    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "node-n1", "namespace": LEASES},
        "spec": {"holderIdentity": "another-operator"},
    }

    def is_kept() -> bool:
        active = api.has("namespaces", LEASES) and "deletionTimestamp" not in api.get("namespaces", LEASES)["metadata"]
        return active and api.has("leases", "node-n1", LEASES)

    async with serve_sandbox(api, tmp_path) as kubeconfig:

        async def run(*args: str) -> str:
            return await asyncio.to_thread(helm, *args, kubeconfig=kubeconfig)

        await run("install", *NAMES, str(CHART), "--create-namespace", "--set", "crds.keep=false")
        api.put(lease)
        assert LEASES in await run("uninstall", *NAMES), "helm reports what it keeps"
        assert is_kept()
        for release in ("haulout", "other"):
            await run("install", release, *NAMES[1:], str(CHART), "--set", "crds.keep=false")
            await run("uninstall", release, *NAMES[1:])
            assert is_kept()
