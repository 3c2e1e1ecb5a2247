"""From the record to the end the operator is stopped at each write, and its successor brings all to the same end."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.notice import Stage as Stages
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.kube.transport import Request
from haulout.machines.timing import Terms
from haulout_sandbox.apiserver import Write
from support.clusters import a_cluster
from support.crashes import Stage, is_counted, survives_crashes
from support.live import SandboxCluster
from support.openshift import (
    BRISK,
    PATIENCE,
    claim_on,
    instance_of,
    leaving,
    machine_api,
    machines,
    openshift,
    ready,
    with_control_plane,
    with_machine_set,
)
from support.replacing import PLURAL, completed, flag, operate, order, phase
from support.telling import hear, noting

WORKERS = f"{MACHINE_NAMESPACE}/workers"
Run = Callable[[Stage], Awaitable[None]]
Counts = Callable[[Request], bool]


def ends(history: Sequence[Write]) -> Any:
    """Return which Machines were told to go, how records ended, and how many Machines the sets want."""
    gone, told, wanted = set(), {}, {}
    for write in history:
        if write.kind.plural == "machines" and "deletionTimestamp" in (write.after or {}).get("metadata", {}):
            gone.add(write.key)
        if write.kind.plural == PLURAL and write.after is not None:
            told[write.key] = write.after.get("status", {}).get("phase"), write.after["spec"]["maintenancescheduled"]
        if write.kind.plural == "machinesets" and write.after is not None:
            wanted[write.key] = write.after["spec"]["replicas"], write.after["metadata"].get("annotations")
    return gone, told, wanted


async def settled(cluster: SandboxCluster, count: int) -> None:
    await cluster.eventually(lambda: len(ready(cluster)), becomes=count, within=PATIENCE)
    await cluster.eventually(lambda: len(machines(cluster)), becomes=count, within=PATIENCE)
    await cluster.eventually(lambda: claim_on(cluster, "workers"), becomes="")
    assert cluster.get("machinesets", WORKERS)["spec"]["replicas"] == count


async def one_after_the_other(stage: Stage) -> None:
    """Replace both Machines of a set."""
    async with openshift(a_cluster(stage.clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        stage.begin(cluster.cluster)
        for name in old:
            await order(cluster, name)
        for name in old:
            await completed(cluster, name)
            assert flag(cluster, name)
        await settled(cluster, 2)


async def one(stage: Stage) -> None:
    """Replace one Machine."""
    async with openshift(a_cluster(stage.clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        stage.begin(cluster.cluster)
        await order(cluster, old[0])
        await completed(cluster, old[0])
        assert flag(cluster, old[0])
        await settled(cluster, 2)
        assert old[1] in machines(cluster)


async def called_off(stage: Stage) -> None:
    """Call a surge off before the new node is there."""
    async with openshift(a_cluster(stage.clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        stage.begin(cluster.cluster)
        await order(cluster, old[0])
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Surging")
        change = {"description": "[Canceled] degraded hardware"}
        await cluster.change(PLURAL, f"{NAMESPACE}/mm-{old[0]}", spec=change)
        await cluster.eventually(lambda: phase(cluster, old[0]), becomes="Cancelled")
        await settled(cluster, 2)
        assert machines(cluster) == sorted(old)
        assert leaving(cluster) == []


async def of_the_control_plane(stage: Stage) -> None:
    """Replace two Machines of the control plane."""
    async with openshift(a_cluster(stage.clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_control_plane(cluster)
        stage.begin(cluster.cluster)
        for name in old[:2]:
            await order(cluster, name)
        for name in old[:2]:
            await completed(cluster, name)
            assert flag(cluster, name)
        await cluster.eventually(lambda: len(ready(cluster)), becomes=3, within=PATIENCE)
        assert old[2] in machines(cluster)


async def heard_of(stage: Stage) -> None:
    """Hear of two events of one instance, of which one is called off."""
    async with openshift(a_cluster(stage.clock)).on_the_sandbox() as cluster, machine_api(cluster, paces=BRISK):
        old = await with_machine_set(cluster, "workers", replicas=2)
        instance = instance_of(cluster, old[0])
        stage.begin(cluster.cluster)
        soon = stage.clock.now() + timedelta(minutes=6)
        await hear(cluster, old[0], event="1", start=soon)
        await hear(cluster, old[0], event="2", start=soon)
        await cluster.eventually(lambda: len(cluster.all(PLURAL)), becomes=2)
        await hear(cluster, old[0], event="2", instance=instance, stage=Stages.CANCELLED)
        await cluster.eventually(lambda: phase(cluster, f"{old[0]}-2"), becomes="Cancelled")
        await hear(cluster, old[0], event="1", instance=instance, start=soon - timedelta(minutes=2))
        await completed(cluster, f"{old[0]}-1")
        await settled(cluster, 2)
        assert old[1] in machines(cluster)


def on(*parts: str) -> Counts:
    """Count writes to these, but not what they tell, where the others are those of another story."""

    def counts(request: Request) -> bool:
        is_told = request.path.endswith("/status")
        return is_counted(request) and not is_told and any(it in request.path for it in parts)

    return counts


STORIES: dict[str, tuple[Run, Terms, Counts, int]] = {
    "one": (one, Terms(), is_counted, 7),
    "one after the other": (one_after_the_other, Terms(), on("/machinesets"), 5),
    "with a surge": (one, Terms(surge=True), is_counted, 11),
    "a surge called off": (called_off, Terms(surge=True), is_counted, 5),
    "of the control plane": (of_the_control_plane, Terms(), on("/controlplanemachinesets", "/machines/"), 7),
    "heard of": (heard_of, Terms(lead=timedelta(minutes=2)), on("/machinemaintenances", "/v1/namespaces"), 8),
}


@pytest.mark.parametrize("story", STORIES)
def test_replacing_survives_a_crash_at_any_write(story: str) -> None:
    run, terms, counts, writes = STORIES[story]
    found = survives_crashes(run, operator=noting(terms=terms), compare=ends, counts=counts, inward=story != "one")
    assert found >= writes


def test_who_comes_back_when_the_machine_is_gone_knows_that_it_was_told_to_go() -> None:
    found = survives_crashes(one, operator=operate, compare=ends, down_for=timedelta(minutes=1), inward=True)
    assert found >= 6
