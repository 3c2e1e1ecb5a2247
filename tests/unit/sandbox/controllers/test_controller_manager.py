"""What all controllers promise together: no idle work, runs that repeat themselves, and no memory that matters."""

from datetime import timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.controllers.objects import DAEMON_SETS, DEPLOYMENTS, JOBS, POD_DISRUPTION_BUDGETS, STATEFUL_SETS
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from support.builders.objects import SHOP, a_job, a_node, a_pdb, a_template, a_workload
from support.clusters.controller_cluster import ControllerCluster

RESTART = {"template": {"metadata": {"annotations": {"restarted": "now"}}}}


async def create_objects(world: ControllerCluster) -> None:
    for name in ("n1", "n2", "n3"):
        world.cluster.put(a_node(name))
    world.kubelets.outcome = lambda pod: "Succeeded" if "job-name" in pod.labels else ""
    world.kubelets.start = world.kubelets.stop = world.kubelets.job_duration = timedelta(milliseconds=300)
    bodies: list[tuple[Any, dict[str, Any]]] = [
        (DEPLOYMENTS, a_workload("Deployment", "cart", replicas=2)),
        (STATEFUL_SETS, a_workload("StatefulSet", "db", replicas=2)),
        (DAEMON_SETS, a_workload("DaemonSet", "logs")),
        (JOBS, a_job("report", completions=2, parallelism=1)),
        (POD_DISRUPTION_BUDGETS, a_pdb("cart", app="cart", maxUnavailable=1)),
        (POD_DISRUPTION_BUDGETS, a_pdb("db", app="db", minAvailable="50%")),
    ]
    for resource, body in bodies:
        await world.client.create(resource, body, namespace=SHOP)


async def change_objects(world: ControllerCluster) -> None:
    await world.patch(DEPLOYMENTS, "cart", spec={"replicas": 3, **RESTART})
    await world.patch(STATEFUL_SETS, "db", spec=RESTART)
    await world.patch(DAEMON_SETS, "logs", spec={"template": a_template({"app": "logs"}, image="example/main:2")})


def snapshot(world: ControllerCluster) -> dict[str, Any]:
    """Return what does not depend on when things happened, and on who made them."""
    objects: dict[str, Any] = {}
    for plural in ("deployments", "statefulsets", "daemonsets", "jobs", "poddisruptionbudgets"):
        for obj in world.cluster.objects(plural, namespace=SHOP):
            objects[f"{plural} {obj['metadata']['name']}"] = _without_times(obj["status"])
    objects["pods"] = sorted(
        f"{pod['metadata']['name'].split('-')[0]} {pod['status']['phase']}" for pod in world.all_pods()
    )
    objects["sets"] = sorted(
        replicaset["spec"]["replicas"] for replicaset in world.cluster.objects("replicasets", namespace=SHOP)
    )
    objects["revisions"] = sorted(world.object_names("controllerrevisions"))
    return objects


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if not name.endswith("Time")}
    if isinstance(value, list):
        return sorted((_without_times(item) for item in value), key=str)
    return value


def writes(world: ControllerCluster) -> int:
    return sum(write.username == "controllers" for write in world.cluster.history)


async def test_a_crash_after_any_write_changes_nothing_in_the_end(clock: Clock) -> None:
    async def story(*, crash_after: int) -> tuple[dict[str, Any], int]:
        world = ControllerCluster(clock)
        async with world.running():
            await create_objects(world)
            going_on = False
            for _ in range(20_000):
                if crash_after and writes(world) >= crash_after:
                    await world.crash()
                    break
                if not going_on and writes(world) >= 35:
                    going_on = True
                    await change_objects(world)
                await world.settle(0.005)
                if not crash_after and going_on:
                    break
            if not going_on:
                await world.settle(20)
                await change_objects(world)
            await world.settle(60)
        return snapshot(world), writes(world)

    expected, total = await story(crash_after=0)
    assert expected["deployments cart"]["availableReplicas"] == 3
    for number in range(1, total, 5):
        assert (number, (await story(crash_after=number))[0]) == (number, expected)


async def test_hours_in_which_nothing_happens_cost_nothing(clock: Clock) -> None:
    world = ControllerCluster(clock)
    async with world.running():
        await create_objects(world)
        await world.settle(700)
        revision = world.cluster.revision
        runs = [controller.queue.stats() for controller in world.controllers.controllers]
        await world.settle(4 * 3600)
        assert [controller.queue.stats() for controller in world.controllers.controllers] == runs
    assert world.cluster.revision == revision


def test_the_same_seed_gives_the_same_history() -> None:
    async def story() -> list[bytes]:
        world = ControllerCluster(VirtualClock())
        async with world.running():
            await create_objects(world)
            await world.settle(10)
            await change_objects(world)
            await world.settle(60)
        return [
            msgspec.json.encode((write.revision, write.written_at, write.username, write.verb, write.key, write.after))
            for write in world.cluster.history
        ]

    assert run_virtual(story()) == run_virtual(story())
