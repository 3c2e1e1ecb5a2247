"""Profiles whose checks read different lead times: a node that is taken for a notice is kept until that is over."""

from pathlib import Path

import pytest

from haulout.kinds.notice import Stage
from haulout_sandbox.event_loops.virtual import VirtualClock
from support.clusters import a_cluster
from support.forewarned import Cloud, noticed, operating

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
async def test_a_node_taken_forty_minutes_ahead_is_kept_until_the_maintenance_is_over_or_moved_away(
    clock: VirtualClock, tmp_path: Path, moved_to: int | None
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(FILE)
    async with noticed(a_cluster(clock).with_nodes(2)).on_the_sandbox() as cluster:
        cluster.run(operating(file))
        cloud = Cloud(cluster, "n1")
        await cloud.say(start=60, end=90)
        await cloud.until(50)
        if moved_to is None:
            await cloud.say(Stage.STARTED)
            await cloud.until(80)
            await cloud.say(Stage.ENDED)
        else:
            await cloud.say(start=moved_to, end=moved_to + 30)
        await cloud.until(100)
        assert cloud.out_of_service() == [(20, 80 if moved_to is None else 50)]
