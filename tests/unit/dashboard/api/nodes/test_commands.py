"""Commands for the next step of a node; all names come from a cluster and may be hostile."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.api.maintenancefreeze import MaintenanceFreeze, MaintenanceFreezeSpec
from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.api.objects import Node, ObjectMeta
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.observation import CheckReport, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import CheckResult, State, fails, passes
from haulout.controllers.profiles.plugins.registry import registries
from haulout.controllers.profiles.status import NodeProfilesStatus
from haulout.dashboard.api.nodes.commands import commands_for
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.types import ActionType, Blocker, Command, DrainSummary, NodeState
from haulout.drain.blockers import BlockerKind
from haulout.runtime.freezes import Freezes, parse_freeze

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVIL = "$(reboot); 'x"
FILE = b"""
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: example.com/reboot, value: "a b"}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved}}
  - {name: held, type: hasLabel, config: {key: example.com/held}}
  - {name: late, type: wait, config: {duration: 1h}}
profiles:
- name: os
  STATE:
    transitions: [{check: "CHECK", next: NEXT}]
"""
TYPES = {"wanted": "hasLabel", "approved": "hasAnnotation", "held": "hasLabel", "late": "wait"}


def observed(
    *, labels: dict[str, str] | None = None, cordoned: bool = False, mark: str = "", **known: Any
) -> NodeSnapshot:
    annotations = {"haulout.dev/cordon": mark} if mark else {}
    metadata = {"name": "n1", "uid": "u", "labels": labels or {}, "annotations": annotations}
    node = msgspec.convert({"metadata": metadata, "spec": {"unschedulable": cordoned}}, Node)
    return NodeSnapshot(node=node, now=NOW, **known)


def commands_of(
    observation: NodeSnapshot, *drains: DrainSummary, configuration: Configuration | None = None
) -> list[Command]:
    return list(commands_for(observation, state=NodeState.BLOCKED, drains=drains, configuration=configuration))


def commands_for_checks(
    expression: str, passed: Mapping[str, bool], *, state: State = State.OPERATIONAL, target: State = State.REQUIRED
) -> list[Command]:
    """Return what lets a profile go on, whose checks say this."""
    file = FILE.decode().replace("CHECK", expression).replace("STATE", state).replace("NEXT", target)
    configuration = loader.load(file.encode(), registries(), {}).configuration

    def verdict(name: str) -> CheckResult:
        return passes("yes") if passed[name] else fails("no")

    transition = TransitionReport(
        target=target,
        expression=expression,
        chain_passed=False,
        passed=False,
        checks={name: CheckReport(TYPES[name], verdict(name)) for name in passed},
    )
    report = ProfileReport(name="os", state=state, next=state, transitions=(transition,))
    labels = {"example.com/held": "", "example.com/reboot": "no"} if "held" in passed else {}
    observation = observed(labels=labels, info=NodeProfilesStatus("n1", {}, (report,), NOW, None))
    return commands_of(observation, configuration=configuration)


@pytest.mark.parametrize(
    ("expression", "passed", "commands"),
    [
        ("wanted", {"wanted": False}, ["kubectl label node n1 'example.com/reboot=a b'"]),
        ("approved", {"approved": False}, ["kubectl annotate node n1 example.com/approved=true"]),
        ("!held", {"held": True}, ["kubectl label node n1 example.com/held-"]),
        (
            "held && wanted",
            {"held": True, "wanted": False},
            ["kubectl label node n1 'example.com/reboot=a b' --overwrite"],
        ),
        (
            "late || approved",
            {"late": False, "approved": False},
            ["kubectl annotate node n1 example.com/approved=true"],
        ),
        ("late && approved", {"late": False, "approved": False}, []),
        (
            "wanted && approved",
            {"wanted": False, "approved": False},
            ["kubectl label node n1 'example.com/reboot=a b' && kubectl annotate node n1 example.com/approved=true"],
        ),
    ],
)
def test_commands_set_the_labels_and_annotations_that_checks_need(
    expression: str, passed: dict[str, bool], commands: list[str]
) -> None:
    assert [command.command for command in commands_for_checks(expression, passed)] == commands


def test_command_for_one_check_has_an_approve_action() -> None:
    [only_command] = commands_for_checks("approved", {"approved": False})
    assert only_command.action is not None
    assert (
        only_command.action.action,
        only_command.action.node,
        only_command.action.profile,
        only_command.action.check,
    ) == (
        ActionType.APPROVE,
        "n1",
        "os",
        "approved",
    )
    assert only_command.title == "Let profile os change to maintenance-required"
    assert only_command.reason == "it changes to maintenance-required when approved passed"
    [two] = commands_for_checks("wanted && approved", {"wanted": False, "approved": False})
    assert two.action is None


def test_approval_with_other_failing_checks_does_not_promise_a_transition() -> None:
    checks = {"approved": False, "late": False}
    [only_command] = commands_for_checks("approved && late", checks, state=State.REQUIRED, target=State.IN_MAINTENANCE)
    assert only_command.title == "Approve for profile os"
    assert only_command.reason == "it changes to in-maintenance when approved passed and late passed"


@pytest.mark.parametrize("kind", list(BlockerKind))
def test_hostile_names_are_quoted_in_commands(kind: BlockerKind) -> None:
    blocker = Blocker(kind=kind, pod=f"shop/{EVIL}", object=f"PodDisruptionBudget shop/{EVIL}", workload=EVIL)
    order = msgspec.convert({"metadata": {"name": EVIL}, "spec": {"nodeName": "n1"}}, NodeMaintenance)
    notice = msgspec.convert({"metadata": {"name": EVIL}, "spec": {"nodeName": "n1"}}, MaintenanceNotice)
    commands = commands_of(observed(orders=(order,), notices=(notice,)), DrainSummary(owner="x", blockers=(blocker,)))
    assert commands
    for command in commands:
        assert EVIL in shlex.split(command.command) or EVIL not in command.command


def test_commands_are_unique_and_limited() -> None:
    blockers = tuple(Blocker(kind=BlockerKind.POLICY, pod=f"shop/p{number}") for number in (*range(30), *range(30)))
    commands = [item.command for item in commands_of(observed(), DrainSummary(owner="x", blockers=blockers))]
    assert (len(commands), len(set(commands))) == (12, 12)


@pytest.mark.parametrize(
    ("known", "command"),
    [
        ({"cordoned": True}, "kubectl uncordon n1"),
        ({"mark": '{"owners": {"NodeMaintenance/old": {"since": "2026-05-01T11:00:00Z"}}}'}, "haulout uncordon n1"),
        (
            {"mark": "{"},
            "kubectl annotate node n1 haulout.dev/cordon- haulout.dev/cordon-backup- && kubectl uncordon n1",
        ),
        ({"data_problem": "odd"}, "kubectl annotate node n1 cloud.sap/maintenance-data-"),
    ],
)
def test_leftovers_on_a_node_have_a_cleanup_command(known: dict[str, Any], command: str) -> None:
    assert [item.command for item in commands_of(observed(**known))] == [command]


def test_idle_node_has_a_command_that_creates_a_nodemaintenance() -> None:
    only_command, _hold = commands_for(observed(), state=NodeState.IDLE, drains=(), configuration=None)
    text = shlex.split(only_command.command)
    assert (text[0], text[2:]) == ("echo", ["|", "kubectl", "apply", "-f", "-"])
    assert msgspec.json.decode(text[1])["spec"]["nodeName"] == "n1"


def test_cloud_notice_has_no_cancel_command() -> None:
    spec = {"nodeName": "n1", "source": "oci"}
    notice = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, MaintenanceNotice)
    assert commands_of(observed(notices=(notice,))) == []


def test_held_node_can_be_released_and_other_nodes_can_be_held() -> None:
    metadata = {"name": "n1", "annotations": {"haulout.dev/hold": "by=alice; migration"}}
    held = NodeSnapshot(node=msgspec.convert({"metadata": metadata}, Node), now=NOW)
    (release,) = [item for item in commands_of(held) if item.action and item.action.action is ActionType.RELEASE]
    assert (release.command, release.reason) == ("haulout release n1", "it is held by alice: migration")
    idle = commands_for(observed(), state=NodeState.IDLE, drains=(), configuration=None)
    (hold,) = [item for item in idle if item.action and item.action.action is ActionType.HOLD]
    assert hold.command == "haulout hold n1 --for 4h --reason 'by hand'"
    again = commands_for(held, state=NodeState.IDLE, drains=(), configuration=None)
    assert not [item for item in again if item.action and item.action.action is ActionType.HOLD]


def test_freeze_of_the_node_can_be_ended() -> None:
    freeze = MaintenanceFreeze(metadata=ObjectMeta(name="black-friday"), spec=MaintenanceFreezeSpec(by="alice"))
    frozen = NodeSnapshot(node=observed().node, now=NOW, freezes=Freezes((parse_freeze(freeze),)))
    (command,) = [item for item in commands_of(frozen) if "unfreeze" in item.command]
    assert command.command == "haulout unfreeze black-friday"
    assert command.reason.startswith("the node is frozen by alice; ")
