"""The profiles controller in a cluster: acceptance cases and number of writes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest

from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CONFIG_MAP
from haulout.controllers.profiles import decision, reconciler
from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from haulout.controllers.profiles.status import as_json
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace, a_node, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.operators.profiles_controller import (
    NAMESPACE,
    NotificationLog,
    data_annotation,
    event_reasons,
    invariants,
    is_cordoned,
    labels,
    profiles_controller,
    set_annotations,
    set_labels,
    state,
    states,
)

OPERATIONAL, REQUIRED, MAINTAINED = State

SUITE = """
intervals: {requeue: 200ms, notify: 500ms}
dashboard: {labelFilter: [cloud.sap/maintenance-profile, nothing]}
instances:
  check:
  - {name: transition, type: hasLabel, config: {key: transition, value: "true"}}
  - {name: approved, type: hasAnnotation, config: {key: approved}}
  - {name: done, type: hasAnnotation, config: {key: done}}
  - {name: fail, type: clusterSemver, config: {key: version}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: turn, type: stagger, config: {duration: 1h, leaseName: mc-lease, leaseNamespace: haulout}}
  - {name: turns, type: stagger, config: {duration: 1h, leaseName: two, leaseNamespace: haulout, parallel: 2}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {name: alter, type: alterLabel, config: {key: alter, value: "true"}}
  - {name: entered, type: alterLabel, config: {key: entered, value: "true"}}
  - {name: left, type: alterLabel, config: {key: left, value: "true"}}
  - {name: cordon, type: eviction, config: {action: cordon}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: hypervisor, type: alterHypervisor, config: {reboot: true}}
profiles:
- name: test
  operational:
    transitions: [{check: transition, next: maintenance-required, trigger: alter}]
- name: block
  operational:
    transitions: [{check: transition, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: transition, next: in-maintenance}]
- name: multi
  operational:
    transitions: [{check: transition, next: in-maintenance, trigger: alter}]
- name: to-maintenance
  operational:
    transitions: [{check: transition, next: in-maintenance}]
- name: broken
  operational:
    transitions: [{check: fail, next: maintenance-required}]
- name: trace
  operational:
    transitions: [{check: transition, next: maintenance-required, trigger: alter}]
  maintenance-required:
    notify: told
    transitions: [{check: approved, next: in-maintenance, trigger: left}]
  in-maintenance:
    enter: entered
    transitions: [{check: done, next: operational}]
- name: roomy
  operational:
    transitions: [{check: transition && room, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: done, next: operational}]
- name: turn
  operational:
    transitions: [{check: transition && turn, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: done && turn, next: operational}]
- name: turns
  operational:
    transitions: [{check: transition && turns, next: maintenance-required}]
- name: turn-and-room
  operational:
    transitions: [{check: transition && turn && room, next: in-maintenance}]
- name: drained
  operational:
    transitions: [{check: transition && room, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: done, next: operational, trigger: uncordon}]
- name: drains
  operational:
    transitions: [{check: transition, next: in-maintenance}]
  in-maintenance:
    enter: drain
    transitions: [{check: done, next: operational, trigger: uncordon}]
- name: hypervised
  operational:
    transitions: [{check: transition, next: maintenance-required, trigger: hypervisor}]
- name: circles
  operational:
    transitions: [{check: transition, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: transition, next: operational}]
"""

OURS = ("alter", "entered", "left")
READY = {"transition": "true"}


def on(*profiles: str, **more: str) -> dict[str, str | None]:
    return {PROFILE_LABEL: "--".join(profiles), **READY, **more}


@asynccontextmanager
async def a_still_cluster(
    clock: Clock,
    *nodes: str,
    notification_log: NotificationLog | None = None,
    most: int | None = None,
    on_started: Any = None,
) -> AsyncIterator[SandboxCluster]:
    """Run a cluster of nodes without kubelets: time passes in it without a heartbeat."""
    plan = (
        a_cluster(clock)
        .with_objects(a_namespace(NAMESPACE))
        .with_invariants(*invariants(max_unavailable=most, own_metadata=OURS))
    )
    async with plan.on_the_sandbox() as cluster:
        for name in nodes or ("n1",):
            cluster.api.put(a_node(name))
        cluster.run(profiles_controller(SUITE, notification_log, on_started=on_started or (lambda _: None)))
        for name in nodes or ("n1",):
            await cluster.eventually(partial(state, cluster, name), becomes=OPERATIONAL)
        yield cluster


def patches(cluster: SandboxCluster, *, since: int = 0) -> Counter[str]:
    """Return how often the operator wrote to each node."""
    ours = [item for item in cluster.history if item.username == "operator" and item.revision > since]
    return Counter(item.key for item in ours if item.kind.plural == "nodes")


# Acceptance cases of the suite of the SAP maintenance-controller


async def test_node_without_labels_is_operational_and_its_data_is_json(clock: Clock) -> None:
    """C01, C02."""
    async with a_still_cluster(clock) as cluster:
        assert state(cluster, "n1") == OPERATIONAL
        assert states(cluster, "n1") == {"default": OPERATIONAL}


async def test_profile_changes_the_state_runs_its_trigger_and_records_an_event(clock: Clock) -> None:
    """C03."""
    async with a_still_cluster(clock) as cluster:
        await set_labels(cluster, "n1", on("test"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        assert (labels(cluster, "n1")["alter"], states(cluster, "n1")) == ("true", {"test": REQUIRED})
        await cluster.eventually(lambda: event_reasons(cluster, "n1"), becomes=["ChangedMaintenanceState"])


@pytest.mark.parametrize("more", [{}, {"cloud.sap/maintenance-log-details": "true"}])
async def test_only_one_of_two_profiles_enters_maintenance(clock: Clock, more: dict[str, str]) -> None:
    """C04, C05."""
    async with a_still_cluster(clock) as cluster:
        await set_labels(cluster, "n1", on("block", "multi", **more))
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"block": REQUIRED, "multi": MAINTAINED})
        assert (state(cluster, "n1"), labels(cluster, "n1")["alter"]) == (MAINTAINED, "true")
        await cluster.pass_time(minutes=1)
        assert states(cluster, "n1") == {"block": REQUIRED, "multi": MAINTAINED}


@pytest.mark.parametrize("profiles", [("does-not-exist", "test"), ("test", "otherprofile1", "otherprofile2")])
async def test_unknown_profiles_leave_no_data(clock: Clock, profiles: tuple[str, ...]) -> None:
    """C06, C08."""
    async with a_still_cluster(clock) as cluster:
        await set_labels(cluster, "n1", on(*profiles))
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"test": REQUIRED})


async def test_two_profiles_are_never_in_maintenance_at_the_same_revision(clock: Clock) -> None:
    """C07."""
    async with a_still_cluster(clock) as cluster:
        await set_labels(cluster, "n1", on("multi", "to-maintenance"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.pass_time(minutes=1)
        nodes = [
            item.after["metadata"].get("annotations", {}) for item in cluster.history if item.key == "n1" and item.after
        ]
        data = [json.loads(item[DATA_ANNOTATION])["Profiles"] for item in nodes if DATA_ANNOTATION in item]
        assert max(sum(item["Current"] == MAINTAINED for item in each.values()) for each in data) == 1
        assert states(cluster, "n1") == {"multi": MAINTAINED, "to-maintenance": OPERATIONAL}


async def test_max_maintenance_holds_a_node_until_another_has_left(clock: Clock) -> None:
    """C10, C11: also if that one leaves because it is given another profile."""
    async with a_still_cluster(clock, "n1", "n2", "n3", most=1) as cluster:
        await set_labels(cluster, "n1", on("roomy"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await set_labels(cluster, "n2", on("roomy"))
        await set_labels(cluster, "n3", on("roomy"))
        await cluster.pass_time(minutes=5)
        assert (state(cluster, "n2"), state(cluster, "n3")) == (OPERATIONAL, OPERATIONAL)
        await set_annotations(cluster, "n1", done="")
        await set_labels(cluster, "n1", {"transition": None})
        await cluster.eventually(
            lambda: {state(cluster, "n2"), state(cluster, "n3")}, becomes={OPERATIONAL, MAINTAINED}
        )
        inside, external = ("n2", "n3") if state(cluster, "n2") == MAINTAINED else ("n3", "n2")
        await set_labels(cluster, inside, {PROFILE_LABEL: "test"})
        await cluster.eventually(lambda: state(cluster, external), becomes=MAINTAINED)


async def test_stagger_allows_one_node_at_a_time(clock: Clock) -> None:
    """C12, C13, C15."""
    async with a_still_cluster(clock, "n1", "n2") as cluster:
        await set_labels(cluster, "n1", on("turn"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)

        def holder() -> str:
            return str(cluster.get("leases", f"{NAMESPACE}/mc-lease-0")["spec"]["holderIdentity"])

        await set_labels(cluster, "n2", on("turn"))
        await set_annotations(cluster, "n1", done="")
        await cluster.pass_time(minutes=58)
        assert (state(cluster, "n1"), state(cluster, "n2"), holder()) == (REQUIRED, OPERATIONAL, "n1")
        await set_annotations(cluster, "n1", done=None)
        await cluster.pass_time(minutes=3)
        assert (state(cluster, "n1"), state(cluster, "n2"), holder()) == (REQUIRED, REQUIRED, "n2")


async def test_stagger_with_parallel_two_allows_two_nodes(clock: Clock) -> None:
    """C14."""
    async with a_still_cluster(clock, "n1", "n2", "n3") as cluster:
        for name in ("n1", "n2", "n3"):
            await set_labels(cluster, name, on("turns"))
        await cluster.pass_time(minutes=5)
        assert Counter(state(cluster, item) for item in ("n1", "n2", "n3")) == {REQUIRED: 2, OPERATIONAL: 1}


async def test_node_info_is_a_list_with_reasons(clock: Clock) -> None:
    """C34."""
    controllers: list[ProfilesController] = []
    async with a_still_cluster(clock, on_started=controllers.append) as cluster:
        await set_labels(cluster, "n1", {PROFILE_LABEL: "roomy"})
        await cluster.pass_time(seconds=1)
        (info,) = as_json(controllers[0].statuses.all(), label_filter=(PROFILE_LABEL, "nothing"))
        assert (info["node"], info["labels"]) == ("n1", {PROFILE_LABEL: "roomy"})
        (profile,) = info["profiles"]
        (transition,) = profile["applied"]["transitions"]
        assert (profile["name"], profile["state"], profile["applied"]["next"]) == ("roomy", OPERATIONAL, OPERATIONAL)
        assert transition["chain"]["info"]["room"] == {
            "id": "maxMaintenance",
            "passed": True,
            "info": {"scope": "the whole cluster", "maintained": 0, "max": 1},
        }
        assert json.dumps(info)


async def test_node_is_cordoned_drained_and_uncordoned(clock: Clock) -> None:
    """C38, C39; the profile waits until the node is empty, in its trigger as on entering."""
    plan = a_cluster(clock).with_nodes(2).with_invariants(*invariants(own_metadata=OURS))
    slow = a_pod("shop/slow", on="n1", behaviour={"stop-seconds": "20"})
    for profile in ("drained", "drains"):
        async with plan.with_objects(a_namespace(NAMESPACE), slow).on_the_sandbox() as cluster:
            cluster.run(profiles_controller(SUITE))
            await set_labels(cluster, "n1", on(profile))
            await cluster.eventually(partial(is_cordoned, cluster, "n1"))
            await cluster.eventually(partial(cluster.pods_on, "n1"), becomes=[])
            assert cluster.has("pods", "shop/slow")
            await set_annotations(cluster, "n1", done="")
            await set_labels(cluster, "n1", {"transition": None})
            await cluster.eventually(partial(is_cordoned, cluster, "n1"), becomes=False)
            assert not cluster.has("pods", "shop/slow")
            await cluster.eventually(partial(state, cluster, "n1"), becomes=OPERATIONAL)


# Few writes


async def test_full_cycle_takes_five_node_patches(clock: Clock) -> None:
    """The reference trace: five writes to the node, three events, one message, and a short annotation."""
    notification_log = NotificationLog()
    async with a_still_cluster(clock, notification_log=notification_log) as cluster:
        began = cluster.revision
        await set_labels(cluster, "n1", on("trace"))
        await cluster.pass_time(seconds=10)
        assert patches(cluster, since=began) == {"n1": 2}  # required, told
        await cluster.pass_time(minutes=40)
        assert patches(cluster, since=began) == {"n1": 2}
        await set_annotations(cluster, "n1", approved="")
        await cluster.pass_time(seconds=10)
        assert patches(cluster, since=began) == {"n1": 4}  # in maintenance, entered
        await set_labels(cluster, "n1", {"transition": None})
        await set_annotations(cluster, "n1", done="")
        await cluster.pass_time(seconds=10)
        assert patches(cluster, since=began) == {"n1": 5}
        assert (state(cluster, "n1"), notification_log.sent) == (OPERATIONAL, [("n1", "told", REQUIRED)])
        assert event_reasons(cluster, "n1") == ["ChangedMaintenanceState"] * 3
        assert len(data_annotation(cluster, "n1")) < 180


@asynccontextmanager
async def a_server(clock: Clock, rng: Random, *, nodes: int) -> AsyncIterator[tuple[ApiServer, Client]]:
    """Run the operator with an API server and many nodes; yield the API server and a user's client."""
    api = ApiServer(clock, namespaces=[NAMESPACE])
    for number in range(nodes):
        api.put(a_node(f"n{number}"))
    async with asyncio.TaskGroup() as group:
        operator = group.create_task(
            profiles_controller(SUITE)(Client(api.transport("operator"), clock=clock, random=rng))
        )
        await clock.sleep(timedelta(minutes=1))
        yield api, Client(api.transport("me"), clock=clock, random=rng)
        operator.cancel()


async def test_many_nodes_take_few_writes_and_reconciles(
    clock: Clock, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 1000
    steps = count_steps(monkeypatch)
    async with a_server(clock, rng, nodes=many) as (api, me):
        assert len(steps) == 2 * many
        began = len(api.history)
        for number in range(many):
            await me.patch(NODES, f"n{number}", merge_patch({"metadata": {"labels": on("trace")}}))
        await clock.sleep(timedelta(minutes=1))
        assert Counter(item["metadata"]["labels"][STATE_LABEL] for item in api.objects("nodes")) == {REQUIRED: many}
        writes = [item for item in api.history[began:] if item.username == "operator" and item.kind.plural != "events"]
        assert len(writes) <= 2.2 * many
        assert len(steps) == 5 * many  # although a watch event may precede the response to its write


async def test_node_deleted_or_recreated_during_a_write_is_reconciled(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    async with a_still_cluster(clock, "n1", "n2", on_started=controllers.append) as cluster:
        (process,) = cluster.processes.values()
        for name in ("n1", "n2"):
            process.transport.faults.delay(timedelta(seconds=5), method="PATCH", path=f"/nodes/{name}")
            await set_labels(cluster, name, on("test"))
        await cluster.pass_time(seconds=1)
        for name in ("n1", "n2"):
            cluster.api.remove("nodes", name)
        cluster.api.put(a_node("n2"))
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=OPERATIONAL)
        await cluster.eventually(lambda: controllers[0].statuses.get("n1"), becomes=None)


async def test_cordon_copy_is_deleted_with_its_node(clock: Clock) -> None:
    def copies(cluster: SandboxCluster) -> list[str]:
        found = cluster.by_key("configmaps").get(f"{NAMESPACE}/{CONFIG_MAP}", {})
        return list(found.get("data") or ())

    async with a_still_cluster(clock, "n1", "n2") as cluster:
        await set_labels(cluster, "n1", on("drained"))
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        await cluster.eventually(lambda: copies(cluster), becomes=[f"{uid}.profiles"])
        cluster.api.remove("nodes", "n1")
        await cluster.eventually(lambda: copies(cluster), becomes=[])


async def test_number_of_reconciles_does_not_grow_with_the_number_of_nodes(
    clock: Clock, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for nodes in (10, 200):
        steps = count_steps(monkeypatch)
        async with a_server(clock, rng, nodes=nodes) as (_, me):
            for number in range(1, nodes):
                await me.patch(NODES, f"n{number}", merge_patch({"metadata": {"labels": {PROFILE_LABEL: "roomy"}}}))
            await clock.sleep(timedelta(minutes=1))
            before = len(steps)
            await me.patch(NODES, "n0", merge_patch({"metadata": {"labels": on("roomy")}}))
            await clock.sleep(timedelta(minutes=1))
            costs.append(len(steps) - before)
    assert costs[0] == costs[1] <= 4


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each decision appends its node."""
    taken: list[str] = []
    step = decision.decide

    def counting(observation: Any, *rest: Any) -> Any:
        taken.append(observation.node.name)
        return step(observation, *rest)

    monkeypatch.setattr(reconciler, "decide", counting)
    return taken
