"""Nodes of the control plane go into maintenance one at a time: the webhook and the operator, both as we ship them.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import pytest

from haulout.api.objects import RawObject
from haulout.errors import Forbidden
from support.builders.objects import a_pod
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster
from support.operators.admission_webhook import denial_message, registered_webhook
from support.operators.nodemaintenance import (
    NAME,
    PLURAL,
    end_maintenance,
    event_reasons,
    has_maintenance_marks,
    invariants,
    is_released,
    run_controller,
    wait_for_success,
    with_operator_rbac,
)

DENIED = 'admission webhook "vnodemaintenance.kb.io" denied the request: '
NO_QUORUM = f"{DENIED}can not put master/control-plane node into maintenance at this moment, disrupting node"
STATIC = {"kubernetes.io/config.mirror": "a-hash"}


@pytest.fixture(autouse=True)
def _not_openshift(request: pytest.FixtureRequest) -> None:
    """Delete the definition by which OpenShift is detected, which other tests leave on the same control plane."""
    if request.config.getoption("--backend") == "real":
        left = "infrastructures.config.openshift.io"
        request.getfixturevalue("control_plane_with_controllers").kubectl("delete", "crd", left, "--ignore-not-found")


def etcd_on(node: str) -> RawObject:
    """Return a member of etcd, as kubeadm has it."""
    return a_pod(f"kube-system/etcd-{node}", on=node, labels={"component": "etcd"}).annotated(STATIC)


def with_etcd(plan: ClusterPlan, *, members: int) -> ClusterPlan:
    names = [f"cp{number}" for number in range(1, members + 1)]
    plan = with_operator_rbac(plan).with_nodes(1).with_control_plane(members)
    return plan.with_objects(*map(etcd_on, names)).with_invariants(*invariants())


def maintenances_with_events(cluster: LiveCluster) -> set[str]:
    """Return the names of all maintenances that events are about."""
    about = [event.get("regarding") or event.get("involvedObject") or {} for event in cluster.by_key("events").values()]
    return {str(event.get("name")) for event in about if event.get("kind") == "NodeMaintenance"}


async def test_second_of_three_control_plane_nodes_is_refused(a_cluster: PlanFactory) -> None:
    """A23, A24."""
    async with with_etcd(a_cluster(), members=3).running() as cluster, registered_webhook(cluster):
        cluster.run(run_controller)
        # A real server may apply a deleted configuration for a moment.
        await cluster.eventually(lambda: denial_message(cluster, "cp1", name="first"), becomes="")
        await wait_for_success(cluster, "first")
        await cluster.eventually(lambda: "BeginMaintenance" in event_reasons(cluster, "first"))
        assert has_maintenance_marks(cluster, "cp1")
        assert (await denial_message(cluster, "cp2", name="second")).startswith(
            f"{NO_QUORUM} cp2 will violate etcd quorum"
        )
        await cluster.pass_time(seconds=2)
        assert "second" not in maintenances_with_events(cluster)
        assert is_released(cluster, "cp2")
        await end_maintenance(cluster, "first")
        assert is_released(cluster, "cp1")
        assert await denial_message(cluster, "cp2", name="third") == ""
        await end_maintenance(cluster, "third")


async def test_both_of_two_control_plane_nodes_are_refused(a_cluster: PlanFactory) -> None:
    """A23."""
    async with with_etcd(a_cluster(), members=2).running() as cluster, registered_webhook(cluster):
        cluster.run(run_controller)
        assert (await denial_message(cluster, "cp1", name="too-few")).startswith(NO_QUORUM)
        await cluster.pass_time(seconds=2)
        assert "too-few" not in maintenances_with_events(cluster)
        assert is_released(cluster, "cp1")


async def test_invalid_maintenances_are_refused_while_valid_ones_run(a_cluster: PlanFactory) -> None:
    """A25, A27."""
    plan = (
        with_operator_rbac(a_cluster())
        .with_nodes(2)
        .with_objects(a_pod("shop/cart", on="n1"))
        .with_invariants(*invariants())
    )
    async with plan.running() as cluster, registered_webhook(cluster):
        cluster.run(run_controller)
        unknown = await denial_message(cluster, "doesNotExist", name="to-nobody")
        assert unknown == f"{DENIED}invalid nodeName, no node with name doesNotExist found"
        assert await denial_message(cluster, "n1", name=NAME) == ""
        again = await denial_message(cluster, "n1", name="once-more")
        assert again == f"{DENIED}invalid nodeName, a NodeMaintenance for node n1 already exists"
        with pytest.raises(Forbidden) as caught:
            await cluster.patch(PLURAL, NAME, spec={"nodeName": "n2"})
        assert caught.value.message == f"{DENIED}updating spec.NodeName isn't allowed"
        await wait_for_success(cluster)
        assert (has_maintenance_marks(cluster, "n1"), is_released(cluster, "n2")) == (True, True)
        await end_maintenance(cluster)
        assert not {"to-nobody", "once-more"} & maintenances_with_events(cluster)
