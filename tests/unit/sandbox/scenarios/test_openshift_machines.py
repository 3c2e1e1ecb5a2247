"""Pools whose nodes are Machines of OpenShift: they are nodes and instances like others, and others replace them."""

from datetime import timedelta

from haulout.api.objects import RawObject
from haulout.api.openshift import MACHINE_NAMESPACE, MACHINE_SETS, MACHINES
from haulout.core.clock import Clock
from haulout_sandbox.openshift.objects import a_machine_set
from haulout_sandbox.startup_text import overview
from support.clusters.scenario_run import MINUTE, ScenarioRun, running_scenario

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


def machines(run: ScenarioRun) -> dict[str, RawObject]:
    """Return the Machines by the name of their node; those without one have an empty one."""
    objs = run.api.objects("machines")
    return {obj.get("status", {}).get("nodeRef", {}).get("name", ""): obj for obj in objs}


def nodes(run: ScenarioRun) -> list[str]:
    return sorted(node["metadata"]["name"] for node in run.api.objects("nodes"))


def state(run: ScenarioRun, machine: RawObject) -> str:
    """Return what AWS says of the instance of a Machine."""
    instance = machine["spec"]["providerID"].rpartition("/")[2]
    return run.scenario_cluster.fleet.aws.cloud.ec2_instances.by_id[instance].state


def messages(run: ScenarioRun) -> list[str]:
    return [message for _, message in run.log]


async def delete(run: ScenarioRun, machine: RawObject) -> None:
    await run.cluster.client("me").delete(MACHINES, machine["metadata"]["name"], namespace=MACHINE_NAMESPACE)


async def test_machines_are_nodes_of_their_pool_and_instances_of_its_cloud(clock: Clock) -> None:
    async with running_scenario(clock, "  []", base=WORKERS) as run:
        sets = {
            machineset["metadata"]["name"]: machineset["spec"]["replicas"]
            for machineset in run.api.objects("machinesets")
        }
        assert sets == {"worker-a": 2, "worker-b": 1}
        assert nodes(run) == ["worker-01", "worker-02", "worker-03"]
        for name, machine in machines(run).items():
            labels, node_fields = run.node(name)["metadata"]["labels"], machine["metadata"]["labels"]
            assert run.node(name)["spec"]["providerID"] == machine["spec"]["providerID"]
            assert (labels["team"], "node-role.kubernetes.io/worker" in labels) == ("shop", True)
            assert "eks.amazonaws.com/nodegroup" not in labels
            assert node_fields["machine.openshift.io/zone"] == labels["topology.kubernetes.io/zone"]
            assert (node_fields["machine.openshift.io/region"], node_fields["machine.openshift.io/instance-type"]) == (
                "here",
                "m6i.large",
            )
            assert state(run, machine) == "running"


async def test_maintenance_of_a_replaced_machine_is_dropped_at_once(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: {pool: worker, zone: b}, kind: Stop, in: 24h}}"
    async with running_scenario(clock, line, base=WORKERS) as run:
        await run.wait_until_second(5)
        (node,) = (
            item for item in nodes(run) if run.node(item)["metadata"]["labels"]["topology.kubernetes.io/zone"] == "b"
        )
        old = machines(run)[node]
        name = old["metadata"]["name"]
        await delete(run, old)
        await run.wait_until(lambda: "worker-04" in machines(run))
        await run.wait_until_second(10)
        new = machines(run)["worker-04"]["metadata"]["name"]
        assert sorted(nodes(run)) == sorted({"worker-01", "worker-02", "worker-03", "worker-04"} - {node})
        (event,) = run.scenario_cluster.fleet.aws.cloud.ec2_instances.by_id[
            old["spec"]["providerID"].rpartition("/")[2]
        ].events.values()
        assert (state(run, old), event["Description"][:11]) == ("terminated", "[Completed]")
    assert messages(run) == [
        f"AWS will stop {node} in 24h",
        f"Machine {name} is deleted: {node} is emptied, and its instance ended",
        f"MachineSet worker-b makes Machine {new}",
        f"Machine {name} is gone, and {node} with it",
        f"AWS drops the stop of {node}, which is gone",
        f"Machine {new} is running: worker-04 joins",
    ]
    assert run.log[4][0] - run.log[3][0] <= 10


async def test_a_machine_whose_instance_the_cloud_takes_has_failed_until_it_is_deleted(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: worker-01, kind: Terminate, in: 1m, for: 2m}}"
    async with running_scenario(clock, line, base=WORKERS) as run:
        lost = machines(run)["worker-01"]
        await run.wait_until_second(5 * 60)
        assert nodes(run) == ["worker-02", "worker-03"]
        begins, *both, ends = messages(run)
        assert begins == "AWS will terminate worker-01 in 1m"
        assert sorted(both) == [
            "AWS terminates worker-01, which is empty",
            f"Machine {lost['metadata']['name']} has failed: its instance is gone",
        ]
        assert ends == "worker-01 is gone for good; another comes when its Machine is deleted"
        await delete(run, lost)
        await run.wait_until(lambda: nodes(run) == ["worker-02", "worker-03", "worker-04"])


async def test_a_machine_that_is_deleted_before_it_is_a_node_leaves_no_instance_behind(clock: Clock) -> None:
    async with running_scenario(clock, "  []", base=WORKERS) as run:
        client = run.cluster.client("me")
        await client.create(MACHINE_SETS, a_machine_set("more", replicas=1), namespace=MACHINE_NAMESPACE)
        await run.wait_until(lambda: "providerID" in machines(run).get("", {"spec": {}})["spec"])
        early = machines(run)[""]
        assert state(run, early) == "running"
        await client.delete(MACHINE_SETS, "more", namespace=MACHINE_NAMESPACE)
        await delete(run, early)
        await run.wait_until(lambda: len(run.api.objects("machines")) == 3)
        await clock.sleep(2 * MINUTE)
        assert (state(run, early), nodes(run)) == ("terminated", ["worker-01", "worker-02", "worker-03"])


async def test_a_machine_set_that_a_user_creates_gets_cloud_instances(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 3m, announce: {nodes: worker-04, kind: Stop, in: 1h}}", base=WORKERS
    ) as run:
        made = a_machine_set("mine", replicas=1)
        await run.cluster.client("me").create(MACHINE_SETS, made, namespace=MACHINE_NAMESPACE)
        await clock.sleep(timedelta(seconds=185))
        assert messages(run)[-1] == "AWS will stop worker-04 in 1h"


async def test_people_are_not_sent_to_the_control_plane_to_try_things_on(clock: Clock) -> None:
    async with running_scenario(clock, "  []", base=CONTROL_PLANE) as run:
        assert nodes(run) == ["master-01", "master-02", "master-03", "worker-01"]
        assert "node-role.kubernetes.io/master" in run.node("master-01")["metadata"]["labels"]
        assert overview(run.api).first_node == "worker-01"
