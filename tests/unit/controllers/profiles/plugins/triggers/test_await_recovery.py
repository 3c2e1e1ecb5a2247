"""The trigger awaitRecovery: how long it waits after the uncordon."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from haulout.api.workloads import EvictedWorkload
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.plugin import Action, PluginContext, Wait, Warn
from haulout.controllers.profiles.plugins.triggers.await_recovery import AwaitRecovery
from haulout.controllers.profiles.view import topics
from haulout.errors import ConfigErrors
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, NOW, FakeClusterView

TRIGGER = AwaitRecovery(timeout=10 * MINUTE)
SHORT = EvictedWorkload(name="Deployment shop/cart", desired=3, available=1, available_before=3)
WHY = "evicted from node n1 and not fully available again: Deployment shop/cart (1 of 3)"


def a_context(*evicted: EvictedWorkload, ready: str = "True", now: datetime = NOW, **more: Any) -> PluginContext:
    node = a_node("n1").with_status(conditions=[{"type": "Ready", "status": ready}])
    return replace(FakeClusterView(node, evicted={"n1": evicted}).plugin_context(now=now), **more)


def effects(context: PluginContext) -> tuple[Action, ...]:
    return TRIGGER.actions(context)


def test_trigger_waits_for_evicted_workloads() -> None:
    woken_by = (topics.pods("n1"), topics.evicted("n1"))
    assert effects(a_context(SHORT)) == (Wait(reason=WHY, until=NOW + 10 * MINUTE, topics=woken_by),)
    assert effects(a_context(replace(SHORT, available=3))) == ()
    assert effects(a_context()) == ()


def test_trigger_waits_until_the_node_is_ready() -> None:
    (wait,) = effects(a_context(ready="False"))
    assert isinstance(wait, Wait)
    assert wait.reason == "node n1 is not Ready"


def test_timeout_counts_from_the_start_of_the_chain_and_ends_with_a_warning() -> None:
    """A successor uses the same start time, which is stored on the node."""
    (wait,) = effects(a_context(SHORT, chain_started_at=NOW - 4 * MINUTE))
    assert isinstance(wait, Wait)
    assert wait.until == NOW + 6 * MINUTE
    note = f"the node counts as recovered after 10m0s: {WHY}"
    assert effects(a_context(SHORT, chain_started_at=NOW - 10 * MINUTE)) == (
        Warn(reason="RecoveryTimedOut", note=note),
    )


def test_trigger_stops_waiting_when_other_checks_no_longer_pass() -> None:
    assert effects(a_context(SHORT, checks_still_pass=False)) == ()
    assert effects(a_context(SHORT, checks_still_pass=False, ready="False")) != ()


# The setting of the default profile


def test_default_profile_awaits_recovery_only_if_configured() -> None:
    assert "awaitRecovery" not in default_profile.text()
    text = default_profile.text(10 * MINUTE)
    assert "{name: recovered, type: awaitRecovery, config: {timeout: 10m0s}}" in text
    assert text.count("trigger: uncordon && recovered}") == 1
    assert default_profile.configuration(10 * MINUTE).profiles[default_profile.PROFILE].on_notice


@pytest.mark.parametrize(("written", "found"), [("", None), ("  ", None), ("10m", 10 * MINUTE)])
def test_recovery_setting_is_a_duration(written: str, found: object) -> None:
    assert default_profile.recovery_timeout({default_profile.RECOVERY: written}) == found


@pytest.mark.parametrize("written", ["soon", "0", "-1m"])
def test_invalid_recovery_setting_is_refused(written: str) -> None:
    with pytest.raises(ConfigErrors, match=default_profile.RECOVERY):
        default_profile.recovery_timeout({default_profile.RECOVERY: written})
