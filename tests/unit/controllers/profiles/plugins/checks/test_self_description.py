"""All checks describe themselves for the generated reference page."""

import pytest
import yaml

from haulout.controllers.profiles.config.options import REST, options_of
from haulout.controllers.profiles.plugin import Check
from haulout.controllers.profiles.plugins.checks.affinity import Affinity
from haulout.controllers.profiles.plugins.checks.any_label import AnyLabel
from haulout.controllers.profiles.plugins.checks.capacity import Capacity
from haulout.controllers.profiles.plugins.checks.check_hypervisor import CheckHypervisor
from haulout.controllers.profiles.plugins.checks.cluster_semver import ClusterSemver
from haulout.controllers.profiles.plugins.checks.condition import Condition
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.controllers.profiles.plugins.checks.hypervisor_condition import HypervisorCondition
from haulout.controllers.profiles.plugins.checks.kubernikus_count import KubernikusCount
from haulout.controllers.profiles.plugins.checks.max_maintenance import MaxMaintenance
from haulout.controllers.profiles.plugins.checks.node_count import NodeCount
from haulout.controllers.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.controllers.profiles.plugins.checks.recovered import Recovered
from haulout.controllers.profiles.plugins.checks.stagger import Stagger

CHECKS: list[type[Check]] = [
    *(Affinity, AnyLabel, Capacity, CheckHypervisor, ClusterSemver, Condition, HasAnnotation, HasLabel),
    *(HypervisorCondition, KubernikusCount, MaxMaintenance, NodeCount, PrometheusInstant, Recovered, Stagger),
]


def keys(check: type[Check]) -> set[str]:
    """Return the keys of a check's configuration; `*` for any."""
    return {"*" if option.kind is REST else option.key for option in options_of(check)}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.type)
def test_check_describes_itself(check: type[Check]) -> None:
    assert check.__doc__
    assert len(check.__doc__.splitlines()[0]) > 40
    assert all(option.description.endswith(".") for option in options_of(check))
    example = yaml.safe_load(check.example)
    assert isinstance(example, dict)
    assert "*" in keys(check) or set(example) <= keys(check)
    assert {option.key for option in options_of(check) if option.required} <= set(example)


def test_option_keys_are_stable() -> None:
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
