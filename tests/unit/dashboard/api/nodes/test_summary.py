"""Zones and pools of nodes, from the labels of clouds."""

import pytest

from haulout.dashboard.api.nodes.summary import pool_of, zone_of

TYPE = {"node.kubernetes.io/instance-type": "m5.large"}


@pytest.mark.parametrize(
    ("labels", "pool"),
    [
        ({"eks.amazonaws.com/nodegroup": "blue"}, "blue"),
        ({"cloud.google.com/gke-nodepool": "blue"}, "blue"),
        ({"kubernetes.azure.com/agentpool": "blue"}, "blue"),
        ({"karpenter.sh/nodepool": "blue"}, "blue"),
        ({"machine.openshift.io/machineset": "blue"}, "blue"),
        ({"pool": "blue"}, "blue"),
        ({"example.com/pool": "blue"}, "blue"),
        ({"example.com/carpool": "blue"}, "m5.large"),
        ({"karpenter.sh/nodepool": "", "pool": "blue"}, "blue"),
        ({"node-role.kubernetes.io/control-plane": ""}, "control-plane"),
        ({"node-role.kubernetes.io/worker": ""}, "m5.large"),
        ({}, "m5.large"),
    ],
)
def test_pool_is_read_from_the_most_specific_label(labels: dict[str, str], pool: str) -> None:
    assert pool_of({**TYPE, **labels}) == pool


def test_node_without_labels_has_no_pool_and_no_zone() -> None:
    assert (pool_of({}), zone_of({})) == ("", "")


def test_zone_is_read_from_the_current_or_the_beta_label() -> None:
    old = {"failure-domain.beta.kubernetes.io/zone": "a"}
    assert zone_of(old) == "a"
    assert zone_of({**old, "topology.kubernetes.io/zone": "b"}) == "b"
