"""Notifications of NodeMaintenances and MaintenanceNotices, with the roles that we ship."""

from pathlib import Path
from typing import Any

from haulout.api import maintenancenotice
from haulout.controllers.profiles.notify.object_notifier import NOTIFICATIONS_ANNOTATION
from support.clusters.cluster_plan import PlanFactory
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import (
    PLURAL,
    create_maintenance,
    wait_for_success,
    with_blocking_pods,
    with_operator_rbac,
)
from support.operators.profiles import a_configuration_file, operator_with_profiles

FILE = """
instances:
  notify:
  - {name: hook, type: webhook, config: {url: "https://hook.test/x"}}
notifications:
- {notify: [hook], after: 1s}
"""


def sent_events(*external_clients: FakeExternalClient) -> list[str]:
    """Return the events that were sent."""
    return [request.json["event"] for external_client in external_clients for request in external_client.requests]


async def test_blocked_maintenance_is_notified_once_across_leaders(a_cluster: PlanFactory, tmp_path: Path) -> None:
    file, first, second = a_configuration_file(tmp_path, FILE), FakeExternalClient(), FakeExternalClient()
    async with with_blocking_pods(with_operator_rbac(a_cluster()).with_nodes(2), "n1").running() as cluster:
        operator = cluster.run(operator_with_profiles(file, external_client=first), name="operator-a")
        await create_maintenance(cluster, "n1", reason="new kernel")
        await cluster.eventually(
            lambda: sent_events(first), becomes=["NodeMaintenanceStarted", "NodeMaintenanceBlocked"]
        )
        body: Any = first.requests[-1].json
        assert (body["node"], body["reason"], body["blockers"][0]["object"]) == (
            "n1",
            "new kernel",
            "PodDisruptionBudget shop/on-n1",
        )
        assert body["blockers"][0]["remedy"] in body["message"]
        (name,) = cluster.by_key(PLURAL)
        assert (
            "NodeMaintenanceBlocked" in cluster.get(PLURAL, name)["metadata"]["annotations"][NOTIFICATIONS_ANNOTATION]
        )
        operator.kill()
        cluster.run(operator_with_profiles(file, external_client=second, identity="operator_2"), name="operator-b")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await wait_for_success(cluster)
        await cluster.eventually(lambda: sent_events(second), becomes=["NodeMaintenanceSucceeded"])


async def test_notice_is_notified(a_cluster: PlanFactory, tmp_path: Path) -> None:
    external_client = FakeExternalClient()
    plan = with_operator_rbac(a_cluster()).with_crd(maintenancenotice.definition()).with_nodes(1)
    async with plan.running() as cluster:
        cluster.run(operator_with_profiles(a_configuration_file(tmp_path, FILE), external_client=external_client))
        spec = {"nodeName": "n1", "source": "dc", "noticeID": "17", "kind": "Reboot", "start": "2036-01-06T09:00:00Z"}
        resource = maintenancenotice.MAINTENANCE_NOTICES
        await cluster.create(
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": "chg-17"},
                "spec": spec,
            }
        )
        await cluster.eventually(lambda: sent_events(external_client), becomes=["NoticeReceived"])
        expected = "MaintenanceNotice chg-17 of node n1: dc announces Reboot, not before 2036-01-06 09:00 UTC"
        assert external_client.requests[0].json["message"] == expected
