"""Drains by profiles set node conditions, as those of NodeMaintenances do."""

from pathlib import Path

from haulout.api.objects import RawObject
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import (
    OPERATOR_RBAC,
    create_maintenance,
    end_maintenance,
    wait_for_success,
    with_blocking_pods,
    with_nodemaintenance_crd,
    with_operator_rbac,
)
from support.operators.profiles import (
    LABEL_CONFIGURATION,
    a_configuration_file,
    operator_with_profiles,
    set_profiles,
    state,
)


def condition_of(cluster: LiveCluster, node: str, kind: str) -> tuple[str, str]:
    """Return status and message of a condition of a node."""
    found = cluster.get("nodes", node)["status"]["conditions"]
    return next(((item["status"], item["message"]) for item in found if item["type"] == kind), ("", ""))


async def request_maintenance(cluster: LiveCluster, node: str, value: str | None) -> None:
    """Request maintenance of a node, or end it."""
    await cluster.patch("nodes", node, metadata={"labels": {"patch": value}})


async def test_drain_by_a_profile_sets_node_conditions_until_the_node_is_operational(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1").running() as cluster:
        operator = cluster.run(operator_with_profiles(a_configuration_file(tmp_path, LABEL_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await request_maintenance(cluster, "n1", "yes")
        draining = ("True", "Haulout profile os")
        await cluster.eventually(lambda: condition_of(cluster, "n1", "DrainInProgress"), becomes=draining)
        operator.kill()
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        operator.start()
        await cluster.eventually(lambda: condition_of(cluster, "n1", "Drained"), becomes=("True", "Haulout profile os"))
        assert condition_of(cluster, "n1", "DrainInProgress")[0] == "False"
        await request_maintenance(cluster, "n1", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        await cluster.eventually(
            lambda: condition_of(cluster, "n1", "Drained"), becomes=("False", "Haulout: profile os")
        )
        assert condition_of(cluster, "n1", "MaintenanceInProgress") == ("", "")
        assert condition_of(cluster, "n2", "DrainInProgress") == ("", "")


async def test_maintenance_and_profile_set_separate_node_conditions(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """The condition of the profile stays until it releases the node; that of the maintenance ends with it."""
    async with with_operator_rbac(a_cluster()).with_nodes(2).running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, LABEL_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await request_maintenance(cluster, "n1", "yes")
        await cluster.eventually(lambda: condition_of(cluster, "n1", "Drained"), becomes=("True", "Haulout profile os"))
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        assert condition_of(cluster, "n1", "Drained") == ("True", "Haulout profile os")
        assert condition_of(cluster, "n1", "MaintenanceInProgress")[0] == "True"
        await end_maintenance(cluster)
        assert condition_of(cluster, "n1", "MaintenanceInProgress")[0] == "False"
        assert condition_of(cluster, "n1", "Drained") == ("True", "Haulout profile os")
        await request_maintenance(cluster, "n1", None)
        await cluster.eventually(lambda: condition_of(cluster, "n1", "Drained")[0], becomes="False")


async def test_drain_continues_without_permission_to_set_node_conditions(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    plan = with_nodemaintenance_crd(a_cluster()).with_rbac(*map(_without_status, OPERATOR_RBAC)).with_nodes(2)
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, LABEL_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await request_maintenance(cluster, "n1", "yes")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
        await request_maintenance(cluster, "n1", None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        assert condition_of(cluster, "n1", "DrainInProgress") == condition_of(cluster, "n1", "Drained") == ("", "")


def _without_status(obj: RawObject) -> RawObject:
    """Return a role without the right to set conditions of nodes."""
    rules = [
        {**rule, "resources": [item for item in rule.get("resources", ()) if item != "nodes/status"]}
        for rule in obj.get("rules") or ()
    ]
    return {**obj, "rules": [item for item in rules if item["resources"]]} if "rules" in obj else obj
