"""Nodes on ESX hosts, on the sandbox and on a real API server: there with the real SDK of vSphere, over HTTPS."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from haulout.core.clock import RealClock
from haulout.drain.cordon import BACKUP, MARK
from haulout.esx.keys import ASKED, INITIATED
from haulout.esx.permissions import permissions
from haulout.esx.sdk import connecting
from haulout.esx.settings import Access
from haulout.esx.vcenter import Connect, VCenter
from haulout.kube import access
from haulout.kube.network.certificates import Authority
from haulout_sandbox.clouds.vsphere.cloud import ON, POWER_OFF
from support.clusters import ACCOUNT, ClusterPlan, Plans
from support.esx import SETTINGS, Site, site_of, with_nodes
from support.permitting import unused
from support.vsphere.front import serving

HERE = "127.0.0.1"
SECOND = timedelta(seconds=1)
HOSTS = {"esx-n1": "esx-a1", "esx-n2": "esx-a1", "esx-n3": "esx-b1"}
# When something is told again and again, and where budgets are in the way.
SELDOM = ("patch events", "watch poddisruptionbudgets")


@asynccontextmanager
async def a_site(plan: ClusterPlan) -> AsyncIterator[Site]:
    """Have a cluster on ESX hosts, and on a real one the way to its vCenters by the real SDK."""
    async with with_nodes(plan, HOSTS).running() as cluster, AsyncExitStack() as stack:
        site = site_of(cluster, HOSTS, guests_take=2 * SECOND, tasks_take=SECOND)
        site.settings = replace(SETTINGS, period=3 * SECOND, looks_every=SECOND, shuts_down_within=5 * SECOND)
        if isinstance(cluster.clock, RealClock):
            site.connect = await _by_the_sdk(site, stack)
        yield site


async def _by_the_sdk(site: Site, stack: AsyncExitStack) -> Connect:
    """Have all vCenters answer, and return the way to them that the operator has in life."""
    ports = {}
    for zone, cloud in site.clouds.items():
        tls = Authority(f"vCenter {zone}").server(HERE).server_context()
        ports[f"https://vcenter-{zone}.example.com/sdk"] = await stack.enter_async_context(
            serving(cloud, host=HERE, tls=tls)
        )
    connect = connecting(RealClock())

    async def there(wanted: Access) -> VCenter:
        return await connect(replace(wanted, url=f"https://{HERE}:{ports[wanted.url]}/sdk", insecure=True))

    return there


async def test_nodes_leave_with_their_host_and_come_back(a_cluster: Plans) -> None:
    plan = a_cluster().with_deployment("esx-shop/cart", replicas=3, budget=2).with_daemon_set("esx-shop/agent")
    async with a_site(plan) as site:
        site.cluster.run(site.operate)
        vcenter = site.vcenter("a")
        vcenter.enter_maintenance("esx-a1")
        await site.labelled(**{"esx-n1": "true", "esx-n2": "true", "esx-n3": "false"})
        await site.approve("esx-n1", "esx-n2")
        await site.is_down("esx-n1", "esx-n2")
        assert vcenter.host("esx-a1").in_maintenance
        assert POWER_OFF not in vcenter.faults.calls
        assert site.power("esx-n3") == ON
        assert {site.annotation(it) for it in ("esx-n1", "esx-n2")} == {"true"}
        for name in ("esx-n1", "esx-n2"):
            assert not [it for it in site.cluster.pods_on(name) if "cart" in it]
        vcenter.leave_maintenance("esx-a1")
        await site.is_back("esx-n1", "esx-n2")
        await site.cluster.eventually(lambda: site.cluster.node_is_ready("esx-n1"))


async def test_an_alarm_is_labelled_and_a_guest_that_does_not_care_is_turned_off(a_cluster: Plans) -> None:
    async with a_site(a_cluster()) as site:
        vcenter = site.vcenter("b")
        vcenter.machine("esx-n3").is_stubborn = True
        site.cluster.run(site.operate)
        await site.labelled(**{"esx-n3": "false"})
        vcenter.raise_alarm("esx-b1", "Host memory")
        await site.labelled(**{"esx-n3": "alarm"})
        await site.approve("esx-n3")
        await site.is_down("esx-n3")
        assert POWER_OFF in vcenter.faults.calls
        vcenter.clear_alarm("esx-b1", "Host memory")
        await site.is_back("esx-n3")


async def test_what_is_declared_is_what_is_needed(a_cluster: Plans) -> None:
    needed = access.lean(permissions(namespace="default"))
    namespace, name = ACCOUNT
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    plan = a_cluster().with_rights(*access.roles(name, needed, subject)).with_deployment("esx-shop/cart", replicas=3)
    async with a_site(plan) as site:
        site.cluster.run(site.operate)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("esx-n1", "esx-n2")
        await site.is_down("esx-n1", "esx-n2")
        site.vcenter("a").leave_maintenance("esx-a1")
        await site.is_back("esx-n1", "esx-n2")
        assert all(site.annotation("esx-n1", it) is None for it in (INITIATED, ASKED))
        assert [it for it in unused(site.cluster, needed) if not it.startswith(SELDOM)] == []


async def test_a_node_that_a_person_had_cordoned_stays_cordoned_though_both_annotations_are_lost(
    a_cluster: Plans,
) -> None:
    async with a_site(a_cluster()) as site:
        await site.cluster.cordon("esx-n1")
        site.cluster.run(site.operate)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("esx-n1")
        await site.is_down("esx-n1")
        await site.cluster.change("nodes", "esx-n1", metadata={"annotations": {MARK: None, BACKUP: None}})
        site.vcenter("a").leave_maintenance("esx-a1")
        await site.cluster.eventually(lambda: site.annotation("esx-n1", INITIATED), becomes=None)
        assert site.is_cordoned("esx-n1")
        assert not {MARK, BACKUP} & site.node("esx-n1")["metadata"]["annotations"].keys()
