"""Profiles whose checks have different lead times: a drained node stays in maintenance until its notice is over."""

from pathlib import Path

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.clusters.cluster_plan import a_cluster
from support.operators.announced_maintenance import AnnouncedMaintenance, notice_operator, with_notices

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: due, type: notice, config: {when: due, leadTime: 40m}}
  - {name: over, type: notice, config: {when: over}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: notices
  onNotice: true
  operational:
    transitions: [{check: due, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: due, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: over, next: operational, trigger: uncordon}]
"""


@pytest.mark.parametrize("moved_to", [None, 200])
async def test_node_drained_before_a_notice_is_kept_until_it_is_over_or_rescheduled(
    clock: VirtualClock, tmp_path: Path, moved_to: int | None
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(FILE)
    async with with_notices(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        cluster.run(notice_operator(file))
        cloud = AnnouncedMaintenance(cluster, "n1")
        await cloud.report(start=60, end=90)
        await cloud.wait_until_minute(50)
        if moved_to is None:
            await cloud.report(NoticeStage.STARTED)
            await cloud.wait_until_minute(80)
            await cloud.report(NoticeStage.ENDED)
        else:
            await cloud.report(start=moved_to, end=moved_to + 30)
        await cloud.wait_until_minute(100)
        assert cloud.out_of_service() == [(20, 80 if moved_to is None else 50)]
