"""All checks tell what they are, so that the reference page can be made of them."""

import pytest
import yaml

from haulout.profiles.options import REST, options_of
from haulout.profiles.plugin import Check
from haulout.profiles.plugins.checks.affinity import Affinity
from haulout.profiles.plugins.checks.any_label import AnyLabel
from haulout.profiles.plugins.checks.capacity import Capacity
from haulout.profiles.plugins.checks.check_hypervisor import CheckHypervisor
from haulout.profiles.plugins.checks.cluster_semver import ClusterSemver
from haulout.profiles.plugins.checks.condition import Condition
from haulout.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.profiles.plugins.checks.has_label import HasLabel
from haulout.profiles.plugins.checks.hypervisor_condition import HypervisorCondition
from haulout.profiles.plugins.checks.kubernikus_count import KubernikusCount
from haulout.profiles.plugins.checks.max_maintenance import MaxMaintenance
from haulout.profiles.plugins.checks.node_count import NodeCount
from haulout.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.profiles.plugins.checks.recovered import Recovered
from haulout.profiles.plugins.checks.stagger import Stagger

CHECKS: list[type[Check]] = [
    *(Affinity, AnyLabel, Capacity, CheckHypervisor, ClusterSemver, Condition, HasAnnotation, HasLabel),
    *(HypervisorCondition, KubernikusCount, MaxMaintenance, NodeCount, PrometheusInstant, Recovered, Stagger),
]


def keys(check: type[Check]) -> set[str]:
    """Return the keys of a check's configuration; `*` for any."""
    return {"*" if it.kind is REST else it.key for it in options_of(check)}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.type)
def test_a_check_describes_itself(check: type[Check]) -> None:
    assert check.__doc__
    assert len(check.__doc__.splitlines()[0]) > 40
    assert all(it.description.endswith(".") for it in options_of(check))
    example = yaml.safe_load(check.example)
    assert isinstance(example, dict)
    assert "*" in keys(check) or set(example) <= keys(check)
    assert {it.key for it in options_of(check) if it.required} <= set(example)


def test_the_names_are_those_that_configurations_use() -> None:
    assert {check.type: keys(check) for check in CHECKS} == {
        "affinity": {"minOperational"},
        "anyLabel": {"key", "value"},
        "capacity": set(),
        "checkHypervisor": {"*"},
        "clusterSemver": {"key", "profileScoped"},
        "condition": {"type", "status"},
        "hasAnnotation": {"key", "value"},
        "hasLabel": {"key", "value"},
        "hypervisorCondition": {"type", "status"},
        "kubernikusCount": {"cluster", "cloudProviderSecret"},
        "maxMaintenance": {"max", "profile", "groupBy", "groupLabel", "skipAfter", "limits"},
        "nodeCount": {"count"},
        "prometheusInstant": {"url", "query", "expr"},
        "recovered": {"readyFor", "daemonSets", "workloads"},
        "stagger": {"duration", "leaseName", "leaseNamespace", "parallel"},
    }
