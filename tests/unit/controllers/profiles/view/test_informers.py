"""Informers of profiles: watched on demand, published by topic, never taken for empty."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api import workloads
from haulout.api.objects import RawObject
from haulout.controllers.profiles.observation import NotificationRequest
from haulout.controllers.profiles.plugin import STATE_LABEL, PluginContext, State
from haulout.controllers.profiles.plugins.checks.capacity import Capacity
from haulout.core.clock import Clock
from haulout.kube.informer_set import InformerNotSynced
from support.builders.crds import HYPERVISOR_CRD
from support.builders.objects import a_deployment, a_lease, a_node, a_pod, a_workload
from support.fakes.cluster_view import MINUTE, NOW, PROFILE, a_profile_entry
from support.fakes.external_client import FakeExternalClient
from support.fakes.profile_informers import InformersUnderTest, configuration, running_informers

CAPACITY = configuration("capacity")
RECOVERED = configuration("recovered: {workloads: true}")
STAGGER = configuration("stagger: {duration: 1m, leaseName: turn, leaseNamespace: kube-system}")
HYPERVISOR = configuration("checkHypervisor: {evicted: true}")
NOTHING = configuration("hasLabel: {key: a}")
READY = {"type": "Ready", "status": "True"}
PREFERS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "preference": {
                    "matchExpressions": [{"key": STATE_LABEL, "operator": "In", "values": ["operational"]}],
                },
            }
        ]
    }
}


def a_big_node(name: str, *, cpu: str = "4") -> RawObject:
    return a_node(name).with_status(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "10"}, conditions=[READY])


def a_hypervisor(name: str, **status: Any) -> RawObject:
    return {"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": name}, "status": status}


def serving(workload: RawObject, available: int) -> RawObject:
    return {**workload, "status": {"availableReplicas": available, "replicas": available}}


def free_cpu(informers: InformersUnderTest) -> int:
    capacity = informers.cluster_view().free_capacity("n1")
    return 0 if capacity is None else capacity.free["cpu"]


def capacity_result(informers: InformersUnderTest, node: str) -> bool | None:
    cluster = informers.cluster_view(node)
    observed = informers.nodes.get(node)
    assert observed is not None
    context = PluginContext(
        now=NOW,
        node=observed.node,
        profile=PROFILE,
        state=State.REQUIRED,
        status=a_profile_entry(State.REQUIRED),
        is_in_maintenance=False,
        logs_details=False,
        cluster=cluster,
        requeue=MINUTE,
    )
    return Capacity().evaluate(context).passed


# Watched resources


@pytest.mark.parametrize(
    ("wanted", "followed"),
    [
        (NOTHING, []),
        (CAPACITY, ["pods"]),
        (STAGGER, ["leases"]),
        (RECOVERED, ["daemonsets", "deployments", "pods", "replicasets", "statefulsets"]),
    ],
)
async def test_only_needed_resources_are_watched(clock: Clock, wanted: Any, followed: list[str]) -> None:
    async with running_informers(clock, wanted) as informers:
        assert informers.watched_resources == followed


async def test_edited_configuration_starts_and_stops_watches(clock: Clock) -> None:
    async with running_informers(clock, CAPACITY, a_node("n1"), a_pod("shop/a", on="n1")) as informers:
        await informers.apply_configuration(STAGGER)
        assert informers.watched_resources == ["leases"]
        with pytest.raises(InformerNotSynced, match="pods are not watched"):
            informers.cluster_view().pods_on("n1")
        await informers.apply_configuration(CAPACITY)
        assert informers.watched_resources == ["pods"]
        assert len(informers.cluster_view().pods_on("n1")) == 1


async def test_leases_are_watched_only_in_the_configured_namespaces(clock: Clock) -> None:
    async with running_informers(clock, STAGGER, a_lease("kube-system/turn-0"), a_lease("shop/turn-0")) as informers:
        assert [path for path in informers.recording_transport.open_watches if "leases" in path] == [
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        ]
        found = informers.cluster_view().lease("kube-system", "turn-0")
        assert found is not None
        assert found.spec.holder_identity == "a"
        assert informers.cluster_view().lease("kube-system", "turn-1") is None
        informers.api.put(a_lease("kube-system/turn-0", holder="b"))
        await informers.settle()
        assert informers.topics == ["lease kube-system/turn-0"]


async def test_unsynced_informer_raises_and_requeues_the_node_later(clock: Clock) -> None:
    async with running_informers(clock, NOTHING, a_node("n1"), a_pod("shop/a", on="n1")) as informers:
        informers.profile_informers.use(CAPACITY)  # without waiting for it
        with pytest.raises(InformerNotSynced, match="pods are not synced yet"):
            informers.cluster_view("n1").pods_on("n1")
        await informers.settle()
        assert informers.woken_nodes == ["n1"]
        assert len(informers.cluster_view("n1").pods_on("n1")) == 1


# Pods


async def test_pods_are_indexed_and_reported_by_node(clock: Clock) -> None:
    async with running_informers(clock, CAPACITY, a_node("n1"), a_node("n2"), a_pod("shop/a", on="n1")) as informers:
        assert [item["metadata"]["name"] for item in informers.cluster_view().pods_on("n1")] == ["a"]
        assert informers.cluster_view().pods_on("n2") == []
        informers.api.put(a_pod("shop/b", on="n2"))
        await informers.settle()
        assert informers.topics == ["pods n2"]
        assert [item["metadata"]["name"] for item in informers.cluster_view().pods_on("n2")] == ["b"]


async def test_cached_pod_contains_only_fields_used_by_plugins(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1", cpu="1", owner="ReplicaSet/a", labels={"app": "a"}, affinity=PREFERS)
    async with running_informers(clock, CAPACITY, pod.annotated({"x": "y"})) as informers:
        (pod_view,) = informers.cluster_view().pods_on("n1")
        assert sorted(pod_view["metadata"]) == ["labels", "name", "namespace", "ownerReferences", "uid"]
        assert pod_view["spec"]["containers"] == [{"resources": {"requests": {"cpu": "1"}}}]
        assert pod_view["spec"]["affinity"] == PREFERS
        assert pod_view["status"]["phase"] == "Pending"


async def test_irrelevant_pod_change_requeues_no_node(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1")
    async with running_informers(clock, CAPACITY, pod) as informers:
        informers.api.put(pod.annotated({"x": "y"}))
        await informers.settle()
        assert informers.topics == []


async def test_pods_that_prefer_operational_nodes_have_their_own_topic(clock: Clock) -> None:
    async with running_informers(clock, CAPACITY, a_node("n1")) as informers:
        informers.api.put(a_pod("shop/a", on="n1", affinity=PREFERS))
        await informers.settle()
        assert "pod-preference" in informers.topics


async def test_capacity_topic_is_throttled_and_includes_the_last_change(clock: Clock) -> None:
    async with running_informers(clock, CAPACITY, a_node("n1")) as informers:
        for number in range(5):
            informers.api.put(a_pod(f"shop/{number}", on="n1"))
            await informers.settle()
        assert informers.topics.count("capacity") == 1
        await informers.settle(timedelta(seconds=10))
        assert informers.topics.count("capacity") == 2


# Room


async def test_free_capacity_follows_pods_and_nodes(clock: Clock) -> None:
    async with running_informers(clock, CAPACITY, a_big_node("n1"), a_pod("shop/a", on="n1", cpu="1")) as informers:
        capacity = informers.cluster_view().free_capacity("n1")
        assert capacity is not None
        assert (capacity.free["cpu"], capacity.free["pods"]) == (3000, 9)
        assert informers.cluster_view().free_capacity("n1") is capacity
        informers.api.put(a_pod("shop/b", on="n1", cpu="500m"))
        await informers.settle()
        assert free_cpu(informers) == 2500
        informers.api.put(a_big_node("n1", cpu="8"))
        await informers.settle()
        assert free_cpu(informers) == 6500
        assert informers.cluster_view().free_capacity("n9") is None


async def test_capacity_check_uses_the_informers(clock: Clock) -> None:
    pod = a_pod("shop/a", on="n1", cpu="3", owner="ReplicaSet/a")
    async with running_informers(clock, CAPACITY, a_big_node("n1"), a_big_node("n2"), pod) as informers:
        assert capacity_result(informers, "n1") is True
        informers.api.put(a_pod("shop/b", on="n2", cpu="2"))
        await informers.settle()
        assert capacity_result(informers, "n1") is False


# Hypervisors


async def test_missing_hypervisor_crd_means_no_hypervisors_until_it_is_installed(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_informers(clock, HYPERVISOR, a_node("n1")) as informers:
        assert informers.cluster_view().hypervisor("n1") is None
        assert "hypervisors.kvm.cloud.sap are not installed" in caplog.text
        informers.api.put(HYPERVISOR_CRD)
        informers.api.put(a_hypervisor("n1", evicted=True))
        await informers.settle(timedelta(minutes=2))
        found = informers.cluster_view().hypervisor("n1")
        assert found is not None
        assert found["status"] == {"evicted": True}
        assert "hypervisor n1" in informers.topics


# Workloads


async def test_evicted_workloads_are_those_that_lost_a_pod_on_the_node(clock: Clock) -> None:
    cart = serving(a_deployment("shop/cart", replicas=3), 3)
    replicas = a_workload("ReplicaSet", "shop/cart-1", replicas=3).owned_by(cart)
    other = serving(a_workload("StatefulSet", "shop/db", replicas=1), 1)
    pods = [
        a_pod("shop/cart-1-a", on="n1", owner="ReplicaSet/cart-1"),
        a_pod("shop/db-0", on="n1", owner="StatefulSet/db"),
        a_pod("shop/lonely", on="n1"),
    ]
    async with running_informers(clock, RECOVERED, a_node("n1"), cart, replicas, other, *pods) as informers:
        assert informers.cluster_view("n1").evicted_from("n1") == ()
        record = informers.cluster_view("n1").workloads_on("n1")
        assert [str(workload.reference) for workload in record.workloads] == [
            "Deployment shop/cart",
            "StatefulSet shop/db",
        ]
        informers.api.put(a_node("n1").annotated({workloads.WORKLOADS_ANNOTATION: workloads.encode_annotation(record)}))
        await informers.settle()
        assert informers.cluster_view("n1").evicted_from("n1") == ()
        informers.topics.clear()
        informers.api.remove("pods", "cart-1-a", "shop")
        await informers.settle()
        assert "pods n1" in informers.topics
        (lost,) = informers.cluster_view("n1").evicted_from("n1")
        assert (lost.name, lost.desired, lost.available, lost.available_before) == ("Deployment shop/cart", 3, 3, 3)
        informers.topics.clear()
        informers.api.put(serving(cart, 2))
        await informers.settle()
        assert informers.topics == ["evicted n1"]
        assert next(iter(informers.cluster_view("n1").evicted_from("n1"))).available == 2
        informers.api.put(a_node("n1"))
        await informers.settle()
        assert informers.cluster_view("n1").evicted_from("n1") == ()
        informers.topics.clear()
        informers.api.put(serving(cart, 3))
        await informers.settle()
        assert informers.topics == []


# Notifications


async def test_notification_contains_the_full_node_and_its_failure_is_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    hook = "{type: slack, name: tell, config: {hook: 'https://hooks.example.com/x', channel: ops, message: "
    text = "'{{ .Node.Name }} runs {{ .Node.Status.NodeInfo.OSImage }}'}, schedule: {type: periodic, config: {}}}"
    wanted = configuration("hasLabel: {key: a}", notify=hook + text)
    external = FakeExternalClient()
    node = a_node("n1").with_status(nodeInfo={"osImage": "Flatcar 1"})
    async with running_informers(clock, wanted, node, external_client=external) as informers:
        observed = informers.nodes.get("n1")
        assert observed is not None
        informers.profile_informers.send(NotificationRequest("tell", "os", State.REQUIRED), observed)
        await informers.settle()
        assert [request.json["text"] for request in external.requests] == ["n1 runs Flatcar 1"]
        informers.profile_informers.send(NotificationRequest("gone", "os", State.REQUIRED), observed)
        informers.api.remove("nodes", "n1")
        informers.profile_informers.send(NotificationRequest("tell", "os", State.REQUIRED), observed)
        await informers.settle(timedelta(minutes=1))
        assert (
            "node n1: NotificationFailed: notification gone: it was removed from the configuration meanwhile"
            in caplog.text
        )
        assert "node n1: NotificationFailed: notification tell: its node cannot be read" in caplog.text


@pytest.mark.parametrize(("failures", "sent"), [(4, ["n1"]), (5, [])])
async def test_node_is_read_up_to_five_times_for_its_notification(
    clock: Clock, caplog: pytest.LogCaptureFixture, failures: int, sent: list[str]
) -> None:
    slack = "{type: slack, name: tell, config: {hook: 'https://hooks.example.com/x', channel: ops, message: "
    text = "'{{ .Node.Name }}'}, schedule: {type: periodic, config: {}}}"
    external = FakeExternalClient()
    async with running_informers(
        clock, configuration(notify=slack + text), a_node("n1"), external_client=external
    ) as informers:
        observed = informers.nodes.get("n1")
        assert observed is not None
        informers.transport.faults.fail_before_effect(method="GET", path="/nodes/n1", response=403, times=failures)
        informers.profile_informers.send(NotificationRequest("tell", "os", State.REQUIRED), observed)
        await informers.settle(timedelta(minutes=1))
        assert [request.json["text"] for request in external.requests] == sent
        assert ("node n1: NotificationFailed: notification tell: its node cannot be read" in caplog.text) is (not sent)
