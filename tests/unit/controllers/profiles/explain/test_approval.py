"""Approvals: the labels and annotations a user can set so that a profile proceeds."""

from typing import Any

import pytest

from haulout.controllers.profiles.explain import approval
from haulout.controllers.profiles.explain.approval import (
    ApprovalError,
    MetadataChange,
    MetadataField,
    Offer,
    change_satisfying,
    choose,
    offers,
)
from haulout.controllers.profiles.plugin import PROFILE_LABEL, Check, State
from haulout.controllers.profiles.plugins.checks.any_label import AnyLabel
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck
from haulout.kube.patches import merge_patch
from support.fakes.profile_node import ProfileNode

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: needed, type: hasLabel, config: {key: example.com/needed}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved}}
  - {name: signed, type: hasLabel, config: {key: example.com/signed, value: ops}}
  - {name: frozen, type: hasLabel, config: {key: example.com/frozen}}
  - {name: says, type: says, config: {about: says}}
profiles:
- name: os
  operational:
    transitions: [{check: needed, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: "!needed", next: operational}, {check: CHAIN, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!needed", next: operational}]
"""
NEEDED = "os: needed (no label example.com/needed)"
NOTHING_TO_SET = "does not wait for a label or annotation that a person can set"
OPEN = "os: approved (annotation example.com/approved=true)"
APPROVED = MetadataChange(field=MetadataField.ANNOTATION, key="example.com/approved", value="true")
SIGNED = MetadataChange(field=MetadataField.LABEL, key="example.com/signed", value="ops")
THAWED = MetadataChange(field=MetadataField.LABEL, key="example.com/frozen", value=None)


def label(value: str | None) -> MetadataChange:
    return MetadataChange(field=MetadataField.LABEL, key="k", value=value)


def annotation(value: str | None) -> MetadataChange:
    return MetadataChange(field=MetadataField.ANNOTATION, key="k", value=value)


def waiting(chain: str, *, needed: bool = True, says: str = "no", labels: dict[str, str] | None = None) -> ProfileNode:
    """Return a node in maintenance-required that waits for a check chain."""
    own = {PROFILE_LABEL: "os", **({"example.com/needed": "1"} if needed else {}), **(labels or {})}
    profile_node = ProfileNode(FILE.replace("CHAIN", f'"{chain}"'), labels=own, annotations={"says": says})
    profile_node.reconcile()
    profile_node.reconcile()
    return profile_node


def offered(profile_node: ProfileNode) -> tuple[Offer, ...]:
    assert profile_node.result is not None
    return offers(profile_node.result.reports, profile_node.configuration)


@pytest.mark.parametrize(
    ("check", "change", "opposite"),
    [
        (HasLabel(key="k"), label("true"), label(None)),
        (HasLabel(key="k", value="v"), label("v"), label(None)),
        (HasAnnotation(key="k"), annotation("true"), annotation(None)),
        (AnyLabel(key="k"), None, None),
        (NoticeCheck(), None, None),
    ],
)
def test_change_satisfying_returns_the_change_for_each_check(
    check: Check, change: MetadataChange | None, opposite: MetadataChange | None
) -> None:
    assert change_satisfying(check) == change
    assert change_satisfying(check, passed=False) == opposite


def test_annotation_without_a_required_value_contains_the_user() -> None:
    assert change_satisfying(HasAnnotation(key="k"), by="ada") == annotation("ada")
    assert change_satisfying(HasAnnotation(key="k", value="yes"), by="ada") == annotation("yes")
    assert change_satisfying(HasLabel(key="k"), by="ada") == label("true")


@pytest.mark.parametrize(
    ("chain", "setup", "changes", "later"),
    [
        pytest.param("approved", {}, (APPROVED,), "", id="an annotation of any value"),
        pytest.param("signed", {}, (SIGNED,), "", id="a label of a certain value"),
        pytest.param("signed", {"labels": {"example.com/signed": "dev"}}, (SIGNED,), "", id="another value"),
        pytest.param("!frozen", {"labels": {"example.com/frozen": "1"}}, (THAWED,), "", id="a label to remove"),
        pytest.param("approved && signed", {}, (APPROVED, SIGNED), "", id="two at once"),
        pytest.param("approved && says", {}, (APPROVED,), "says passed", id="the window is not open yet"),
        pytest.param("approved && says", {"says": "yes"}, (APPROVED,), "", id="the window is open"),
        pytest.param("approved && says", {"says": "unknown"}, (APPROVED,), "says passed", id="unknown"),
    ],
)
def test_offers_contain_changes_a_user_can_make(
    chain: str, setup: dict[str, Any], changes: tuple[MetadataChange, ...], later: str
) -> None:
    found = choose(offered(waiting(chain, **setup)))
    assert (found.profile, found.target, found.changes, found.waits_for) == (
        "os",
        State.IN_MAINTENANCE,
        changes,
        later,
    )


def test_offered_change_makes_the_profile_proceed() -> None:
    profile_node = waiting("approved && !frozen", labels={"example.com/frozen": "1"})
    patch = approval.patch(choose(offered(profile_node)).changes)
    profile_node.annotate(**patch["metadata"]["annotations"])
    profile_node.label(patch["metadata"]["labels"])
    profile_node.reconcile()
    assert profile_node.state("os") == State.IN_MAINTENANCE
    assert [item for item in offered(profile_node) if item.is_approval] == []


def test_nothing_is_offered_for_passed_checks_or_checks_without_a_settable_value() -> None:
    assert [item for item in offered(waiting("says")) if item.is_approval] == []


def test_request_for_maintenance_is_no_approval_but_can_be_chosen_by_check() -> None:
    idle = offered(waiting("approved", needed=False))
    with pytest.raises(ApprovalError) as error:
        choose(idle)
    assert str(error.value) == (
        "no profile is waiting for an approval; possible with --check: os: needed (label example.com/needed=true)"
    )
    assert choose(idle, check="needed").changes == (
        MetadataChange(field=MetadataField.LABEL, key="example.com/needed", value="true"),
    )


def test_ambiguous_approval_must_be_chosen_by_profile_or_check() -> None:
    found = offered(waiting("approved || signed"))
    with pytest.raises(ApprovalError) as error:
        choose(found)
    assert str(error.value) == (
        "several approvals are possible: os: approved (annotation example.com/approved=true); "
        "os: signed (label example.com/signed=ops). Choose one with --profile and --check"
    )
    assert choose(found, check="signed").changes == (SIGNED,)
    assert choose(found, profile="os", check="approved").changes == (APPROVED,)


@pytest.mark.parametrize(
    ("profile", "check", "why"),
    [
        ("gpu", "", "profile gpu is not waiting for an approval"),
        (
            "gpu",
            "approved",
            f"check approved of profile gpu {NOTHING_TO_SET}",
        ),
        (
            "",
            "says",
            f"check says {NOTHING_TO_SET}; possible with --check: {NEEDED}; {OPEN}",
        ),
    ],
)
def test_impossible_approval_is_reported_with_alternatives(profile: str, check: str, why: str) -> None:
    with pytest.raises(ApprovalError) as error:
        choose(offered(waiting("approved && says")), profile=profile, check=check)
    assert str(error.value) == why


def test_edited_configuration_offers_nothing() -> None:
    profile_node = waiting("approved")
    profile_node.set_configuration(FILE.replace("CHAIN", "signed"))
    assert offered(profile_node) == ()


def test_approval_command_is_shell_quoted_and_uses_overwrite() -> None:
    profile_node = waiting("approved && signed", labels={"example.com/signed": "dev"})
    evil = MetadataChange(field=MetadataField.LABEL, key="$(reboot)", value="a b")
    assert approval.command(profile_node.node, (*choose(offered(profile_node)).changes, evil, THAWED)) == (
        "kubectl annotate node n1 example.com/approved=true"
        " && kubectl label node n1 example.com/signed=ops --overwrite"
        " && kubectl label node n1 '$(reboot)=a b'"
        " && kubectl label node n1 example.com/frozen-"
    )


def test_approval_patch_contains_only_the_changes() -> None:
    assert approval.patch((SIGNED, THAWED, APPROVED)) == {
        "metadata": {
            "labels": {"example.com/signed": "ops", "example.com/frozen": None},
            "annotations": {"example.com/approved": "true"},
        }
    }
    assert merge_patch(approval.patch(())) is not None
