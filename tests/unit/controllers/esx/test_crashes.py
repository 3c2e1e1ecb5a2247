"""The ESX controller crashes at each write, and its successor completes the maintenance."""

from collections.abc import Sequence
from typing import Any

from haulout.kube.client import Client
from haulout_sandbox.apiserver.storage.store import Write
from haulout_sandbox.clouds.vsphere.cloud import POWER_OFF
from support.expectations.end_state import end_state
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.platforms.esx import EsxCluster, an_esx_cluster

HOSTS = {"n1": "esx-a1"}


def ends(history: Sequence[Write]) -> Any:
    """Return labels, annotations and cordon of nodes."""
    whole = end_state(history, ignored=frozenset({"events", "leases", "pods", "replicasets", "endpoints"}))
    return {
        name: (node["metadata"]["labels"], sorted(node["metadata"]["annotations"]), node["spec"].get("unschedulable"))
        for name, node in whole.items()
        if name.startswith("nodes ")
    }


def test_crash_at_any_write_reaches_the_same_end() -> None:
    sites: list[EsxCluster] = []

    async def operate(client: Client) -> None:
        await sites[-1].run_controller(client)

    async def story(run: CrashRun) -> None:
        async with an_esx_cluster(run.clock, hosts=HOSTS) as site:
            sites.append(site)
            run.start_operator(site.cluster.cluster)  # type: ignore[attr-defined]  # it is one on the sandbox
            site.vcenter("a").enter_maintenance("esx-a1")
            await site.wait_for_labels(n1="true")
            await site.approve("n1")
            await site.wait_until_down("n1")
            assert POWER_OFF not in site.vcenter("a").faults.calls, "the guest got its full shutdown timeout"
            site.vcenter("a").exit_maintenance("esx-a1")
            await site.wait_until_back("n1")
            await site.wait_for_labels(n1="false")

    writes = assert_survives_crashes(story, operator=operate, compare=ends)
    expected_writes = (
        "the label, the mark and the cordon, its copy, asked, off, the label, the copy dropped, and all given back"
    )
    assert writes == 8, expected_writes


def test_shutdown_timeout_is_not_extended_by_crashes() -> None:
    sites: list[EsxCluster] = []

    async def operate(client: Client) -> None:
        await sites[-1].run_controller(client)

    async def story(run: CrashRun) -> None:
        async with an_esx_cluster(run.clock, hosts=HOSTS) as site:
            sites.append(site)
            site.vcenter("a").machine_by_name("n1").ignores_shutdown = True
            run.start_operator(site.cluster.cluster)  # type: ignore[attr-defined]  # it is one on the sandbox
            site.vcenter("a").enter_maintenance("esx-a1")
            await site.approve("n1")
            began = run.clock.now()
            await site.wait_until_down("n1")
            assert run.clock.now() - began < 2 * site.settings.shutdown_timeout

    assert_survives_crashes(story, operator=operate, compare=ends)
