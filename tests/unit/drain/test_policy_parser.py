"""Parsing of drain policies."""

from datetime import timedelta
from typing import Any

import pytest
import yaml

from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import Behavior, DrainOrder, DrainPolicy, DrainRule
from haulout.drain.policy_parser import parse_policy
from haulout.errors import PolicyError
from haulout.kube.selectors import parse

WHOLE = """
force: true
ignoreDaemonSets: true
deleteEmptyDirData: true
skipWaitForDelete: 2m
gracePeriod: 45s
timeout: 1h
evictionTimeout: 20m
deletionTimeout: 5m
waitCompletedTimeout: 30m
volumeDetachTimeout: 6m
forceDelete: true
parallel: 4
podSelector: app!=cache
order: {byPriority: true, storageLast: true, daemonSetsLast: true}
rules:
- name: stores
  podSelector: {matchLabels: {app: store}}
  namespaces: [data]
  order: 100
  gracePeriod: 5m
  evictionTimeout: 1h
- name: batch
  namespaceSelector: tier=batch
  behavior: WaitCompleted
  waitCompletedTimeout: 40m
- name: agents
  podSelector: agent
  behavior: Skip
"""


KEYS = (
    "force, ignoreDaemonSets, deleteEmptyDirData, skipWaitForDelete, podSelector, gracePeriod, timeout, "
    "evictionTimeout, deletionTimeout, waitCompletedTimeout, volumeDetachTimeout, forceDelete, disableEviction, "
    "evictionRequests, parallel, order, rules"
)


def problems(document: Any, **more: Any) -> tuple[str, ...]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(document, **more)
    return caught.value.problems


def test_complete_policy_is_parsed() -> None:
    assert parse_policy(yaml.safe_load(WHOLE)) == DrainPolicy(
        filters=PodFilters(
            force=True,
            ignore_daemonsets=True,
            delete_emptydir_data=True,
            skip_wait_for_delete=timedelta(minutes=2),
        ),
        pod_selector=parse("app!=cache"),
        grace_period=timedelta(seconds=45),
        timeout=timedelta(hours=1),
        eviction_timeout=timedelta(minutes=20),
        deletion_timeout=timedelta(minutes=5),
        wait_completed_timeout=timedelta(minutes=30),
        volume_detach_timeout=timedelta(minutes=6),
        force_delete=True,
        parallel=4,
        order=DrainOrder(by_priority=True, storage_last=True, daemon_sets_last=True),
        rules=(
            DrainRule(
                name="stores",
                pods=parse("app=store"),
                namespaces=("data",),
                order=100,
                grace_period=timedelta(minutes=5),
                eviction_timeout=timedelta(hours=1),
            ),
            DrainRule(
                name="batch",
                namespace_selector=parse("tier=batch"),
                behavior=Behavior.WAIT_COMPLETED,
                wait_completed_timeout=timedelta(minutes=40),
            ),
            DrainRule(name="agents", pods=parse("agent"), behavior=Behavior.SKIP),
        ),
    )


@pytest.mark.parametrize("nothing", [None, {}])
def test_missing_fields_come_from_the_base_policy(nothing: Any) -> None:
    assert parse_policy(nothing, base=DrainPolicy.like_nmo()) == DrainPolicy.like_nmo()
    assert parse_policy({"timeout": "1h"}, base=DrainPolicy.like_nmo()).filters.force


def test_default_policy_has_no_timeouts_and_forces_nothing() -> None:
    policy = parse_policy({})
    assert policy.timeout is policy.eviction_timeout is policy.deletion_timeout is None
    assert not policy.filters.force
    assert not policy.force_delete


def test_all_problems_are_reported_at_once_with_their_path() -> None:
    document = {
        "timeuot": "1h",
        "force": "yes",
        "parallel": 0,
        "gracePeriod": "soon",
        "order": {"byPrioriti": True},
        "rules": [{"behavior": "skip", "order": True}, "none", {"name": "x", "podSelector": {"matchLabels": 1}}],
        "colour": "red",
    }
    assert problems(document, path="spec.drain") == (
        "spec.drain.force: found 'yes', expected true or false",
        "spec.drain.gracePeriod: found 'soon', expected a duration such as 90s or 1h30m",
        "spec.drain.parallel: found 0, expected a whole number from 1 to 500",
        "spec.drain.order.byPrioriti: unknown, did you mean byPriority?",
        "spec.drain.rules[1]: found 'none', expected keys and values",
        "spec.drain.rules[0].name: found None, expected a name",
        "spec.drain.rules[0].behavior: found 'skip', expected one of Drain, Skip, WaitCompleted, did you mean Skip?",
        "spec.drain.rules[0].order: found True, expected a whole number from -2147483648 to 2147483647",
        "spec.drain.rules[1].name: found None, expected a name",
        "spec.drain.rules[2].podSelector.matchLabels: found 1, expected labels and their values",
        "spec.drain.timeuot: unknown, did you mean timeout?",
        f"spec.drain.colour: unknown, expected one of {KEYS}",
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("drain", "found 'drain', expected keys and values"),
        (
            {"waitCompletedTimeout": "0s"},
            "waitCompletedTimeout: found '0s', expected a duration above zero, or nothing at all for no limit",
        ),
        (
            {"timeout": "1h", "waitCompletedTimeout": "1h"},
            "waitCompletedTimeout: found 1h0m0s, expected less than timeout, 1h0m0s",
        ),
        (
            {"rules": [{"name": "x", "behavior": "Skip", "waitCompletedTimeout": "1h"}]},
            "rules[0].waitCompletedTimeout: found with behavior Skip, expected only with WaitCompleted",
        ),
        (
            {"evictionTimeout": "5m"},
            "evictionTimeout: found without force, expected force: true, or no evictionTimeout",
        ),
        (
            {"force": True, "disableEviction": True, "evictionTimeout": "5m"},
            "evictionTimeout: found with disableEviction, expected one of the two",
        ),
        ({"deletionTimeout": "5m"}, "deletionTimeout: found without forceDelete, expected forceDelete: true"),
        ({"forceDelete": True}, "forceDelete: found true, expected deletionTimeout to be set as well"),
        (
            {"gracePeriod": "0s"},
            "gracePeriod: found 0s, which ends pods without any grace, expected forceDelete: true",
        ),
        (
            {"force": True, "evictionTimeout": "40m", "forceDelete": True, "deletionTimeout": "20m", "timeout": "1h"},
            "timeout: found 1h0m0s, expected more than evictionTimeout and deletionTimeout together, 1h0m0s",
        ),
        ({"timeout": "0s"}, "timeout: found '0s', expected a duration above zero, or nothing at all for no limit"),
        ({"timeout": 90}, "timeout: found 90, expected a duration such as 90s or 1h30m"),
        ({"timeout": "-1h"}, "timeout: found '-1h', expected a duration such as 90s or 1h30m"),
        ({"rules": {"name": "x"}}, "rules: found {'name': 'x'}, expected a list"),
        (
            {"rules": [{"name": "x"}, {"name": "x", "order": 1}]},
            "rules[1].name: found 'x' again, expected names that differ",
        ),
        (
            {"rules": [{"name": "x", "behavior": "Skip", "order": 1}]},
            "rules[0].order: found with behavior Skip, expected only with Drain",
        ),
        (
            {"rules": [{"name": "x", "namespaces": ["a"], "namespaceSelector": "a=b"}]},
            "rules[0].namespaceSelector: found beside namespaces, expected one of the two",
        ),
        (
            {"rules": [{"name": "x", "evictionTimeout": "5m"}]},
            "rules[0].evictionTimeout: found without force, expected force: true, or no evictionTimeout",
        ),
        (
            {"rules": [{"name": "x", "namespaces": []}]},
            "rules[0].namespaces: found [], expected a list of names, or nothing at all for all namespaces",
        ),
    ],
)
def test_invalid_policy_is_refused(document: Any, problem: str) -> None:
    assert problems(document) == (problem,)


def test_policy_error_names_the_file() -> None:
    with pytest.raises(PolicyError, match=r"^drain.yaml: parallel: found 0, expected a whole number"):
        parse_policy({"parallel": 0}, file="drain.yaml")
