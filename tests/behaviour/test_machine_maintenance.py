"""Machines are replaced as users of the Machine Maintenance Operator know it, and one at a time.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

from datetime import timedelta

import pytest

from haulout.kinds.machinemaintenance import NAMESPACE
from haulout.kinds.openshift import MACHINE_NAMESPACE
from haulout.machines.timing import Terms
from support.clusters import Plans
from support.openshift import (
    PATIENCE,
    claim_on,
    instance_of,
    leaving,
    machine,
    machine_api,
    machines,
    openshift,
    ready,
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
    operate,
    operating,
    order,
    phase,
    record,
    warnings,
)


async def test_a_record_has_its_machine_replaced(a_cluster: Plans) -> None:
    """Case 1; and the record says when it is over."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        first, second = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operate)
        await order(cluster, first)
        await cluster.eventually(lambda: flag(cluster, first))
        assert leaving(cluster) == [first]
        await completed(cluster, first)
        assert first not in machines(cluster)
        await cluster.eventually(lambda: len(ready(cluster)), becomes=2, within=PATIENCE)
        assert second in ready(cluster)
        await cluster.eventually(lambda: claim_on(cluster, "workers"), becomes="")


async def test_a_record_whose_flag_is_true_does_nothing(a_cluster: Plans) -> None:
    """Case 2."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operate)
        await order(cluster, name, maintenancescheduled=True)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Cancelled")
        await cluster.pass_time(seconds=3)
        assert leaving(cluster) == []


async def test_a_record_without_its_machine_says_so_and_stays_quiet(a_cluster: Plans) -> None:
    """Case 3."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        cluster.run(operate)
        await cluster.create(a_record("gone", "i-0abc"))
        await cluster.eventually(lambda: phase(cluster, "gone"), becomes="Refused")
        assert message(cluster, "gone") == "there is no Machine gone"
        told = record(cluster, "gone")["metadata"]["resourceVersion"]
        await cluster.pass_time(seconds=3)
        assert record(cluster, "gone")["metadata"]["resourceVersion"] == told


async def test_a_record_that_is_deleted_is_forgotten(a_cluster: Plans) -> None:
    """Case 5."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        cluster.run(operate)
        await cluster.create(a_record("gone", "i-0abc"))
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-gone")
        await cluster.pass_time(seconds=2)
        assert not cluster.all(PLURAL)


async def test_another_instance_of_the_same_name_is_left_alone(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operate)
        await cluster.create(a_record(name, "i-0another"))
        await cluster.eventually(lambda: phase(cluster, name), becomes="Refused")
        assert "machineid says i-0another" in message(cluster, name)
        assert leaving(cluster) == []
        await cluster.eventually(lambda: warnings(cluster, name), becomes=["OtherInstance"])


async def test_a_machine_that_nobody_would_make_again_is_left_alone(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        await cluster.change("machines", f"{MACHINE_NAMESPACE}/{name}", metadata={"ownerReferences": None})
        await cluster.eventually(lambda: "ownerReferences" not in machine(cluster, name)["metadata"])
        cluster.run(operate)
        await order(cluster, name)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Refused")
        assert "nobody would make another one" in message(cluster, name)
        assert name not in leaving(cluster)


async def test_records_elsewhere_are_not_looked_at(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operate)
        await order(cluster, name, namespace="anybody")
        await cluster.pass_time(seconds=3)
        assert leaving(cluster) == []
        assert record(cluster, name, namespace="anybody").get("status", {}).keys() <= {"observedGeneration"}


async def test_all_namespaces_can_be_asked_for(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operating(namespace=""))
        await order(cluster, name, namespace="anybody")
        await cluster.eventually(lambda: name in leaving(cluster))


async def test_machines_of_a_set_are_replaced_one_after_the_other(a_cluster: Plans) -> None:
    """Case 17: the next goes when the node of the one before is Ready."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await with_machine_set(cluster, "workers", replicas=3)
        cluster.run(operate)
        for name in old:
            await order(cluster, name)
        await all_gone(cluster, old, ready_at_least=2)
        for name in old:
            await completed(cluster, name)


@pytest.mark.parametrize("word", ["[Completed]", "[Canceled]"])
async def test_an_event_that_is_over_closes_its_record(a_cluster: Plans, word: str) -> None:
    """Case 15."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        later = (cluster.clock.now() + timedelta(days=3)).isoformat()
        cluster.run(operating(Terms(lead=timedelta(hours=1))))
        await order(cluster, name, notbefore=later)
        await cluster.eventually(lambda: phase(cluster, name), becomes="Planned")
        await cluster.change(PLURAL, f"{NAMESPACE}/mm-{name}", spec={"description": f"{word} degraded hardware"})
        await cluster.eventually(lambda: phase(cluster, name), becomes="Cancelled")
        assert leaving(cluster) == []


async def test_two_events_of_one_instance_have_it_replaced_once(a_cluster: Plans) -> None:
    """Case 20."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await with_machine_set(cluster, "workers", replicas=2)
        name, instance = old[0], instance_of(cluster, old[0])
        cluster.run(operate)
        for event in ("one", "two"):
            await cluster.create(a_record(name, instance, name=f"mm-{name}-{event}", eventid=event))
        for event in ("one", "two"):
            await completed(cluster, f"{name}-{event}")
            assert flag(cluster, f"{name}-{event}")
        await cluster.eventually(lambda: len(ready(cluster)), becomes=2, within=PATIENCE)
        assert old[1] in machines(cluster)
        assert len(machines(cluster)) == 2


async def test_a_new_event_after_one_that_is_over_is_seen_to(a_cluster: Plans) -> None:
    """Case 21: the old record has the old name, and stays."""
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        (name,) = await with_machine_set(cluster, "workers", replicas=1)
        cluster.run(operate)
        await order(cluster, name, maintenancescheduled=True, eventid="old")
        await cluster.create(a_record(name, instance_of(cluster, name), name=f"mm-{name}-new", eventid="new"))
        await completed(cluster, f"{name}-new")


async def test_with_a_surge_another_machine_is_ready_first(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operating(Terms(surge=True)))
        await order(cluster, old[0])
        await cluster.eventually(lambda: len(machines(cluster)), becomes=3)
        assert phase(cluster, old[0]) in ("", "Surging")
        await all_gone(cluster, old[:1], ready_at_least=2)
        await completed(cluster, old[0])
        assert cluster.get("machinesets", f"{MACHINE_NAMESPACE}/workers")["spec"]["replicas"] == 2
        await cluster.eventually(lambda: len(machines(cluster)), becomes=2)
        assert old[1] in ready(cluster)


async def test_a_surge_that_is_called_off_is_taken_back(a_cluster: Plans) -> None:
    async with openshift(a_cluster()).running() as cluster, machine_api(cluster):
        old = await with_machine_set(cluster, "workers", replicas=2)
        cluster.run(operating(Terms(surge=True)))
        await order(cluster, old[0])
        await cluster.eventually(lambda: len(machines(cluster)), becomes=3)
        await cluster.delete(PLURAL, f"{NAMESPACE}/mm-{old[0]}")
        owner = f"{MACHINE_NAMESPACE}/workers"
        await cluster.eventually(lambda: cluster.get("machinesets", owner)["spec"]["replicas"], becomes=2)
        await cluster.eventually(lambda: machines(cluster), becomes=sorted(old), within=LONG)
        assert claim_on(cluster, "workers") == ""
