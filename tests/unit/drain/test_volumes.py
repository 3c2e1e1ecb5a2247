"""Waiting for volumes of pods that have left, on simulated time."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Pod, RawObject, Taint
from haulout.cli.drain.drain_runner import NodeDrain
from haulout.cli.drain.live_progress import group_blockers
from haulout.cli.drain.plain_progress import NodeReporter, progress_line
from haulout.core.clock import Clock
from haulout.drain.blockers import BlockerKind
from haulout.drain.decision import DrainDecision, DrainObservation, decide
from haulout.drain.metrics import NODE_MAINTENANCE, DrainMetrics
from haulout.drain.permissions import permissions
from haulout.drain.pod_filters import DaemonSetInfo
from haulout.drain.pod_selection import LookupRequest
from haulout.drain.policy import Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.drain.progress import OutcomeResult, PodDrainState
from haulout.drain.state import Checkpoint, TrackedDrain
from haulout.drain.volumes import VolumeAttachment
from haulout.kube.selectors import parse
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster, a_pod

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
WAITS = replace(DrainPolicy.like_nmo(), volume_detach_timeout=10 * MINUTE)
DRIVER = "disk.example.com"
TAINTED = (Taint(key="medik8s.io/drain", effect="NoSchedule"),)


def a_pod_with_volumes(
    name: str, *, claim: str = "", ephemeral: str = "", owner: str = "ReplicaSet", phase: str = "Running", **meta: Any
) -> Pod:
    reference = {"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": f"u-{name}", "controller": True}
    volumes: list[RawObject] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    volumes += [{"name": ephemeral, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}] if ephemeral else []
    metadata = {"name": name, "namespace": "shop", "uid": name, "ownerReferences": [reference]} | meta
    raw = {"metadata": metadata, "spec": {"nodeName": "n1", "volumes": volumes}, "status": {"phase": phase}}
    return msgspec.convert(raw, Pod)


def attachment(volume: str, *, node: str = "n1", attached: bool = True, **status: Any) -> RawObject:
    source: RawObject = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": f"csi-{volume}"},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": source},
        "status": {"attached": attached, **status},
    }


def attachments_of_n1(*volumes: str, **more: Any) -> tuple[VolumeAttachment, ...]:
    found = [attachment(it, **more) for it in volumes]
    return tuple(
        msgspec.convert(it | {"metadata": it["metadata"] | {"uid": f"u-{it}"}}, VolumeAttachment) for it in found
    )


def decide_for(
    *pods: Pod, at: datetime = NOW, memory: TrackedDrain | None = None, policy: DrainPolicy = WAITS, **view: Any
) -> DrainDecision:
    memory = TrackedDrain(started=NOW) if memory is None else memory
    return decide(DrainObservation(node="n1", pods=pods, **view), memory, policy, now=at)


def awaited_objects(plan: DrainDecision) -> list[str]:
    assert {it.blocker.kind for it in plan.progress.blockers} <= {BlockerKind.VOLUME}
    return [it.blocker.object for it in plan.progress.blockers]


# The decision


def test_volumes_are_awaited_only_after_all_pods_left_and_if_the_policy_requires_it() -> None:
    cart = a_pod_with_volumes("cart", claim="data")
    assert not decide_for(cart).needs_volumes
    empty = decide_for()
    assert (empty.result, empty.needs_volumes, empty.progress.blockers) == (None, True, ())
    usual = decide_for(policy=DrainPolicy.like_nmo(), attachments=attachments_of_n1("pv-1"))
    assert (usual.result, usual.needs_volumes) == (OutcomeResult.DRAINED, False)


def test_attached_volume_is_named_with_its_claim_and_driver() -> None:
    error = {"message": "node is busy", "time": NOW}
    plan = decide_for(attachments=attachments_of_n1("pv-1", detachError=error), claims={"pv-1": "shop/data"})
    (active,) = plan.progress.blockers
    blocker = active.blocker
    assert (blocker.kind, blocker.object, active.since) == (BlockerKind.VOLUME, "PersistentVolume pv-1", NOW)
    assert blocker.reason == (
        "PersistentVolume pv-1 (claim shop/data, driver disk.example.com) is still attached to node n1; "
        "the drain waits for it until 2026-01-05 09:10:00 UTC; it cannot be detached: node is busy"
    )
    assert "kubectl describe volumeattachment csi-pv-1" in blocker.remedy
    assert str(blocker).startswith("PersistentVolume pv-1")
    assert (plan.result, plan.requeue_at, plan.progress.percent) == (None, NOW + 10 * MINUTE, 0)


def test_detach_error_of_a_driver_is_truncated() -> None:
    plan = decide_for(attachments=attachments_of_n1("pv-1", detachError={"message": "x" * 5000}))
    assert len(plan.progress.blockers[0].blocker.reason) < 600


def test_claim_of_a_volume_is_looked_up_while_the_drain_waits() -> None:
    plan = decide_for(attachments=attachments_of_n1("pv-1", ""))
    assert plan.lookups == (LookupRequest("volume", "pv-1"),)
    assert awaited_objects(plan) == ["PersistentVolume pv-1", "VolumeAttachment csi-"]


def test_volumes_that_are_not_attached_are_not_awaited() -> None:
    assert decide_for(attachments=attachments_of_n1("pv-1", attached=False)).result is OutcomeResult.DRAINED


@pytest.mark.parametrize(
    ("pod", "claim", "is_waited_for"),
    [
        (a_pod_with_volumes("agent", claim="data", owner="DaemonSet"), "shop/data", False),
        (a_pod_with_volumes("agent", claim="data", owner="DaemonSet"), "other/data", True),
        (a_pod_with_volumes("kept", claim="data", labels={"cluster.x-k8s.io/drain": "skip"}), "shop/data", False),
        (
            a_pod_with_volumes("static", claim="data", annotations={"kubernetes.io/config.mirror": "x"}),
            "shop/data",
            False,
        ),
        (a_pod_with_volumes("agent", ephemeral="scratch", owner="DaemonSet"), "shop/agent-scratch", False),
        (
            a_pod_with_volumes("done", claim="data", phase="Succeeded", labels={"cluster.x-k8s.io/drain": "skip"}),
            "shop/data",
            True,
        ),
    ],
    ids=["of a DaemonSet", "of another namespace", "skipped", "static", "made for the pod", "finished"],
)
def test_volumes_of_pods_that_stay_are_not_awaited(pod: Pod, claim: str, is_waited_for: bool) -> None:  # noqa: FBT001 - what is expected
    sets = {"shop/agent": DaemonSetInfo()}
    plan = decide_for(pod, attachments=attachments_of_n1("pv-1"), claims={"pv-1": claim}, daemon_sets=sets)
    assert (plan.result is None) is is_waited_for


def test_drain_continues_after_volume_detach_timeout_and_reports_what_is_still_attached() -> None:
    first = decide_for(attachments=attachments_of_n1("pv-1", "pv-2"), claims={"pv-1": "shop/data", "pv-2": ""})
    resumed: dict[str, Any] = {"memory": first.state, "claims": {"pv-1": "shop/data"}}
    plan = decide_for(attachments=attachments_of_n1("pv-1"), at=NOW + 10 * MINUTE, **resumed)
    assert (plan.result, plan.progress.blockers, plan.needs_volumes) == (OutcomeResult.DRAINED, (), False)
    left = "still attached after 10m0s: PersistentVolume pv-1 (claim shop/data, driver disk.example.com)"
    assert (plan.progress.left_attached, plan.progress.warning) == (left, left)
    again = decide_for(at=NOW + 11 * MINUTE, memory=plan.state)
    assert (again.result, again.needs_volumes, again.progress.warning) == (OutcomeResult.DRAINED, False, left)


def test_volumes_of_a_late_pod_are_awaited_for_the_full_timeout() -> None:
    done = decide_for(attachments=())
    assert done.result is OutcomeResult.DRAINED
    late = decide_for(a_pod_with_volumes("late", claim="data"), memory=done.state, at=NOW + MINUTE)
    plan = decide_for(attachments=attachments_of_n1("pv-1"), memory=late.state, at=NOW + 30 * MINUTE)
    assert (plan.result, plan.progress.volumes_until) == (None, NOW + 40 * MINUTE)


def test_unreadable_volume_attachments_are_awaited_no_longer_than_the_timeout() -> None:
    plan = decide_for(attachments_problem="volumeattachments is forbidden")
    (active,) = plan.progress.blockers
    assert "cannot list the volumes attached to node n1: volumeattachments is forbidden" in str(active)
    assert "list and watch volumeattachments.storage.k8s.io" in active.blocker.remedy
    over = decide_for(memory=plan.state, at=NOW + 10 * MINUTE, attachments_problem="volumeattachments is forbidden")
    assert over.result is OutcomeResult.DRAINED
    assert over.progress.warning == (
        "could not check whether volumes are still attached within 10m0s: volumeattachments is forbidden"
    )


def test_drain_timeout_ends_the_wait_for_volumes_and_the_node_is_drained() -> None:
    policy = replace(WAITS, timeout=5 * MINUTE)
    first = decide_for(attachments=attachments_of_n1("pv-1"), policy=policy, at=NOW + MINUTE)
    assert first.progress.volumes_until == NOW + 5 * MINUTE
    over = decide_for(attachments=attachments_of_n1("pv-1"), policy=policy, memory=first.state, at=NOW + 5 * MINUTE)
    assert (over.result, over.progress.left_attached.startswith("still attached after 4m0s")) == (
        OutcomeResult.DRAINED,
        True,
    )
    later = decide_for(policy=policy, memory=over.state, at=NOW + 6 * MINUTE)
    assert later.result is OutcomeResult.DRAINED
    pod = decide_for(a_pod_with_volumes("cart"), policy=policy, memory=first.state, at=NOW + 5 * MINUTE)
    assert pod.result is OutcomeResult.TIMED_OUT


def test_daemon_set_pods_that_leave_last_wait_until_volumes_are_detached() -> None:
    """One of them may unmount these volumes. Its own volumes are awaited after it has left."""
    policy = replace(WAITS, order=DrainOrder(daemon_sets_last=True), timeout=30 * MINUTE)
    known: dict[str, Any] = {"daemon_sets": {"shop/csi": DaemonSetInfo()}, "taints": TAINTED, "node_ready": True}
    known |= {"policy": policy, "claims": {"pv-1": "shop/data", "pv-2": "shop/own"}}
    csi = a_pod_with_volumes("csi", claim="own", owner="DaemonSet")
    both, own = attachments_of_n1("pv-1", "pv-2"), attachments_of_n1("pv-2")
    plan = decide_for(csi, attachments=both, **known)
    assert (plan.actions, awaited_objects(plan)) == ((), ["PersistentVolume pv-1"])
    (row,) = plan.progress.pods
    assert (row.state, row.message) == (PodDrainState.QUEUED, "waiting for volumes to be detached")
    turn = decide_for(csi, attachments=own, memory=plan.state, **known)
    assert ([it.pod.name for it in turn.actions], turn.needs_volumes) == (["csi"], True)
    late = decide_for(csi, attachments=both, memory=plan.state, at=NOW + 10 * MINUTE, **known)
    assert [it.pod.name for it in late.actions] == ["csi"]
    gone = decide_for(attachments=own, memory=turn.state, at=NOW + MINUTE, **known)
    assert (gone.result, awaited_objects(gone)) == (None, ["PersistentVolume pv-2"])
    near = decide_for(csi, attachments=both, at=NOW + 25 * MINUTE, **known)
    assert near.progress.volumes_until == NOW + 30 * MINUTE - 45 * SECOND


def test_resumed_drain_keeps_its_volume_timeout_and_a_drained_node_starts_none() -> None:
    plan = decide_for(attachments=attachments_of_n1("pv-1"))
    checkpoint = plan.progress.checkpoint
    assert set(checkpoint.since.values()) == {NOW}
    next_one = decide_for(
        attachments=attachments_of_n1("pv-1"), memory=TrackedDrain.resume(checkpoint), at=NOW + 4 * MINUTE
    )
    assert next_one.progress.volumes_until == NOW + 10 * MINUTE
    unknown = decide_for(memory=TrackedDrain.resume(checkpoint), at=NOW + 4 * MINUTE)
    known = decide_for(attachments=attachments_of_n1("pv-1"), memory=unknown.state, at=NOW + 5 * MINUTE)
    assert known.progress.volumes_until == NOW + 10 * MINUTE
    late = decide_for(a_pod_with_volumes("late"), memory=known.state, at=NOW + 6 * MINUTE)
    anew = decide_for(attachments=attachments_of_n1("pv-1"), memory=late.state, at=NOW + 7 * MINUTE)
    assert anew.progress.volumes_until == NOW + 17 * MINUTE
    done = TrackedDrain.resume(Checkpoint(started=NOW, is_drained=True))
    assert decide_for(attachments=attachments_of_n1("pv-1"), memory=done).result is OutcomeResult.DRAINED


def test_refused_drain_does_not_wait_for_volumes() -> None:
    started = decide_for(attachments=()).state
    bare = a_pod_with_volumes("bare", ownerReferences=[])
    plan = decide_for(
        bare, memory=started, policy=DrainPolicy(volume_detach_timeout=MINUTE), attachments=attachments_of_n1("pv-1")
    )
    assert plan.result is OutcomeResult.REFUSED


def test_permission_to_read_volumes_is_needed_only_by_a_policy_that_waits_for_them() -> None:
    def named(policy: DrainPolicy | None) -> set[str]:
        return {it.resource for it in permissions(policy)}

    both = {"volumeattachments", "persistentvolumes"}
    assert both <= named(WAITS)
    assert both <= named(None), "any NodeMaintenance may have such a policy"
    assert not both & named(DrainPolicy.like_nmo())
    assert "daemonsets" not in named(DrainPolicy.like_smc())
    assert "daemonsets" in named(replace(DrainPolicy.like_smc(), order=DrainOrder(daemon_sets_last=True)))


def test_drain_that_waits_for_volumes_counts_as_running_and_blocked() -> None:
    metrics = DrainMetrics()
    observed = metrics.for_initiator(NODE_MAINTENANCE).start_drain()
    progress = decide_for(attachments=attachments_of_n1("pv-1")).progress
    observed.update(progress, None, blockers=progress.blockers, is_waiting=False, now=NOW)
    running, _, blocked = metrics.collect(now=NOW + MINUTE)[:3]
    assert running.values[(NODE_MAINTENANCE,)] == 1
    assert blocked.values[(NODE_MAINTENANCE, BlockerKind.VOLUME)] == 1
    assert metrics.blocked_seconds.values[(NODE_MAINTENANCE, BlockerKind.VOLUME)] == 60
    observed.update(progress, None, blockers=progress.blockers, is_waiting=True, now=NOW + MINUTE)
    assert metrics.collect(now=NOW + MINUTE)[0].values[(NODE_MAINTENANCE,)] == 0


def test_node_reporter_prints_each_awaited_volume_once() -> None:
    progress = decide_for(attachments=attachments_of_n1("pv-1"), claims={"pv-1": "shop/data"}).progress
    reporter = NodeReporter(WAITS)
    (line,) = reporter.new_lines(progress, now=NOW)
    assert line.text.startswith("waiting: PersistentVolume pv-1 (claim shop/data, driver disk.example.com)")
    assert list(reporter.new_lines(progress, now=NOW + MINUTE)) == []
    record = NodeDrain("n1", progress=progress, started=NOW)
    assert "blocked for 1m0s: PersistentVolume pv-1 " in progress_line(record, now=NOW + MINUTE)
    (reason,) = group_blockers(record)
    assert (reason.blocker.kind, reason.pods) == (BlockerKind.VOLUME, ())


# The drain


def a_volume(name: str, claim: str) -> RawObject:
    namespace, _, bare = claim.partition("/")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "claimRef": {"namespace": namespace, "name": bare},
        },
    }


def with_claim(name: str) -> list[RawObject]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def requests(cluster: DrainCluster) -> Iterator[str]:
    return (it.request.path for it in cluster.transport.requests if "volume" in it.request.path)


async def test_drain_ends_as_soon_as_the_last_volume_is_detached(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.put(a_pod("db", on="n1", volumes=with_claim("data")), a_pod("kept", on="n1", volumes=with_claim("own")))
        cluster.put(a_volume("pv-1", "shop/data"), a_volume("pv-2", "shop/own"), a_volume("pv-3", "shop/else"))
        cluster.put(attachment("pv-1"), attachment("pv-2"), attachment("pv-3", node="n2"))
        labelled = cluster.api.get("pods", "kept", "shop")
        labelled["metadata"]["labels"] = {"app": "kept"}
        cluster.put(labelled)
        keep = DrainRule(name="keep", pods=parse("app=kept"), behavior=Behavior.SKIP)
        drain = cluster.new_drain("n1", replace(WAITS, rules=(keep,)))
        running = cluster.start_drain(drain)
        await cluster.wait_until(
            lambda: [it.blocker.object for it in drain.progress.blockers] == ["PersistentVolume pv-1"]
        )
        assert cluster.pod_names(on="n1") == ["kept"]
        await clock.sleep(3 * MINUTE)
        assert not running.done()
        began = clock.monotonic()
        cluster.api.remove("volumeattachments", "csi-pv-1")
        outcome = await running
        assert (outcome.result, outcome.progress.warning) == (
            OutcomeResult.DRAINED,
            "skipping Pods by rule keep: shop/kept",
        )
        assert clock.monotonic() - began < 0.1
        requested_paths = list(requests(cluster))
        assert requested_paths.count("/apis/storage.k8s.io/v1/volumeattachments") <= 2, "nothing is polled"
        assert sorted(it for it in requested_paths if "persistentvolumes" in it) == [
            "/api/v1/persistentvolumes/pv-1",
            "/api/v1/persistentvolumes/pv-2",
        ]


async def test_drain_ends_although_volumes_stay_attached(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(attachment("pv-1"))
        outcome = await cluster.drain("n1", WAITS)
        assert outcome.is_drained
        assert 600 <= clock.monotonic() < 660
        assert outcome.message.endswith("still attached after 10m0s: PersistentVolume pv-1 (driver disk.example.com)")


async def test_missing_permission_to_read_volumes_is_reported_and_the_drain_ends(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.transport.faults.fail_before_effect(response=403, path="/volumeattachments", times=None)
        drain = cluster.new_drain("n1", WAITS)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.blockers))
        (active,) = drain.progress.blockers
        assert (active.blocker.kind, active.blocker.object) == (BlockerKind.VOLUME, "VolumeAttachments")
        outcome = await running
        assert (outcome.is_drained, "forbidden" in outcome.progress.warning) == (True, True)


async def test_policy_that_does_not_wait_for_volumes_reads_none(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(attachment("pv-1"))
        await cluster.run_pods("web", 2, on="n1")
        assert (await cluster.drain("n1")).is_drained
        assert list(requests(cluster)) == []


async def test_keep_running_drain_stops_watching_volumes_when_the_node_is_drained(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(attachment("pv-1"), a_volume("pv-1", "shop/data"))
        drain = cluster.new_drain("n1", WAITS, keep_running=True)
        cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.volumes))
        cluster.api.remove("volumeattachments", "csi-pv-1")
        await cluster.wait_until(lambda: drain.outcome is not None)
        before = len(list(requests(cluster)))
        await clock.sleep(timedelta(hours=1))
        assert len(list(requests(cluster))) == before
        cluster.put(attachment("pv-1"))
        cluster.put(a_pod("late", on="n1", volumes=with_claim("data")))
        await cluster.wait_until(lambda: bool(drain.progress.volumes))
        assert drain.outcome is None
        cluster.api.remove("volumeattachments", "csi-pv-1")
        await cluster.wait_until(lambda: drain.outcome is not None)


async def test_new_policy_that_does_not_wait_for_volumes_ends_the_wait(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.put(attachment("pv-1"))
        drain = cluster.new_drain("n1", WAITS)
        running = cluster.start_drain(drain)
        await cluster.wait_until(lambda: bool(drain.progress.volumes))
        drain.set_policy(DrainPolicy.like_nmo())
        assert (await running).is_drained
