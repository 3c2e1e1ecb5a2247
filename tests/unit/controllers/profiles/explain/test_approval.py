"""What a person can set so that a profile goes on: which label, which annotation, and what is not theirs to set."""

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
    """Return a node that waits for a chain, if maintenance is needed."""
    own = {PROFILE_LABEL: "os", **({"example.com/needed": "1"} if needed else {}), **(labels or {})}
    walk = ProfileNode(FILE.replace("CHAIN", f'"{chain}"'), labels=own, annotations={"says": says})
    walk.reconcile()
    walk.reconcile()
    return walk


def offered(walk: ProfileNode) -> tuple[Offer, ...]:
    assert walk.result is not None
    return offers(walk.result.reports, walk.configuration)


@pytest.mark.parametrize(
    ("check", "wish", "opposite"),
    [
        (HasLabel(key="k"), label("true"), label(None)),
        (HasLabel(key="k", value="v"), label("v"), label(None)),
        (HasAnnotation(key="k"), annotation("true"), annotation(None)),
        (AnyLabel(key="k"), None, None),
        (NoticeCheck(), None, None),
    ],
)
def test_what_makes_a_check_pass_or_not(
    check: Check, wish: MetadataChange | None, opposite: MetadataChange | None
) -> None:
    assert change_satisfying(check) == wish
    assert change_satisfying(check, passed=False) == opposite


def test_an_annotation_of_any_value_says_who_set_it() -> None:
    assert change_satisfying(HasAnnotation(key="k"), by="ada") == annotation("ada")
    assert change_satisfying(HasAnnotation(key="k", value="yes"), by="ada") == annotation("yes")
    assert change_satisfying(HasLabel(key="k"), by="ada") == label("true")


@pytest.mark.parametrize(
    ("chain", "setup", "wishes", "later"),
    [
        pytest.param("approved", {}, (APPROVED,), "", id="an annotation of any value"),
        pytest.param("signed", {}, (SIGNED,), "", id="a label of a certain value"),
        pytest.param("signed", {"labels": {"example.com/signed": "dev"}}, (SIGNED,), "", id="another value"),
        pytest.param("!frozen", {"labels": {"example.com/frozen": "1"}}, (THAWED,), "", id="one that has to go"),
        pytest.param("approved && signed", {}, (APPROVED, SIGNED), "", id="two at once"),
        pytest.param("approved && says", {}, (APPROVED,), "says passed", id="the window is not open yet"),
        pytest.param("approved && says", {"says": "yes"}, (APPROVED,), "", id="the window is open"),
        pytest.param("approved && says", {"says": "unknown"}, (APPROVED,), "says passed", id="nobody knows"),
    ],
)
def test_what_a_profile_waits_for_is_offered_as_far_as_a_person_can_set_it(
    chain: str, setup: dict[str, Any], wishes: tuple[MetadataChange, ...], later: str
) -> None:
    found = choose(offered(waiting(chain, **setup)))
    assert (found.profile, found.target, found.changes, found.waits_for) == (
        "os",
        State.IN_MAINTENANCE,
        wishes,
        later,
    )


def test_what_is_set_lets_the_profile_go_on() -> None:
    walk = waiting("approved && !frozen", labels={"example.com/frozen": "1"})
    patch = approval.patch(choose(offered(walk)).changes)
    walk.annotate(**patch["metadata"]["annotations"])
    walk.label(patch["metadata"]["labels"])
    walk.reconcile()
    assert walk.state("os") == State.IN_MAINTENANCE
    assert [item for item in offered(walk) if item.is_approval] == []


def test_nothing_is_offered_for_what_passes_or_is_nobodys_to_set() -> None:
    assert [item for item in offered(waiting("says")) if item.is_approval] == []


def test_an_order_of_maintenance_is_no_approval_but_can_be_named() -> None:
    idle = offered(waiting("approved", needed=False))
    with pytest.raises(ApprovalError) as error:
        choose(idle)
    assert str(error.value) == (
        "no profile is waiting for an approval; possible with --check: os: needed (label example.com/needed=true)"
    )
    assert choose(idle, check="needed").changes == (
        MetadataChange(field=MetadataField.LABEL, key="example.com/needed", value="true"),
    )


def test_who_could_mean_several_is_asked_which_one() -> None:
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
def test_what_is_not_there_is_told(profile: str, check: str, why: str) -> None:
    with pytest.raises(ApprovalError) as error:
        choose(offered(waiting("approved && says")), profile=profile, check=check)
    assert str(error.value) == why


def test_a_file_that_was_edited_meanwhile_offers_nothing() -> None:
    walk = waiting("approved")
    walk.set_configuration(FILE.replace("CHAIN", "signed"))
    assert offered(walk) == ()


def test_commands_are_for_a_shell_and_say_when_something_is_written_over() -> None:
    walk = waiting("approved && signed", labels={"example.com/signed": "dev"})
    evil = MetadataChange(field=MetadataField.LABEL, key="$(reboot)", value="a b")
    assert approval.command(walk.node, (*choose(offered(walk)).changes, evil, THAWED)) == (
        "kubectl annotate node n1 example.com/approved=true"
        " && kubectl label node n1 example.com/signed=ops --overwrite"
        " && kubectl label node n1 '$(reboot)=a b'"
        " && kubectl label node n1 example.com/frozen-"
    )


def test_a_patch_touches_nothing_else() -> None:
    assert approval.patch((SIGNED, THAWED, APPROVED)) == {
        "metadata": {
            "labels": {"example.com/signed": "ops", "example.com/frozen": None},
            "annotations": {"example.com/approved": "true"},
        }
    }
    assert merge_patch(approval.patch(())) is not None
    assert SIGNED.is_set_on(waiting("says", labels={"example.com/signed": "ops"}).node)
    assert not SIGNED.is_set_on(waiting("says", labels={"example.com/signed": "dev"}).node)
