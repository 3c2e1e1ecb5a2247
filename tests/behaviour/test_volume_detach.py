"""A drain that waits until volumes of the pods that have left are detached from the node."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from haulout.kube.objects import RawObject
from haulout.profiles import config
from haulout.profiles.plugins.registry import registries
from support.builders import a_pod
from support.clusters import ClusterPlan, Plans
from support.live import LiveCluster
from support.maintaining import entitled, invariants, last_error, maintained, operate, order, over, phase, status
from support.maintaining import succeeded as drained
from support.permitting import rights
from support.profiled import a_file, attach, operating, state
from support.volumes import ATTACHMENTS, attached

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


def waits_for(cluster: LiveCluster) -> list[str]:
    return [it["object"] for it in status(cluster).get("blockers", ()) if it["kind"] == "VolumeDetach"]


def a_plan(a_cluster: Plans) -> ClusterPlan:
    return entitled(a_cluster()).with_nodes(2).upholding(*invariants())


async def test_a_drain_waits_for_the_volumes_of_pods_that_left_and_for_no_others(a_cluster: Plans) -> None:
    kept = with_claim("kept", "own", labels={"cluster.x-k8s.io/drain": "skip"})
    async with a_plan(a_cluster).with_objects(with_claim("db", "data"), kept).running() as cluster:
        await attached(cluster, "left-1", "data")
        await attached(cluster, "stays-1", "own")
        await attached(cluster, "elsewhere-1", "other", node="n2")
        first = cluster.run(operate)
        await order(cluster, "n1", drain={"volumeDetachTimeout": "30m"})
        await cluster.eventually(lambda: waits_for(cluster), becomes=["PersistentVolume left-1"])
        assert cluster.pods_on("n1") == ["shop/kept"]
        said = await cluster.eventually(lambda: _settled(cluster))
        assert said["reason"].startswith(
            "PersistentVolume left-1 (claim shop/data, driver disk.example.com) is still attached to node n1; "
            "this is waited for until "
        )
        assert "kubectl describe volumeattachment csi-left-1" in said["advice"]
        assert (phase(cluster), status(cluster)["waitsFor"]) == ("Running", "PersistentVolume left-1")
        # Whoever takes over waits no longer than the one before.
        first.kill()
        await cluster.pass_time(seconds=2)
        cluster.run(operate)
        await cluster.pass_time(seconds=3)
        again = await cluster.eventually(lambda: _settled(cluster))
        assert (again["since"], again["reason"]) == (said["since"], said["reason"])
        await cluster.delete(ATTACHMENTS, "csi-left-1")
        await drained(cluster)
        assert waits_for(cluster) == []
        assert "attached" not in status(cluster)["drain"].get("warning", "")
        await over(cluster)


async def test_a_volume_that_stays_attached_holds_a_drain_up_only_for_its_time(a_cluster: Plans) -> None:
    async with a_plan(a_cluster).with_objects(with_claim("db", "data")).running() as cluster:
        await attached(cluster, "left-2", "data")
        operator = cluster.run(operate)
        await order(cluster, "n1", drain={"volumeDetachTimeout": "3s"})
        await cluster.eventually(lambda: waits_for(cluster), becomes=["PersistentVolume left-2"])
        await drained(cluster)
        assert status(cluster)["drain"]["warning"] == (
            "still attached after 3s: PersistentVolume left-2 (claim shop/data, driver disk.example.com)"
        )
        assert (waits_for(cluster), last_error(cluster)) == ([], "")
        (note,) = await cluster.eventually(lambda: _notes(cluster, "VolumesStillAttached"))
        assert "PersistentVolume left-2" in note
        # Whoever takes over does not wait once more for a node that is drained.
        operator.kill()
        seen = len(cluster.history)
        cluster.run(operate)
        await cluster.pass_time(seconds=5)
        after = [it.after for it in cluster.history[seen:] if it.kind.plural == "nodemaintenances" and it.after]
        assert [it["status"]["blockers"] for it in after if it["status"].get("blockers")] == []
        assert phase(cluster) == "Succeeded"
        await over(cluster)


async def test_a_volume_that_is_detached_at_once_delays_nothing(a_cluster: Plans) -> None:
    async with a_plan(a_cluster).with_objects(with_claim("db", "data")).running() as cluster:
        cluster.run(operate)
        await order(cluster, "n1", drain={"volumeDetachTimeout": "30m"})
        await drained(cluster)
        await over(cluster)


async def test_a_profile_waits_with_the_rights_that_its_policy_needs(a_cluster: Plans, tmp_path: Path) -> None:
    file = a_file(tmp_path, PROFILE)
    configuration = config.load(file.read_bytes(), registries(), {}, file=str(file)).configuration
    plan = maintained(a_cluster()).with_rights(*rights(configuration)).with_nodes(1)
    async with plan.with_objects(with_claim("db", "data")).running() as cluster:
        await attached(cluster, "left-3", "data")
        cluster.run(operating(file))
        await attach(cluster, "n1", "os")
        await cluster.change("nodes", "n1", metadata={"labels": {"patch": "yes"}})
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=[])
        await cluster.pass_time(seconds=3)
        assert state(cluster, "n1") == "maintenance-required"
        await cluster.delete(ATTACHMENTS, "csi-left-3")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance", within=timedelta(minutes=1))


def _settled(cluster: LiveCluster) -> RawObject | None:
    """Return the blocker once it names the claim."""
    found = [it for it in status(cluster).get("blockers", ()) if "claim" in it["reason"]]
    return found[0] if found else None


def _notes(cluster: LiveCluster, reason: str) -> list[str]:
    found = [it for it in cluster.all("events").values() if it["reason"] == reason]
    return [str(it.get("note") or it.get("message")) for it in found]
