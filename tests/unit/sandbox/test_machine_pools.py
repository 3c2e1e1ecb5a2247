"""Pools whose nodes are Machines of OpenShift: they are nodes and instances like others, and others replace them."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.kinds.openshift import MACHINE_NAMESPACE, MACHINE_SETS, MACHINES
from haulout.kube.objects import RawObject
from haulout_sandbox.openshift import a_machine_set
from haulout_sandbox.overview import overview
from support.playing import MINUTE, Play, played

WORKERS = """
pools:
  - name: worker
    count: 3
    cloud: aws
    machines: MachineSet
    zones: [a, b]
    region: here
    instanceType: m6i.large
    labels: {team: shop}
"""
CONTROL_PLANE = """
pools:
  - {name: master, count: 3, cloud: aws, machines: ControlPlaneMachineSet}
  - {name: worker, count: 1, cloud: aws, machines: MachineSet}
"""


def machines(play: Play) -> dict[str, RawObject]:
    """Return the Machines by the name of their node; those without one have an empty one."""
    found = play.api.objects("machines")
    return {it.get("status", {}).get("nodeRef", {}).get("name", ""): it for it in found}


def nodes(play: Play) -> list[str]:
    return sorted(it["metadata"]["name"] for it in play.api.objects("nodes"))


def state(play: Play, machine: RawObject) -> str:
    """Return what AWS says of the instance of a Machine."""
    instance = machine["spec"]["providerID"].rpartition("/")[2]
    return play.stage.fleet.aws.cloud.machines.by_name[instance].state


def words(play: Play) -> list[str]:
    return [what for _, what in play.told]


async def delete(play: Play, machine: RawObject) -> None:
    await play.cluster.client("me").delete(MACHINES, machine["metadata"]["name"], namespace=MACHINE_NAMESPACE)


async def test_machines_are_nodes_of_their_pool_and_instances_of_its_cloud(clock: Clock) -> None:
    async with played(clock, "  []", base=WORKERS) as play:
        sets = {it["metadata"]["name"]: it["spec"]["replicas"] for it in play.api.objects("machinesets")}
        assert sets == {"worker-a": 2, "worker-b": 1}
        assert nodes(play) == ["worker-01", "worker-02", "worker-03"]
        for name, machine in machines(play).items():
            labels, told = play.node(name)["metadata"]["labels"], machine["metadata"]["labels"]
            assert play.node(name)["spec"]["providerID"] == machine["spec"]["providerID"]
            assert (labels["team"], "node-role.kubernetes.io/worker" in labels) == ("shop", True)
            assert "eks.amazonaws.com/nodegroup" not in labels
            assert told["machine.openshift.io/zone"] == labels["topology.kubernetes.io/zone"]
            assert (told["machine.openshift.io/region"], told["machine.openshift.io/instance-type"]) == (
                "here",
                "m6i.large",
            )
            assert state(play, machine) == "running"


async def test_what_is_announced_for_a_machine_that_somebody_replaces_is_dropped_at_once(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: {pool: worker, zone: b}, kind: Stop, in: 24h}}"
    async with played(clock, line, base=WORKERS) as play:
        await play.at(5)
        (node,) = (
            it for it in nodes(play) if play.node(it)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "b"
        )
        old = machines(play)[node]
        name = old["metadata"]["name"]
        await delete(play, old)
        await play.until(lambda: "worker-04" in machines(play))
        await play.at(10)
        new = machines(play)["worker-04"]["metadata"]["name"]
        assert sorted(nodes(play)) == sorted({"worker-01", "worker-02", "worker-03", "worker-04"} - {node})
        (event,) = play.stage.fleet.aws.cloud.machines.by_name[
            old["spec"]["providerID"].rpartition("/")[2]
        ].events.values()
        assert (state(play, old), event["Description"][:11]) == ("terminated", "[Completed]")
    assert words(play) == [
        f"AWS will stop {node} in 24h",
        f"Machine {name} is deleted: {node} is emptied, and its instance ended",
        f"MachineSet worker-b makes Machine {new}",
        f"Machine {name} is gone, and {node} with it",
        f"AWS drops the stop of {node}, which is gone",
        f"Machine {new} is running: worker-04 joins",
    ]
    assert play.told[4][0] - play.told[3][0] <= 10


async def test_a_machine_whose_instance_the_cloud_takes_has_failed_until_it_is_deleted(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: worker-01, kind: Terminate, in: 1m, for: 2m}}"
    async with played(clock, line, base=WORKERS) as play:
        lost = machines(play)["worker-01"]
        await play.at(5 * 60)
        assert nodes(play) == ["worker-02", "worker-03"]
        begins, *both, ends = words(play)
        assert begins == "AWS will terminate worker-01 in 1m"
        assert sorted(both) == [
            "AWS terminates worker-01, which is empty",
            f"Machine {lost['metadata']['name']} has failed: its instance is gone",
        ]
        assert ends == "worker-01 is gone for good; another comes when its Machine is deleted"
        await delete(play, lost)
        await play.until(lambda: nodes(play) == ["worker-02", "worker-03", "worker-04"])


async def test_a_machine_that_is_deleted_before_it_is_a_node_leaves_no_instance_behind(clock: Clock) -> None:
    async with played(clock, "  []", base=WORKERS) as play:
        client = play.cluster.client("me")
        await client.create(MACHINE_SETS, a_machine_set("more", replicas=1), namespace=MACHINE_NAMESPACE)
        await play.until(lambda: "providerID" in machines(play).get("", {"spec": {}})["spec"])
        early = machines(play)[""]
        assert state(play, early) == "running"
        await client.delete(MACHINE_SETS, "more", namespace=MACHINE_NAMESPACE)
        await delete(play, early)
        await play.until(lambda: len(play.api.objects("machines")) == 3)
        await clock.sleep(2 * MINUTE)
        assert (state(play, early), nodes(play)) == ("terminated", ["worker-01", "worker-02", "worker-03"])


async def test_what_somebody_makes_by_hand_gets_instances_of_the_cloud_as_well(clock: Clock) -> None:
    async with played(clock, "  - {at: 3m, announce: {nodes: worker-04, kind: Stop, in: 1h}}", base=WORKERS) as play:
        made = a_machine_set("mine", replicas=1)
        await play.cluster.client("me").create(MACHINE_SETS, made, namespace=MACHINE_NAMESPACE)
        await clock.sleep(timedelta(seconds=185))
        assert words(play)[-1] == "AWS will stop worker-04 in 1h"


async def test_people_are_not_sent_to_the_control_plane_to_try_things_on(clock: Clock) -> None:
    async with played(clock, "  []", base=CONTROL_PLANE) as play:
        assert nodes(play) == ["master-01", "master-02", "master-03", "worker-01"]
        assert "node-role.kubernetes.io/master" in play.node("master-01")["metadata"]["labels"]
        assert overview(play.api).first_node == "worker-01"
