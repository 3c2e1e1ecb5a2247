"""Machines are replaced as users of the Machine Maintenance Operator know it, and one at a time.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

from datetime import timedelta

import pytest

from haulout.api.machinemaintenance import NAMESPACE
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.controllers.machines.replacement_time import ReplacementPolicy
from support.clusters.cluster_plan import PlanFactory
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
    run_operator,
    wait_until_completed,
    wait_until_replaced,
    warning_reasons,
)
from support.platforms.openshift import (
    TIMEOUT,
    claimed_machine,
    create_machine_set,
    instance_of,
    machine,
    machine_api,
    machines,
    ready_machines,
    terminating_machines,
    with_openshift,
)


async def test_record_has_its_machine_replaced(a_cluster: PlanFactory) -> None:
    """Case 1; and the record says when it is over."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, first)
        await cluster.eventually(lambda: is_deletion_scheduled(cluster, first))
        assert terminating_machines(cluster) == [first]
        await wait_until_completed(cluster, first)
        assert first not in machines(cluster)
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=2, within=TIMEOUT)
        assert second in ready_machines(cluster)
        await cluster.eventually(lambda: claimed_machine(cluster, "workers"), becomes="")


async def test_record_that_is_already_scheduled_is_ignored(a_cluster: PlanFactory) -> None:
    """Case 2."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, name, maintenancescheduled=True)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Cancelled")
        await cluster.pass_time(seconds=3)
        assert terminating_machines(cluster) == []


async def test_record_without_its_machine_is_refused_and_not_rewritten(a_cluster: PlanFactory) -> None:
    """Case 3."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        cluster.run(run_operator)
        await cluster.create(a_machinemaintenance("gone", "i-0abc"))
        await cluster.eventually(lambda: phase(cluster, "gone"), becomes="Refused")
        assert message(cluster, "gone") == "there is no Machine gone"
        resource_version = machinemaintenance_of(cluster, "gone")["metadata"]["resourceVersion"]
        await cluster.pass_time(seconds=3)
        assert machinemaintenance_of(cluster, "gone")["metadata"]["resourceVersion"] == resource_version


async def test_deleted_record_is_not_recreated(a_cluster: PlanFactory) -> None:
    """Case 5."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        cluster.run(run_operator)
        await cluster.create(a_machinemaintenance("gone", "i-0abc"))
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-gone")
        await cluster.pass_time(seconds=2)
        assert not cluster.by_key(PLURAL)


async def test_record_of_another_instance_with_the_same_machine_name_is_refused(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(run_operator)
        await cluster.create(a_machinemaintenance(name, "i-0another"))
        await cluster.eventually(lambda: phase(cluster, name), becomes="Refused")
        assert "machineid is i-0another" in message(cluster, name)
        assert terminating_machines(cluster) == []
        await cluster.eventually(lambda: warning_reasons(cluster, name), becomes=["InstanceMismatch"])


async def test_machine_without_an_owner_is_not_replaced(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        await cluster.patch("machines", f"{MACHINE_NAMESPACE}/{name}", metadata={"ownerReferences": None})
        await cluster.eventually(lambda: "ownerReferences" not in machine(cluster, name)["metadata"])
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, name)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Refused")
        assert "nothing would create a new one" in message(cluster, name)
        assert name not in terminating_machines(cluster)


async def test_records_in_other_namespaces_are_ignored(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, name, namespace="anybody")
        await cluster.pass_time(seconds=3)
        assert terminating_machines(cluster) == []
        assert machinemaintenance_of(cluster, name, namespace="anybody").get("status", {}).keys() <= {
            "observedGeneration"
        }


async def test_empty_namespace_setting_watches_all_namespaces(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(machinemaintenance_operator(namespace=""))
        await create_machinemaintenance(cluster, name, namespace="anybody")
        await cluster.eventually(lambda: name in terminating_machines(cluster))


async def test_machines_of_a_set_are_replaced_one_at_a_time(a_cluster: PlanFactory) -> None:
    """Case 17: the next goes when the node of the one before is Ready."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await create_machine_set(cluster, "workers", replicas=3)
        cluster.run(run_operator)
        for name in old:
            await create_machinemaintenance(cluster, name)
        await wait_until_replaced(cluster, old, ready_at_least=2)
        for name in old:
            await wait_until_completed(cluster, name)


@pytest.mark.parametrize("word", ["[Completed]", "[Canceled]"])
async def test_completed_or_cancelled_event_closes_its_record(a_cluster: PlanFactory, word: str) -> None:
    """Case 15."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        later = (cluster.clock.now() + timedelta(days=3)).isoformat()
        cluster.run(machinemaintenance_operator(ReplacementPolicy(lead=timedelta(hours=1))))
        await create_machinemaintenance(cluster, name, notbefore=later)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Planned")
        await cluster.patch(PLURAL, f"{NAMESPACE}/mm-{name}", spec={"description": f"{word} degraded hardware"})
        await cluster.eventually(lambda: phase(cluster, name), becomes="Cancelled")
        assert terminating_machines(cluster) == []


async def test_two_events_of_one_instance_replace_it_once(a_cluster: PlanFactory) -> None:
    """Case 20."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await create_machine_set(cluster, "workers", replicas=2)
        name, instance = old[0], instance_of(cluster, old[0])
        cluster.run(run_operator)
        for event in ("one", "two"):
            await cluster.create(a_machinemaintenance(name, instance, name=f"mm-{name}-{event}", eventid=event))
        for event in ("one", "two"):
            await wait_until_completed(cluster, f"{name}-{event}")
            assert is_deletion_scheduled(cluster, f"{name}-{event}")
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=2, within=TIMEOUT)
        assert old[1] in machines(cluster)
        assert len(machines(cluster)) == 2


async def test_new_event_after_a_completed_one_is_processed(a_cluster: PlanFactory) -> None:
    """Case 21: the old record has the old name, and stays."""
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(run_operator)
        await create_machinemaintenance(cluster, name, maintenancescheduled=True, eventid="old")
        await cluster.create(
            a_machinemaintenance(name, instance_of(cluster, name), name=f"mm-{name}-new", eventid="new")
        )
        await wait_until_completed(cluster, f"{name}-new")


async def test_surge_makes_another_machine_ready_first(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(machinemaintenance_operator(ReplacementPolicy(surge=True)))
        await create_machinemaintenance(cluster, old[0])
        await cluster.eventually(lambda: len(machines(cluster)), becomes=3)
        assert phase(cluster, old[0]) in ("", "Surging")
        await wait_until_replaced(cluster, old[:1], ready_at_least=2)
        await wait_until_completed(cluster, old[0])
        assert cluster.get("machinesets", f"{MACHINE_NAMESPACE}/workers")["spec"]["replicas"] == 2
        await cluster.eventually(lambda: len(machines(cluster)), becomes=2)
        assert old[1] in ready_machines(cluster)


async def test_cancelled_surge_is_scaled_down(a_cluster: PlanFactory) -> None:
    async with with_openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await create_machine_set(cluster, "workers", replicas=2)
        cluster.run(machinemaintenance_operator(ReplacementPolicy(surge=True)))
        await create_machinemaintenance(cluster, old[0])
        await cluster.eventually(lambda: len(machines(cluster)), becomes=3)
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-{old[0]}")
        owner = f"{MACHINE_NAMESPACE}/workers"
        await cluster.eventually(lambda: cluster.get("machinesets", owner)["spec"]["replicas"], becomes=2)
        await cluster.eventually(lambda: machines(cluster), becomes=sorted(old), within=REPLACEMENT_TIMEOUT)
        assert claimed_machine(cluster, "workers") == ""
