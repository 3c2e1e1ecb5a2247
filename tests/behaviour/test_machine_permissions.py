"""Machines are replaced with exactly the permissions that are declared: all works, and nothing is granted in vain."""

from haulout.kinds.machinemaintenance import name_of
from haulout.kube import access
from haulout.machines.permissions import permissions
from haulout.machines.timing import Terms
from support.clusters import ACCOUNT, Plans
from support.openshift import PATIENCE, claim_on, machine_api, openshift, with_control_plane, with_machine_set
from support.permitting import unused
from support.replacing import completed, order
from support.telling import hear, noting

# When two write at once, and when something is told again and again.
SELDOM = ("get machinemaintenances", "patch events")


async def test_what_is_declared_is_what_is_needed(a_cluster: Plans) -> None:
    needed = access.lean(permissions())
    namespace, name = ACCOUNT
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    plan = openshift(a_cluster()).with_rights(*access.roles(name, needed, subject))
    async with plan.running() as cluster, machine_api(cluster):
        first, _ = await with_machine_set(cluster, "workers", replicas=2)
        master, *_ = await with_control_plane(cluster)
        cluster.run(noting(terms=Terms(surge=True)))
        await hear(cluster, first, event="instance-event-1")
        await order(cluster, master)
        await completed(cluster, name_of(first, "instance-event-1"))
        await completed(cluster, master)
        await cluster.eventually(lambda: claim_on(cluster, "workers"), becomes="", within=PATIENCE)
        about = [it.get("regarding") or it["involvedObject"] for it in cluster.all("events").values()]
        assert {it["kind"] for it in about} >= {"MachineMaintenance", "Machine", "Node"}
        assert [it for it in unused(cluster, needed) if not it.startswith(SELDOM)] == []
