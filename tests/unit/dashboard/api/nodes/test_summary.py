"""Where nodes are and what they belong with, by the labels that clouds give."""

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
def test_a_pool_is_known_by_the_label_that_says_most(labels: dict[str, str], pool: str) -> None:
    assert pool_of({**TYPE, **labels}) == pool


def test_where_nothing_is_said_there_is_nothing() -> None:
    assert (pool_of({}), zone_of({})) == ("", "")


def test_a_zone_is_known_by_its_label_of_today_or_of_before() -> None:
    old = {"failure-domain.beta.kubernetes.io/zone": "a"}
    assert zone_of(old) == "a"
    assert zone_of({**old, "topology.kubernetes.io/zone": "b"}) == "b"
