"""What happens in a scenario: each thing that can, as a cluster on simulated time sees it."""

import pytest

from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import ApiError, ConfigError, ServerFailure, Unreachable
from haulout_sandbox.cluster import ADMIN, Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from haulout_sandbox.scenarios.loader import ACTION_FIELDS, parse
from haulout_sandbox.scenarios.model import TimelineEntry
from haulout_sandbox.scenarios.scenario_cluster import ScenarioCluster
from support.clusters.scenario_run import SECOND, THREE_NODES, running_scenario


def test_each_action_of_a_timeline_has_a_handler(clock: Clock) -> None:
    scenario = ScenarioCluster(Cluster(clock), parse(THREE_NODES.encode(), file="s.yaml", name="s"))
    names = dict(zip(TimelineEntry.__struct_fields__, TimelineEntry.__struct_encode_fields__, strict=True))
    assert set(scenario.action_handlers) == {names[action] for action in ACTION_FIELDS}


# When


async def test_things_happen_at_their_time_and_on_their_beat(clock: Clock) -> None:
    lines = """
  - {at: 10s, compact: {}}
  - {every: 20s, until: 70s, compact: {}}
  - {at: 5s, every: 30s, compact: {}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(90)
        assert [at for at, _ in run.log] == [5, 10, 20, 35, 40, 60, 65]


async def test_what_takes_longer_than_its_beat_skips_one(clock: Clock) -> None:
    async with running_scenario(clock, "  - {every: 20s, cordon: {nodes: general-01, for: 30s}}") as run:
        await run.wait_until_second(130)
        started_at = [at for at, what in run.log if what.startswith("cordoned")]
        assert started_at == [20, 60, 100]


async def test_a_failed_action_is_reported_and_the_timeline_continues(clock: Clock) -> None:
    lines = """
  - {at: 1s, reboot: {nodes: nobody}}
  - {at: 2s, delete: {kind: ConfigMap, name: none}}
  - {at: 3s, delete: {kind: Dragon, name: none}}
  - {at: 4s, cordon: {nodes: general-01}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(5)
        assert run.log == [
            (1, "reboot failed: there is no machine nobody"),
            (2, 'delete failed: deleting configmaps default/none: configmaps "none" not found'),
            (3, "delete failed: the cluster serves no Dragon"),
            (4, "cordoned: general-01"),
        ]


def test_the_same_seed_chooses_the_same() -> None:
    lines = "  - {every: 30s, stopKubelet: {nodes: {count: 1}, for: 5s}}\n  - {every: 40s, deletePods: {count: 2}}"

    async def story() -> list[tuple[float, str]]:
        async with running_scenario(VirtualClock(), lines) as run:
            await run.wait_until_second(300)
            return run.log

    first, second = run_virtual(story()), run_virtual(story())
    assert len({what for _, what in first}) > 5
    assert first == second


# Nodes


async def test_a_reboot_loses_what_ran_and_comes_back(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, reboot: {nodes: {zone: b}, for: 3m}}") as run:
        before = run.node("general-02")["status"]["nodeInfo"]["bootID"]
        await run.wait_until_second(2)
        assert run.log == [(1, "reboots: general-02, back in 3m")]
        await run.wait_until(lambda: run.node_ready("general-02") == "Unknown")
        await run.wait_until(lambda: run.node_ready("general-02") == "True")
        assert run.node("general-02")["status"]["nodeInfo"]["bootID"] != before


async def test_a_kubelet_dies_for_a_while(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, stopKubelet: {nodes: [general-01], for: 2m}}") as run:
        await run.wait_until(lambda: run.node_ready("general-01") == "Unknown")
        await run.wait_until(lambda: run.node_ready("general-01") == "True")
        assert run.log == [(1, "kubelet stops for 2m: general-01"), (121, "kubelet back: general-01")]


async def test_a_kubelet_dies_for_good_until_it_is_revived(clock: Clock) -> None:
    lines = "  - {at: 1s, stopKubelet: {nodes: general-01}}\n  - {at: 5m, startKubelet: {nodes: general-01}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(290)
        assert run.node_ready("general-01") == "Unknown"
        await run.wait_until(lambda: run.node_ready("general-01") == "True")


async def test_a_node_is_not_ready_for_a_while(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, notReady: {nodes: general-01, problem: no disk, for: 1m}}") as run:
        await run.wait_until_second(5)
        ready = next(
            condition for condition in run.node("general-01")["status"]["conditions"] if condition["type"] == "Ready"
        )
        assert (ready["status"], ready["message"]) == ("False", "no disk")
        await run.wait_until_second(60)
        assert run.node_ready("general-01") == "True"


async def test_machines_come_and_go(clock: Clock) -> None:
    lines = "  - {at: 1s, addNodes: {pool: general, count: 2}}\n  - {at: 1m, removeNodes: {nodes: general-01}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until(lambda: run.api.has("nodes", "general-05") and run.node_ready("general-05") == "True")
        assert run.node("general-04")["metadata"]["labels"]["sandbox.haulout.dev/pool"] == "general"
        await run.wait_until(lambda: not run.api.has("nodes", "general-01"))
        assert "general-01" not in run.cluster.kubelets.names


async def test_a_machine_is_removed_also_while_the_kubelets_are_cut_off(clock: Clock) -> None:
    lines = (
        "  - {at: 1s, breakConnections: {clients: [kubelets], for: 1h}}\n  - {at: 2s, removeNodes: {nodes: general-01}}"
    )
    async with running_scenario(clock, lines) as run:
        await run.wait_until(lambda: not run.api.has("nodes", "general-01"))


async def test_nodes_are_cordoned_and_uncordoned(clock: Clock) -> None:
    lines = """
  - {at: 1s, cordon: {nodes: general-01, for: 10s}}
  - {at: 1s, cordon: {nodes: general-02}}
  - {at: 20s, uncordon: {nodes: general-02}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(5)
        assert [run.node(f"general-0{item}")["spec"].get("unschedulable") for item in (1, 2, 3)] == [True, True, None]
        await run.wait_until_second(10)
        assert "unschedulable" not in run.node("general-01")["spec"]
        await run.wait_until_second(10)
        assert "unschedulable" not in run.node("general-02")["spec"]


async def test_a_taint_comes_and_goes_and_others_stay(clock: Clock) -> None:
    lines = """
  - {at: 1s, taint: {nodes: general-01, key: mine, effect: NoSchedule}}
  - {at: 2s, taint: {nodes: general-01, key: dirty, value: very, effect: NoExecute, for: 10s}}
  - {at: 30s, untaint: {nodes: general-01, key: mine}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(5)
        mine = {"key": "mine", "effect": "NoSchedule"}
        taints = [
            {key: taint[key] for key in taint if key != "timeAdded"}
            for taint in run.node("general-01")["spec"]["taints"]
        ]
        assert taints == [mine, {"key": "dirty", "value": "very", "effect": "NoExecute"}]
        await run.wait_until_second(10)
        assert run.node("general-01")["spec"]["taints"] == [mine]
        await run.wait_until_second(20)
        assert "taints" not in run.node("general-01")["spec"]


async def test_labels_are_set_for_a_while_and_then_as_before(clock: Clock) -> None:
    lines = "  - {at: 1s, label: {nodes: {}, labels: {new: x, topology.kubernetes.io/zone: null}, for: 10s}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(5)
        labels = run.node("general-01")["metadata"]["labels"]
        assert (labels["new"], labels.get("topology.kubernetes.io/zone")) == ("x", None)
        await run.wait_until_second(10)
        labels = run.node("general-01")["metadata"]["labels"]
        assert (labels.get("new"), labels["topology.kubernetes.io/zone"]) == (None, "a")


async def test_a_choice_can_leave_out_nodes_that_run_something(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, cordon: {nodes: {without: {app: ledger}}}}") as run:
        await run.wait_until_second(2)
        busy = {pod["spec"]["nodeName"] for pod in run.api.objects("pods", namespace="bank")}
        cordoned = {node["metadata"]["name"] for node in run.api.objects("nodes") if node["spec"].get("unschedulable")}
        assert (len(busy), cordoned) == (2, {"general-01", "general-02", "general-03"} - busy)


async def test_a_selection_that_matches_nothing_is_reported(clock: Clock) -> None:
    lines = "  - {at: 1s, reboot: {nodes: {zone: nowhere}}}\n  - {at: 2s, restart: {name: none}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(3)
        assert [what for _, what in run.log] == [
            "reboots: no node fits, back in 2m",
            "rollout restart: no Deployment fits",
        ]


# Objects


async def test_a_rollout_is_restarted(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, restart: {namespace: shop}}") as run:
        before = run.pods("shop")
        await run.wait_until(lambda: not set(before) & set(run.pods("shop")))
        await run.wait_until(lambda: len(run.pods("shop")) == 3)
        assert run.log == [(1, "rollout restart: shop/web")]


async def test_a_workload_is_scaled(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, scale: {kind: StatefulSet, name: ledger, replicas: 4}}") as run:
        await run.wait_until(lambda: len(run.pods("bank")) == 4)


async def test_pods_are_deleted_and_evicted_as_budgets_allow(clock: Clock) -> None:
    lines = """
  - {at: 1s, deletePods: {namespace: shop, count: 1}}
  - {at: 60s, evictPods: {labels: {app: web}}}
  - {at: 61s, evictPods: {namespace: bank}}
"""
    async with running_scenario(clock, lines) as run:
        before = run.pods("shop")
        await run.wait_until_second(50)
        assert len(set(before) & set(run.pods("shop"))) == 2
        between = run.pods("shop")
        await run.wait_until_second(50)
        assert not set(between) & set(run.pods("shop"))
        assert run.log[-1] == (61, "evicted: none; refused by a budget: bank/ledger-0, bank/ledger-1")


async def test_objects_are_applied_patched_and_deleted(clock: Clock) -> None:
    lines = """
  - {at: 1s, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: note, namespace: new}, data: {a: b}}}
  - {at: 2s, apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: note, namespace: new}, data: {a: c}}}
  - {at: 3s, patch: {kind: ConfigMap, name: note, namespace: new, patch: {data: {d: e}}}}
  - {at: 9s, delete: {kind: configmap, name: note, namespace: new}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(5)
        assert run.api.get("configmaps", "note", "new")["data"] == {"a": "c", "d": "e"}
        assert run.api.has("namespaces", "new")
        await run.wait_until_second(5)
        assert not run.api.has("configmaps", "note", "new")
        assert run.log[-1] == (9, "deleted: configmap new/note")


async def test_what_the_server_refuses_at_the_beginning_is_an_error_of_the_scenario(clock: Clock) -> None:
    bad = "manifests: [{apiVersion: example.com/v1, kind: Dragon, metadata: {name: smaug}}]\n"
    with pytest.raises(ConfigError, match=r"s.yaml: Dragon smaug: the cluster serves no example.com/v1 Dragon"):
        async with running_scenario(clock, "  []", base=THREE_NODES + bad):
            pass


# Components and lines


async def test_a_component_is_paused_for_a_while(clock: Clock) -> None:
    lines = """
  - {at: 1s, pause: {components: [scheduler], for: 2m}}
  - {at: 2s, scale: {name: web, namespace: shop, replicas: 4}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(100)
        waiting = [pod for pod in run.api.objects("pods", namespace="shop") if "nodeName" not in pod["spec"]]
        assert len(waiting) == 1
        await run.wait_until(
            lambda: all("nodeName" in pod["spec"] for pod in run.api.objects("pods", namespace="shop"))
        )


async def test_a_component_is_paused_for_good_until_it_is_resumed(clock: Clock) -> None:
    lines = """
  - {at: 1s, pause: {components: [deployments, replicasets]}}
  - {at: 2s, scale: {name: web, namespace: shop, replicas: 4}}
  - {at: 5m, resume: {components: [deployments, replicasets]}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(290)
        assert len(run.pods("shop")) == 3
        await run.wait_until(lambda: len(run.pods("shop")) == 4)


async def test_requests_are_refused_for_a_while(clock: Clock) -> None:
    lines = "  - {at: 1s, failRequests: {code: 500, method: GET, path: /nodes, clients: [admin], for: 1m}}"
    async with running_scenario(clock, lines) as run:
        client = run.cluster.client(ADMIN)
        await run.wait_until_second(2)
        with pytest.raises(ServerFailure, match="an error on the server"):
            await client.get(NODES, "general-01")
        await run.wait_until_second(60)
        assert (await client.get(NODES, "general-01")).name == "general-01"


async def test_a_share_of_requests_is_refused(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, failRequests: {code: 409, chance: 0.5, clients: [admin]}}") as run:
        await run.wait_until_second(2)
        client, answers = run.cluster.client(ADMIN), []
        for _ in range(40):
            try:
                answers.append((await client.get(NODES, "general-01")).name)
            except ApiError:
                answers.append("refused")
        assert 10 < answers.count("refused") < 30


async def test_answers_are_lost_though_the_request_took_effect(clock: Clock) -> None:
    lines = "  - {at: 1s, dropResponses: {method: DELETE, clients: [admin], for: 1m}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(2)
        with pytest.raises(Unreachable):
            await run.cluster.client(ADMIN).delete(NODES, "general-01")
        assert not run.api.has("nodes", "general-01")


async def test_requests_take_longer(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, delayRequests: {by: 5s, clients: [admin], for: 1m}}") as run:
        await run.wait_until_second(2)
        began = clock.now()
        await run.cluster.client(ADMIN).get(NODES, "general-01")
        assert clock.now() - began >= 5 * SECOND


@pytest.mark.parametrize("action", ["breakConnections", "stallConnections"])
async def test_a_client_is_cut_off_for_a_while(clock: Clock, action: str) -> None:
    async with running_scenario(clock, f"  - {{at: 1s, {action}: {{clients: [kubelets], for: 4m}}}}") as run:
        await run.wait_until(lambda: run.node_ready("general-01") == "Unknown")
        await run.wait_until(lambda: run.node_ready("general-01") == "True")


async def test_broken_connections_can_be_opened_again_at_once(clock: Clock) -> None:
    lines = "  - {at: 1s, breakConnections: {}}\n  - {at: 2s, scale: {name: web, namespace: shop, replicas: 4}}"
    async with running_scenario(clock, lines) as run:
        await run.wait_until(lambda: len(run.pods("shop")) == 4)
        assert run.log[0] == (1, "disconnected: everybody")


async def test_the_cluster_recovers_from_a_restart_of_its_server(clock: Clock) -> None:
    lines = """
  - {at: 1s, restartServer: {for: 30s}}
  - {at: 40s, compact: {}}
  - {at: 60s, scale: {name: web, namespace: shop, replicas: 5}}
"""
    async with running_scenario(clock, lines) as run:
        await run.wait_until_second(10)
        with pytest.raises(Unreachable):
            await run.cluster.client("kubelets").get(NODES, "general-01")
        await run.wait_until(lambda: len(run.pods("shop")) == 5)
        assert run.log[:2] == [(1, "API server restarts, back in 30s"), (31, "API server is back")]
        await run.wait_until(lambda: all(run.node_ready(f"general-0{item}") == "True" for item in (1, 2, 3)))
