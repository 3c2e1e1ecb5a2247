"""What an operator does while nothing happens: it watches, and keeps its leases."""

from datetime import timedelta
from pathlib import Path

from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.manifests.operator_manifests import definitions
from haulout.controllers.profiles.plugin import PROFILE_LABEL
from haulout.core.clock import Clock
from support.operators.replicas import (
    a_replica_cluster,
    all_leases_held_by,
    lease_holders,
    node_state,
    set_labels,
    start_replica_with_profiles,
)

LEASES = (LEADER_LEASE, PROFILES_LEASE)
CONFIGURATION = """\
intervals: {requeue: 30s}
instances:
  check:
  - {name: asked, type: hasLabel, config: {key: asked, value: "true"}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: open, type: timeWindow, config: {start: "08:00", end: "18:00", weekdays: [mon, tue, wed, thu, fri]}}
profiles:
- name: os
  operational:
    transitions: [{check: asked && room && open, next: maintenance-required}]
"""


async def test_idle_operator_sends_only_watches_and_lease_renewals(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(CONFIGURATION)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        for definition in definitions():
            town.put(definition)
        transport = start_replica_with_profiles(town, "one", file).process.transport
        await set_labels(town, "n1", **{PROFILE_LABEL: "os"})
        await town.wait_until(lambda: node_state(town, "n1") == "operational")
        await clock.sleep(timedelta(minutes=5))
        transport.requests.clear()
        transport.request_log_size = 10_000
        await clock.sleep(timedelta(hours=1))
        sent = transport.sent_requests()
        assert [it for it in sent if ("watch", "true") not in it.query and not it.path.endswith(LEASES)] == []
        assert {it.path for it in sent if it.path.endswith(LEASES)}
        assert lease_holders(town) == all_leases_held_by("one")
