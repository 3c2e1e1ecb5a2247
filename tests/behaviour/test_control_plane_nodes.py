"""Nodes of the control plane go into maintenance one at a time: the webhook and the operator, both as we ship them.

The numbers in docstrings are those of the acceptance cases in the specification.
"""

import pytest

from haulout.errors import Forbidden
from haulout.kube.objects import RawObject
from support.admitting import admitting, refusal
from support.builders import a_pod
from support.clusters import ClusterPlan, Plans
from support.live import LiveCluster
from support.maintaining import (
    NAME,
    PLURAL,
    entitled,
    events,
    invariants,
    is_given_back,
    is_taken,
    operate,
    over,
    succeeded,
)

DENIED = 'admission webhook "vnodemaintenance.kb.io" denied the request: '
NO_QUORUM = f"{DENIED}can not put master/control-plane node into maintenance at this moment, disrupting node"
STATIC = {"kubernetes.io/config.mirror": "a-hash"}


@pytest.fixture(autouse=True)
def _not_openshift(request: pytest.FixtureRequest) -> None:
    """Take away what other tests on the same real control plane leave, and by which OpenShift is known."""
    if request.config.getoption("--backend") == "real":
        left = "infrastructures.config.openshift.io"
        request.getfixturevalue("whole_control_plane").kubectl("delete", "crd", left, "--ignore-not-found")


def etcd_on(node: str) -> RawObject:
    """Return a member of etcd, as kubeadm has it."""
    return a_pod(f"kube-system/etcd-{node}", on=node, labels={"component": "etcd"}).annotated(STATIC)


def with_etcd(plan: ClusterPlan, *, members: int) -> ClusterPlan:
    names = [f"cp{number}" for number in range(1, members + 1)]
    plan = entitled(plan).with_nodes(1).with_control_plane(members)
    return plan.with_objects(*map(etcd_on, names)).upholding(*invariants())


def told_of(cluster: LiveCluster) -> set[str]:
    """Return the names of all maintenances that events are about."""
    about = [it.get("regarding") or it.get("involvedObject") or {} for it in cluster.all("events").values()]
    return {str(it.get("name")) for it in about if it.get("kind") == "NodeMaintenance"}


async def test_of_three_control_plane_nodes_one_goes_and_the_second_is_refused(a_cluster: Plans) -> None:
    """A23, A24."""
    async with with_etcd(a_cluster(), members=3).running() as cluster, admitting(cluster):
        cluster.run(operate)
        # A real server tells for a moment yet of what was taken away.
        await cluster.eventually(lambda: refusal(cluster, "cp1", name="first"), becomes="")
        await succeeded(cluster, "first")
        await cluster.eventually(lambda: "BeginMaintenance" in events(cluster, "first"))
        assert is_taken(cluster, "cp1")
        assert (await refusal(cluster, "cp2", name="second")).startswith(f"{NO_QUORUM} cp2 will violate etcd quorum")
        await cluster.pass_time(seconds=2)
        assert "second" not in told_of(cluster)
        assert is_given_back(cluster, "cp2")
        await over(cluster, "first")
        assert is_given_back(cluster, "cp1")
        assert await refusal(cluster, "cp2", name="third") == ""
        await over(cluster, "third")


async def test_of_two_control_plane_nodes_none_goes(a_cluster: Plans) -> None:
    """A23."""
    async with with_etcd(a_cluster(), members=2).running() as cluster, admitting(cluster):
        cluster.run(operate)
        assert (await refusal(cluster, "cp1", name="too-few")).startswith(NO_QUORUM)
        await cluster.pass_time(seconds=2)
        assert "too-few" not in told_of(cluster)
        assert is_given_back(cluster, "cp1")


async def test_orders_that_make_no_sense_are_refused_while_the_others_are_carried_out(a_cluster: Plans) -> None:
    """A25, A27."""
    plan = entitled(a_cluster()).with_nodes(2).with_objects(a_pod("shop/cart", on="n1")).upholding(*invariants())
    async with plan.running() as cluster, admitting(cluster):
        cluster.run(operate)
        unknown = await refusal(cluster, "doesNotExist", name="to-nobody")
        assert unknown == f"{DENIED}invalid nodeName, no node with name doesNotExist found"
        assert await refusal(cluster, "n1", name=NAME) == ""
        again = await refusal(cluster, "n1", name="once-more")
        assert again == f"{DENIED}invalid nodeName, a NodeMaintenance for node n1 already exists"
        with pytest.raises(Forbidden) as caught:
            await cluster.change(PLURAL, NAME, spec={"nodeName": "n2"})
        assert caught.value.message == f"{DENIED}updating spec.NodeName isn't allowed"
        await succeeded(cluster)
        assert (is_taken(cluster, "n1"), is_given_back(cluster, "n2")) == (True, True)
        await over(cluster)
        assert not {"to-nobody", "once-more"} & told_of(cluster)
