"""What a job promises: enough successes, not too many failures, and each pod counted once whatever happens to it."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.controllers.garbagecollector.controller import GarbageCollector
from haulout_sandbox.controllers.job import JOB_TRACKING_FINALIZER, JobController
from haulout_sandbox.controllers.objects import JOBS, PODS
from support.builders.objects import SHOP, a_job
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import condition_status, count_staying_pods


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    world = ControllerCluster(clock, kinds=(JobController, GarbageCollector))
    world.kubelets.outcome = lambda _: "Succeeded"
    return world


async def create(world: ControllerCluster, **spec: Any) -> None:
    await world.client.create(JOBS, a_job(**spec), namespace=SHOP)


def status(world: ControllerCluster) -> dict[str, Any]:
    return world.status("jobs", "report")


async def test_a_job_runs_until_enough_pods_have_succeeded(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, completions=5, parallelism=2)
        await world.settle(120)
    assert len(world.created_pods()) == 5
    assert world.max_over_history(lambda pods: sum(pod["status"]["phase"] == "Running" for pod in pods)) == 2
    told = status(world)
    assert (told["succeeded"], told.get("active"), told["ready"], told["terminating"]) == (5, None, 0, 0)
    assert condition_status(told, "SuccessCriteriaMet") == ("True", "CompletionsReached")
    assert condition_status(told, "Complete") == ("True", "CompletionsReached")
    assert told["startTime"] < told["completionTime"]
    assert not any(JOB_TRACKING_FINALIZER in pod["metadata"].get("finalizers", ()) for pod in world.all_pods())


async def test_a_job_without_completions_runs_once(world: ControllerCluster) -> None:
    async with world.running():
        await create(world)
        await world.settle(60)
    assert len(world.created_pods()) == 1
    assert condition_status(status(world), "Complete")[0] == "True"
    labels = world.all_pods()[0]["metadata"]["labels"]
    assert (labels["job-name"], labels["batch.kubernetes.io/job-name"]) == ("report", "report")


async def test_without_a_number_of_completions_the_first_success_ends_it_when_all_have_ended(
    world: ControllerCluster,
) -> None:
    world.kubelets.outcome = lambda pod: "Succeeded" if pod.spec.node_name != "n1" else ""
    async with world.running():
        await create(world, parallelism=3)
        await world.settle(60)
        assert (status(world)["succeeded"], status(world)["active"]) == (2, 1)
        world.kubelets.outcome = lambda _: "Succeeded"
        world.kubelets.enqueue_all()
        await world.settle(60)
    assert len(world.created_pods()) == 3
    assert condition_status(status(world), "Complete")[0] == "True"


async def test_failures_are_tried_again_ever_more_slowly_until_the_limit(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: "Failed"
    async with world.running():
        await create(world, backoffLimit=3)
        await world.settle(20)
        assert len(world.created_pods()) == 2
        await world.settle(30)
        assert len(world.created_pods()) == 3
        await world.settle(300)
    told = status(world)
    assert len(world.created_pods()) == 4
    assert told["failed"] == 4
    assert condition_status(told, "FailureTarget") == ("True", "BackoffLimitExceeded")
    assert condition_status(told, "Failed") == ("True", "BackoffLimitExceeded")


async def test_what_still_runs_is_stopped_when_the_job_has_failed(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda pod: "Failed" if pod.spec.node_name == "n1" else ""
    async with world.running():
        await create(world, parallelism=3, completions=3, backoffLimit=0)
        await world.settle(60)
    assert count_staying_pods([pod for pod in world.all_pods() if pod["status"]["phase"] == "Running"]) == 0
    assert condition_status(status(world), "Failed") == ("True", "BackoffLimitExceeded")
    assert status(world)["failed"] == 3


async def test_a_deadline_ends_it(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: ""
    async with world.running():
        await create(world, activeDeadlineSeconds=100)
        await world.settle(99)
        assert condition_status(status(world), "Failed") == ("", "")
        await world.settle(10)
    assert condition_status(status(world), "Failed") == ("True", "DeadlineExceeded")


async def test_a_drained_pod_counts_as_failed_and_is_replaced_at_once(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: ""
    async with world.running():
        await create(world)
        await world.settle(10)
        world.kubelets.stop = timedelta(minutes=1)
        await world.client.evict(world.pods()[0]["metadata"]["name"], namespace=SHOP)
        await world.settle(15)
        assert status(world)["failed"] == 1
        assert len(world.pods()) == 1
        assert len(world.all_pods()) == 2
        world.kubelets.outcome = lambda _: "Succeeded"
        world.kubelets.enqueue_all()
        await world.settle(120)
    assert (status(world)["failed"], status(world)["succeeded"]) == (1, 1)
    assert condition_status(status(world), "Complete")[0] == "True"


async def test_a_drain_does_not_count_as_a_failure_if_the_policy_ignores_it(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: ""
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    async with world.running():
        await create(world, backoffLimit=0, podFailurePolicy={"rules": [rule]}, podReplacementPolicy="Failed")
        await world.settle(10)
        (pod,) = world.pods()
        await world.client.evict(pod["metadata"]["name"], namespace=SHOP)
        await world.settle(1)
        assert len(world.created_pods()) == 1
        ended = world.get("pods", pod["metadata"]["name"])
        ended["status"]["phase"] = "Failed"
        world.cluster.put(ended)
        await world.settle(30)
    assert len(world.created_pods()) == 2
    assert "failed" not in status(world)
    assert condition_status(status(world), "Failed") == ("", "")


async def test_a_policy_can_end_the_job_at_an_exit_code(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: ""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    async with world.running():
        await create(world, podFailurePolicy={"rules": [rule]})
        await world.settle(10)
        (pod,) = world.pods()
        pod["status"] |= {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": 42}}}],
        }
        world.cluster.put(pod)
        await world.settle(30)
    assert condition_status(status(world), "Failed") == ("True", "PodFailurePolicy")


async def test_a_succeeded_pod_that_is_deleted_stays_counted(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, completions=3, parallelism=1)
        for _ in range(12):
            await world.settle(5)
            for pod in world.all_pods():
                if pod["status"]["phase"] == "Succeeded":
                    await world.delete(PODS, pod["metadata"]["name"])
        await world.settle(30)
    assert len(world.created_pods()) == 3
    assert status(world)["succeeded"] == 3


async def test_suspended_it_has_no_pods_and_loses_none_of_its_tries(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, backoffLimit=0)
        await world.settle(2)
        await world.patch(JOBS, "report", spec={"suspend": True})
        await world.settle(30)
        assert world.all_pods() == []
        assert condition_status(status(world), "Suspended") == ("True", "JobSuspended")
        assert "startTime" not in status(world)
        await world.patch(JOBS, "report", spec={"suspend": False})
        await world.settle(60)
    assert condition_status(status(world), "Complete")[0] == "True"
    assert "failed" not in status(world)


async def test_a_finished_job_goes_when_its_time_is_up(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, ttlSecondsAfterFinished=100)
        await world.settle(60)
        assert world.object_names("jobs") == ["report"]
        await world.settle(100)
    assert world.object_names("jobs") == []
    assert world.all_pods() == []


async def test_pods_of_a_job_that_is_gone_are_let_go(world: ControllerCluster) -> None:
    world.kubelets.outcome = lambda _: ""
    async with world.running():
        await create(world, parallelism=2, completions=2)
        await world.settle(10)
        await world.delete(JOBS, "report", propagation="Background")
        await world.settle(30)
    assert world.all_pods() == []


@pytest.mark.parametrize("seed", range(4))
async def test_each_pod_is_counted_once_whatever_fails(clock: Clock, seed: int) -> None:
    world = ControllerCluster(clock, kinds=(JobController,), seed=seed)
    world.kubelets.job_duration = timedelta(seconds=1)
    world.kubelets.outcome = lambda pod: "Failed" if pod.spec.node_name == "n1" else "Succeeded"
    async with world.running():
        await create(world, completions=6, parallelism=3, backoffLimit=100)
        for step in range(25):
            world.transport.faults.fail_after_effect(
                response=500, method=("PATCH", "POST", "DELETE")[step % 3], skip=step % 2
            )
            world.transport.faults.break_stream(path=("pods", "jobs")[step % 2])
            await world.settle(0.5 + seed / 5)
            await world.crash()
        await world.settle(900)
    outcomes = [pod["status"]["phase"] for pod in world.all_pods()]
    told = status(world)
    assert condition_status(told, "Complete")[0] == "True"
    assert told["succeeded"] == outcomes.count("Succeeded") == 6
    assert told["failed"] == outcomes.count("Failed")
