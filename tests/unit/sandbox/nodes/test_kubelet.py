"""The kubelets: pods live and die as on real nodes, and nodes as real ones do."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject, Taint
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.nodes import DelayDistribution, Delays, Machine
from haulout_sandbox.nodes.kubelet.delays import crash_loop_backoff
from haulout_sandbox.nodes.kubelet.kubelet import LEASE_NAMESPACE
from support.builders.objects import a_pod
from support.clusters.node_cluster import HOUR, MINUTE, SECOND, NodeCluster, a_node_cluster, pod_view

SLOW = {"start-seconds": "5", "ready-seconds": "3", "stop-seconds": "4"}
STATIC = {"metadata": {"name": "proxy"}, "spec": {"containers": [{"name": "proxy", "image": "example/proxy"}]}}


def container(world: NodeCluster, name: str) -> RawObject:
    """Return the status of the first container of a pod."""
    first: RawObject = world.get_pod(name)["status"]["containerStatuses"][0]
    return first


def restarts(world: NodeCluster, name: str) -> int:
    return int(container(world, name)["restartCount"])


def lease(world: NodeCluster, name: str) -> RawObject:
    spec: RawObject = world.api.get("leases", name, LEASE_NAMESPACE)["spec"]
    return spec


def boot_id(world: NodeCluster, name: str) -> str:
    return str(world.api.get("nodes", name)["status"]["nodeInfo"]["bootID"])


# Nodes


async def test_a_machine_becomes_a_node_with_all_that_a_node_has(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.kubelets(view)
        taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
        kubelets.add(
            Machine(
                name="n1",
                zone="z1",
                region="r1",
                cpu="16",
                extra_resources={"example.com/gpu": "2"},
                arch="arm64",
                labels={"pool": "gpu"},
                taints=(taint,),
                provider_id="cloud:///1",
            )
        )
        world.start(kubelets)
        await world.pass_time(SECOND)
        node = world.api.get("nodes", "n1")
        assert node["spec"]["providerID"] == "cloud:///1"
        assert node["spec"]["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
        assert node["metadata"]["labels"]["pool"] == "gpu"
        assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z1"
        assert node["status"]["allocatable"] == {"cpu": "16", "memory": "32Gi", "pods": "110", "example.com/gpu": "2"}
        assert node["status"]["nodeInfo"]["architecture"] == "arm64"
        assert [condition["type"] for condition in node["status"]["conditions"]] == [
            "MemoryPressure",
            "DiskPressure",
            "PIDPressure",
            "Ready",
        ]
        assert world.node_ready("n1") == "True"


async def test_a_lease_is_renewed_at_every_heartbeat_and_the_status_every_five_minutes(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(15 * SECOND)
        before = len(world.api.history)
        await world.pass_time(HOUR)
        kinds = [write.kind.kind for write in world.api.history[before:]]
        assert kinds.count("Lease") == 360
        assert kinds.count("Node") == 12
        assert len(kinds) == 372, "and nothing else happens"
        assert lease(world, "n1")["leaseDurationSeconds"] == 40


async def test_pod_statuses_change_on_whole_seconds(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", delays=Delays()))
        for number in range(20):
            world.create(a_pod(f"cart-{number}", on="n1"))
        before = world.api.revision
        await world.pass_time(2 * MINUTE)
        times = [
            item.written_at for item in world.api.history if item.kind.kind == "Pod" and item.revision > before + 20
        ]
        assert len(times) >= 20
        assert all(at.microsecond < 10_000 for at in times), "a second, and what a request takes"


async def test_rare_heartbeats_make_long_leases(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", heartbeat=5 * MINUTE, status_interval=HOUR))
        await world.pass_time(24 * HOUR)
        assert lease(world, "n1")["leaseDurationSeconds"] == 1200
        assert len(world.api.history) < 24 * 13 + 10


async def test_a_heartbeat_keeps_conditions_of_other_writers(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        node = world.api.get("nodes", "n1")
        node["status"]["conditions"].insert(0, {"type": "MaintenancePlanned", "status": "True"})
        node["metadata"]["annotations"]["theirs"] = "kept"
        world.create(node)
        await world.pass_time(20 * MINUTE)
        now = world.api.get("nodes", "n1")
        assert world.condition("nodes", "n1", "MaintenancePlanned")["status"] == "True"
        assert len(now["status"]["conditions"]) == 5
        assert now["metadata"]["annotations"]["theirs"] == "kept"
        beats = {condition.get("lastHeartbeatTime") for condition in now["status"]["conditions"]} - {None}
        assert beats != {node["status"]["conditions"][1]["lastHeartbeatTime"]}


async def test_a_heartbeat_from_a_stale_cache_overwrites_nothing(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", status_interval=MINUTE))
        await world.pass_time(SECOND)
        world.transports["view"].faults.delay_event(10 * MINUTE, path="nodes", times=1)
        node = world.api.get("nodes", "n1")
        node["status"]["conditions"].insert(0, {"type": "MaintenancePlanned", "status": "True"})
        world.create(node)
        await world.pass_time(HOUR)
        kinds = [condition["type"] for condition in world.api.get("nodes", "n1")["status"]["conditions"]]
        assert kinds == ["MaintenancePlanned", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]


async def test_a_condition_that_another_client_changes_is_corrected(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        node = world.api.get("nodes", "n1")
        node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
        world.create(node)
        await world.pass_time(SECOND)
        assert world.node_ready("n1") == "True"
        assert len(world.api.get("nodes", "n1")["status"]["conditions"]) == 4


async def test_an_unhealthy_node_is_not_ready_until_it_is_healthy(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        kubelets.set_not_ready("n1", "container runtime is down")
        await world.pass_time(SECOND)
        ready = world.condition("nodes", "n1", "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "KubeletNotReady")
        assert ready["message"] == "container runtime is down"
        kubelets.set_not_ready("n1", "")
        await world.pass_time(SECOND)
        assert world.node_ready("n1") == "True"


async def test_a_deleted_node_is_registered_again_only_when_its_kubelet_restarts(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        await world.client("user").delete(NODES, "n1")
        await world.pass_time(HOUR)
        assert not world.api.has("nodes", "n1")
        kubelets.revive("n1")
        await world.pass_time(SECOND)
        assert world.node_ready("n1") == "True"
        renewed = lease(world, "n1")["renewTime"]
        await world.pass_time(MINUTE)
        assert lease(world, "n1")["renewTime"] > renewed


async def test_a_machine_that_is_removed_takes_its_node_and_lease_along(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1", "n2"))
        await world.pass_time(MINUTE)
        await kubelets.remove("n1")
        await world.pass_time(HOUR)
        assert [item["metadata"]["name"] for item in world.api.objects("nodes")] == ["n2"]
        assert [item["metadata"]["name"] for item in world.api.objects("leases")] == ["n2"]
        assert kubelets.names == ("n2",)
        with pytest.raises(KeyError, match="no machine n1"):
            kubelets.kill("n1")


# Pods


async def test_a_pod_is_started_runs_and_becomes_ready_in_its_time(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour=SLOW))
        await world.pass_time(2 * SECOND)
        assert container(world, "p")["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert world.pod_phase("p") == "Pending"
        await world.pass_time(4 * SECOND)
        assert world.pod_phase("p") == "Running"
        assert container(world, "p")["state"]["running"]
        assert not world.is_pod_ready("p")
        await world.pass_time(3 * SECOND)
        assert world.is_pod_ready("p")
        assert container(world, "p")["ready"]
        status = world.get_pod("p")["status"]
        assert status["podIP"].startswith("10.")
        assert status["hostIP"].startswith("172.")
        assert status["startTime"] == "2026-01-05T09:00:00Z"


async def test_a_pod_that_needs_no_time_takes_one_write(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        await world.pass_time(SECOND)
        world.create(a_pod("p", on="n1"))
        await world.pass_time(SECOND)
        assert world.is_pod_ready("p")
        assert len([item for item in world.api.history if item.kind.kind == "Pod"]) == 2


async def test_every_pod_has_an_address_of_its_own(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        world.create(*(a_pod(f"p{number}", on=f"n{number % 2 + 1}") for number in range(40)))
        world.create(a_pod("host", on="n1", hostNetwork=True))
        await world.pass_time(5 * SECOND)
        ips = {pod["status"]["podIP"] for pod in world.api.objects("pods")}
        assert len(ips) == 41
        assert world.get_pod("host")["status"]["podIP"] == world.get_pod("host")["status"]["hostIP"]
        await world.delete_pod("p0", grace=0)
        world.create(a_pod("again", on="n1"))
        await world.pass_time(5 * SECOND)
        assert world.get_pod("again")["status"]["podIP"] in ips, "an address is free when its pod is gone"


async def test_init_containers_have_ended_and_sidecars_run_when_a_pod_runs(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        init = [{"name": "prepare", "image": "i"}, {"name": "proxy", "image": "i", "restartPolicy": "Always"}]
        world.create(a_pod("p", on="n1", initContainers=init))
        await world.pass_time(SECOND)
        prepare, proxy = world.get_pod("p")["status"]["initContainerStatuses"]
        assert prepare["state"]["terminated"]["reason"] == "Completed"
        assert proxy["state"]["running"]


async def test_a_pod_that_is_deleted_stops_in_its_time_and_is_gone(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour={"stop-seconds": "4"}))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        assert 3 <= await world.wait_until(lambda: not world.has_pod("p")) <= 4.2
        last = world.api.history[-1]
        assert last.before
        assert last.before["status"]["phase"] == "Succeeded"
        assert last.before["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


@pytest.mark.parametrize(("act", "delays"), [({"stop-seconds": "500"}, {}), ({}, {"ignores_sigterm": 1.0})])
async def test_a_pod_that_does_not_stop_is_killed_when_its_grace_is_over(
    clock: Clock, act: dict[str, str], delays: dict[str, Any]
) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        none = DelayDistribution(0, 0)
        world.start(world.kubelets(view, "n1", delays=Delays(start=none, ready=none, **delays)))
        world.create(a_pod("p", on="n1", grace=20, behaviour=act))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        assert 19 <= await world.wait_until(lambda: not world.has_pod("p")) <= 20.2
        last = world.api.history[-1].before
        assert last
        assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_a_pod_that_hangs_stays_until_it_is_deleted_by_force(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour={"hang": "true"}))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        await world.pass_time(2 * HOUR)
        assert world.has_pod("p")
        await world.delete_pod("p", grace=0)
        await world.pass_time(SECOND)
        assert not world.has_pod("p")


async def test_a_grace_that_is_shortened_is_honoured(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", grace=600, behaviour={"stop-seconds": "500"}))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        await world.pass_time(MINUTE)
        await world.delete_pod("p", grace=5)
        assert await world.wait_until(lambda: not world.has_pod("p")) <= 6


async def test_a_pod_that_never_started_is_gone_at_once(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour={"start-seconds": "100"}))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        assert await world.wait_until(lambda: not world.has_pod("p")) < 1


async def test_a_pod_held_by_a_finalizer_has_ended_and_is_left_alone(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        pod = a_pod("p", on="n1")
        pod["metadata"]["finalizers"] = ["example.com/hold"]
        world.create(pod)
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        await world.pass_time(MINUTE)
        assert world.pod_phase("p") == "Succeeded"
        await world.pass_time(HOUR)
        assert len(world.transports["kubelets"].sent_requests(method="DELETE")) == 1


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", "0", "Succeeded"), ("OnFailure", "0", "Succeeded"), ("Never", "3", "Failed")],
)
async def test_containers_that_are_done_end_their_pod(clock: Clock, policy: str, code: str, phase: str) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        act = {"run-seconds": "30", "exit-code": code}
        world.create(a_pod("p", on="n1", restartPolicy=policy, behaviour=act))
        await world.pass_time(29 * SECOND)
        assert world.pod_phase("p") == "Running"
        await world.pass_time(3 * SECOND)
        assert world.pod_phase("p") == phase
        assert container(world, "p")["state"]["terminated"]["exitCode"] == int(code)


async def test_the_pods_of_jobs_are_done_by_themselves_and_others_are_not(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", delays=Delays(seed=3)))
        world.create(*(a_pod(f"j{n}", on="n1", owner="Job/j", restartPolicy="Never") for n in range(9)))
        world.create(a_pod("server", on="n1", owner="ReplicaSet/r"))
        await world.pass_time(2 * HOUR)
        assert {world.pod_phase(f"j{n}") for n in range(9)} == {"Succeeded"}
        assert world.pod_phase("server") == "Running"


async def test_a_job_that_is_made_to_stop_has_not_succeeded(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", restartPolicy="Never", behaviour={"run-seconds": "500"}))
        await world.pass_time(2 * SECOND)
        await world.delete_pod("p")
        await world.wait_until(lambda: not world.has_pod("p"))
        assert (world.api.history[-1].before or {})["status"]["phase"] == "Failed"


async def test_a_crash_loop_backs_off(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour={"run-seconds": "5", "exit-code": "1"}))
        await world.pass_time(7 * SECOND)
        assert restarts(world, "p") == 1, "the first time it is started again at once"
        await world.pass_time(5 * SECOND)
        waiting = container(world, "p")
        assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert waiting["lastState"]["terminated"]["exitCode"] == 1
        assert not world.is_pod_ready("p")
        await world.pass_time(10 * SECOND)
        assert restarts(world, "p") == 2
        await world.pass_time(HOUR)
        assert 10 < restarts(world, "p") < 20


def test_the_back_off_doubles_up_to_five_minutes_and_forgives() -> None:
    short, long = timedelta(seconds=5), timedelta(minutes=11)
    assert [crash_loop_backoff(n, ran=short).total_seconds() for n in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert crash_loop_backoff(100, ran=short) == timedelta(minutes=5)
    assert crash_loop_backoff(100, ran=long) == timedelta()


# Trouble with machines


async def test_a_kubelet_that_is_dead_does_nothing_and_one_that_is_back_catches_up(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1"), a_pod("q", on="n1"))
        await world.pass_time(MINUTE)
        kubelets.kill("n1")
        await world.pass_time(SECOND)
        writes = len(world.api.history)
        await world.delete_pod("p")
        world.create(a_pod("new", on="n1"))
        await world.pass_time(HOUR)
        assert len(world.api.history) == writes + 2, "only what others did"
        kubelets.revive("n1")
        await world.pass_time(5 * SECOND)
        assert not world.has_pod("p")
        assert world.pod_phase("new") == "Running"
        assert restarts(world, "q") == 0, "its containers went on"
        renewed = lease(world, "n1")["renewTime"]
        await world.pass_time(MINUTE)
        assert lease(world, "n1")["renewTime"] > renewed


async def test_a_reboot_loses_all_containers_and_starts_them_again(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(
            world.kubelets(view, "n1", delays=Delays(start=DelayDistribution(2, 2), boot=DelayDistribution(10, 10)))
        )
        world.create(a_pod("p", on="n1"), a_pod("once", on="n1", restartPolicy="Never"))
        await world.pass_time(MINUTE)
        booted, writes = boot_id(world, "n1"), len(world.api.history)
        kubelets.reboot("n1", 2 * MINUTE)
        await world.pass_time(119 * SECOND)
        assert len(world.api.history) == writes
        await world.pass_time(2 * SECOND)
        assert boot_id(world, "n1") != booted
        assert world.node_ready("n1") == "False"
        assert container(world, "p")["lastState"]["terminated"]["exitCode"] == 255
        assert not world.is_pod_ready("p")
        assert world.pod_phase("once") == "Failed"
        await world.pass_time(15 * SECOND)
        assert world.node_ready("n1") == "True"
        assert (restarts(world, "p"), world.is_pod_ready("p")) == (1, True)
        await world.pass_time(HOUR)
        assert restarts(world, "p") == 1, "and that is all"


async def test_containers_that_start_in_the_second_of_the_boot_are_not_lost(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1"))
        await world.pass_time(10.5 * SECOND)
        kubelets.reboot("n1", MINUTE)
        await world.pass_time(5 * MINUTE)
        assert restarts(world, "p") == 1


async def test_a_pod_that_hangs_is_freed_by_a_reboot(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        kubelets = world.start(world.kubelets(view, "n1"))
        world.create(a_pod("p", on="n1", behaviour={"hang": "true"}))
        await world.pass_time(MINUTE)
        await world.delete_pod("p")
        await world.pass_time(MINUTE)
        kubelets.reboot("n1", MINUTE)
        await world.pass_time(2 * MINUTE)
        assert not world.has_pod("p")


async def test_scheduling_is_recorded_as_events(clock: Clock) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        events = world.start(EventRecorder(world.client("events"), instance="k"))
        kubelets = world.start(world.kubelets(view, "n1", recorder=events))
        world.create(a_pod("p", on="n1"), a_pod("q", on="n1", behaviour={"run-seconds": "2", "exit-code": "1"}))
        await world.pass_time(MINUTE)
        kubelets.reboot("n1", MINUTE)
        await world.pass_time(2 * MINUTE)
        await world.delete_pod("p")
        await world.pass_time(MINUTE)
        reported = {(item["reason"], item["regarding"]["name"]) for item in world.api.objects("events.events.k8s.io")}
        assert {
            ("Starting", "n1"),
            ("Rebooted", "n1"),
            ("Started", "p"),
            ("Killing", "p"),
            ("BackOff", "q"),
        } <= reported


# Trouble with ourselves


@pytest.mark.parametrize("crash_after", range(1, 14))
async def test_kubelets_that_die_after_any_write_are_followed_by_ones_that_go_on(
    clock: Clock, crash_after: int
) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.create(
            a_pod("p", on="n1", behaviour=SLOW),
            a_pod("q", on="n1", behaviour={"run-seconds": "3"}, restartPolicy="Never"),
        )
        first = world.kubelets(view, "n1")

        async def story() -> None:
            await world.wait_until(lambda: world.has_pod("p") and world.is_pod_ready("p"))
            await world.delete_pod("p")
            await world.wait_until(lambda: not world.has_pod("p"))

        with world.running(first):
            await world.wait_until(
                lambda: _write_log(world) >= crash_after or not world.has_pod("p") or world.is_pod_ready("p")
            )
        world.start(world.kubelets(view, "n1"))
        await story()
        await world.wait_until(lambda: world.pod_phase("q") == "Succeeded")
        assert world.node_ready("n1") == "True"
        booted = {
            item.after["status"]["nodeInfo"]["bootID"]
            for item in world.api.history
            if item.kind.kind == "Node" and item.after
        }
        assert len(booted) == 1, "a successor does not reboot the machine"


def _write_log(world: NodeCluster) -> int:
    return sum(write.username == "kubelets" for write in world.api.history)


@pytest.mark.parametrize("fault", ["conflicts", "answers lost", "unavailable", "events late"])
async def test_pods_are_bound_correctly_despite_any_transport_fault(clock: Clock, fault: str) -> None:
    async with a_node_cluster(clock) as world:
        view = world.start(world.view())
        world.start(world.kubelets(view, "n1", "n2"))
        await world.pass_time(SECOND)
        faults = world.transports["kubelets"].faults
        if fault == "conflicts":
            rule: Any = faults.fail_before_effect(path="pods", times=10, response=409)
        elif fault == "answers lost":
            rule = faults.fail_after_effect(times=10)
        elif fault == "unavailable":
            rule = faults.fail_before_effect(times=10, response=503)
        else:
            rule = world.transports["view"].faults.delay_event(7 * SECOND, times=20)
        world.create(*(a_pod(f"p{n}", on=f"n{n % 2 + 1}", behaviour=SLOW) for n in range(8)))
        await world.wait_until(lambda: all(world.is_pod_ready(f"p{n}") for n in range(8)), within=10 * MINUTE)
        for n in range(8):
            await world.delete_pod(f"p{n}")
        await world.wait_until(lambda: not world.api.objects("pods"), within=10 * MINUTE)
        assert rule.hits >= 10


# Delays


def test_delays_depend_on_the_seed_and_the_pod_alone() -> None:
    pods = [pod_view(a_pod(f"p{number}", owner="Job/j")) for number in range(500)]
    one, same, other = Delays(seed=1), Delays(seed=1), Delays(seed=2)
    assert [one.start_delay(pod) for pod in pods] == [same.start_delay(pod) for pod in reversed(pods)][::-1]
    assert [one.start_delay(pod) for pod in pods] != [other.start_delay(pod) for pod in pods]
    starts = sorted(one.start_delay(pod).total_seconds() for pod in pods)
    assert 2 < starts[250] < 4, "the median is what it is said to be"
    assert 15 < starts[495] < 45, "and the rare ones too"


@pytest.mark.parametrize("text", ["", "soon", "-1", "inf", "nan"])
def test_an_annotation_that_is_no_number_counts_as_not_there(text: str) -> None:
    pod = pod_view(a_pod("p", behaviour={"start-seconds": text}))
    assert Delays().start_delay(pod) == Delays().start_delay(pod_view(a_pod("p")))


def test_a_readiness_probe_takes_at_least_its_initial_delay() -> None:
    probing = a_pod("p")
    probing["spec"]["containers"][0]["readinessProbe"] = {"initialDelaySeconds": 400}
    assert Delays().ready_delay(pod_view(probing)) == timedelta(seconds=400)
    assert Delays().ready_delay(pod_view(a_pod("p"))) == timedelta()
