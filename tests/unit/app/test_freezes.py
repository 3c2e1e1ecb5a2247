"""Each controller honours a freeze: what waits begins as soon as it ends, and what has begun is brought to its end.

NodeMaintenances and profiles are in `tests/behaviour/test_freeze.py`.
"""

from datetime import timedelta

import pytest

from haulout.api.maintenancefreeze import definition
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticeCondition
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clouds.openstack import Paces
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.announced_maintenance import AnnouncedMaintenance, notice_operator, with_notices
from support.operators.freezes import freeze, freeze_status, unfreeze, with_freezes
from support.platforms.esx import an_esx_cluster
from support.platforms.kubernikus import (
    a_kubernikus_cluster_on_the_sandbox,
    event_notes,
    is_cordoned,
    kubernikus_controller,
    request_deletion,
    server_names,
)
from support.platforms.machinemaintenance import (
    create_machinemaintenance,
    machinemaintenance_operator,
    message,
    phase,
)
from support.platforms.openshift import (
    SHORT_DELAYS,
    create_machine_set,
    machine_api,
    terminating_machines,
    with_openshift,
)

MINUTE = timedelta(minutes=1)
SHORTLY = timedelta(seconds=3)
SLOW = Paces(replacement=timedelta(days=1), boot=timedelta(days=1))


async def test_kubernikus_deletes_no_server_during_a_freeze(clock: VirtualClock) -> None:
    plan = with_freezes(a_cluster(clock).with_deployment("shop/cart", replicas=2, budget=1))
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=2, delays=SLOW) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, reads_freezes=True))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await freeze(cluster)
        await request_deletion(cluster, "pool-2")
        await cluster.eventually(lambda: "frozen by alice" in event_notes(cluster, "pool-2").get("Held", ""))
        await cluster.eventually(lambda: "pool-1" not in server_names(cloud), within=10 * MINUTE)  # it had begun
        await cluster.pass_time(minutes=10)
        assert not is_cordoned(cluster, "pool-2")
        await unfreeze(cluster)
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-2"), within=SHORTLY)


async def test_kubernikus_goes_on_when_the_freeze_expires_or_no_longer_selects_the_node(clock: VirtualClock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(with_freezes(a_cluster(clock)), nodes=2) as (cluster, cloud):
        await cluster.patch("nodes", "pool-2", metadata={"labels": {"pool": "shop"}})
        ends = await freeze(cluster, ends_in=10 * MINUTE, selector={"matchLabels": {"pool": "shop"}})
        await freeze(cluster, "second", selector={"matchLabels": {"kubernetes.io/hostname": "pool-1"}}, ends_in=MINUTE)
        cluster.run(kubernikus_controller(cloud, reads_freezes=True))
        for node in ("pool-1", "pool-2"):
            await request_deletion(cluster, node)
        await cluster.pass_time(seconds=50)
        assert server_names(cloud) == ["pool-1", "pool-2"]
        await cluster.eventually(lambda: "pool-1" not in server_names(cloud), within=MINUTE)
        assert "pool-2" in server_names(cloud)
        await cluster.patch("nodes", "pool-2", metadata={"labels": {"pool": None}})
        await cluster.eventually(lambda: "pool-2" not in server_names(cloud), within=MINUTE)
        assert ends is not None
        assert clock.now() < ends


async def test_esx_shuts_no_machine_down_during_a_freeze(clock: VirtualClock) -> None:
    async with an_esx_cluster(clock, plan=with_freezes(a_cluster(clock))) as site:
        site.reads_freezes = True
        site.cluster.run(site.run_controller)
        await freeze(site.cluster)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.clock.sleep(10 * MINUTE)
        assert not site.is_cordoned("n1")
        assert "frozen by alice: Black Friday" in " ".join(site.controller.problems())
        await unfreeze(site.cluster)
        await site.cluster.eventually(lambda: site.is_cordoned("n1"), within=timedelta(seconds=10))
        await freeze(site.cluster)
        await site.wait_until_down("n1")  # it has begun


async def test_machine_is_not_replaced_during_a_freeze(clock: VirtualClock) -> None:
    plan = with_freezes(with_openshift(a_cluster(clock)))
    async with plan.on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        await freeze(cluster)
        cluster.run(machinemaintenance_operator(reads_freezes=True))
        await create_machinemaintenance(cluster, machine)
        await cluster.eventually(lambda: "frozen by alice" in message(cluster, machine))
        await cluster.pass_time(minutes=10)
        assert phase(cluster, machine) == "Waiting"
        assert not terminating_machines(cluster)
        await unfreeze(cluster)
        await cluster.eventually(lambda: machine in terminating_machines(cluster), within=SHORTLY)


@pytest.mark.parametrize("spec", [{"eventid": "instance-event-1"}, {"notbefore": "2020-01-01T00:00:00Z"}])
async def test_machine_with_an_event_of_its_cloud_is_replaced_unless_the_freeze_holds_notices(
    clock: VirtualClock, spec: dict[str, str]
) -> None:
    plan = with_freezes(with_openshift(a_cluster(clock)))
    async with plan.on_the_sandbox() as cluster, machine_api(cluster, delays=SHORT_DELAYS):
        [machine] = await create_machine_set(cluster, "workers", replicas=1)
        await freeze(cluster)
        await freeze(cluster, "all", holds_notices=True)
        cluster.run(machinemaintenance_operator(reads_freezes=True))
        await create_machinemaintenance(cluster, machine, **spec)
        await cluster.eventually(lambda: "frozen by alice" in message(cluster, machine))
        await unfreeze(cluster, "all")
        await cluster.eventually(lambda: machine in terminating_machines(cluster), within=SHORTLY)


def on_time(cluster: SandboxCluster) -> tuple[str, str]:
    """Return the OnTime condition of the only notice."""
    (notice,) = cluster.by_key(MAINTENANCE_NOTICES.plural).values()
    found = next(it for it in notice["status"]["conditions"] if it["type"] == NoticeCondition.ON_TIME)
    return found["status"], found["reason"]


async def test_announced_maintenance_begins_during_a_freeze(clock: VirtualClock) -> None:
    async with with_notices(a_cluster(clock).with_nodes(2).with_crd(definition())).on_the_sandbox() as cluster:
        cluster.run(notice_operator())
        await freeze(cluster)
        cloud = AnnouncedMaintenance(cluster, "n1")
        await cloud.report(start=30, end=50)
        await cloud.wait_until_minute(1)
        assert on_time(cluster) == ("True", "Planned")
        await cloud.wait_until_minute(60)
        assert cloud.out_of_service() == [(15, 50)]


async def test_freeze_that_holds_notices_keeps_the_node_and_says_that_it_will_be_late(clock: VirtualClock) -> None:
    on_n1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = a_cluster(clock).with_nodes(2).with_deployment("shop/cart", replicas=1, pods=on_n1).with_crd(definition())
    async with with_notices(plan).on_the_sandbox() as cluster:
        cluster.run(notice_operator())
        await freeze(cluster, holds_notices=True)
        cloud = AnnouncedMaintenance(cluster, "n1")
        await cloud.report(start=30, end=50)
        await cloud.wait_until_minute(1)
        assert on_time(cluster) == ("False", "Held")
        await cloud.wait_until_minute(25)
        assert cloud.out_of_service() == []
        await unfreeze(cluster)
        await cloud.wait_until_minute(60)
        assert cloud.out_of_service() == [(25, 50)]


async def test_a_node_that_joins_during_a_freeze_is_frozen(clock: VirtualClock) -> None:
    plan = with_notices(a_cluster(clock).with_nodes(1).with_crd(definition()))
    async with plan.on_the_sandbox() as cluster:
        cluster.run(notice_operator())
        await freeze(cluster, holds_notices=True)
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=1)
        await cluster.delete("nodes", "n1")  # its kubelet registers it again
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=0)
        cluster.reboot("n1")
        await cluster.eventually(lambda: freeze_status(cluster).get("nodes"), becomes=1)
        cloud = AnnouncedMaintenance(cluster, "n1")
        await cloud.report(start=5, end=50)
        await cloud.wait_until_minute(30)
        assert cloud.out_of_service() == []
