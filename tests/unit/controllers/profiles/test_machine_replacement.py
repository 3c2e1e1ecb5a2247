"""A Machine replacement is requested once despite crashes, and never from stale data."""

from datetime import timedelta

from haulout.api import machinemaintenance
from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.openshift import MACHINE_OF_NODE
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.core.clock import Clock
from support.builders.objects import a_namespace
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.operators.profiles_controller import NAMESPACE as HOME
from support.operators.profiles_controller import profiles_controller, set_labels, state

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: approved, type: hasLabel, config: {key: approved}}
  trigger:
  - {name: replace, type: replaceMachine}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: approved, trigger: replace, next: in-maintenance}]
"""
ON_ENTERING = FILE.replace("trigger: replace, ", "") + "  in-maintenance: {enter: replace}\n"
PLURAL = MACHINE_MAINTENANCES.plural
RECORD = f"{NAMESPACE}/mm-workers-f95mj-profile-os-i-0abc"
WANTED = {PROFILE_LABEL: "os", "wanted": "", "approved": ""}


def plan(clock: Clock) -> ClusterPlan:
    """Return a cluster with one node with a Machine, without a controller of MachineMaintenances."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {MACHINE_OF_NODE: "openshift-machine-api/workers-f95mj"}},
        "spec": {"providerID": "aws:///eu-west-1a/i-0abc"},
    }
    definition = machinemaintenance.definition()
    homes = (a_namespace(HOME), a_namespace(NAMESPACE))
    return a_cluster(clock).with_crd(definition).with_objects(*homes, node)


async def wait_requested(cluster: SandboxCluster) -> None:
    await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.IN_MAINTENANCE)
    await cluster.eventually(lambda: list(cluster.by_key(PLURAL)), becomes=[RECORD])


def test_machine_replacement_is_requested_once_after_a_crash_at_any_write() -> None:
    async def story(run: CrashRun) -> None:
        async with plan(run.clock).on_the_sandbox() as cluster:
            run.start_operator(cluster.cluster)
            await set_labels(cluster, "n1", WANTED)
            await wait_requested(cluster)
            await cluster.pass_time(minutes=2)

    for text in (FILE, ON_ENTERING):
        assert assert_survives_crashes(story, operator=profiles_controller(text)) >= 3


async def test_stale_approval_requests_no_machine_replacement(clock: Clock) -> None:
    """The watch event of the approval arrives after its withdrawal: a replacement could not be undone."""
    async with plan(clock).on_the_sandbox() as cluster:
        cluster.run(profiles_controller(FILE))
        await set_labels(cluster, "n1", WANTED | {"approved": None})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.REQUIRED)
        cluster.transport().faults.delay_event(timedelta(minutes=2), path="nodes", times=None)
        await set_labels(cluster, "n1", {"approved": ""})
        await cluster.pass_time(seconds=30)
        await set_labels(cluster, "n1", {"approved": None})
        await cluster.pass_time(minutes=10)
        assert cluster.by_key(PLURAL) == {}
        assert state(cluster, "n1") == State.REQUIRED
        await set_labels(cluster, "n1", {"approved": ""})
        await wait_requested(cluster)


async def test_failed_replacement_request_is_reported_and_retried(clock: Clock) -> None:
    async with plan(clock).on_the_sandbox() as cluster:
        cluster.transport().faults.fail_before_effect(method="POST", path=PLURAL, response=403, times=2)
        cluster.run(profiles_controller(FILE))
        await set_labels(cluster, "n1", WANTED)
        await cluster.eventually(lambda: any(_failed(cluster)))
        assert state(cluster, "n1") == State.REQUIRED
        await wait_requested(cluster)


def _failed(cluster: SandboxCluster) -> list[str]:
    return [
        event["reason"]
        for event in cluster.by_key("events").values()
        if event["reason"] == "ChangeMaintenanceStateFailed"
    ]
