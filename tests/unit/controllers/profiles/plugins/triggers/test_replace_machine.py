"""The trigger that has a node's Machine replaced: what it asks for, and of which node."""

import pytest

from haulout.api.openshift import MACHINE_OF_NODE
from haulout.controllers.profiles.plugin import Action, ReplaceMachine
from haulout.controllers.profiles.plugins.triggers.replace_machine import NoMachine, ReplaceMachineTrigger
from support.fakes.cluster_view import FakeClusterView

MACHINE = "openshift-machine-api/workers-f95mj"


def effects(
    trigger: ReplaceMachineTrigger, *, machine: str = MACHINE, on: str = "aws:///a/i-0abc"
) -> tuple[Action, ...]:
    annotations = {MACHINE_OF_NODE: machine} if machine else {}
    node = {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"providerID": on}}
    return trigger.actions(FakeClusterView(node).plugin_context())


def test_it_asks_for_another_machine_in_place_of_the_nodes() -> None:
    asked = ReplaceMachine(machine="workers-f95mj", instance="i-0abc")
    assert effects(ReplaceMachineTrigger()) == (asked,)
    assert effects(ReplaceMachineTrigger(required=False)) == (asked,)


@pytest.mark.parametrize("surge", [True, False])
def test_what_comes_first_can_be_said(*, surge: bool) -> None:
    (asked,) = effects(ReplaceMachineTrigger(surge=surge))
    assert isinstance(asked, ReplaceMachine)
    assert asked.surge is surge


def test_a_node_without_a_machine_is_named_or_left() -> None:
    with pytest.raises(NoMachine, match=r"node n1 has no Machine: it has no annotation machine\.openshift\.io/machine"):
        effects(ReplaceMachineTrigger(), machine="")
    assert effects(ReplaceMachineTrigger(required=False), machine="") == ()


@pytest.mark.parametrize(
    ("machine", "on", "why"),
    [
        ("elsewhere/workers-f95mj", "i-0abc", "expected one in openshift-machine-api"),
        ("workers-f95mj", "i-0abc", "expected one in openshift-machine-api"),
        ("openshift-machine-api/", "i-0abc", "has no Machine"),
        (MACHINE, "", "has no providerID"),
    ],
)
def test_who_is_not_known_for_sure_is_never_asked_for(machine: str, on: str, why: str) -> None:
    with pytest.raises(NoMachine, match=why):
        effects(ReplaceMachineTrigger(required=False), machine=machine, on=on)
