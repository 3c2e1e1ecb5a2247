"""Nodes on ESX hosts, on the sandbox and on a real API server: there with the real SDK of vSphere, over HTTPS."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from haulout.controllers.esx.labels import INITIATED, SHUTDOWN_REQUESTED
from haulout.controllers.esx.permissions import permissions
from haulout.controllers.esx.settings import VCenterAccess
from haulout.controllers.esx.vcenter import VCenter, VCenterLogin
from haulout.controllers.esx.vsphere_sdk import vcenter_login
from haulout.core.certificate_authority import CertificateAuthority
from haulout.core.clock import RealClock
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION
from haulout.kube import rbac
from haulout_sandbox.clouds.vsphere.cloud import POWER_OFF, POWERED_ON
from support.clouds.vsphere.http_server import serving
from support.clusters.cluster_plan import SERVICE_ACCOUNT, ClusterPlan, PlanFactory
from support.clusters.rbac import unused_verbs
from support.platforms.esx import SETTINGS, EsxCluster, esx_cluster_of, with_nodes

LOOPBACK = "127.0.0.1"
SECOND = timedelta(seconds=1)
HOSTS = {"esx-n1": "esx-a1", "esx-n2": "esx-a1", "esx-n3": "esx-b1"}
# Used only for repeated Events, and for blocking budgets.
RARELY_USED = ("patch events", "watch poddisruptionbudgets")


@asynccontextmanager
async def an_esx_cluster(plan: ClusterPlan) -> AsyncIterator[EsxCluster]:
    """Run a cluster on ESX hosts; on a real cluster with the real SDK for its vCenters."""
    async with with_nodes(plan, HOSTS).running() as cluster, AsyncExitStack() as stack:
        site = esx_cluster_of(cluster, HOSTS, guest_shutdown_delay=2 * SECOND, task_duration=SECOND)
        site.settings = replace(
            SETTINGS, interval=3 * SECOND, shutdown_poll_interval=SECOND, shutdown_timeout=5 * SECOND
        )
        if isinstance(cluster.clock, RealClock):
            site.connect = await _connect_with_sdk(site, stack)
        yield site


async def _connect_with_sdk(site: EsxCluster, stack: AsyncExitStack) -> VCenterLogin:
    """Serve all vCenters, and return the login that the operator uses in production."""
    ports = {}
    for zone, cloud in site.clouds.items():
        tls = CertificateAuthority(f"vCenter {zone}").issue_server(LOOPBACK).server_context()
        ports[f"https://vcenter-{zone}.example.com/sdk"] = await stack.enter_async_context(
            serving(cloud, host=LOOPBACK, tls=tls)
        )
    connect = vcenter_login(RealClock())

    async def connect_to_stand_in(wanted: VCenterAccess) -> VCenter:
        return await connect(replace(wanted, url=f"https://{LOOPBACK}:{ports[wanted.url]}/sdk", insecure=True))

    return connect_to_stand_in


async def test_nodes_enter_and_leave_maintenance_with_their_esx_host(a_cluster: PlanFactory) -> None:
    plan = a_cluster().with_deployment("esx-shop/cart", replicas=3, budget=2).with_daemon_set("esx-shop/agent")
    async with an_esx_cluster(plan) as site:
        site.cluster.run(site.run_controller)
        vcenter = site.vcenter("a")
        vcenter.enter_maintenance("esx-a1")
        await site.wait_for_labels(**{"esx-n1": "true", "esx-n2": "true", "esx-n3": "false"})
        await site.approve("esx-n1", "esx-n2")
        await site.wait_until_down("esx-n1", "esx-n2")
        assert vcenter.host_by_name("esx-a1").in_maintenance
        assert POWER_OFF not in vcenter.faults.calls
        assert site.power_state("esx-n3") == POWERED_ON
        assert {site.annotation(candidate) for candidate in ("esx-n1", "esx-n2")} == {"true"}
        for name in ("esx-n1", "esx-n2"):
            assert not [candidate for candidate in site.cluster.pods_on(name) if "cart" in candidate]
        vcenter.exit_maintenance("esx-a1")
        await site.wait_until_back("esx-n1", "esx-n2")
        await site.cluster.eventually(lambda: site.cluster.node_is_ready("esx-n1"))


async def test_alarm_sets_the_label_and_an_unresponsive_guest_is_powered_off(a_cluster: PlanFactory) -> None:
    async with an_esx_cluster(a_cluster()) as site:
        vcenter = site.vcenter("b")
        vcenter.machine_by_name("esx-n3").ignores_shutdown = True
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(**{"esx-n3": "false"})
        vcenter.raise_alarm("esx-b1", "Host memory")
        await site.wait_for_labels(**{"esx-n3": "alarm"})
        await site.approve("esx-n3")
        await site.wait_until_down("esx-n3")
        assert POWER_OFF in vcenter.faults.calls
        vcenter.clear_alarm("esx-b1", "Host memory")
        await site.wait_until_back("esx-n3")


async def test_declared_permissions_are_sufficient_and_all_used(a_cluster: PlanFactory) -> None:
    needed = rbac.without_redundant(permissions(namespace="default"))
    namespace, name = SERVICE_ACCOUNT
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    plan = a_cluster().with_rbac(*rbac.roles(name, needed, subject)).with_deployment("esx-shop/cart", replicas=3)
    async with an_esx_cluster(plan) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("esx-n1", "esx-n2")
        await site.wait_until_down("esx-n1", "esx-n2")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("esx-n1", "esx-n2")
        assert all(site.annotation("esx-n1", item) is None for item in (INITIATED, SHUTDOWN_REQUESTED))
        assert [item for item in unused_verbs(site.cluster, needed) if not item.startswith(RARELY_USED)] == []


async def test_user_cordon_is_kept_when_both_annotations_are_lost(
    a_cluster: PlanFactory,
) -> None:
    async with an_esx_cluster(a_cluster()) as site:
        await site.cluster.cordon("esx-n1")
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("esx-n1")
        await site.wait_until_down("esx-n1")
        await site.cluster.patch(
            "nodes", "esx-n1", metadata={"annotations": {CORDON_ANNOTATION: None, CORDON_BACKUP_ANNOTATION: None}}
        )
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.cluster.eventually(lambda: site.annotation("esx-n1", INITIATED), becomes=None)
        assert site.is_cordoned("esx-n1")
        assert not {CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & site.node("esx-n1")["metadata"]["annotations"].keys()
