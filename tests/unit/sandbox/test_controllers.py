"""What all controllers promise together: no idle work, runs that repeat themselves, and no memory that matters."""

from datetime import timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.controllers.objects import BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, STATEFUL_SETS
from haulout_sandbox.event_loops.virtual import VirtualClock, run_virtual
from support.builders import SHOP, a_budget, a_job, a_node, a_template, a_workload
from support.workloads import World

RESTART = {"template": {"metadata": {"annotations": {"restarted": "now"}}}}


async def begin(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        world.cluster.put(a_node(name))
    world.kubelets.outcome = lambda pod: "Succeeded" if "job-name" in pod.labels else ""
    world.kubelets.start = world.kubelets.stop = world.kubelets.lasting = timedelta(milliseconds=300)
    bodies: list[tuple[Any, dict[str, Any]]] = [
        (DEPLOYMENTS, a_workload("Deployment", "cart", replicas=2)),
        (STATEFUL_SETS, a_workload("StatefulSet", "db", replicas=2)),
        (DAEMON_SETS, a_workload("DaemonSet", "logs")),
        (JOBS, a_job("report", completions=2, parallelism=1)),
        (BUDGETS, a_budget("cart", app="cart", maxUnavailable=1)),
        (BUDGETS, a_budget("db", app="db", minAvailable="50%")),
    ]
    for resource, body in bodies:
        await world.client.create(resource, body, namespace=SHOP)


async def go_on(world: World) -> None:
    await world.change(DEPLOYMENTS, "cart", spec={"replicas": 3, **RESTART})
    await world.change(STATEFUL_SETS, "db", spec=RESTART)
    await world.change(DAEMON_SETS, "logs", spec={"template": a_template({"app": "logs"}, image="example/main:2")})


def outcome(world: World) -> dict[str, Any]:
    """Return what does not depend on when things happened, and on who made them."""
    told: dict[str, Any] = {}
    for plural in ("deployments", "statefulsets", "daemonsets", "jobs", "poddisruptionbudgets"):
        for thing in world.cluster.objects(plural, namespace=SHOP):
            told[f"{plural} {thing['metadata']['name']}"] = _timeless(thing["status"])
    told["pods"] = sorted(
        f"{pod['metadata']['name'].split('-')[0]} {pod['status']['phase']}" for pod in world.all_pods()
    )
    told["sets"] = sorted(it["spec"]["replicas"] for it in world.cluster.objects("replicasets", namespace=SHOP))
    told["revisions"] = sorted(world.names("controllerrevisions"))
    return told


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if not name.endswith("Time")}
    if isinstance(value, list):
        return sorted((_timeless(item) for item in value), key=str)
    return value


def writes(world: World) -> int:
    return sum(write.who == "controllers" for write in world.cluster.history)


async def test_a_crash_after_any_write_changes_nothing_in_the_end(clock: Clock) -> None:
    async def story(*, crash_after: int) -> tuple[dict[str, Any], int]:
        world = World(clock)
        async with world.running():
            await begin(world)
            going_on = False
            for _ in range(20_000):
                if crash_after and writes(world) >= crash_after:
                    await world.crash()
                    break
                if not going_on and writes(world) >= 35:
                    going_on = True
                    await go_on(world)
                await world.settle(0.005)
                if not crash_after and going_on:
                    break
            if not going_on:
                await world.settle(20)
                await go_on(world)
            await world.settle(60)
        return outcome(world), writes(world)

    undisturbed, total = await story(crash_after=0)
    assert undisturbed["deployments cart"]["availableReplicas"] == 3
    for number in range(1, total, 5):
        assert (number, (await story(crash_after=number))[0]) == (number, undisturbed)


async def test_hours_in_which_nothing_happens_cost_nothing(clock: Clock) -> None:
    world = World(clock)
    async with world.running():
        await begin(world)
        await world.settle(700)
        revision = world.cluster.revision
        runs = [controller.queue.stats() for controller in world.controllers.controllers]
        await world.settle(4 * 3600)
        assert [controller.queue.stats() for controller in world.controllers.controllers] == runs
    assert world.cluster.revision == revision


def test_the_same_seed_gives_the_same_history() -> None:
    async def story() -> list[bytes]:
        world = World(VirtualClock())
        async with world.running():
            await begin(world)
            await world.settle(10)
            await go_on(world)
            await world.settle(60)
        return [
            msgspec.json.encode((write.revision, write.at, write.who, write.verb, write.key, write.after))
            for write in world.cluster.history
        ]

    assert run_virtual(story()) == run_virtual(story())
