"""What a person can type to move a node on; all of it comes from a cluster, and may be hostile."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.drain.blockers import Kind
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import Node
from haulout.maintenance.resource import NodeMaintenance
from haulout.profiles import config
from haulout.profiles.info import NodeInfo
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import State, Verdict, fails, passes
from haulout.profiles.plugins.registry import registries
from haulout.profiles.steps import CheckReport, ProfileReport, TransitionReport
from haulout.web.api.commands import commands_for
from haulout.web.api.shapes import ActKind, Blocker, Command, Drain, NodeState
from haulout.web.api.subject import Subject

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


def subject(*, labels: dict[str, str] | None = None, cordoned: bool = False, mark: str = "", **known: Any) -> Subject:
    annotations = {"haulout.dev/cordon": mark} if mark else {}
    metadata = {"name": "n1", "uid": "u", "labels": labels or {}, "annotations": annotations}
    node = msgspec.convert({"metadata": metadata, "spec": {"unschedulable": cordoned}}, Node)
    return Subject(node=node, now=NOW, **known)


def found(it: Subject, *drains: Drain, configuration: Configuration | None = None) -> list[Command]:
    return list(commands_for(it, state=NodeState.BLOCKED, drains=drains, configuration=configuration))


def by_checks(
    expression: str, passed: Mapping[str, bool], *, state: State = State.OPERATIONAL, target: State = State.REQUIRED
) -> list[Command]:
    """Return what lets a profile go on, whose checks say this."""
    file = FILE.decode().replace("CHECK", expression).replace("STATE", state).replace("NEXT", target)
    configuration = config.load(file.encode(), registries(), {}).configuration

    def verdict(name: str) -> Verdict:
        return passes("yes") if passed[name] else fails("no")

    way = TransitionReport(
        target=target,
        expression=expression,
        chain_passed=False,
        passed=False,
        checks={name: CheckReport(TYPES[name], verdict(name)) for name in passed},
    )
    report = ProfileReport(name="os", state=state, next=state, transitions=(way,))
    labels = {"example.com/held": "", "example.com/reboot": "no"} if "held" in passed else {}
    it = subject(labels=labels, info=NodeInfo("n1", {}, (report,), NOW, None))
    return found(it, configuration=configuration)


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
def test_labels_and_annotations_that_a_check_waits_for_can_be_typed(
    expression: str, passed: dict[str, bool], commands: list[str]
) -> None:
    assert [it.command for it in by_checks(expression, passed)] == commands


def test_what_can_be_approved_on_the_dashboard_says_so() -> None:
    [one] = by_checks("approved", {"approved": False})
    assert one.act is not None
    assert (one.act.act, one.act.node, one.act.profile, one.act.check) == (ActKind.APPROVE, "n1", "os", "approved")
    assert one.title == "Let profile os go to maintenance-required"
    assert one.why == "it goes to maintenance-required when approved passed"
    [two] = by_checks("wanted && approved", {"wanted": False, "approved": False})
    assert two.act is None


def test_an_approval_that_other_checks_hold_back_does_not_promise_a_transition() -> None:
    checks = {"approved": False, "late": False}
    [one] = by_checks("approved && late", checks, state=State.REQUIRED, target=State.IN_MAINTENANCE)
    assert one.title == "Approve for profile os"
    assert one.why == "it goes to in-maintenance when approved passed and late passed"


@pytest.mark.parametrize("kind", list(Kind))
def test_no_name_gets_out_of_its_quotes(kind: Kind) -> None:
    blocker = Blocker(kind=kind, pod=f"shop/{EVIL}", object=f"PodDisruptionBudget shop/{EVIL}", workload=EVIL)
    order = msgspec.convert({"metadata": {"name": EVIL}, "spec": {"nodeName": "n1"}}, NodeMaintenance)
    notice = msgspec.convert({"metadata": {"name": EVIL}, "spec": {"nodeName": "n1"}}, MaintenanceNotice)
    commands = found(subject(orders=(order,), notices=(notice,)), Drain(by="x", blockers=(blocker,)))
    assert commands
    for it in commands:
        assert EVIL in shlex.split(it.command) or EVIL not in it.command


def test_each_is_told_once_and_not_too_many() -> None:
    blockers = tuple(Blocker(kind=Kind.POLICY, pod=f"shop/p{number}") for number in (*range(30), *range(30)))
    commands = [it.command for it in found(subject(), Drain(by="x", blockers=blockers))]
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
def test_what_was_left_on_a_node_can_be_cleared_away(known: dict[str, Any], command: str) -> None:
    assert [it.command for it in found(subject(**known))] == [command]


def test_an_idle_node_can_be_taken_out_of_service() -> None:
    one, _hold = commands_for(subject(), state=NodeState.IDLE, drains=(), configuration=None)
    words = shlex.split(one.command)
    assert (words[0], words[2:]) == ("echo", ["|", "kubectl", "apply", "-f", "-"])
    assert msgspec.json.decode(words[1])["spec"]["nodeName"] == "n1"


def test_what_a_cloud_announced_cannot_be_called_off_here() -> None:
    spec = {"nodeName": "n1", "source": "oci"}
    notice = msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, MaintenanceNotice)
    assert found(subject(notices=(notice,))) == []


def test_a_node_that_is_held_can_be_released_and_one_that_is_not_can_be_held() -> None:
    metadata = {"name": "n1", "annotations": {"haulout.dev/hold": "by=alice; migration"}}
    held = Subject(node=msgspec.convert({"metadata": metadata}, Node), now=NOW)
    (release,) = [it for it in found(held) if it.act and it.act.act is ActKind.RELEASE]
    assert (release.command, release.why) == ("haulout release n1", "it is held by alice: migration")
    idle = commands_for(subject(), state=NodeState.IDLE, drains=(), configuration=None)
    (hold,) = [it for it in idle if it.act and it.act.act is ActKind.HOLD]
    assert hold.command == "haulout hold n1 --for 4h --reason 'by hand'"
    again = commands_for(held, state=NodeState.IDLE, drains=(), configuration=None)
    assert not [it for it in again if it.act and it.act.act is ActKind.HOLD]
