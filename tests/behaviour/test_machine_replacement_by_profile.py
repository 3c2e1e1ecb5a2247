"""A profile has nodes replaced by the trigger `replaceMachine`, with the permissions that are shipped for it."""

from functools import partial
from pathlib import Path

import pytest

from haulout.api.machinemaintenance import NAMESPACE as RECORDS
from haulout.api.openshift import MACHINE_NAMESPACE
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.plugins.registry import registries
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.nodemaintenance import with_nodemaintenance_crd
from support.operators.profiles import operator_with_profiles, set_profiles, state
from support.platforms.machinemaintenance import PLURAL, REPLACEMENT_TIMEOUT, wait_until_replaced
from support.platforms.openshift import (
    TIMEOUT,
    create_machine_set,
    instance_of,
    machine_api,
    machines,
    node_of,
    ready_machines,
    terminating_machines,
    with_openshift,
)

REQUIRED, IN_MAINTENANCE = "maintenance-required", "in-maintenance"
FILE = """
intervals: {requeue: 5s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  trigger:
  - {type: replaceMachine, name: replace, config: CONFIG}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, trigger: replace, next: in-maintenance}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    found = tmp_path / "maintenance.yaml"
    configure(found, "{}")
    return found


def configure(file: Path, options: str) -> None:
    file.write_text(FILE.replace("CONFIG", options))


def loaded(file: Path) -> Configuration:
    return loader.load(file.read_bytes(), registries(), {}, file=str(file)).configuration


def a_replacement_plan(a_cluster: PlanFactory, file: Path) -> ClusterPlan:
    """Return the plan of an OpenShift cluster in which the operator has exactly the shipped permissions."""
    wanted = Installation(image="example/haulout", configuration=loaded(file), machines=True)
    return with_openshift(with_nodemaintenance_crd(a_cluster())).with_rbac(*operator_manifests.role_objects(wanted))


async def request_maintenance(cluster: LiveCluster, *nodes: str) -> None:
    """Have the profile maintain nodes."""
    for node in nodes:
        await set_profiles(cluster, node, "os")
        await cluster.patch("nodes", node, metadata={"labels": {"patch": ""}})


class ReportedErrors:
    """The errors that the operator reports about profiles."""

    def __init__(self) -> None:
        self.components: list[ProfilesComponent] = []

    def __call__(self, part: str) -> bool:
        """Return whether a reported error contains this text."""
        controller = self.components[-1].controller if self.components else None
        known = () if controller is None else tuple(controller.statuses.all())
        return any(part in report.error for item in known for report in item.reports)


async def test_nodes_of_a_profile_are_replaced_one_at_a_time(a_cluster: PlanFactory, file: Path) -> None:
    async with a_replacement_plan(a_cluster, file).running() as cluster, machine_api(cluster):
        old = await create_machine_set(cluster, "workers", replicas=2)
        replaced = {name: (instance_of(cluster, name), node_of(cluster, name)) for name in old}
        cluster.run(operator_with_profiles(file))
        await request_maintenance(cluster, *(node for _, node in replaced.values()))
        await cluster.eventually(lambda: len(cluster.by_key(PLURAL)), becomes=2)
        for name, (instance, node) in replaced.items():
            spec = cluster.get(PLURAL, f"{RECORDS}/mm-{name}-profile-os-{instance}")["spec"]
            assert (spec["machineid"], spec["machinelink"]) == (instance, name)
            assert spec["description"] == f"profile os replaces node {node}"
            assert "surge" not in spec
        await wait_until_replaced(cluster, old, ready_at_least=0)
        await cluster.eventually(lambda: len(ready_machines(cluster)), becomes=2, within=TIMEOUT)
        assert len(cluster.by_key(PLURAL)) == 2


async def test_surge_makes_another_machine_ready_first(a_cluster: PlanFactory, file: Path) -> None:
    configure(file, "{surge: true}")
    async with a_replacement_plan(a_cluster, file).running() as cluster, machine_api(cluster):
        (name,) = await create_machine_set(cluster, "workers", replicas=1)
        cluster.run(operator_with_profiles(file))
        await request_maintenance(cluster, node_of(cluster, name))
        await wait_until_replaced(cluster, [name], ready_at_least=1)
        await cluster.eventually(lambda: len(machines(cluster)), becomes=1, within=REPLACEMENT_TIMEOUT)


async def test_node_without_a_machine_stays_and_the_profile_reports_why(a_cluster: PlanFactory, file: Path) -> None:
    async with a_replacement_plan(a_cluster, file).with_nodes(1).running() as cluster:
        reported_errors = ReportedErrors()
        cluster.run(operator_with_profiles(file, on_started=reported_errors.components.append))
        await request_maintenance(cluster, "n1")
        await cluster.eventually(lambda: reported_errors("node n1 has no Machine"))
        assert state(cluster, "n1") == REQUIRED
        configure(file, "{required: false}")
        await cluster.eventually(partial(state, cluster, "n1"), becomes=IN_MAINTENANCE)
        assert cluster.by_key(PLURAL) == {}


async def test_machine_with_a_cancelled_record_is_not_requested_again(a_cluster: PlanFactory, file: Path) -> None:
    """The record is cancelled before its turn; the profile reports why it waits."""
    async with a_replacement_plan(a_cluster, file).running() as cluster, machine_api(cluster):
        first, second = await create_machine_set(cluster, "workers", replicas=2)
        await cluster.delete("machines", f"{MACHINE_NAMESPACE}/{second}")
        node, instance = node_of(cluster, first), instance_of(cluster, first)
        key = f"{RECORDS}/mm-{first}-profile-os-{instance}"
        await cluster.create(
            {
                "apiVersion": "machinemaintenance.managed.openshift.io/v1alpha1",
                "kind": "MachineMaintenance",
                "metadata": {"namespace": RECORDS, "name": key.rpartition("/")[2]},
                "spec": {
                    "maintenancescheduled": False,
                    "machinelink": first,
                    "machineid": instance,
                    "description": "[Canceled] we need it",
                },
            }
        )
        reported_errors = ReportedErrors()
        cluster.run(operator_with_profiles(file, on_started=reported_errors.components.append))
        await request_maintenance(cluster, node)
        expected = "was cancelled (the cloud says: [Canceled] we need it): delete it to replace the Machine"
        await cluster.eventually(lambda: reported_errors(expected))
        assert first not in terminating_machines(cluster)
        await cluster.delete(PLURAL, key)
        await cluster.eventually(lambda: first in terminating_machines(cluster), within=REPLACEMENT_TIMEOUT)
