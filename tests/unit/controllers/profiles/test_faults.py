"""Under any fault, nodes complete their profiles or state what they wait for.

The scenario has a limit, pods that prefer operational nodes, a PodDisruptionBudget that blocks, a drain on entering,
notifications, and a check of the recovery before the next node starts.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.core.clock import Clock
from support.builders.objects import a_namespace, a_pod
from support.clusters.cluster_plan import ClusterPlan, a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.external_client import FakeExternalClient, FakeReply, SentRequest
from support.faults.named_faults import Fault, fault_mixture
from support.faults.selection import faults_for_turn
from support.invariants import GracePeriodRespected
from support.operators.nodemaintenance import with_nodemaintenance_crd
from support.operators.profiles import NAMESPACE, operator_with_profiles, profile_data
from support.operators.profiles_controller import invariants, is_cordoned, set_labels, state

OPERATIONAL, REQUIRED, MAINTAINED = State
OPERATORS = ("operator", "operator-2", "test")  # one fault is a second process, another is a user who copies a node
SOON = timedelta(minutes=15)

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: one, type: maxMaintenance, config: {max: 1}}
  - {name: delicate, type: affinity, config: null}
  - {name: well, type: recovered, config: {readyFor: 5s}}
  notify:
  - name: chat
    type: slack
    config: {hook: "https://hooks.example.com/x", channel: "#c", message: "{{ .Node.Name }} {{ .State }}"}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {name: cordon, type: eviction, config: {action: cordon}}
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    notify: chat
    transitions: [{check: one && delicate, next: in-maintenance, trigger: cordon}]
  in-maintenance:
    enter: drain
    notify: chat
    transitions: [{check: "!wanted && well", next: operational, trigger: uncordon}]
"""


def a_plan(clock: Clock) -> ClusterPlan:
    """Return a cluster in which n1 has a blocked pod and a slowly terminating one."""
    on_n1 = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = (
        with_nodemaintenance_crd(a_cluster(clock)).with_nodes(3).with_deployment("shop/cart", replicas=3, budget="60%")
    )
    plan = plan.with_deployment("shop/kept", replicas=1, budget=1, pods=on_n1)
    plan = plan.with_objects(a_namespace(NAMESPACE), a_pod("shop/slow", on="n1", behaviour={"stop-seconds": "8"}))
    return plan.with_invariants(
        *invariants(*OPERATORS, max_unavailable=1), GracePeriodRespected(operator=set(OPERATORS))
    )


class FakeSlack:
    """A receiver that records messages and fails every second request."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._request_count = 0

    def __call__(self, request: SentRequest) -> FakeReply:
        """Take a message, or fail."""
        self._request_count += 1
        if self._request_count % 2:
            return 503, b"later"
        self.messages.append(request.json["text"])
        return 200, b"ok"


def waiting_reasons(components: list[ProfilesComponent], node: str) -> str:
    """Return what the profiles of a node wait for."""
    known = next((item.controller for item in reversed(components) if item.controller is not None), None)
    found = None if known is None else known.statuses.get(node)
    return "" if found is None else "; ".join(item.waits_for for item in found.reports)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    found = tmp_path / "maintenance.yaml"
    found.write_text(FILE)
    return found


async def injected_faults(clock: Clock, file: Path, *faults: Fault, seed: int = 0) -> None:
    """Complete the maintenance of n1 with one fault at its start and one at its end."""
    components: list[ProfilesComponent] = []
    chat = FakeSlack()
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(
            operator_with_profiles(
                file, external_client=FakeExternalClient(reply_to=chat), on_started=components.append
            )
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(faults[0], seed=seed))
            await set_labels(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
            await cluster.pass_time(seconds=30)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED, within=SOON)
        await cluster.eventually(
            lambda: "PodDisruptionBudget shop/kept" in waiting_reasons(components, "n1"), within=SOON
        )
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await set_labels(cluster, "n1", {"wanted": None})
        await cluster.inject_fault(faults[-1], seed=seed + 1)
        await cluster.eventually(lambda: is_over(cluster, "n1"), within=SOON)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3, within=SOON)
        assert set(Counter(chat.messages).values()) <= {1}, chat.messages


def is_over(cluster: SandboxCluster, node: str) -> bool:
    """Tell whether nothing of a maintenance is left."""
    entry = profile_data(cluster, node)["Profiles"].get("os", {})
    stands = (entry.get("Current"), entry.get("Previous"), state(cluster, node))
    return stands == (OPERATIONAL,) * 3 and not is_cordoned(cluster, node)


@pytest.mark.parametrize("fault", faults_for_turn(2), ids=str)
async def test_maintenance_completes_or_states_what_it_waits_for_under_any_fault(
    clock: Clock, file: Path, fault: Fault
) -> None:
    await injected_faults(clock, file, fault)


@pytest.mark.parametrize("seed", range(4))
async def test_maintenance_completes_despite_any_mixture_of_faults(clock: Clock, file: Path, seed: int) -> None:
    await injected_faults(clock, file, fault_mixture(seed), fault_mixture(seed + 100), seed=seed)
