"""Triggers that change the node, or the hypervisor below it."""

from typing import Any, cast

import pytest

from haulout.controllers.profiles.plugin import (
    DATA_ANNOTATION,
    Action,
    PatchHypervisor,
    Plugin,
    PluginContext,
    SetAnnotation,
    SetFinalizer,
    SetLabel,
    Trigger,
)
from haulout.controllers.profiles.plugins.triggers.alter_annotation import AlterAnnotation
from haulout.controllers.profiles.plugins.triggers.alter_finalizer import AlterFinalizer
from haulout.controllers.profiles.plugins.triggers.alter_hypervisor import AlterHypervisor
from haulout.controllers.profiles.plugins.triggers.alter_label import AlterLabel

ANY_CONTEXT = cast("PluginContext", None)  # these triggers do not use it


def effects(trigger: Trigger) -> tuple[Action, ...]:
    return trigger.actions(ANY_CONTEXT)


def wrong_keys(plugin: Plugin) -> list[str]:
    return [key for key, _ in (*plugin.problems(), *plugin.warnings())]


def test_label_is_set_or_removed() -> None:
    """I11."""
    assert effects(AlterLabel(key="a/b", value="c")) == (SetLabel("a/b", "c"),)
    assert effects(AlterLabel(key="a/b")) == (SetLabel("a/b", ""),)
    assert effects(AlterLabel(key="a/b", value="c", remove=True)) == (SetLabel("a/b", None),)


def test_annotation_is_set_or_removed() -> None:
    """I03."""
    assert effects(AlterAnnotation(key="a/b", value="any text: at all")) == (SetAnnotation("a/b", "any text: at all"),)
    assert effects(AlterAnnotation(key="a/b", remove=True)) == (SetAnnotation("a/b", None),)


def test_finalizer_is_added_or_removed() -> None:
    """I06."""
    assert effects(AlterFinalizer(key="a/b")) == (SetFinalizer("a/b", True),)
    assert effects(AlterFinalizer(key="a/b", remove=True)) == (SetFinalizer("a/b", False),)


@pytest.mark.parametrize("key", ["", "a b", "/b", "a/", "a/b/c", "Upper.example/x", "-a", "x" * 64])
def test_key_the_server_would_refuse_is_reported_at_load(key: str) -> None:
    for plugin in (AlterLabel(key=key), AlterAnnotation(key=key), AlterFinalizer(key=key)):
        assert wrong_keys(plugin) == ["key"]


@pytest.mark.parametrize("value", ["2026-01-05T09:00:00Z", "a b", "-", "x" * 64])
def test_invalid_label_value_is_reported_at_load(value: str) -> None:
    assert wrong_keys(AlterLabel(key="a", value=value)) == ["value"]
    assert wrong_keys(AlterLabel(key="a", value=value, remove=True)) == []
    assert wrong_keys(AlterAnnotation(key="a", value=value)) == []


def test_data_annotation_must_not_be_altered() -> None:
    assert [key for key, _ in AlterAnnotation(key=DATA_ANNOTATION).problems()] == ["key"]


def test_valid_keys_have_no_problem() -> None:
    for key in ("ready", "example.com/ready", "a_b.c-d"):
        assert wrong_keys(AlterLabel(key=key, value="v1.2_x")) == []


def test_hypervisor_patch_contains_exactly_the_fields() -> None:
    """I09: strings, booleans and lists, by their names in JSON."""
    fields = {"maintenance": "manual", "maintenanceReason": "", "reboot": False, "customTraits": ["A", "B"]}
    trigger = AlterHypervisor(fields=fields)
    assert wrong_keys(trigger) == []
    assert effects(trigger) == (PatchHypervisor(fields),)
    assert effects(AlterHypervisor(fields={})) == ()


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"reboot": "true"}, "reboot: found 'true', expected true or false"),
        ({"version": 1.1}, "version: found 1.1, expected a text"),
        ({"maintenance": True}, "maintenance: found True, expected a text"),
        ({"aggregates": "one"}, "aggregates: found 'one', expected a list of texts"),
        ({"aggregates": ["one", 2]}, "aggregates: found ['one', 2], expected a list of texts"),
        (
            {"skipTest": True},
            "skipTest: a hypervisor's spec has no such field that can be set; did you mean skipTests?",
        ),
    ],
)
def test_unknown_hypervisor_field_or_type_is_refused(field: Any, problem: str) -> None:
    """I09: also lists load, and nothing is taken for something else."""
    assert [f"{key}: {text}" for key, text in AlterHypervisor(fields=field).problems()] == [problem]
