"""Notifications of NodeMaintenances and MaintenanceNotices, with the roles that we ship."""

from pathlib import Path
from typing import Any

from haulout.kinds import notice
from haulout.profiles.object_notifications import ANNOTATION
from support.clusters import Plans
from support.maintaining import PLURAL, blocked_on, entitled, order, succeeded
from support.outside import FakeOutside
from support.profiled import a_file, operating

FILE = """
instances:
  notify:
  - {name: hook, type: webhook, config: {url: "https://hook.test/x"}}
notifications:
- {notify: [hook], after: 1s}
"""


def told(*outsides: FakeOutside) -> list[str]:
    """Return the events that were told."""
    return [it.json["event"] for outside in outsides for it in outside.requests]


async def test_a_blocked_maintenance_is_told_once_whoever_leads(a_cluster: Plans, tmp_path: Path) -> None:
    file, first, second = a_file(tmp_path, FILE), FakeOutside(), FakeOutside()
    async with blocked_on(entitled(a_cluster()).with_nodes(2), "n1").running() as cluster:
        life = cluster.run(operating(file, outside=first), name="operator-a")
        await order(cluster, "n1", reason="new kernel")
        await cluster.eventually(lambda: told(first), becomes=["NodeMaintenanceStarted", "NodeMaintenanceBlocked"])
        body: Any = first.requests[-1].json
        assert (body["node"], body["reason"], body["blockers"][0]["object"]) == (
            "n1",
            "new kernel",
            "PodDisruptionBudget shop/on-n1",
        )
        assert body["blockers"][0]["remedy"] in body["message"]
        (name,) = cluster.all(PLURAL)
        assert "NodeMaintenanceBlocked" in cluster.get(PLURAL, name)["metadata"]["annotations"][ANNOTATION]
        life.kill()
        cluster.run(operating(file, outside=second, identity="operator_2"), name="operator-b")
        await cluster.delete("poddisruptionbudgets", "shop/on-n1")
        await succeeded(cluster)
        await cluster.eventually(lambda: told(second), becomes=["NodeMaintenanceSucceeded"])


async def test_a_notice_is_told(a_cluster: Plans, tmp_path: Path) -> None:
    outside = FakeOutside()
    plan = entitled(a_cluster()).with_definition(notice.definition()).with_nodes(1)
    async with plan.running() as cluster:
        cluster.run(operating(a_file(tmp_path, FILE), outside=outside))
        spec = {"nodeName": "n1", "source": "dc", "noticeID": "17", "kind": "Reboot", "start": "2036-01-06T09:00:00Z"}
        resource = notice.MAINTENANCE_NOTICES
        await cluster.create(
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": "chg-17"},
                "spec": spec,
            }
        )
        await cluster.eventually(lambda: told(outside), becomes=["NoticeReceived"])
        expected = "MaintenanceNotice chg-17 of node n1: dc announces Reboot, not before 2036-01-06 09:00 UTC"
        assert outside.requests[0].json["message"] == expected
