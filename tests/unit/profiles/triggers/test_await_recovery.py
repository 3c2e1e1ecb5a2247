"""How long a node is waited for after it was uncordoned."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from haulout.drain.workloads import Workload
from haulout.errors import ConfigErrors
from haulout.profiles import default, topics
from haulout.profiles.plugin import Effect, Scene, Wait, Warn
from haulout.profiles.plugins.triggers.await_recovery import AwaitRecovery
from support.builders import a_node
from support.scenes import MINUTE, NOW, Cluster

TRIGGER = AwaitRecovery(timeout=10 * MINUTE)
SHORT = Workload(name="Deployment shop/cart", wanted=3, available=1, before=3)
WHY = "evicted from node n1 and not fully available again: Deployment shop/cart (1 of 3)"


def a_scene(*evicted: Workload, ready: str = "True", now: datetime = NOW, **more: Any) -> Scene:
    node = a_node("n1").with_status(conditions=[{"type": "Ready", "status": ready}])
    return replace(Cluster(node, evicted={"n1": evicted}).scene(now=now), **more)


def effects(scene: Scene) -> tuple[Effect, ...]:
    return TRIGGER.effects(scene)


def test_it_waits_for_workloads_that_were_evicted() -> None:
    woken_by = (topics.pods("n1"), topics.evicted("n1"))
    assert effects(a_scene(SHORT)) == (Wait(reason=WHY, until=NOW + 10 * MINUTE, topics=woken_by),)
    assert effects(a_scene(replace(SHORT, available=3))) == ()
    assert effects(a_scene()) == ()


def test_it_waits_for_the_node_to_be_ready() -> None:
    (wait,) = effects(a_scene(ready="False"))
    assert isinstance(wait, Wait)
    assert wait.reason == "node n1 is not Ready"


def test_it_waits_from_the_beginning_and_then_goes_on_with_a_warning() -> None:
    """A successor goes by the same instant, which stands on the node."""
    (wait,) = effects(a_scene(SHORT, began=NOW - 4 * MINUTE))
    assert isinstance(wait, Wait)
    assert wait.until == NOW + 6 * MINUTE
    note = f"it is taken for recovered after 10m0s: {WHY}"
    assert effects(a_scene(SHORT, began=NOW - 10 * MINUTE)) == (Warn(reason="RecoveryTimedOut", note=note),)


def test_it_stops_waiting_when_something_else_wants_the_node() -> None:
    assert effects(a_scene(SHORT, passes=False)) == ()
    assert effects(a_scene(SHORT, passes=False, ready="False")) != ()


# The setting of the default profile


def test_the_default_profile_waits_where_that_is_asked_for() -> None:
    assert "awaitRecovery" not in default.text()
    text = default.text(10 * MINUTE)
    assert "{name: recovered, type: awaitRecovery, config: {timeout: 10m0s}}" in text
    assert text.count("trigger: uncordon && recovered}") == 1
    assert default.configuration(10 * MINUTE).profiles[default.PROFILE].on_notice


@pytest.mark.parametrize(("written", "found"), [("", None), ("  ", None), ("10m", 10 * MINUTE)])
def test_the_setting_is_a_duration(written: str, found: object) -> None:
    assert default.recovery_of({default.RECOVERY: written}) == found


@pytest.mark.parametrize("written", ["soon", "0", "-1m"])
def test_a_setting_that_makes_no_sense_is_told(written: str) -> None:
    with pytest.raises(ConfigErrors, match=default.RECOVERY):
        default.recovery_of({default.RECOVERY: written})
