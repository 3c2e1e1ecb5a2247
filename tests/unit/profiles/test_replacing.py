"""A Machine is asked for once, whatever befalls the operator, and never for a transition that is not the node's."""

from datetime import timedelta

from haulout.core.clock import Clock
from haulout.kinds import machinemaintenance
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.kinds.openshift import MACHINE_OF_NODE
from haulout.profiles.plugin import PROFILE_LABEL, State
from support.builders import a_namespace
from support.clusters import ClusterPlan, a_cluster
from support.crashes import Stage, survives_crashes
from support.live import SandboxCluster
from support.profiling import HOME, label, operating, state

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
    """Return a cluster with one node that has a Machine; nobody sees to records."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {MACHINE_OF_NODE: "openshift-machine-api/workers-f95mj"}},
        "spec": {"providerID": "aws:///eu-west-1a/i-0abc"},
    }
    definition = machinemaintenance.definition()
    homes = (a_namespace(HOME), a_namespace(NAMESPACE))
    return a_cluster(clock).with_definition(definition).with_objects(*homes, node)


async def asked(cluster: SandboxCluster) -> None:
    await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.IN_MAINTENANCE)
    await cluster.eventually(lambda: list(cluster.all(PLURAL)), becomes=[RECORD])


def test_it_is_asked_for_once_though_the_operator_dies_at_any_write() -> None:
    async def story(stage: Stage) -> None:
        async with plan(stage.clock).on_the_sandbox() as cluster:
            stage.begin(cluster.cluster)
            await label(cluster, "n1", WANTED)
            await asked(cluster)
            await cluster.pass_time(minutes=2)

    for text in (FILE, ON_ENTERING):
        assert survives_crashes(story, operator=operating(text)) >= 3


async def test_who_is_not_approved_any_more_is_not_asked_for_by_an_old_copy(clock: Clock) -> None:
    """The operator hears of the approval when it was taken back long ago: it could not be undone."""
    async with plan(clock).on_the_sandbox() as cluster:
        cluster.run(operating(FILE))
        await label(cluster, "n1", WANTED | {"approved": None})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=State.REQUIRED)
        cluster.line().faults.late(timedelta(minutes=2), path="nodes", times=None)
        await label(cluster, "n1", {"approved": ""})
        await cluster.pass_time(seconds=30)
        await label(cluster, "n1", {"approved": None})
        await cluster.pass_time(minutes=10)
        assert cluster.all(PLURAL) == {}
        assert state(cluster, "n1") == State.REQUIRED
        await label(cluster, "n1", {"approved": ""})
        await asked(cluster)


async def test_what_cannot_be_asked_for_is_told_and_asked_for_again(clock: Clock) -> None:
    async with plan(clock).on_the_sandbox() as cluster:
        cluster.line().faults.before(method="POST", path=PLURAL, answer=403, times=2)
        cluster.run(operating(FILE))
        await label(cluster, "n1", WANTED)
        await cluster.eventually(lambda: any(_failed(cluster)))
        assert state(cluster, "n1") == State.REQUIRED
        await asked(cluster)


def _failed(cluster: SandboxCluster) -> list[str]:
    return [it["reason"] for it in cluster.all("events").values() if it["reason"] == "ChangeMaintenanceStateFailed"]
