"""The real helm installs the chart on the built-in cluster, upgrades and removes it.

What there is on a real control plane beyond that is in tests/cluster/test_helm.py.
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
async def test_what_is_installed_is_upgraded_and_removed(tmp_path: Path) -> None:
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
        assert services == {"services ops/haulout"}, "the others are of the webhook"
        await run("uninstall", *NAMES)
    assert there() == before


@pytest.mark.real_time
async def test_leases_of_other_operators_outlive_the_release_and_the_next_one_takes_their_namespace_on(
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
        assert LEASES in await run("uninstall", *NAMES), "helm tells what it keeps"
        assert is_kept()
        for release in ("haulout", "other"):
            await run("install", release, *NAMES[1:], str(CHART), "--set", "crds.keep=false")
            await run("uninstall", release, *NAMES[1:])
            assert is_kept()
