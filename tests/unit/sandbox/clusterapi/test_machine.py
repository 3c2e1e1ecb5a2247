"""The stand-in for Cluster API: Machines become Nodes of their workload cluster, are replaced, and leave in order."""

from dataclasses import replace
from datetime import timedelta

import pytest

from haulout.api.clusterapi import PRE_DRAIN_HOOK_PREFIX
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, PODS
from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.clusterapi.machine_deletion import EXCLUDE_NODE_DRAINING, PRE_TERMINATE_HOOK_PREFIX
from haulout_sandbox.clusterapi.machineset import DELETE_MACHINE
from support.builders.objects import a_deployment, a_namespace, a_pdb, a_pod
from support.platforms.clusterapi import SHORT_DELAYS, ManagementCluster, management_cluster

HOOK = f"{PRE_DRAIN_HOOK_PREFIX}somebody"
SECOND = timedelta(seconds=1)


async def run_a_pod(hub: ManagementCluster, machine: str, name: str, *, labels: dict[str, str] | None = None) -> None:
    """Put a pod on the node of a Machine."""
    api = hub.cluster(workload_cluster_of(hub, machine)).api
    if not api.has("namespaces", "shop"):
        api.put(a_namespace("shop"))
    node = hub.node(machine)["metadata"]["name"]
    api.put(a_pod(f"shop/{name}", labels=labels or {}, on=node))


def workload_cluster_of(hub: ManagementCluster, machine: str) -> str:
    registered = hub.machine(machine)
    return f"{registered['metadata']['namespace']}/{registered['spec']['clusterName']}"


def pods(hub: ManagementCluster, cluster: str) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in hub.cluster(cluster).api.objects("pods", namespace="shop"))


async def test_a_machine_deployment_makes_machines_that_become_nodes_of_their_cluster(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod", "b/prod") as hub:
        first, second = await hub.create_machines("a/prod", replicas=2)
        machine, node = hub.machine(first), hub.node(first)
        assert machine["status"]["phase"] == "Running"
        assert node["spec"]["providerID"] == machine["spec"]["providerID"] != hub.machine(second)["spec"]["providerID"]
        (owner,) = machine["metadata"]["ownerReferences"]
        assert machine["status"]["nodeRef"] == {"name": node["metadata"]["name"]}
        found = {key: value for key, value in node["metadata"]["annotations"].items() if "cluster.x-k8s.io" in key}
        assert found == {
            "cluster.x-k8s.io/cluster-name": "prod",
            "cluster.x-k8s.io/cluster-namespace": "a",
            "cluster.x-k8s.io/machine": machine["metadata"]["name"],
            "cluster.x-k8s.io/owner-kind": "MachineSet",
            "cluster.x-k8s.io/owner-name": owner["name"],
        }
        labels = machine["metadata"]["labels"]
        assert labels["cluster.x-k8s.io/cluster-name"] == "prod"
        assert labels["cluster.x-k8s.io/deployment-name"] == "workers"
        assert labels["cluster.x-k8s.io/set-name"] == owner["name"]
        assert hub.cluster("b/prod").api.objects("nodes") == []
        deployment = hub.get("machinedeployments", "a/workers")["status"]
        assert (deployment["replicas"], deployment["readyReplicas"], deployment["phase"]) == (2, 2, "Running")


async def test_where_only_the_old_version_is_served_a_machine_refers_to_its_node_in_full(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod", versions=("v1beta1",)) as hub:
        (name,) = await hub.create_machines("a/prod", spec={"nodeDrainTimeout": "1m"})
        node = hub.node(name)["metadata"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"]}
        assert hub.machine(name)["status"]["nodeRef"] == reference
        assert hub.machine(name)["apiVersion"] == "cluster.x-k8s.io/v1beta1"


async def test_a_deleted_machine_is_emptied_ended_and_its_node_deleted_in_this_order(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        node = hub.node(name)["metadata"]["name"]
        await run_a_pod(hub, name, "cart")
        hooks = {
            f"{PRE_DRAIN_HOOK_PREFIX}one": "x",
            f"{PRE_DRAIN_HOOK_PREFIX}two": "",
            f"{PRE_TERMINATE_HOOK_PREFIX}last": "y",
        }
        await hub.annotate("machines", name, **hooks)
        await hub.delete("machines", name)
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="WaitingForPreDrainHook")
        await hub.annotate("machines", name, **{f"{PRE_DRAIN_HOOK_PREFIX}one": None})
        await clock.sleep(60 * SECOND)
        assert (hub.deletion_reason(name), pods(hub, "a/prod")) == ("WaitingForPreDrainHook", ["cart"])
        assert not hub.node(name)["spec"].get("unschedulable")

        await hub.annotate("machines", name, **{f"{PRE_DRAIN_HOOK_PREFIX}two": None})
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="WaitingForPreTerminateHook")
        assert hub.node(name)["spec"]["unschedulable"]
        assert pods(hub, "a/prod") == []
        await clock.sleep(60 * SECOND)
        assert node in hub.cluster("a/prod").kubelets.names

        await hub.annotate("machines", name, **{f"{PRE_TERMINATE_HOOK_PREFIX}last": None})
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="WaitingForInfrastructureDeletion")
        await hub.eventually(lambda: node not in hub.cluster("a/prod").kubelets.names)
        await hub.eventually(lambda: not hub.has("machines", name))
        assert not hub.cluster("a/prod").api.has("nodes", node)
        writes = [item for item in hub.management.api.history if item.kind.plural == "machines" and item.key == name]
        reasons = [_deleting(item.after) for item in writes if item.after is not None]
        assert list(dict.fromkeys(item for item in reasons if item)) == [
            "NotDeleting",
            "WaitingForPreDrainHook",
            "DrainingNode",
            "WaitingForPreTerminateHook",
            "WaitingForInfrastructureDeletion",
            "DeletingNode",
        ]


def _deleting(machine: RawObject) -> str:
    conditions = machine.get("status", {}).get("conditions", ())
    return next((str(condition["reason"]) for condition in conditions if condition["type"] == "Deleting"), "")


async def test_an_instance_that_is_ended_is_silent_before_it_is_gone(clock: Clock) -> None:
    async with management_cluster(
        clock, "a/prod", delays=replace(SHORT_DELAYS, termination=timedelta(minutes=5))
    ) as hub:
        (name,) = await hub.create_machines("a/prod")
        await hub.delete("machines", name)
        await clock.sleep(timedelta(minutes=2))
        ready = next(condition for condition in hub.node(name)["status"]["conditions"] if condition["type"] == "Ready")
        assert (ready["status"], hub.deletion_reason(name)) == ("Unknown", "WaitingForInfrastructureDeletion")
        await hub.eventually(lambda: not hub.has("machines", name))


async def test_its_set_makes_another_at_once_and_not_when_it_is_gone(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await hub.annotate("machines", name, **{HOOK: "x"})
        await hub.delete("machines", name)
        await hub.eventually(lambda: len(hub.running_machines("a/prod")), becomes=1)
        assert len(hub.machines("a/prod")) == 2


async def test_a_drain_respects_budgets_until_its_time_is_over(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod", spec={"deletion": {"nodeDrainTimeoutSeconds": 300}})
        await run_a_pod(hub, name, "ledger", labels={"app": "ledger"})
        hub.cluster("a/prod").api.put(a_pdb("shop/ledger", minAvailable=1))
        await clock.sleep(10 * SECOND)
        started_at = clock.now()
        await hub.delete("machines", name)
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="DrainingNode")
        await clock.sleep(280 * SECOND)
        assert (hub.deletion_reason(name), pods(hub, "a/prod")) == ("DrainingNode", ["ledger"])
        await hub.eventually(lambda: not hub.has("machines", name))
        assert timedelta(minutes=5) <= clock.now() - started_at < timedelta(minutes=6)


async def test_a_drain_without_a_limit_waits_for_a_budget_as_long_as_it_takes(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod", spec={"deletion": {"nodeDrainTimeoutSeconds": 0}})
        await run_a_pod(hub, name, "ledger", labels={"app": "ledger"})
        hub.cluster("a/prod").api.put(a_pdb("shop/ledger", minAvailable=1))
        await clock.sleep(10 * SECOND)
        await hub.delete("machines", name)
        await clock.sleep(timedelta(minutes=12))
        assert hub.deletion_reason(name) == "DrainingNode"


async def test_pods_that_are_to_be_left_alone_are(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await run_a_pod(hub, name, "kept", labels={"cluster.x-k8s.io/drain": "skip"})
        await run_a_pod(hub, name, "job", labels={"cluster.x-k8s.io/drain": "wait-completed"})
        await run_a_pod(hub, name, "cart")
        await hub.annotate("machines", name, **{f"{PRE_TERMINATE_HOOK_PREFIX}last": "y"})
        await hub.delete("machines", name)
        await hub.eventually(lambda: pods(hub, "a/prod"), becomes=["job", "kept"])
        await clock.sleep(60 * SECOND)
        assert hub.deletion_reason(name) == "DrainingNode"
        await hub.cluster("a/prod").client("me").delete(PODS, "job", namespace="shop")
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="WaitingForPreTerminateHook")
        assert pods(hub, "a/prod") == ["kept"]


async def test_rules_say_which_pods_leave_first_and_which_stay(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        for rule, app, drain in (
            ("first", "web", {"behavior": "Drain", "order": -1}),
            ("last", "database", {"behavior": "Drain", "order": 10}),
            ("stays", "agent", {"behavior": "Skip"}),
        ):
            chosen = [{"selector": {"matchLabels": {"app": app}}}]
            await hub.create(a_rule(rule, drain=drain, pods=chosen))
        elsewhere = {"selector": {"matchLabels": {"nobody": "has"}}}
        await hub.create(a_rule("another", drain={"behavior": "Skip"}, machines=[elsewhere]))
        for app in ("web", "other", "database", "agent"):
            await run_a_pod(hub, name, app, labels={"app": app})
        await hub.delete("machines", name)
        await hub.eventually(lambda: not hub.has("machines", name))
        history = hub.cluster("a/prod").api.history
        ended = [
            item.key
            for item in history
            if item.kind.plural == "pods" and item.after is None and item.username == "kubelets"
        ]
        assert ended == ["shop/web", "shop/other", "shop/database"]


def a_rule(name: str, **spec: object) -> RawObject:
    metadata = {"name": name, "namespace": "a"}
    return {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDrainRule", "metadata": metadata, "spec": spec}


async def test_a_machine_that_is_not_to_be_drained_is_not(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await run_a_pod(hub, name, "cart")
        await hub.annotate("machines", name, **{EXCLUDE_NODE_DRAINING: "", f"{PRE_TERMINATE_HOOK_PREFIX}last": "y"})
        await hub.delete("machines", name)
        await hub.eventually(lambda: hub.deletion_reason(name), becomes="WaitingForPreTerminateHook")
        assert pods(hub, "a/prod") == ["cart"]


async def test_pre_drain_hooks_do_not_hold_a_machine_without_a_node(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        await hub.create_machines("a/prod", replicas=0)
        await hub.patch("machinedeployments", "a/workers", spec={"replicas": 1})
        (name,) = await hub.eventually(lambda: hub.machines("a/prod"))
        await hub.annotate("machines", name, **{HOOK: "x"})
        await hub.delete("machines", name)
        await hub.eventually(lambda: not hub.has("machines", name), within=10 * SECOND)


async def test_pre_drain_hooks_do_not_hold_machines_of_a_deleted_cluster(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await run_a_pod(hub, name, "cart")
        await hub.annotate("machines", name, **{HOOK: "x"})
        await hub.delete("clusters", "a/prod")
        await hub.eventually(lambda: not hub.has("clusters", "a/prod"))
        assert not hub.has("machines", name)
        assert not hub.has("machinedeployments", "a/workers")
        assert pods(hub, "a/prod") == ["cart"]
        await hub.eventually(lambda: not hub.has("secrets", "a/prod-kubeconfig"))


@pytest.mark.parametrize("paused", ["machine", "cluster"])
async def test_nothing_is_done_about_what_is_paused(clock: Clock, paused: str) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        if paused == "machine":
            await hub.annotate("machines", name, **{"cluster.x-k8s.io/paused": ""})
        else:
            await hub.patch("clusters", "a/prod", spec={"paused": True})
        await hub.delete("machines", name)
        await clock.sleep(60 * SECOND)
        assert hub.deletion_reason(name) == "NotDeleting"
        await hub.annotate("machines", name, **{"cluster.x-k8s.io/paused": None})
        await hub.patch("clusters", "a/prod", spec={"paused": None})
        await hub.eventually(lambda: not hub.has("machines", name))


async def test_another_template_replaces_machines_one_by_one_with_one_more_at_most(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        before = await hub.create_machines("a/prod", replicas=3)
        await hub.patch("machinedeployments", "a/workers", spec={"template": {"spec": {"version": "v1.36.4"}}})
        most = least = 3
        while len(done := set(hub.running_machines("a/prod")) - set(before)) < 3 or len(hub.machines("a/prod")) > 3:
            await clock.sleep(SECOND)
            staying = [
                item for item in hub.machines("a/prod") if "deletionTimestamp" not in hub.machine(item)["metadata"]
            ]
            most, least = max(most, len(staying)), min(least, len(hub.running_machines("a/prod")))
        assert (most, least) == (4, 3)
        assert {hub.node(item)["status"]["nodeInfo"]["kubeletVersion"] for item in done} == {"v1.36.4"}
        await hub.eventually(lambda: len(hub.management.api.objects("machinesets")), becomes=1)
        assert hub.get("machinedeployments", "a/workers")["status"]["upToDateReplicas"] == 3


async def test_labels_and_timeouts_of_a_template_reach_machines_in_place_and_leave_them_again(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await hub.patch("machines", name, metadata={"labels": {"of": "others"}})
        change: RawObject = {"metadata": {"labels": {"enabled": "true"}}, "spec": {"nodeDrainTimeout": "1m"}}
        await hub.patch("machinedeployments", "a/workers", spec={"template": change})
        await hub.eventually(lambda: hub.machine(name)["metadata"]["labels"].get("enabled") == "true")
        assert hub.machine(name)["spec"]["nodeDrainTimeout"] == "1m"
        change = {"metadata": {"labels": {"enabled": None}}}
        await hub.patch("machinedeployments", "a/workers", spec={"template": change})
        await hub.eventually(lambda: "enabled" not in hub.machine(name)["metadata"]["labels"])
        assert hub.machine(name)["metadata"]["labels"]["of"] == "others"
        assert hub.running_machines("a/prod") == [name]


async def test_the_marked_machine_goes_first_when_there_are_too_many(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        first, second, third = await hub.create_machines("a/prod", replicas=3)
        await hub.annotate("machines", second, **{DELETE_MACHINE: ""})
        await hub.patch("machinedeployments", "a/workers", spec={"replicas": 2})
        await hub.eventually(lambda: hub.machines("a/prod"), becomes=[first, third])


async def test_a_machine_whose_node_is_not_well_is_not_ready(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        hub.cluster("a/prod").kubelets.kill(hub.node(name)["metadata"]["name"])
        await hub.eventually(lambda: hub.running_machines("a/prod"), becomes=[])
        await hub.eventually(lambda: hub.get("machinedeployments", "a/workers")["status"]["readyReplicas"], becomes=0)
        assert hub.machines("a/prod") == [name]


async def test_labels_and_annotations_of_a_node_stay_when_its_machine_is_recorded(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        node = hub.node(name)["metadata"]["name"]
        labels = {"metadata": {"labels": {"by": "others"}}}
        await hub.cluster("a/prod").client("me").patch(NODES, node, merge_patch(labels))
        await clock.sleep(60 * SECOND)
        assert hub.node(name)["metadata"]["labels"]["by"] == "others"


async def test_a_node_that_cannot_be_deleted_in_time_is_left_behind(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        node = hub.node(name)["metadata"]["name"]
        hub.cluster("a/prod").transport("cluster-api").faults.fail_before_effect(
            method="DELETE", response=403, times=None
        )
        await hub.delete("machines", name)
        await hub.eventually(lambda: not hub.has("machines", name), within=timedelta(minutes=2))
        assert hub.cluster("a/prod").api.has("nodes", node)


async def test_a_workload_of_a_deployment_moves_to_the_nodes_that_come(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name, _) = await hub.create_machines("a/prod", replicas=2)
        api = hub.cluster("a/prod").api
        api.put(a_namespace("shop"))
        api.put(a_deployment("shop/web", replicas=4))
        await hub.eventually(lambda: len(pods(hub, "a/prod")), becomes=4)
        node = hub.node(name)["metadata"]["name"]
        await hub.delete("machines", name)
        await hub.eventually(lambda: not hub.has("machines", name))
        assert {pod["spec"]["nodeName"] for pod in api.objects("pods", namespace="shop")} & {node} == set()


async def test_what_belongs_to_a_deployment_that_is_deleted_goes_with_it(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        await hub.create_machines("a/prod", replicas=2)
        await hub.delete("machinedeployments", "a/workers")
        await hub.eventually(lambda: hub.machines("a/prod"), becomes=[])
        assert hub.management.api.objects("machinesets") == []
        assert hub.cluster("a/prod").api.objects("nodes") == []


def a_control_plane_machine(name: str) -> RawObject:
    labels = {"cluster.x-k8s.io/control-plane": "", "cluster.x-k8s.io/cluster-name": "prod"}
    metadata = {"name": name, "namespace": "a", "labels": labels}
    spec = {"clusterName": "prod"}
    return {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata, "spec": spec}


async def test_hooks_before_the_drain_hold_a_control_plane_but_not_the_last_of_it(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        for name in ("cp-1", "cp-2"):
            await hub.create(a_control_plane_machine(name))
        await hub.eventually(lambda: hub.running_machines("a/prod"), becomes=["a/cp-1", "a/cp-2"])
        assert "node-role.kubernetes.io/control-plane" in hub.node("a/cp-1")["metadata"]["labels"]
        for name in ("a/cp-1", "a/cp-2"):
            await hub.annotate("machines", name, **{HOOK: "x"})
        await hub.delete("machines", "a/cp-1")
        await hub.eventually(lambda: hub.deletion_reason("a/cp-1"), becomes="WaitingForPreDrainHook")
        await hub.annotate("machines", "a/cp-1", **{HOOK: None})
        await hub.eventually(lambda: hub.machines("a/prod"), becomes=["a/cp-2"])
        await hub.delete("machines", "a/cp-2")
        await hub.eventually(lambda: hub.machines("a/prod"), becomes=[])


async def test_pods_on_an_unreachable_node_are_evicted_after_five_minutes(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        (name,) = await hub.create_machines("a/prod")
        await run_a_pod(hub, name, "cart")
        hub.cluster("a/prod").kubelets.kill(hub.node(name)["metadata"]["name"])
        await clock.sleep(timedelta(minutes=2))
        started_at = clock.now()
        await hub.delete("machines", name)
        await hub.eventually(lambda: not hub.has("machines", name), within=timedelta(minutes=10))
        assert timedelta(minutes=5) <= clock.now() - started_at < timedelta(minutes=7)


async def test_a_consumer_continues_after_a_crash_where_the_previous_one_stopped(clock: Clock) -> None:
    async with management_cluster(clock, "a/prod") as hub:
        before = await hub.create_machines("a/prod", replicas=3)
        await run_a_pod(hub, before[0], "cart")
        await hub.patch("machinedeployments", "a/workers", spec={"template": {"spec": {"version": "v1.36.4"}}})
        for _ in range(25):
            await clock.sleep(2.7 * SECOND)
            hub.restart()
        await hub.eventually(lambda: len(hub.machines("a/prod")), becomes=3)
        assert {hub.machine(item)["spec"]["version"] for item in hub.running_machines("a/prod")} == {"v1.36.4"}
        assert sorted(hub.cluster("a/prod").kubelets.names) == [
            item.removeprefix("a/") for item in sorted(hub.machines("a/prod"))
        ]
