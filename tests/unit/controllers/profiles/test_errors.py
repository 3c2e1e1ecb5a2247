"""Invalid data on nodes and failures: the controller reports them and affects nothing else."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from haulout.controllers.profiles.controller import ProfilesController
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, State
from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.builders.objects import a_namespace, a_node, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.profile_node import load_configuration
from support.operators.nodemaintenance import (
    create_maintenance,
    end_maintenance,
    has_maintenance_marks,
    is_released,
    run_controller,
    wait_for_success,
    with_nodemaintenance_crd,
)
from support.operators.profiles_controller import (
    NAMESPACE,
    NotificationLog,
    data_annotation,
    event_reasons,
    invariants,
    is_cordoned,
    own_events,
    profiles_controller,
    set_annotations,
    set_labels,
    state,
    states,
)

OPERATIONAL, REQUIRED, MAINTAINED = State

FILE = """
intervals: {requeue: 5m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: approved, type: hasAnnotation, config: {key: approved}}
  - {name: done, type: hasAnnotation, config: {key: done}}
  - {name: fail, type: clusterSemver, config: {key: version}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  - {name: turn, type: stagger, config: {duration: 1h, leaseName: turn, leaseNamespace: haulout}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {name: cordon, type: eviction, config: {action: cordon}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: hypervisor, type: alterHypervisor, config: {reboot: true}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted && turn, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: approved && room, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: done, next: operational, trigger: uncordon}]
- name: broken
  operational:
    notify: told
    transitions: [{check: fail, next: maintenance-required}]
- name: hypervised
  operational:
    transitions: [{check: wanted, next: maintenance-required, trigger: hypervisor}]
- name: circles
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, next: operational}]
- name: first
  operational:
    transitions: [{check: approved && turn && room, next: in-maintenance}]
- name: either
  operational:
    transitions:
    - {check: approved && room, next: in-maintenance, trigger: cordon}
    - {check: approved && room, next: in-maintenance}
- name: second
  operational:
    transitions: [{check: approved && room, next: in-maintenance}]
"""
WANTED = {PROFILE_LABEL: "os", "wanted": ""}


@asynccontextmanager
async def a_still_cluster(
    clock: Clock,
    *nodes: str,
    notification_log: NotificationLog | None = None,
    controllers: list[ProfilesController] | None = None,
) -> AsyncIterator[SandboxCluster]:
    """Run a cluster of nodes without kubelets."""
    plan = a_cluster(clock).with_objects(a_namespace(NAMESPACE)).with_invariants(*invariants(max_unavailable=1))
    async with plan.on_the_sandbox() as cluster:
        for name in nodes or ("n1",):
            cluster.api.put(a_node(name))
        cluster.run(
            profiles_controller(
                FILE, notification_log, on_started=(controllers if controllers is not None else []).append
            )
        )
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        yield cluster


# What others write


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "null null",
        "[]",
        '{"Profiles":{},"Extra":1}',
        '{"Profiles":{"os":{"Current":7}}}',
        '{"Profiles":{"os":{"Transition":"yesterday"}}}',
        '{"Profiles":' * 2000,
        "\u2028",
    ],
)
async def test_unreadable_data_is_kept_and_reported_and_the_node_is_left_alone(clock: Clock, text: str) -> None:
    readable = text == "null null"  # the Go controller parses the first value, which is empty
    async with a_still_cluster(clock) as cluster:
        await set_annotations(cluster, "n1", **{DATA_ANNOTATION: text})
        await set_labels(cluster, "n1", WANTED)
        await cluster.pass_time(minutes=20)
        if readable:
            assert state(cluster, "n1") == REQUIRED
            return
        assert (data_annotation(cluster, "n1"), state(cluster, "n1")) == (text, OPERATIONAL)
        assert Counter(event_reasons(cluster, "n1")) == {"MaintenanceDataUnreadable": 1}
        assert own_events(cluster, "n1")[0]["type"] == "Warning"
        await set_annotations(cluster, "n1", **{DATA_ANNOTATION: None})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)


async def test_unreadable_data_stops_a_running_drain(clock: Clock) -> None:
    pods = [a_pod(f"shop/p{number}", on="n1") for number in range(2)]
    plan = a_cluster(clock).with_nodes(1).with_invariants(*invariants(max_unavailable=1))
    plan = plan.with_deployment("shop/kept", replicas=1, budget=1).with_objects(a_namespace(NAMESPACE), *pods)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(profiles_controller(FILE))
        await set_labels(cluster, "n1", WANTED)
        await set_annotations(cluster, "n1", approved="")
        await cluster.eventually(lambda: len(cluster.pods_on("n1")), becomes=1)
        good = data_annotation(cluster, "n1")
        await set_annotations(cluster, "n1", **{DATA_ANNOTATION: "{"})
        await cluster.pass_time(seconds=5)
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await cluster.pass_time(minutes=10)
        assert len(cluster.pods_on("n1")) == 1
        await set_annotations(cluster, "n1", **{DATA_ANNOTATION: good})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)


async def test_node_with_conflicts_reaches_its_state_and_acquires_one_lease(clock: Clock) -> None:
    """The next attempt uses the lease that was acquired before."""
    async with a_still_cluster(clock, "n1") as cluster:
        faults = cluster.processes["operator"].transport.faults
        rule = faults.fail_before_effect(response=409, method="PATCH", path="/nodes/", times=7)
        await set_labels(cluster, "n1", WANTED)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED, within=timedelta(minutes=1))
        assert cluster.get("leases", f"{NAMESPACE}/turn-0")["spec"]["leaseTransitions"] == 0
        faults.remove(rule)


async def test_node_that_changes_at_each_write_reaches_its_state_afterwards(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1") as cluster:
        faults = cluster.processes["operator"].transport.faults
        rule = faults.fail_before_effect(response=409, method="PATCH", path="/nodes/", times=None)
        await set_labels(cluster, "n1", WANTED)
        await cluster.pass_time(minutes=3)
        faults.remove(rule)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED, within=timedelta(minutes=6))
        assert cluster.get("leases", f"{NAMESPACE}/turn-0")["spec"]["leaseTransitions"] == 0


async def test_recreated_node_starts_anew(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1", "n2") as cluster:
        await set_labels(cluster, "n1", WANTED)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        await cluster.delete("nodes", "n1")
        await cluster.pass_time(seconds=1)
        cluster.api.put(a_node("n1"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert states(cluster, "n1") == {"default": OPERATIONAL}


# What goes wrong in one profile


async def test_failing_check_is_a_warning_and_notifies_once(clock: Clock) -> None:
    notification_log = NotificationLog()
    async with a_still_cluster(clock, notification_log=notification_log) as cluster:
        await set_labels(cluster, "n1", {PROFILE_LABEL: "broken--os", "wanted": "", "version": "none"})
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"broken": OPERATIONAL, "os": REQUIRED})
        for number in range(5):
            await set_labels(cluster, "n1", {"touched": str(number)})
            await cluster.pass_time(minutes=1)
        assert notification_log.sent == [("n1", "told", REQUIRED)]
        failures = [item for item in own_events(cluster, "n1") if item["reason"] == "ChangeMaintenanceStateFailed"]
        assert {(item["type"], item.get("note") or item.get("message")) for item in failures} == {
            ("Warning", "At least one check plugin failed for profile broken: Will stay in operational state")
        }


async def test_missing_hypervisor_is_a_failure_of_its_profile(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        await set_labels(cluster, "n1", {PROFILE_LABEL: "hypervised--os", "wanted": ""})
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"hypervised": OPERATIONAL, "os": REQUIRED})
        assert "ChangeMaintenanceStateFailed" in event_reasons(cluster, "n1")


async def test_looping_profiles_do_not_keep_the_controller_busy(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1", "n2") as cluster:
        await set_labels(cluster, "n1", {PROFILE_LABEL: "circles", "wanted": ""})
        await cluster.pass_time(minutes=30)
        assert sum(change.key == "n1" for change in cluster.history) < 500
        await set_labels(cluster, "n2", WANTED)
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=REQUIRED)


# Slots and leases


async def test_slot_is_released_when_its_lease_cannot_be_acquired(clock: Clock) -> None:
    """The slot is acquired first. If the lease cannot be acquired, the slot must be released."""
    async with a_still_cluster(clock, "n1", "n2") as cluster:
        faults = cluster.processes["operator"].transport.faults
        lost = faults.fail_before_effect(response=409, method="POST", path="/leases", times=None)
        await set_labels(cluster, "n1", {PROFILE_LABEL: "first"})
        await set_annotations(cluster, "n1", approved="")
        await cluster.pass_time(minutes=1)
        assert state(cluster, "n1") == OPERATIONAL
        await set_labels(cluster, "n2", {PROFILE_LABEL: "second"})
        await set_annotations(cluster, "n2", approved="")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=MAINTAINED, within=timedelta(minutes=1))
        faults.remove(lost)


async def test_slot_is_withdrawn_at_once_when_its_lease_cannot_be_acquired(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        faults = cluster.processes["operator"].transport.faults
        lost = faults.fail_before_effect(response=409, method="POST", path="/leases", times=None)
        await set_labels(cluster, "n1", {PROFILE_LABEL: "first"})
        await set_annotations(cluster, "n1", approved="")
        await cluster.eventually(lambda: slots(cluster), becomes=[], within=timedelta(seconds=5))
        assert state(cluster, "n1") == OPERATIONAL
        faults.remove(lost)


async def test_slot_is_withdrawn_at_once_when_the_write_of_its_node_is_refused(clock: Clock) -> None:
    async with a_still_cluster(clock) as cluster:
        faults = cluster.processes["operator"].transport.faults
        refused = faults.fail_before_effect(
            response=422, path="/nodes/n1", times=None, where=lambda request: b"in-maintenance" in (request.body or b"")
        )
        await set_labels(cluster, "n1", {PROFILE_LABEL: "second"})
        await set_annotations(cluster, "n1", approved="")
        await cluster.eventually(lambda: slots(cluster), becomes=[], within=timedelta(seconds=5))
        assert "MaintenanceStepFailed" in event_reasons(cluster, "n1")
        faults.remove(refused)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED, within=timedelta(minutes=1))


def slots(cluster: SandboxCluster) -> list[str] | None:
    """Return the nodes with a budget slot; None before the first one."""
    ledger = cluster.by_key("configmaps").get(f"{NAMESPACE}/haulout-budget-nodes-in-maintenance")
    return None if ledger is None else [slot["name"] for slot in json.loads(ledger["data"]["slots"])]


async def test_slot_is_claimed_by_the_next_profile_when_the_first_is_refused(clock: Clock) -> None:
    async with a_still_cluster(clock, "n1") as cluster:
        faults = cluster.processes["operator"].transport.faults
        lost = faults.fail_before_effect(response=409, method="POST", path="/leases", times=None)
        await set_labels(cluster, "n1", {PROFILE_LABEL: "first--second"})
        await set_annotations(cluster, "n1", approved="")
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"first": OPERATIONAL, "second": MAINTAINED})
        assert slots(cluster) == ["n1"]
        faults.remove(lost)


async def test_claim_refused_to_one_transition_is_not_granted_to_the_next(clock: Clock) -> None:
    """Another leader has a slot for a node that it has not patched yet."""
    async with a_still_cluster(clock, "n1", "n2") as cluster:
        uid = cluster.get("nodes", "n2")["metadata"]["uid"]
        slot = {"uid": uid, "name": "n2", "since": "2026-01-01T00:00:00Z", "version": "999999"}
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "haulout-budget-nodes-in-maintenance", "namespace": NAMESPACE},
                "data": {"slots": json.dumps([slot])},
            }
        )
        await set_labels(cluster, "n1", {PROFILE_LABEL: "either"})
        await set_annotations(cluster, "n1", approved="")
        await cluster.pass_time(minutes=1)
        assert (state(cluster, "n1"), is_cordoned(cluster, "n1")) == (OPERATIONAL, False)
        await cluster.delete("nodes", "n2")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED, within=timedelta(minutes=6))


# Edits


async def test_edited_configuration_applies_at_once(clock: Clock) -> None:
    controllers: list[ProfilesController] = []
    async with a_still_cluster(clock, controllers=controllers) as cluster:
        await set_labels(cluster, "n1", {PROFILE_LABEL: "os"})
        await cluster.pass_time(minutes=1)
        assert state(cluster, "n1") == OPERATIONAL
        controllers[0].use(
            load_configuration(FILE.replace("config: {key: wanted}", f"config: {{key: {PROFILE_LABEL}}}"))
        )
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED, within=timedelta(seconds=1))


async def test_profile_removed_during_its_drain_keeps_the_other_pods(clock: Clock) -> None:
    plan = (
        a_cluster(clock)
        .with_nodes(2)
        .with_invariants(*invariants(max_unavailable=1))
        .with_objects(a_namespace(NAMESPACE))
    )
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    async with plan.with_deployment("shop/kept", replicas=1, budget=1, pods=pods).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(FILE))
        await set_labels(cluster, "n1", WANTED)
        await set_annotations(cluster, "n1", approved="")
        await cluster.eventually(lambda: is_cordoned(cluster, "n1"))
        await set_labels(cluster, "n1", {PROFILE_LABEL: None})
        await cluster.eventually(lambda: states(cluster, "n1"), becomes={"default": OPERATIONAL})
        assert transitions.PENDING_ANNOTATION not in cluster.get("nodes", "n1")["metadata"]["annotations"]
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await cluster.pass_time(minutes=10)
        assert len(cluster.pods_on("n1")) == 1
        await set_labels(cluster, "n2", WANTED)
        await set_annotations(cluster, "n2", approved="")
        await cluster.pass_time(hours=2)
        assert state(cluster, "n2") == MAINTAINED


# Together with NodeMaintenances


async def both(client: Client) -> None:
    """Run both controllers in one process."""
    async with asyncio.TaskGroup() as group:
        group.create_task(run_controller(client))
        group.create_task(profiles_controller(FILE)(client))


@pytest.mark.parametrize("first", ["profile", "maintenance"])
async def test_node_is_released_when_profile_and_node_maintenance_are_done(clock: Clock, first: str) -> None:
    pods = [a_pod(f"shop/p{number}", on="n1", behaviour={"stop-seconds": "5"}) for number in range(2)]
    plan = with_nodemaintenance_crd(a_cluster(clock)).with_nodes(2).with_objects(a_namespace(NAMESPACE), *pods)
    async with plan.on_the_sandbox() as cluster:
        cluster.run(both)
        await set_labels(cluster, "n1", WANTED)
        await create_maintenance(cluster, "n1")
        await set_annotations(cluster, "n1", approved="")
        await wait_for_success(cluster)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        assert has_maintenance_marks(cluster, "n1")
        await set_labels(cluster, "n1", {"wanted": None})
        if first == "profile":
            await set_annotations(cluster, "n1", done="")
            await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
            assert has_maintenance_marks(cluster, "n1")
            await end_maintenance(cluster)
        else:
            await end_maintenance(cluster)
            await cluster.pass_time(seconds=30)
            assert is_cordoned(cluster, "n1")
            await set_annotations(cluster, "n1", done="")
        await cluster.eventually(lambda: is_released(cluster, "n1"))
        assert state(cluster, "n1") == OPERATIONAL
