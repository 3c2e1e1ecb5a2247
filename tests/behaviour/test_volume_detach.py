"""A drain that waits until volumes of the pods that have left are detached from the node."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.plugins.registry import registries
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.clusters.rbac import shipped_rbac
from support.clusters.volume_attachments import ATTACHMENTS, attach_volume
from support.operators.nodemaintenance import (
    create_maintenance,
    end_maintenance,
    invariants,
    last_error,
    phase,
    run_controller,
    status,
    with_nodemaintenance_crd,
    with_operator_rbac,
)
from support.operators.nodemaintenance import wait_for_success as drained
from support.operators.profiles import a_configuration_file, operator_with_profiles, set_profiles, state

PROFILE = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  trigger:
  - type: eviction
    name: drain
    config: {action: drain, drain: {volumeDetachTimeout: 30m}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, trigger: drain, next: in-maintenance}]
"""


def with_claim(name: str, claim: str, **more: Any) -> RawObject:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return a_pod(f"shop/{name}", on="n1", volumes=volumes, **more)


def blocking_volumes(cluster: LiveCluster) -> list[str]:
    return [blocker["object"] for blocker in status(cluster).get("blockers", ()) if blocker["kind"] == "VolumeDetach"]


def a_plan(a_cluster: PlanFactory) -> ClusterPlan:
    return with_operator_rbac(a_cluster()).with_nodes(2).with_invariants(*invariants())


async def test_drain_waits_for_volumes_of_evicted_pods_only(a_cluster: PlanFactory) -> None:
    kept = with_claim("kept", "own", labels={"cluster.x-k8s.io/drain": "skip"})
    async with a_plan(a_cluster).with_objects(with_claim("db", "data"), kept).running() as cluster:
        await attach_volume(cluster, "left-1", "data")
        await attach_volume(cluster, "stays-1", "own")
        await attach_volume(cluster, "elsewhere-1", "other", node="n2")
        first = cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"volumeDetachTimeout": "30m"})
        await cluster.eventually(lambda: blocking_volumes(cluster), becomes=["PersistentVolume left-1"])
        assert cluster.pods_on("n1") == ["shop/kept"]
        blocker = await cluster.eventually(lambda: _wait_for_blocker(cluster))
        assert blocker["reason"].startswith(
            "PersistentVolume left-1 (claim shop/data, driver disk.example.com) is still attached to node n1; "
            "the drain waits for it until "
        )
        assert "kubectl describe volumeattachment csi-left-1" in blocker["remedy"]
        assert (phase(cluster), status(cluster)["waitingFor"]) == ("Running", "PersistentVolume left-1")
        # The next operator keeps the deadline of the one before.
        first.kill()
        await cluster.pass_time(seconds=2)
        cluster.run(run_controller)
        await cluster.pass_time(seconds=3)
        again = await cluster.eventually(lambda: _wait_for_blocker(cluster))
        assert (again["since"], again["reason"]) == (blocker["since"], blocker["reason"])
        await cluster.delete(ATTACHMENTS, "csi-left-1")
        await drained(cluster)
        assert blocking_volumes(cluster) == []
        assert "attached" not in status(cluster)["drain"].get("warning", "")
        await end_maintenance(cluster)


async def test_volume_that_stays_attached_delays_the_drain_until_the_timeout(a_cluster: PlanFactory) -> None:
    async with a_plan(a_cluster).with_objects(with_claim("db", "data")).running() as cluster:
        await attach_volume(cluster, "left-2", "data")
        operator = cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"volumeDetachTimeout": "3s"})
        await cluster.eventually(lambda: blocking_volumes(cluster), becomes=["PersistentVolume left-2"])
        await drained(cluster)
        assert status(cluster)["drain"]["warning"] == (
            "still attached after 3s: PersistentVolume left-2 (claim shop/data, driver disk.example.com)"
        )
        assert (blocking_volumes(cluster), last_error(cluster)) == ([], "")
        (note,) = await cluster.eventually(lambda: _event_notes(cluster, "VolumesStillAttached"))
        assert "PersistentVolume left-2" in note
        # The next operator does not wait again for a drained node.
        operator.kill()
        writes_before = len(cluster.history)
        cluster.run(run_controller)
        await cluster.pass_time(seconds=5)
        after = [
            write.after
            for write in cluster.history[writes_before:]
            if write.kind.plural == "nodemaintenances" and write.after
        ]
        assert [write["status"]["blockers"] for write in after if write["status"].get("blockers")] == []
        assert phase(cluster) == "Succeeded"
        await end_maintenance(cluster)


async def test_volume_that_is_detached_at_once_does_not_delay_the_drain(a_cluster: PlanFactory) -> None:
    async with a_plan(a_cluster).with_objects(with_claim("db", "data")).running() as cluster:
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1", drain={"volumeDetachTimeout": "30m"})
        await drained(cluster)
        await end_maintenance(cluster)


async def test_profile_waits_for_volumes_with_the_required_permissions(a_cluster: PlanFactory, tmp_path: Path) -> None:
    file = a_configuration_file(tmp_path, PROFILE)
    configuration = loader.load(file.read_bytes(), registries(), {}, file=str(file)).configuration
    plan = with_nodemaintenance_crd(a_cluster()).with_rbac(*shipped_rbac(configuration)).with_nodes(1)
    async with plan.with_objects(with_claim("db", "data")).running() as cluster:
        await attach_volume(cluster, "left-3", "data")
        cluster.run(operator_with_profiles(file))
        await set_profiles(cluster, "n1", "os")
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": "yes"}})
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=[])
        await cluster.pass_time(seconds=3)
        assert state(cluster, "n1") == "maintenance-required"
        await cluster.delete(ATTACHMENTS, "csi-left-3")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance", within=timedelta(minutes=1))


def _wait_for_blocker(cluster: LiveCluster) -> RawObject | None:
    """Return the blocker once it names the claim."""
    found = [blocker for blocker in status(cluster).get("blockers", ()) if "claim" in blocker["reason"]]
    return found[0] if found else None


def _event_notes(cluster: LiveCluster, reason: str) -> list[str]:
    found = [event for event in cluster.by_key("events").values() if event["reason"] == reason]
    return [str(event.get("note") or event.get("message")) for event in found]
