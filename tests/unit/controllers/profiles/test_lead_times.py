"""With any lead times, a profile drains a node once per notice and releases it once."""

from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    MaintenanceNoticeStatus,
    NoticeStage,
)
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles.plugin import PROFILE_LABEL
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView
from support.fakes.profile_node import ProfileNode

FILE = """
intervals: {{requeue: 1m}}
instances:
  check:
  - {{name: soon, type: notice, config: {{when: due, leadTime: {soon}m}}}}
  - {{name: due, type: notice, config: {{when: due, leadTime: {due}m}}}}
  - {{name: over, type: notice, config: {{when: over, leadTime: {over}m}}}}
  - {{name: hours, type: says, config: {{about: hours}}}}
profiles:
- name: os
  operational:
    transitions: [{{check: soon, next: maintenance-required}}]
  maintenance-required:
    transitions:
    - {{check: over, next: operational}}
    - {{check: "due || hours", next: in-maintenance}}
  in-maintenance:
    transitions: [{{check: over, next: operational}}]
"""
STARTS, ENDS, LAST = 60, 90, 100
STEP = 5
minutes = st.integers(0, 16).map(lambda it: it * STEP)


@settings(max_examples=40)
@given(soon=minutes, due=minutes, over=minutes, hours=st.sets(minutes, max_size=5))
def test_profile_drains_and_releases_a_node_once_whatever_its_lead_times(
    soon: int, due: int, over: int, hours: set[int]
) -> None:
    spec = MaintenanceNoticeSpec(
        kind=MaintenanceKind.REBOOT, source="oci", stage=NoticeStage.SCHEDULED, start=NOW + STARTS * MINUTE
    )
    notice = MaintenanceNotice(
        metadata=ObjectMeta(name="m1"), spec=spec, status=MaintenanceNoticeStatus(node_name="n1")
    )
    raw = a_node("n1")
    cluster = FakeClusterView(raw)
    profile_node = ProfileNode(
        FILE.format(soon=soon, due=due, over=over), labels={PROFILE_LABEL: "os"}, cluster=cluster
    )
    in_maintenance = []
    for minute in range(0, LAST, STEP):
        stage = (
            NoticeStage.ENDED if minute >= ENDS else NoticeStage.STARTED if minute >= STARTS else NoticeStage.SCHEDULED
        )
        cluster.announced_notices = [msgspec.structs.replace(notice, spec=msgspec.structs.replace(spec, stage=stage))]
        profile_node.annotate(hours="yes" if minute in hours else None)
        profile_node.now = NOW + minute * MINUTE
        for _ in range(3):
            profile_node.reconcile(elapsed=timedelta())
            in_maintenance.append(profile_node.state("os") != "operational")
    changes = [now for before, now in zip([False, *in_maintenance], in_maintenance, strict=False) if now != before]
    assert changes == [True, False]
    first = in_maintenance.index(True) // 3 * STEP
    assert first == max(STARTS - soon, 0)
