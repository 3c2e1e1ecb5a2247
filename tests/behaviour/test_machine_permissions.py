"""Machines are replaced with exactly the declared permissions: all works, and every permission is used."""

from haulout.api.machinemaintenance import object_name
from haulout.controllers.machines.permissions import permissions
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.kube import rbac
from support.clusters.cluster_plan import SERVICE_ACCOUNT, PlanFactory
from support.clusters.rbac import unused_verbs
from support.platforms.machine_notices import machine_notice_operator, report_event
from support.platforms.machinemaintenance import create_machinemaintenance, wait_until_completed
from support.platforms.openshift import (
    TIMEOUT,
    claimed_machine,
    create_control_plane,
    create_machine_set,
    machine_api,
    with_openshift,
)

# Used only after write conflicts, and for repeated Events.
RARELY_USED = ("get machinemaintenances", "patch events")


async def test_declared_permissions_are_sufficient_and_all_used(a_cluster: PlanFactory) -> None:
    needed = rbac.without_redundant(permissions())
    namespace, name = SERVICE_ACCOUNT
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    plan = with_openshift(a_cluster()).with_rbac(*rbac.roles(name, needed, subject))
    async with plan.running() as cluster, machine_api(cluster):
        first, _ = await create_machine_set(cluster, "workers", replicas=2)
        master, *_ = await create_control_plane(cluster)
        cluster.run(machine_notice_operator(replacement_policy=ReplacementPolicy(surge=True)))
        await report_event(cluster, first, event="instance-event-1")
        await create_machinemaintenance(cluster, master)
        await wait_until_completed(cluster, object_name(first, "instance-event-1"))
        await wait_until_completed(cluster, master)
        await cluster.eventually(lambda: claimed_machine(cluster, "workers"), becomes="", within=TIMEOUT)
        about = [event.get("regarding") or event["involvedObject"] for event in cluster.by_key("events").values()]
        assert {event["kind"] for event in about} >= {"MachineMaintenance", "Machine", "Node"}
        assert [event for event in unused_verbs(cluster, needed) if not event.startswith(RARELY_USED)] == []
