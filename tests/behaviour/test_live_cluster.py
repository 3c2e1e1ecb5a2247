"""What holds in a whole cluster, whether its controllers are the sandbox's or those of Kubernetes."""

from datetime import timedelta

from haulout.api.objects import RawObject
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import belongs_to
from support.expectations.objects import count_staying_pods, object_snapshots

SECONDS = timedelta(seconds=3)


def restart_count(pod: RawObject) -> int:
    """Count how often the containers of a pod were started again."""
    return sum(container_statuse["restartCount"] for container_statuse in pod["status"]["containerStatuses"])


async def test_rolling_restart_respects_surge_and_unavailability_at_every_moment(a_cluster: PlanFactory) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    plan = a_cluster().with_nodes(3).with_deployment("shop/cart", replicas=4, strategy=strategy)
    async with plan.running() as cluster:
        since, before = cluster.revision, {pod["metadata"]["uid"] for pod in cluster.pods_of("shop/cart")}
        await cluster.restart_rollout("shop/cart")
        await cluster.eventually(lambda: not before & {pod["metadata"]["uid"] for pod in cluster.pods_of("shop/cart")})
        await cluster.eventually(lambda: cluster.is_rolled_out("shop/cart"))
        pods = list(object_snapshots(cluster.history, "pods", since=since, predicate=belongs_to("shop/cart")))
        assert max(map(count_staying_pods, pods)) <= 5
        assert cluster.min_ready_pods("shop/cart", since=since) == 3


async def test_drain_by_evictions_respects_a_disruption_budget(a_cluster: PlanFactory) -> None:
    plan = a_cluster().with_nodes(3).with_deployment("shop/cart", replicas=6, budget="80%")
    async with plan.running() as cluster:
        assert cluster.pods_on("n1")
        since = cluster.revision
        await cluster.drain("n1")
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=6)
        assert cluster.min_ready_pods("shop/cart", since=since) == 5
        assert cluster.pods_on("n1") == []


async def test_pods_of_a_stopped_kubelet_are_replaced(a_cluster: PlanFactory) -> None:
    plan = a_cluster().with_nodes(3).with_deployment("shop/cart", replicas=3, tolerates_lost_node_for=SECONDS)
    async with plan.running() as cluster:
        old_pods = cluster.pods_on("n1")
        assert old_pods
        cluster.stop_kubelet("n1")
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=[])
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3)
        assert all(cluster.has("pods", pod) for pod in old_pods), "nobody can say yet that they have stopped"
        cluster.start_kubelet("n1")
        await cluster.eventually(lambda: [pod for pod in old_pods if cluster.has("pods", pod)], becomes=[])
        await cluster.eventually(lambda: cluster.node_is_ready("n1"))


async def test_rebooted_node_returns_with_its_pods(a_cluster: PlanFactory) -> None:
    async with a_cluster().with_nodes(2).with_stateful_set("shop/db", replicas=2).running() as cluster:
        node = cluster.get("pods", "shop/db-0")["spec"]["nodeName"]
        boot = cluster.get("nodes", node)["status"]["nodeInfo"]["bootID"]
        cluster.reboot(node, duration=SECONDS)
        await cluster.eventually(lambda: cluster.get("nodes", node)["status"]["nodeInfo"]["bootID"] != boot)
        await cluster.eventually(lambda: restart_count(cluster.get("pods", "shop/db-0")), becomes=1)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/db"), becomes=2)
