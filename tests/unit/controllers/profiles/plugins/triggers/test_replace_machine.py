"""The trigger replaceMachine."""

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


def test_trigger_requests_the_replacement_of_the_machine_of_the_node() -> None:
    requested = ReplaceMachine(machine="workers-f95mj", instance="i-0abc")
    assert effects(ReplaceMachineTrigger()) == (requested,)
    assert effects(ReplaceMachineTrigger(required=False)) == (requested,)


@pytest.mark.parametrize("surge", [True, False])
def test_surge_is_passed_on(*, surge: bool) -> None:
    (requested,) = effects(ReplaceMachineTrigger(surge=surge))
    assert isinstance(requested, ReplaceMachine)
    assert requested.surge is surge


def test_node_without_a_machine_is_an_error_if_required() -> None:
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
def test_ambiguous_machine_is_never_replaced(machine: str, on: str, why: str) -> None:
    with pytest.raises(NoMachine, match=why):
        effects(ReplaceMachineTrigger(required=False), machine=machine, on=on)
