"""The Kubernikus controller with failing clouds, blocking PodDisruptionBudgets and interfering users."""

from datetime import timedelta

import pytest

from haulout.api.clusterapi import DRAIN_RULES
from haulout.controllers.kubernikus.controller import KubernikusController
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.policy import DrainPolicy
from haulout.errors import LeadershipHandover
from haulout.kube.client import Client
from haulout_sandbox.apiserver import discovery
from support.builders.objects import a_node
from support.clouds.openstack import OpenStackCloud, Paces
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.invariants import PodDisruptionBudgetsRespected
from support.platforms.kubernikus import (
    INTERVAL,
    SETTINGS,
    a_kubernikus_cluster_on_the_sandbox,
    event_notes,
    is_cordoned,
    kubernikus_controller,
    needs_update,
    noted_server,
    request_deletion,
    server_names,
)

MINUTE = timedelta(minutes=1)
NEVER = Paces(replacement=timedelta(days=1), boot=timedelta(days=1))


def request_count(cloud: OpenStackCloud, operation: str) -> int:
    return cloud.faults.calls.count(operation)


def patch_count(cluster: SandboxCluster, node: str) -> int:
    return sum(write.username == "operator" and write.key == node for write in cluster.history)


async def wait_until_deleted(cluster: SandboxCluster, node: str) -> None:
    await cluster.eventually(lambda: not cluster.has("nodes", node), within=10 * MINUTE)


async def test_daemon_set_pods_stay_and_all_others_leave_before_the_server_is_deleted(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=4).with_daemon_set("shop/log")
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=2) as (cluster, cloud):
        before = {pod.rpartition("-")[0] for pod in cluster.pods_on("pool-1")}
        assert len(before) == 2
        cloud.faults.hang("ListServers")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: request_count(cloud, "ListServers"), becomes=1)
        (left,) = cluster.pods_on("pool-1")
        assert left.startswith("shop/log")


async def test_pdb_delays_the_deletion_and_is_reported(clock: Clock) -> None:
    plan = (
        a_cluster(clock)
        .with_deployment("shop/cart", replicas=1, budget=1)
        .with_invariants(PodDisruptionBudgetsRespected())
    )
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "DrainBlocked" in event_notes(cluster, "pool-1"))
        assert "PodDisruptionBudget shop/cart" in event_notes(cluster, "pool-1")["DrainBlocked"]
        await cluster.pass_time(minutes=10)
        assert (server_names(cloud), request_count(cloud, "ListServers")) == (["pool-1"], 0)
        await cluster.delete("poddisruptionbudgets", "shop/cart")
        await wait_until_deleted(cluster, "pool-1")


async def test_eviction_timeout_deletes_a_blocked_pod(clock: Clock) -> None:
    policy = DrainPolicy.like_smc(eviction_timeout=2 * MINUTE, deletion_timeout=MINUTE)
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, KubernikusSettings(interval=INTERVAL, policy=policy)))
        began = clock.now()
        await request_deletion(cluster, "pool-1")
        await wait_until_deleted(cluster, "pool-1")
        assert 2 * MINUTE <= clock.now() - began < 4 * MINUTE


async def test_machine_drain_rules_of_the_node_apply(clock: Clock) -> None:
    rules = '{"rules": [{"name": "all", "behavior": "Skip"}]}'
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        await cluster.patch("nodes", "pool-1", metadata={"annotations": {DRAIN_RULES: rules}})
        before = cluster.pods_on("pool-1")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: request_count(cloud, "DeleteServer"), becomes=1)
        assert cluster.pods_on("pool-1") == before
        assert before


async def test_idle_controller_reads_only_the_version_and_writes_nothing(clock: Clock) -> None:
    """The Go controller sends two requests per node and period: GET /version, and an empty patch."""
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=20) as (cluster, cloud):
        process = cluster.run(kubernikus_controller(cloud))
        await cluster.eventually(lambda: needs_update(cluster, "pool-20"), becomes="false")
        await cluster.pass_time(seconds=1)
        before = len(process.transport.requests)
        await cluster.pass_time(minutes=10)
        requested_paths = [
            item.request.path for item in list(process.transport.requests)[before:] if "watch" not in str(item)
        ]
        assert set(requested_paths) <= {"/version", "/api/v1/nodes"}
        assert requested_paths.count("/version") == pytest.approx(10 * MINUTE / INTERVAL, abs=2)
        assert patch_count(cluster, "pool-1") == 1
        assert not cloud.faults.calls


async def test_new_server_version_relabels_all_nodes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[KubernikusController] = []
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=3) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, on_created=made.append))
        await cluster.eventually(
            lambda: [needs_update(cluster, f"pool-{number}") for number in (1, 2, 3)] == ["false"] * 3
        )
        assert made[0].kubelet_versions.outdated_count() == 0
        monkeypatch.setitem(discovery.VERSION, "gitVersion", "v1.37.0")
        await cluster.eventually(
            lambda: [needs_update(cluster, f"pool-{number}") for number in (1, 2, 3)] == ["true"] * 3,
            within=2 * INTERVAL,
        )
        await cluster.eventually(made[0].kubelet_versions.outdated_count, becomes=3)


async def test_invalid_server_version_leaves_labels_unchanged(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[KubernikusController] = []
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, on_created=made.append))
        await cluster.eventually(lambda: needs_update(cluster, "pool-1"), becomes="false")
        monkeypatch.setitem(discovery.VERSION, "gitVersion", "banana")
        await cluster.eventually(lambda: "KubeletVersionUnknown" in event_notes(cluster, "pool-1"))
        assert needs_update(cluster, "pool-1") == "false"
        assert any("the API server reports" in problem for problem in made[0].problems())


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param(403, "Policy doesn't allow os_compute_api:servers:delete to be performed.", id="forbidden"),
        pytest.param(401, "The request you have made requires authentication.", id="the credentials are wrong"),
        pytest.param(503, "Service Unavailable", id="down"),
        pytest.param(0, "Connection refused", id="no answer"),
    ],
)
@pytest.mark.parametrize("operation", ["ListServers", "DeleteServer"])
async def test_nova_error_is_reported_and_retried(clock: Clock, operation: str, status: int, message: str) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        rule = cloud.faults.fail(operation, status=status, message=message, times=None)
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: message in event_notes(cluster, "pool-1").get("CloudRequestFailed", ""))
        await cluster.pass_time(minutes=15)
        assert 5 < request_count(cloud, operation) < 15
        assert server_names(cloud) == ["pool-1"]
        cloud.faults.remove(rule)
        await wait_until_deleted(cluster, "pool-1")


async def test_retry_after_of_the_cloud_is_respected(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        cloud.faults.fail("ListServers", status=429, retry_after=7 * MINUTE)
        await request_deletion(cluster, "pool-1")
        await cluster.pass_time(minutes=6)
        assert request_count(cloud, "ListServers") == 1
        await wait_until_deleted(cluster, "pool-1")


async def test_hanging_cloud_request_delays_no_other_node(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=3) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        cloud.faults.hang("ListServers")
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: request_count(cloud, "ListServers"), becomes=1)
        await request_deletion(cluster, "pool-2")
        await cluster.eventually(lambda: not cluster.has("nodes", "pool-2"), within=MINUTE)
        await cluster.eventually(
            lambda: "no answer within" in event_notes(cluster, "pool-1").get("CloudRequestFailed", "")
        )
        await wait_until_deleted(cluster, "pool-1")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_deletion_with_a_lost_response_happens_once(clock: Clock, *, after: bool) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=2) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        cloud.faults.fail("DeleteServer", status=0, after=after)
        await request_deletion(cluster, "pool-1")
        await wait_until_deleted(cluster, "pool-1")
        await cluster.pass_time(minutes=5)
        assert "pool-2" in server_names(cloud)
        assert len(server_names(cloud)) == 2


async def test_missing_server_is_reported_and_nothing_is_deleted(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1, delays=NEVER) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await cluster.create(dict(a_node("pool")))
        await request_deletion(cluster, "pool")
        await cluster.eventually(lambda: "ServerNotFound" in event_notes(cluster, "pool"))
        await cluster.pass_time(minutes=10)
        assert server_names(cloud) == ["pool-1"]
        assert request_count(cloud, "DeleteServer") == 0
        assert request_count(cloud, "ListServers") == pytest.approx(10 * MINUTE / INTERVAL, abs=3)


async def test_two_servers_of_the_same_name_are_reported_and_not_deleted(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1) as (cluster, cloud):
        twin = cloud.boot("pool-1")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "ServerAmbiguous" in event_notes(cluster, "pool-1"))
        assert twin in event_notes(cluster, "pool-1")["ServerAmbiguous"]
        await cluster.pass_time(minutes=10)
        assert request_count(cloud, "DeleteServer") == 0
        cloud.remove_server(twin)
        await wait_until_deleted(cluster, "pool-1")


async def test_server_with_the_node_name_but_another_id_is_not_deleted(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1, delays=NEVER) as (cluster, cloud):
        (first,) = cloud.all_servers
        cloud.all_servers[first].name = "pool-renamed"
        other = cloud.boot("pool-1")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "ServerIDMismatch" in event_notes(cluster, "pool-1"))
        note = event_notes(cluster, "pool-1")["ServerIDMismatch"]
        assert first in note
        assert other in note
        assert request_count(cloud, "DeleteServer") == 0
        assert noted_server(cluster, "pool-1") == ""


async def test_server_that_reuses_the_name_of_a_deleted_server_is_not_deleted(clock: Clock) -> None:
    """A node without a providerID that is not removed: by name alone each successor would be deleted, too."""
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=1, delays=NEVER) as (cluster, cloud):
        await cluster.create(dict(a_node("other-1")))
        first = cloud.boot("other-1")
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "other-1")
        await cluster.eventually(lambda: first not in cloud.all_servers)
        await cluster.eventually(lambda: "ServerGone" in event_notes(cluster, "other-1"))
        second = cloud.boot("other-1")
        await cluster.eventually(lambda: "ServerReplaced" in event_notes(cluster, "other-1"))
        await cluster.pass_time(minutes=10)
        assert second in cloud.all_servers
        assert request_count(cloud, "DeleteServer") == 1


async def test_node_of_another_cloud_is_not_cordoned(clock: Clock) -> None:
    plan = a_cluster(clock).with_nodes(1, provider_id="aws:///eu-west-1a/i-0abc")
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "n1")
        await cluster.eventually(lambda: "NotAnOpenStackServer" in event_notes(cluster, "n1"))
        assert not cluster.get("nodes", "n1")["spec"].get("unschedulable")
        assert not cloud.faults.calls


async def test_node_deleted_meanwhile_leaves_no_state(clock: Clock) -> None:
    made: list[KubernikusController] = []
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1, delays=NEVER) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, on_created=made.append))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await cluster.kubelets.remove("pool-1")
        await cluster.pass_time(minutes=1)
        assert (made[0].order_count(), made[0]._drains.peek("pool-1")) == (0, None)
        assert request_count(cloud, "ListServers") == 0
        assert made[0]._queue.stats().delayed == 0


async def test_recreated_node_is_not_deleted_for_the_order_of_its_predecessor(clock: Clock) -> None:
    plan = a_cluster(clock)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        cloud.faults.delay("ListServers", duration=30 * timedelta(seconds=1), times=1)
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: request_count(cloud, "ListServers"), becomes=1)
        (first,) = cloud.all_servers
        cloud.remove_server(first)
        await cluster.eventually(lambda: not cluster.has("nodes", "pool-1"))
        second = cloud.boot("pool-1")
        await cluster.eventually(lambda: cluster.has("nodes", "pool-1"))
        await cluster.pass_time(minutes=5)
        assert second in cloud.all_servers


async def test_repeated_uncordon_is_restored_at_a_limited_rate(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        for _ in range(300):
            await cluster.uncordon("pool-1")
            await cluster.pass_time(seconds=0.1)
        assert patch_count(cluster, "pool-1") < 8
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        assert "CordonRestored" in event_notes(cluster, "pool-1")


async def test_changed_settings_apply_at_once(clock: Clock) -> None:
    made: list[KubernikusController] = []
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud, on_created=made.append))
        await request_deletion(cluster, "pool-1")
        await cluster.pass_time(minutes=10)
        assert cluster.has("nodes", "pool-1")
        policy = DrainPolicy.like_smc(eviction_timeout=MINUTE, deletion_timeout=MINUTE)
        made[0].update_settings(KubernikusSettings(interval=INTERVAL, policy=policy))
        await wait_until_deleted(cluster, "pool-1")


async def test_leader_hands_over_before_its_own_node_is_drained(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=2) as (cluster, cloud):
        before = cluster.pods_on("pool-1")
        raised: list[LeadershipHandover] = []
        work = kubernikus_controller(cloud, SETTINGS, own_node="pool-1")

        async def program(client: Client) -> None:
            try:
                await work(client)
            except* LeadershipHandover as error:
                raised.extend(exception for exception in error.exceptions if isinstance(exception, LeadershipHandover))

        cluster.run(program)
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: raised)
        assert cluster.pods_on("pool-1") == before
        assert is_cordoned(cluster, "pool-1")
        cluster.run(kubernikus_controller(cloud), name="successor")
        await wait_until_deleted(cluster, "pool-1")


async def test_deletion_event_states_how_many_other_nodes_are_unavailable(clock: Clock) -> None:
    async with a_kubernikus_cluster_on_the_sandbox(a_cluster(clock), nodes=4) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        cloud.faults.fail("ListServers", status=503, times=None)
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: "DeletionOrdered" in event_notes(cluster, "pool-1"))
        assert "all other nodes are available" in event_notes(cluster, "pool-1")["DeletionOrdered"]
        await request_deletion(cluster, "pool-2")
        await cluster.eventually(lambda: "DeletionOrdered" in event_notes(cluster, "pool-2"))
        assert "1 of 3 other nodes are unavailable" in event_notes(cluster, "pool-2")["DeletionOrdered"]


@pytest.mark.parametrize("mark", [None, "{}", "?"])
async def test_node_with_an_edited_cordon_annotation_is_released_when_the_order_is_withdrawn(
    clock: Clock, mark: str | None
) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=1, budget=1)
    async with a_kubernikus_cluster_on_the_sandbox(plan, nodes=1) as (cluster, cloud):
        cluster.run(kubernikus_controller(cloud))
        await request_deletion(cluster, "pool-1")
        await cluster.eventually(lambda: is_cordoned(cluster, "pool-1"))
        await cluster.patch("nodes", "pool-1", metadata={"annotations": {cordon.CORDON_ANNOTATION: mark}})
        await cluster.eventually(lambda: "CordonRestored" in event_notes(cluster, "pool-1"))
        await request_deletion(cluster, "pool-1", value=None)
        await cluster.eventually(lambda: not cluster.get("nodes", "pool-1")["spec"].get("unschedulable"))
        left = cluster.get("nodes", "pool-1")["metadata"].get("annotations", {}).keys()
        assert not {cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION} & left
