"""The trigger that cordons, uncordons and drains."""

from datetime import timedelta
from typing import Any, cast

import pytest

from haulout.api.objects import Pod
from haulout.controllers.profiles.plugin import Action, Cordon, Drain, PluginContext, Uncordon
from haulout.controllers.profiles.plugins.triggers.eviction import Eviction
from haulout.drain.policy import DEFAULT_RULE, DrainPolicy

ANY_CONTEXT = cast("PluginContext", None)  # the trigger does not use it
MINUTE = timedelta(minutes=1)


def effects(**config: Any) -> tuple[Action, ...]:
    trigger = Eviction(**config)
    assert list(trigger.problems()) == []
    return trigger.actions(ANY_CONTEXT)


def policy_of(**config: Any) -> DrainPolicy:
    cordon, drain = effects(action="drain", **config)
    assert isinstance(drain, Drain)
    assert cordon == Cordon()
    return cast("DrainPolicy", drain.policy)


def problems_of(**config: Any) -> list[str]:
    return [f"{key}: {problem}" for key, problem in Eviction(**config).problems()]


def test_cordon_and_uncordon() -> None:
    """C38."""
    assert effects(action="cordon") == (Cordon(),)
    assert effects(action="uncordon") == (Uncordon(),)


def test_default_timeouts_are_ten_minutes_without_force() -> None:
    """I05."""
    trigger = Eviction(action="drain")
    assert (trigger.deletion_timeout, trigger.eviction_timeout) == (10 * MINUTE, 10 * MINUTE)
    assert not trigger.force_eviction


def test_drain_evicts_all_pods_except_daemon_sets_without_a_timeout() -> None:
    """C39: it cordons first, in the same step."""
    policy = policy_of()
    filters = policy.filters
    assert (filters.force, filters.delete_emptydir_data, filters.keep_any_daemonset) == (True, True, True)
    limits = policy.limits_for(Pod(), DEFAULT_RULE)
    assert (limits.may_evict, limits.eviction_timeout, limits.deletion_timeout) == (True, None, None)
    assert policy.timeout is None


def test_timeouts_have_no_effect_without_force_eviction() -> None:
    assert policy_of(eviction_timeout=MINUTE, deletion_timeout=MINUTE) == policy_of()


def test_force_eviction_deletes_and_then_force_deletes_pods() -> None:
    """C40."""
    limits = policy_of(force_eviction=True, eviction_timeout=3 * MINUTE).limits_for(Pod(), DEFAULT_RULE)
    assert (limits.eviction_timeout, limits.deletion_timeout) == (3 * MINUTE, 10 * MINUTE)


def test_negative_timeout_counts_as_zero() -> None:
    limits = policy_of(force_eviction=True, eviction_timeout=-MINUTE).limits_for(Pod(), DEFAULT_RULE)
    assert limits.eviction_timeout == timedelta()


def test_drain_policy_takes_precedence_over_other_keys() -> None:
    policy = policy_of(
        force_eviction=True, drain={"evictionTimeout": "1m", "order": {"storageLast": True}, "parallel": 3}
    )
    assert policy.eviction_timeout == MINUTE
    assert policy.deletion_timeout == 10 * MINUTE
    assert (policy.order.storage_last, policy.parallel, policy.filters.keep_any_daemonset) == (True, 3, True)


def test_drain_policy_may_include_daemon_set_pods() -> None:
    filters = policy_of(drain={"ignoreDaemonSets": False}).filters
    assert (filters.ignore_daemonsets, filters.keep_any_daemonset) == (False, False)


@pytest.mark.parametrize("action", ["", "delete", "Drain"])
def test_unknown_action_is_refused(action: str) -> None:
    (problem,) = problems_of(action=action)
    assert problem == f"action: found {action!r}, expected one of cordon, uncordon, drain"


def test_all_problems_of_a_drain_policy_are_reported() -> None:
    timeout, unknown = problems_of(action="drain", drain={"timeout": 5, "orderr": {}})
    assert timeout.startswith("drain.timeout: found 5, expected a duration")
    assert unknown == "drain.orderr: unknown, did you mean order?"
    (no_keys,) = problems_of(action="drain", drain=cast("Any", "harsh"))
    assert no_keys == "drain: found 'harsh', expected keys and values"


def test_drain_policy_requires_the_action_drain() -> None:
    (problem,) = problems_of(action="cordon", drain={})
    assert problem.startswith("drain: found with action cordon")
