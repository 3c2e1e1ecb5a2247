"""Events about pods, metrics of drains, and the node info."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import RawObject
from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.explain.explanation import parse_node_info
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.controllers.profiles.status import as_json
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.runtime.journal import TRANSITIONS
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.profiles_controller import (
    NAMESPACE,
    event_reasons,
    invariants,
    own_events,
    profiles_controller,
    set_annotations,
    set_labels,
    state,
)

OPERATIONAL, REQUIRED, MAINTAINED = State

FILE = """
intervals: {requeue: 5m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: longer, type: wait, config: {duration: 1h}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain, FORCE}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: before
  operational:
    transitions: [{check: wanted && room, trigger: drain, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted", trigger: uncordon, next: operational}]
- name: after
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: longer, next: in-maintenance}]
  in-maintenance:
    enter: drain
    transitions: [{check: "!wanted", trigger: uncordon, next: operational}]
"""
GENTLE = FILE.replace("FORCE", "forceEviction: false")
FORCEFUL = FILE.replace("FORCE", "forceEviction: true, evictionTimeout: 10m, deletionTimeout: 5m")


def about_pods(cluster: SandboxCluster) -> list[RawObject]:
    """Return the events about pods that are ours, as the core API tells them."""
    found = [item for item in cluster.by_key("events").values() if item.get("reportingComponent") == "maintenance"]
    return [item for item in found if item["involvedObject"]["kind"] == "Pod"]


def reasons(cluster: SandboxCluster) -> dict[str, list[str]]:
    """Return the event reasons of each pod in order."""
    found: dict[str, list[str]] = {}
    for event in sorted(about_pods(cluster), key=lambda event: str(event["eventTime"])):
        found.setdefault(event["involvedObject"]["name"], []).append(event["reason"])
    return found


def a_site(clock: Clock, *objects: RawObject, nodes: int = 2) -> ClusterPlan:
    plan = a_cluster(clock).with_nodes(nodes).with_invariants(*invariants(max_unavailable=1))
    return plan.with_objects(a_namespace(NAMESPACE), *objects)


async def attach(cluster: SandboxCluster, node: str, profile: str) -> None:
    await set_labels(cluster, node, {PROFILE_LABEL: profile, "wanted": ""})


async def wait_for_state(cluster: SandboxCluster, node: str, wanted: str, **within: Any) -> None:
    await cluster.eventually(lambda: state(cluster, node), becomes=wanted, **within)


# Pods


async def test_evicted_pod_has_one_event_however_many_attempts(clock: Clock) -> None:
    pods = [a_pod("shop/free", on="n1")]
    plan = a_site(clock, *pods, nodes=1).with_deployment("shop/kept", replicas=1, budget=1)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(GENTLE))
        await attach(cluster, "n1", "before")
        await cluster.pass_time(minutes=20)
        assert sorted(reasons(cluster).values()) == [["Evicting"], ["Evicting"]]
        event = next(item for item in about_pods(cluster) if item["involvedObject"]["name"] == "free")
        assert event["metadata"]["namespace"] == "shop"
        assert (event["type"], event["action"]) == ("Normal", "Drain")
        assert event["message"] == "Evicting pod during node drain"
        assert (event["related"]["kind"], event["related"]["name"]) == ("Node", "n1")
        assert all(item.get("series") is None for item in about_pods(cluster))
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await wait_for_state(cluster, "n1", MAINTAINED)


async def test_pod_evicted_by_a_successor_has_no_second_event(clock: Clock) -> None:
    plan = a_site(clock, nodes=1).with_deployment("shop/kept", replicas=1, budget=1)
    async with plan.on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE))
        await attach(cluster, "n1", "before")
        await cluster.eventually(lambda: list(reasons(cluster).values()), becomes=[["Evicting"]])
        process.kill()
        process.start()
        before = len(process.transport.sent_requests(method="POST", path="/eviction"))
        await cluster.eventually(lambda: len(process.transport.sent_requests(method="POST", path="/eviction")) > before)
        await cluster.pass_time(minutes=1)
        assert list(reasons(cluster).values()) == [["Evicting"]]
        assert all(event.get("series") is None for event in about_pods(cluster))


async def test_deleted_or_force_deleted_pod_has_its_own_event(clock: Clock) -> None:
    hanging = a_pod("shop/hangs", on="n1", behaviour={"hang": "true"}, grace=20)
    plan = a_site(clock, hanging, nodes=1).with_deployment("shop/kept", replicas=1, budget=1)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(FORCEFUL))
        await attach(cluster, "n1", "before")
        await wait_for_state(cluster, "n1", MAINTAINED, within=timedelta(minutes=30))
        found = reasons(cluster)
        assert found.pop("hangs") == ["Evicting", "ForceDeleting"]
        assert list(found.values()) == [["Evicting", "Deleting"]]
        notes = {event["reason"]: (event["type"], event["message"]) for event in about_pods(cluster)}
        assert notes["ForceDeleting"] == (
            "Normal",
            "Force deleting pod that exceeded grace period during node drain",
        )
        assert notes["Deleting"][0] == "Warning"


# Numbers


def watching(controllers: list[ProfilesController]) -> Callable[[ProfilesController], object]:
    return controllers.append


def rescheduled(controllers: list[ProfilesController], profile: str) -> dict[str, float]:
    """Return the counted pods by owner, over all restarts of the operator."""
    found: Counter[str] = Counter()
    for controller in controllers:
        counted = controller.metrics.rescheduled.values
        found.update({owner: int(number) for (owner, of), number in counted.items() if of == profile})
    return dict(found)


@pytest.mark.parametrize(("profile", "takes"), [("before", timedelta(minutes=5)), ("after", timedelta(hours=2))])
async def test_rescheduled_pods_are_counted_before_they_are_evicted(
    clock: Clock, profile: str, takes: timedelta
) -> None:
    controllers: list[ProfilesController] = []
    plan = a_site(clock, nodes=1).with_deployment("shop/web", replicas=3).with_daemon_set("shop/log")
    plan = plan.with_stateful_set("shop/db", replicas=2)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await attach(cluster, "n1", profile)
        await wait_for_state(cluster, "n1", MAINTAINED, within=takes)
        counted = {"deployment_web": 3, "daemon_set_log": 1, "stateful_set_db": 2}
        await cluster.eventually(lambda: rescheduled(controllers, profile), becomes=counted)
        await set_labels(cluster, "n1", {"noise": "1"})
        await cluster.pass_time(minutes=10)
        assert rescheduled(controllers, profile) == counted
        await set_labels(cluster, "n1", {"wanted": None})
        await wait_for_state(cluster, "n1", OPERATIONAL)
        assert rescheduled(controllers, profile) == counted


@pytest.mark.parametrize(("seconds", "counted"), [(3, {"deployment_web": 2}), (60, {})])
async def test_drain_waits_briefly_until_its_pods_are_counted(
    clock: Clock, seconds: int, counted: dict[str, int]
) -> None:
    controllers: list[ProfilesController] = []
    plan = a_site(clock, nodes=1).with_deployment("shop/web", replicas=2).with_delays(Delays.zero())
    async with plan.on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await wait_for_state(cluster, "n1", OPERATIONAL)
        await cluster.cordon("n1")
        # The first list is that of the counted pods; the drain watches, and lists at its end.
        process.transport.faults.delay(timedelta(seconds=seconds), method="GET", path="/api/v1/pods", times=1)
        await attach(cluster, "n1", "before")
        await wait_for_state(cluster, "n1", MAINTAINED, within=timedelta(seconds=50))
        await cluster.pass_time(minutes=2)
        assert rescheduled(controllers, "before") == counted


async def test_metric_series_exist_before_the_first_rescheduled_pod(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    async with a_site(clock, nodes=1).with_deployment("shop/web", replicas=3).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await attach(cluster, "n1", "after")
        await wait_for_state(cluster, "n1", REQUIRED)
        await cluster.eventually(lambda: rescheduled(controllers, "after"), becomes={"deployment_web": 0})


async def test_transitions_are_counted_by_the_reason_of_their_event(clock: Clock) -> None:
    clients: list[Client] = []

    async def run(client: Client) -> None:
        clients.append(client)
        await profiles_controller(GENTLE)(client)

    async with a_site(clock, nodes=1).on_the_sandbox() as cluster:
        cluster.run(run)
        await attach(cluster, "n1", "before")
        await wait_for_state(cluster, "n1", MAINTAINED)
        await set_labels(cluster, "n1", {"wanted": None})
        await wait_for_state(cluster, "n1", OPERATIONAL)
        assert clients[0].metrics.counter(TRANSITIONS).values == {("profiles", "ChangedMaintenanceState"): 2}


async def test_successor_does_not_count_rescheduled_pods_again(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    plan = a_site(clock, nodes=1).with_deployment("shop/web", replicas=2, budget=2)
    async with plan.on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await attach(cluster, "n1", "before")
        await cluster.eventually(lambda: rescheduled(controllers, "before"), becomes={"deployment_web": 2})
        process.kill()
        process.start()
        await cluster.delete("poddisruptionbudgets", "shop/web")
        await wait_for_state(cluster, "n1", MAINTAINED)
        assert len(controllers) == 2
        assert rescheduled(controllers, "before") == {"deployment_web": 2}


async def test_unreadable_owners_are_not_counted_and_delay_nothing(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    async with a_site(clock, nodes=1).with_deployment("shop/web", replicas=2).on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        process.transport.faults.fail_before_effect(response=403, method="GET", path="/replicasets/", times=None)
        await attach(cluster, "n1", "before")
        await wait_for_state(cluster, "n1", MAINTAINED, within=timedelta(seconds=60))
        assert rescheduled(controllers, "before") == {}


async def test_idle_nodes_cost_no_requests_for_metrics(clock: Clock) -> None:
    async with a_site(clock, nodes=1).with_deployment("shop/web", replicas=2).on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE))
        await wait_for_state(cluster, "n1", OPERATIONAL)
        before = len(process.transport.requests)
        await cluster.pass_time(hours=1)
        others = [request for request in process.transport.requests[before:] if "watch" not in str(request)]
        assert others == []


# Nodes that cannot be changed


@pytest.mark.parametrize("status", [403, 422])
async def test_node_that_cannot_be_patched_is_reported_and_others_get_its_slot(clock: Clock, status: int) -> None:
    controllers: list[ProfilesController] = []
    async with a_site(clock).on_the_sandbox() as cluster:
        process = cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await wait_for_state(cluster, "n1", OPERATIONAL)
        rule = process.transport.faults.fail_before_effect(
            response=status, method="PATCH", path="/nodes/n1", times=None
        )
        await attach(cluster, "n1", "before")
        await cluster.eventually(lambda: event_reasons(cluster, "n1"))
        [event] = own_events(cluster, "n1")
        assert (event["type"], event["reason"]) == ("Warning", "MaintenanceStepFailed")
        assert "reconcile failed and will be retried: " in event["message"]
        raw = as_json(controllers[0].statuses.all(), label_filter=())
        assert next(item for item in raw if item["node"] == "n1")["problem"] == event["message"]
        await attach(cluster, "n2", "before")
        await wait_for_state(cluster, "n2", MAINTAINED)
        await cluster.pass_time(minutes=20)
        assert set(event_reasons(cluster, "n1")) == {"MaintenanceStepFailed"}
        assert len(own_events(cluster, "n1")) <= 5
        process.transport.faults.remove(rule)
        await set_labels(cluster, "n2", {"wanted": None})
        await wait_for_state(cluster, "n1", MAINTAINED, within=timedelta(minutes=10))
        raw = as_json(controllers[0].statuses.all(), label_filter=())
        assert next(item for item in raw if item["node"] == "n1")["problem"] == ""


# Node info


async def test_node_info_is_parsed_by_haulout_why(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    plan = a_site(clock, nodes=2).with_deployment("shop/kept", replicas=2, budget=2)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(GENTLE, on_started=watching(controllers)))
        await attach(cluster, "n1", "before")
        await attach(cluster, "n2", "before--after")
        await wait_for_state(cluster, "n2", REQUIRED)
        await set_annotations(cluster, "n2", noise="1")
        await cluster.pass_time(minutes=1)
        body = msgspec.json.encode(as_json(controllers[0].statuses.all(), label_filter=()))
        one, two = parse_node_info(body, "n1"), parse_node_info(body, "n2")
        assert one is not None
        assert two is not None
        assert one.profiles[0].waiting_for.startswith(("0 of", "1 of", "2 of"))
        assert isinstance(two.next_reconcile, datetime)
        assert timedelta(minutes=58) < two.next_reconcile - clock.now() < timedelta(hours=1)
        assert "budget" in two.requeue_on
        assert two.query_interval is None


def test_refused_transition_without_a_veto_gets_the_likely_reason() -> None:
    """The Go controller sends no `veto`."""
    way = b'{"passed":false,"target":"in-maintenance","chain":{"passed":true,"expression":"a"}}'
    found = parse_node_info(
        b'[{"node":"n1","profiles":[{"name":"os","applied":{"transitions":[' + way + b"]}}]}]", "n1"
    )
    assert found is not None
    assert found.profiles[0].transitions[0].veto == "probably another profile has the node in maintenance"
