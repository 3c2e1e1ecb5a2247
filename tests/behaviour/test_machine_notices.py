"""From what a cloud says to the end of the Machine; and Machines of the control plane.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import hashlib
from datetime import datetime, time, timedelta

import pytest

from haulout.core.windows import Timetable, Weekly
from haulout.kinds.machinemaintenance import NAMESPACE, name_of
from haulout.kinds.notice import Stage
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.machines.records import CODES, LIKE_MMO
from haulout.machines.timing import Terms
from haulout_sandbox.apiserver import Write
from haulout_sandbox.openshift import Paces, a_machine_set
from support.clusters import Plans
from support.openshift import (
    PATIENCE,
    instance_of,
    leaving,
    machine,
    machine_api,
    machines,
    openshift,
    ready,
    with_control_plane,
    with_machine_set,
)
from support.replacing import (
    LONG,
    PLURAL,
    a_record,
    all_gone,
    completed,
    flag,
    message,
    operating,
    order,
    phase,
    record,
    warnings,
)
from support.telling import EVENT, hear, noting


async def test_an_event_becomes_a_record_and_its_machine_is_replaced(a_cluster: Plans) -> None:
    """Case 6."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await with_machine_set(cluster, "workers", replicas=2)
        instance = instance_of(cluster, first)
        cluster.run(noting())
        await hear(cluster, first)
        name = name_of(first, EVENT)
        await cluster.eventually(lambda: cluster.has(PLURAL, f"{NAMESPACE}/{name}"))
        spec = record(cluster, name)["spec"]
        assert (spec["eventcode"], spec["eventid"]) == ("instance-stop", EVENT)
        assert (spec["machineid"], spec["machinelink"]) == (instance, first)
        await completed(cluster, name)
        assert flag(cluster, name)
        await cluster.eventually(lambda: len(ready(cluster)), becomes=2, within=PATIENCE)
        assert second in machines(cluster)
        assert len(cluster.all(PLURAL)) == 1


async def test_an_event_of_nobody_makes_no_record(a_cluster: Plans) -> None:
    """Cases 7, 18: and holds up no other."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(noting())
        await hear(cluster, name, event="instance-event-1", instance="i-0nobody")
        await hear(cluster, name, event="instance-event-2")
        await cluster.eventually(lambda: len(cluster.all(PLURAL)), becomes=1)
        await cluster.pass_time(seconds=2)
        assert list(cluster.all(PLURAL)) == [f"{NAMESPACE}/mm-{name}-2"]


async def test_each_of_the_five_codes_makes_a_record_and_no_other(a_cluster: Plans) -> None:
    """Case 8."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(noting(LIKE_MMO, Terms(lead=timedelta(hours=1))))
        for number, code in enumerate((*CODES, "instance-dance")):
            await hear(cluster, name, code=code, event=f"instance-event-{number}")
        await cluster.eventually(lambda: len(cluster.all(PLURAL)), becomes=5)
        await cluster.pass_time(seconds=2)
        assert sorted(it["spec"]["eventcode"] for it in cluster.all(PLURAL).values()) == sorted(CODES)


async def test_a_record_that_is_there_is_not_written_over(a_cluster: Plans) -> None:
    """Case 9: the Machine Maintenance Operator has made it, under its own name."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        await order(cluster, name, eventid=EVENT, maintenancescheduled=True)
        cluster.run(noting())
        await hear(cluster, name)
        await cluster.pass_time(seconds=2)
        assert list(cluster.all(PLURAL)) == [f"{NAMESPACE}/mm-{name}"]
        assert record(cluster, name)["spec"] == a_record(name, instance_of(cluster, name), eventid=EVENT)["spec"] | {
            "maintenancescheduled": True
        }


@pytest.mark.parametrize("stage", [Stage.ENDED, Stage.CANCELLED])
async def test_an_event_that_is_over_leaves_the_machine_alone(a_cluster: Plans, stage: Stage) -> None:
    """Case 15."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(noting(terms=Terms(lead=timedelta(hours=1))))
        await hear(cluster, name, event="instance-event-over", stage=stage)
        await hear(cluster, name)
        told = name_of(name, EVENT)
        await cluster.eventually(lambda: phase(cluster, told), becomes="Planned")
        await hear(cluster, name, stage=stage)
        await cluster.eventually(lambda: phase(cluster, told), becomes="Cancelled")
        assert len(cluster.all(PLURAL)) == 1
        assert leaving(cluster) == []


# Only on simulated time


def deletions(history: list[Write]) -> dict[str, datetime]:
    """Return when each Machine was told to go."""
    found: dict[str, datetime] = {}
    for write in history:
        if write.kind.plural == "machines" and "deletionTimestamp" in (write.after or {}).get("metadata", {}):
            found.setdefault(write.key.rpartition("/")[2], write.at)
    return found


async def test_a_machine_goes_in_the_window_and_before_the_cloud_begins(a_cluster: Plans) -> None:
    """Cases 14, 22: also when the event is moved."""
    plan = a_cluster()
    if plan.control_plane is not None:
        pytest.skip("it takes hours")
    every_day = frozenset(range(7))
    hours = [Weekly(weekdays=every_day, start=time(hour), end=time(hour + 1)) for hour in (12, 15, 18)]
    async with openshift(plan).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(noting(terms=Terms(lead=timedelta(minutes=150), windows=Timetable(windows=tuple(hours)))))
        today = cluster.clock.now().replace(minute=0, second=0, microsecond=0)
        await hear(cluster, name, start=today.replace(hour=14))
        told = name_of(name, EVENT)
        await cluster.eventually(lambda: phase(cluster, told), becomes="Planned")
        await hear(cluster, name, start=today.replace(hour=17))
        await cluster.pass_time(hours=7)
        (at,) = deletions(list(cluster.history)).values()
        assert (at.date(), at.hour) == (today.date(), 15)


async def test_a_machine_without_an_instance_is_waited_for_and_holds_up_no_other(a_cluster: Plans) -> None:
    """Case 19."""
    plan = a_cluster()
    if plan.control_plane is not None:
        pytest.skip("it takes minutes")
    paces = Paces(instance=timedelta(minutes=5), node=timedelta(minutes=6))
    async with openshift(plan).running() as cluster, machine_api(cluster, paces=paces):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        await cluster.create(a_machine_set("late", replicas=1))
        await cluster.eventually(lambda: len(machines(cluster, "late")), becomes=1)
        (late,) = machines(cluster, "late")
        instance = "i-0" + hashlib.sha256(machine(cluster, late)["metadata"]["uid"].encode()).hexdigest()[:16]
        cluster.run(noting())
        await cluster.create(a_record(late, instance))
        await hear(cluster, late, event="instance-event-1", instance=instance)
        await hear(cluster, name, event="instance-event-2")

        await cluster.eventually(lambda: name in leaving(cluster))
        await cluster.eventually(lambda: phase(cluster, late), becomes="Refused")
        assert message(cluster, late) == f"Machine {late} has no instance yet"
        assert sorted(cluster.all(PLURAL)) == [f"{NAMESPACE}/{it}" for it in sorted((f"mm-{late}", f"mm-{name}-2"))]

        await completed(cluster, late)
        assert instance == record(cluster, name_of(late, "instance-event-1"))["spec"]["machineid"]
        assert late not in machines(cluster)


# The control plane


async def test_of_the_control_plane_one_goes_at_a_time(a_cluster: Plans) -> None:
    """Case 16."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await with_control_plane(cluster)
        cluster.run(operating())
        for name in old:
            await order(cluster, name)
        await all_gone(cluster, old, ready_at_least=2)
        for name in old:
            await completed(cluster, name)
        await cluster.eventually(lambda: len(ready(cluster)), becomes=3, within=LONG)


async def test_without_anybody_who_makes_another_the_control_plane_is_left_alone(a_cluster: Plans) -> None:
    """Case 16: with a warning."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name, *_) = await with_control_plane(cluster)
        await cluster.change("controlplanemachinesets", f"{MACHINE_NAMESPACE}/cluster", spec={"state": "Inactive"})
        cluster.run(operating())
        await order(cluster, name)
        await cluster.eventually(lambda: warnings(cluster, name), becomes=["NoControlPlaneMachineSet"])
        assert "nobody would make another" in message(cluster, name)
        assert leaving(cluster) == []


async def test_while_a_node_of_the_control_plane_is_not_well_none_goes(a_cluster: Plans) -> None:
    """Case 16: with a warning; and it goes when they are well again."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second, _ = await with_control_plane(cluster)
        sick = str(cluster.get("machines", f"{MACHINE_NAMESPACE}/{second}")["status"]["nodeRef"]["name"])
        cluster.kubelets.ail(sick, "the disk is broken")
        await cluster.eventually(lambda: second not in ready(cluster))
        cluster.run(operating())
        await order(cluster, first)
        await cluster.eventually(lambda: warnings(cluster, first), becomes=["ControlPlaneUnhealthy"])
        assert f"{sick} is not Ready" in message(cluster, first)
        assert leaving(cluster) == []
        cluster.kubelets.ail(sick, "")
        await cluster.eventually(lambda: leaving(cluster), becomes=[first])
