"""Whatever befalls the whole operator and the cluster, nodes come through their profiles, or say what they wait for.

The story has everything in it: a limit, pods that prefer operational nodes, a budget that lets a pod not go, a drain on
entering, messages, and proof that the node is well before the next one starts.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.app.profiles import ProfilesComponent
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
OPERATORS = ("operator", "operator-2", "test")  # a second process is one fault, a person who copies a node another
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
    """Return a cluster in which n1 has a pod that its budget does not let go, and one that takes its time."""
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
    """A receiver that remembers what it heard; once in a while it does not answer."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._asked = 0

    def __call__(self, asked: SentRequest) -> FakeReply:
        """Take a message, or fail."""
        self._asked += 1
        if self._asked % 2:
            return 503, b"later"
        self.heard.append(asked.json["text"])
        return 200, b"ok"


def waiting_reasons(lives: list[ProfilesComponent], node: str) -> str:
    """Return what is told about a node that is not where it should be."""
    known = next((item.controller for item in reversed(lives) if item.controller is not None), None)
    found = None if known is None else known.statuses.get(node)
    return "" if found is None else "; ".join(item.waits_for for item in found.reports)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where the configuration is."""
    found = tmp_path / "maintenance.yaml"
    found.write_text(FILE)
    return found


async def injected_faults(clock: Clock, file: Path, *faults: Fault, seed: int = 0) -> None:
    """Lead n1 through its maintenance while one fault befalls the operator on the way in, and one on the way out."""
    lives: list[ProfilesComponent] = []
    chat = FakeSlack()
    async with a_plan(clock).on_the_sandbox() as cluster:
        cluster.run(operator_with_profiles(file, outside=FakeExternalClient(reply_to=chat), on_started=lives.append))
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.inject_fault(faults[0], seed=seed))
            await set_labels(cluster, "n1", {PROFILE_LABEL: "os", "wanted": ""})
            await cluster.pass_time(seconds=30)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED, within=SOON)
        await cluster.eventually(lambda: "PodDisruptionBudget shop/kept" in waiting_reasons(lives, "n1"), within=SOON)
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await set_labels(cluster, "n1", {"wanted": None})
        await cluster.inject_fault(faults[-1], seed=seed + 1)
        await cluster.eventually(lambda: is_over(cluster, "n1"), within=SOON)
        await cluster.eventually(lambda: cluster.ready_pod_count("shop/cart"), becomes=3, within=SOON)
        assert set(Counter(chat.heard).values()) <= {1}, chat.heard


def is_over(cluster: SandboxCluster, node: str) -> bool:
    """Tell whether nothing of a maintenance is left."""
    entry = profile_data(cluster, node)["Profiles"].get("os", {})
    stands = (entry.get("Current"), entry.get("Previous"), state(cluster, node))
    return stands == (OPERATIONAL,) * 3 and not is_cordoned(cluster, node)


@pytest.mark.parametrize("fault", faults_for_turn(2), ids=str)
async def test_a_node_comes_through_any_fault_or_says_what_it_waits_for(clock: Clock, file: Path, fault: Fault) -> None:
    await injected_faults(clock, file, fault)


@pytest.mark.parametrize("seed", range(4))
async def test_a_node_comes_through_any_mixture_of_faults(clock: Clock, file: Path, seed: int) -> None:
    await injected_faults(clock, file, fault_mixture(seed), fault_mixture(seed + 100), seed=seed)
