"""Drains of profiles are told by the conditions of nodes, as those of NodeMaintenances are."""

from pathlib import Path

from haulout.kube.objects import RawObject
from support.clusters import Plans
from support.live import LiveCluster
from support.maintaining import RIGHTS, blocked_on, entitled, maintained, order, over, succeeded
from support.profiled import BY_LABEL, a_file, attach, operating, state


def says(cluster: LiveCluster, node: str, kind: str) -> tuple[str, str]:
    """Return status and message of a condition of a node."""
    found = cluster.get("nodes", node)["status"]["conditions"]
    return next(((it["status"], it["message"]) for it in found if it["type"] == kind), ("", ""))


async def want(cluster: LiveCluster, node: str, value: str | None) -> None:
    """Want a node in maintenance, or not any more."""
    await cluster.change("nodes", node, metadata={"labels": {"patch": value}})


async def test_a_drain_by_a_profile_is_told_until_the_node_is_operational(a_cluster: Plans, tmp_path: Path) -> None:
    async with blocked_on(entitled(a_cluster()).with_nodes(2), "n1").running() as cluster:
        operator = cluster.run(operating(a_file(tmp_path, BY_LABEL)))
        await attach(cluster, "n1", "os")
        await want(cluster, "n1", "yes")
        draining = ("True", "Haulout profile os")
        await cluster.eventually(lambda: says(cluster, "n1", "DrainInProgress"), becomes=draining)
        operator.kill()
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        operator.start()
        await cluster.eventually(lambda: says(cluster, "n1", "Drained"), becomes=("True", "Haulout profile os"))
        assert says(cluster, "n1", "DrainInProgress")[0] == "False"
        await want(cluster, "n1", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        await cluster.eventually(lambda: says(cluster, "n1", "Drained"), becomes=("False", "Haulout: profile os"))
        assert says(cluster, "n1", "MaintenanceInProgress") == ("", "")
        assert says(cluster, "n2", "DrainInProgress") == ("", "")


async def test_a_maintenance_of_the_same_node_says_its_own(a_cluster: Plans, tmp_path: Path) -> None:
    """What the profile says stays until it is done with the node; what the maintenance says goes with it."""
    async with entitled(a_cluster()).with_nodes(2).running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_LABEL)))
        await attach(cluster, "n1", "os")
        await want(cluster, "n1", "yes")
        await cluster.eventually(lambda: says(cluster, "n1", "Drained"), becomes=("True", "Haulout profile os"))
        await order(cluster, "n1")
        await succeeded(cluster)
        assert says(cluster, "n1", "Drained") == ("True", "Haulout profile os")
        assert says(cluster, "n1", "MaintenanceInProgress")[0] == "True"
        await over(cluster)
        assert says(cluster, "n1", "MaintenanceInProgress")[0] == "False"
        assert says(cluster, "n1", "Drained") == ("True", "Haulout profile os")
        await want(cluster, "n1", None)
        await cluster.eventually(lambda: says(cluster, "n1", "Drained")[0], becomes="False")


async def test_without_the_permission_a_drain_goes_on_as_before(a_cluster: Plans, tmp_path: Path) -> None:
    plan = maintained(a_cluster()).with_rights(*map(_without_status, RIGHTS)).with_nodes(2)
    async with plan.running() as cluster:
        cluster.run(operating(a_file(tmp_path, BY_LABEL)))
        await attach(cluster, "n1", "os")
        await want(cluster, "n1", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await want(cluster, "n1", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert says(cluster, "n1", "DrainInProgress") == says(cluster, "n1", "Drained") == ("", "")


def _without_status(obj: RawObject) -> RawObject:
    """Return a role without the right to set conditions of nodes."""
    rules = [
        {**rule, "resources": [it for it in rule.get("resources", ()) if it != "nodes/status"]}
        for rule in obj.get("rules") or ()
    ]
    return {**obj, "rules": [it for it in rules if it["resources"]]} if "rules" in obj else obj
