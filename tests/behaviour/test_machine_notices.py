"""From the notice of a cloud to the replacement of the Machine; and Machines of the control plane.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import hashlib
from datetime import datetime, time, timedelta

import pytest

from haulout.api.machinemaintenance import NAMESPACE, object_name
from haulout.api.maintenancenotice import NoticeStage
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.desired_maintenance import EVENT_CODES, NoticeFilter
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from haulout.core.windows import Timetable, WeeklyWindow
from haulout_sandbox.apiserver import Write
from haulout_sandbox.openshift.machine import MachineApiDelays
from haulout_sandbox.openshift.objects import a_machine_set
from support.clusters.cluster_plan import PlanFactory
from support.platforms.machine_notices import EVENT, machine_notice_operator, report_event
from support.platforms.machinemaintenance import (
    PLURAL,
    REPLACEMENT_TIMEOUT,
    a_machinemaintenance,
    create_machinemaintenance,
    is_deletion_scheduled,
    machinemaintenance_of,
    machinemaintenance_operator,
    message,
    phase,
    wait_until_completed,
    wait_until_replaced,
    warning_reasons,
)
from support.platforms.openshift import (
    TIMEOUT,
    create_control_plane,
    create_machine_set,
    instance_of,
    machine,
    machine_api,
    machines,
    ready_machines,
    terminating_machines,
    with_openshift,
)


async def test_event_becomes_a_record_and_its_machine_is_replaced(a_cluster: PlanFactory) -> None:
    """Case 6."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        instance = instance_of(cluster, first)
        cluster.run(machine_notice_operator())
        await report_event(cluster, first)
        name = object_name(first, EVENT)
        await cluster.eventually(lambda: cluster.has(PLURAL, f"{NAMESPACE}/{name}"))
        spec = machinemaintenance_of(cluster, name)["spec"]
        assert (spec["eventcode"], spec["eventid"]) == ("instance-stop", EVENT)
        assert (spec["machineid"], spec["machinelink"]) == (instance, first)
        await wait_until_completed(cluster, name)
        assert is_deletion_scheduled(cluster, name)
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=2, within=TIMEOUT)
        assert second in machines(cluster)
        assert len(cluster.by_key(PLURAL)) == 1


async def test_event_of_an_unknown_instance_creates_no_record(a_cluster: PlanFactory) -> None:
    """Cases 7, 18: and holds up no other."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(machine_notice_operator())
        await report_event(cluster, name, event="instance-event-1", instance="i-0nobody")
        await report_event(cluster, name, event="instance-event-2")
        await cluster.eventually(lambda: len(cluster.by_key(PLURAL)), becomes=1)
        await cluster.pass_time(seconds=2)
        assert list(cluster.by_key(PLURAL)) == [f"{NAMESPACE}/mm-{name}-2"]


async def test_only_the_five_event_codes_create_records(a_cluster: PlanFactory) -> None:
    """Case 8."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        notice_filter = NoticeFilter(kinds=frozenset(), codes=frozenset(EVENT_CODES))
        cluster.run(machine_notice_operator(notice_filter, ReplacementPolicy(lead=timedelta(hours=1))))
        for number, code in enumerate((*EVENT_CODES, "instance-dance")):
            await report_event(cluster, name, code=code, event=f"instance-event-{number}")
        await cluster.eventually(lambda: len(cluster.by_key(PLURAL)), becomes=5)
        await cluster.pass_time(seconds=2)
        assert sorted(item["spec"]["eventcode"] for item in cluster.by_key(PLURAL).values()) == sorted(EVENT_CODES)


async def test_existing_record_is_not_overwritten(a_cluster: PlanFactory) -> None:
    """Case 9: the Machine Maintenance Operator has made it, under its own name."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        await create_machinemaintenance(cluster, name, eventid=EVENT, maintenancescheduled=True)
        cluster.run(machine_notice_operator())
        await report_event(cluster, name)
        await cluster.pass_time(seconds=2)
        assert list(cluster.by_key(PLURAL)) == [f"{NAMESPACE}/mm-{name}"]
        assert machinemaintenance_of(cluster, name)["spec"] == a_machinemaintenance(
            name, instance_of(cluster, name), eventid=EVENT
        )["spec"] | {"maintenancescheduled": True}


@pytest.mark.parametrize("stage", [NoticeStage.ENDED, NoticeStage.CANCELLED])
async def test_ended_event_does_not_replace_the_machine(a_cluster: PlanFactory, stage: NoticeStage) -> None:
    """Case 15."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(machine_notice_operator(replacement_policy=ReplacementPolicy(lead=timedelta(hours=1))))
        await report_event(cluster, name, event="instance-event-over", stage=stage)
        await report_event(cluster, name)
        record = object_name(name, EVENT)
        await cluster.eventually(lambda: phase(cluster, record), becomes="Planned")
        await report_event(cluster, name, stage=stage)
        await cluster.eventually(lambda: phase(cluster, record), becomes="Cancelled")
        assert len(cluster.by_key(PLURAL)) == 1
        assert terminating_machines(cluster) == []


# Only on simulated time


def deletion_times(history: list[Write]) -> dict[str, datetime]:
    """Return when the deletion of each Machine was requested."""
    found: dict[str, datetime] = {}
    for write in history:
        if write.kind.plural == "machines" and "deletionTimestamp" in (write.after or {}).get("metadata", {}):
            found.setdefault(write.key.rpartition("/")[2], write.written_at)
    return found


async def test_machine_is_deleted_in_a_window_before_the_event_starts(a_cluster: PlanFactory) -> None:
    """Cases 14, 22: also when the event is moved."""
    plan = a_cluster()
    if plan.control_plane is not None:
        pytest.skip("it takes hours")
    every_day = frozenset(range(7))
    hours = [WeeklyWindow(weekdays=every_day, start=time(hour), end=time(hour + 1)) for hour in (12, 15, 18)]
    async with with_openshift(plan).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(
            machine_notice_operator(
                replacement_policy=ReplacementPolicy(
                    lead=timedelta(minutes=150), windows=Timetable(windows=tuple(hours))
                )
            )
        )
        today = cluster.clock.now().replace(minute=0, second=0, microsecond=0)
        await report_event(cluster, name, start=today.replace(hour=14))
        record = object_name(name, EVENT)
        await cluster.eventually(lambda: phase(cluster, record), becomes="Planned")
        await report_event(cluster, name, start=today.replace(hour=17))
        await cluster.pass_time(hours=7)
        (at,) = deletion_times(list(cluster.history)).values()
        assert (at.date(), at.hour) == (today.date(), 15)


async def test_machine_without_an_instance_is_waited_for_without_delaying_others(a_cluster: PlanFactory) -> None:
    """Case 19."""
    plan = a_cluster()
    if plan.control_plane is not None:
        pytest.skip("it takes minutes")
    delays = MachineApiDelays(instance=timedelta(minutes=5), node_join=timedelta(minutes=6))
    async with with_openshift(plan).running() as cluster, machine_api(cluster, delays=delays):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        await cluster.create(a_machine_set("late", replicas=1))
        await cluster.eventually(lambda: len(machines(cluster, "late")), becomes=1)
        (late,) = machines(cluster, "late")
        instance = "i-0" + hashlib.sha256(machine(cluster, late)["metadata"]["uid"].encode()).hexdigest()[:16]
        cluster.run(machine_notice_operator())
        await cluster.create(a_machinemaintenance(late, instance))
        await report_event(cluster, late, event="instance-event-1", instance=instance)
        await report_event(cluster, name, event="instance-event-2")

        await cluster.eventually(lambda: name in terminating_machines(cluster))
        await cluster.eventually(lambda: phase(cluster, late), becomes="Refused")
        assert message(cluster, late) == f"Machine {late} has no instance yet"
        assert sorted(cluster.by_key(PLURAL)) == [
            f"{NAMESPACE}/{item}" for item in sorted((f"mm-{late}", f"mm-{name}-2"))
        ]

        await wait_until_completed(cluster, late)
        assert instance == machinemaintenance_of(cluster, object_name(late, "instance-event-1"))["spec"]["machineid"]
        assert late not in machines(cluster)


# The control plane


async def test_control_plane_machines_are_replaced_one_at_a_time(a_cluster: PlanFactory) -> None:
    """Case 16."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await create_control_plane(cluster)
        cluster.run(machinemaintenance_operator())
        for name in old:
            await create_machinemaintenance(cluster, name)
        await wait_until_replaced(cluster, old, ready_at_least=2)
        for name in old:
            await wait_until_completed(cluster, name)
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=3, within=REPLACEMENT_TIMEOUT)


async def test_control_plane_machine_is_kept_without_an_active_machine_set(a_cluster: PlanFactory) -> None:
    """Case 16: with a warning."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name, *_) = await create_control_plane(cluster)
        await cluster.patch("controlplanemachinesets", f"{MACHINE_NAMESPACE}/cluster", spec={"state": "Inactive"})
        cluster.run(machinemaintenance_operator())
        await create_machinemaintenance(cluster, name)
        await cluster.eventually(lambda: warning_reasons(cluster, name), becomes=["NoControlPlaneMachineSet"])
        assert "nothing would create a new" in message(cluster, name)
        assert terminating_machines(cluster) == []


async def test_control_plane_machine_is_kept_while_another_is_unhealthy(a_cluster: PlanFactory) -> None:
    """Case 16: with a warning; and it goes when they are well again."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second, _ = await create_control_plane(cluster)
        unready_node = str(cluster.get("machines", f"{MACHINE_NAMESPACE}/{second}")["status"]["nodeRef"]["name"])
        cluster.kubelets.set_not_ready(unready_node, "the disk is broken")
        await cluster.eventually(lambda: second not in ready_machines(cluster))
        cluster.run(machinemaintenance_operator())
        await create_machinemaintenance(cluster, first)
        await cluster.eventually(lambda: warning_reasons(cluster, first), becomes=["ControlPlaneUnhealthy"])
        assert f"{unready_node} is not Ready" in message(cluster, first)
        assert terminating_machines(cluster) == []
        cluster.kubelets.set_not_ready(unready_node, "")
        await cluster.eventually(lambda: terminating_machines(cluster), becomes=[first])
