"""Edits from untrusted users: disclosure, resource limits and results."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.plugin import State
from haulout.controllers.profiles.plugins.registry import registries
from haulout.dashboard.api.configuration.edit import MAX_BYTES, ParsedEdit, parse_edit
from haulout.dashboard.api.configuration.view import ConfigurationFile

ENVIRON = {"HOOK_TOKEN": "hunter2-of-the-hook", "POOL": "blue-pool", "AWS_SECRET_ACCESS_KEY": "aws-wJalrXUtn"}
GOOD = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: "example.com/${POOL}"}}
  - {name: quiet, type: prometheusInstant, config: {url: "http://prometheus", query: up, expr: value > 0}}
  notify:
  - {name: hook, type: webhook, config: {url: "https://example.com", token: "${HOOK_TOKEN}", body: m},
     schedule: {type: oneshot, config: {}}}
profiles:
- name: os
  operational:
    notify: hook
    transitions: [{check: wanted && quiet, next: maintenance-required}]
"""


def loaded(text: str, environ: Mapping[str, str] = ENVIRON) -> Configuration:
    return loader.load(text.encode(), registries(), environ).configuration


def parsed(text: str, *, good: str = GOOD, environ: Mapping[str, str] = ENVIRON) -> ParsedEdit:
    file = ConfigurationFile(path="maintenance.yaml", newest=good.encode(), last_good=good.encode(), environ=environ)
    return parse_edit(text, file, registries(), in_force=loaded(good, environ))


def all_texts(edit: ParsedEdit) -> str:
    """Return all texts that a response about an edit may contain."""
    return f"{edit.findings} {edit.profiles}"


def test_equivalent_edit_is_equal_without_resolving_secrets() -> None:
    found = parsed(f"# a comment\n{GOOD}")
    assert found.edited is not None
    assert found.edited.profiles == loaded(GOOD).profiles
    [finding] = [item for item in found.findings if item.level == "info"]
    assert "${HOOK_TOKEN} is not resolved in the preview" in finding.message


@pytest.mark.parametrize("name", ENVIRON)
@pytest.mark.parametrize(
    "replacement",
    [
        "requeue: 1m}|requeue: ${%s}}",
        "{requeue: 1m}|{requeue: '${%s:?}'}",
        "name: os|name: x${%s}",
        'key: "example.com/${POOL}"|key: "${%s}"',
        'key: "example.com/${POOL}"|key: "${${%s}}"',
        'key: "example.com/${POOL}"|key: a, value: "${%s}"',
        "expr: value > 0|expr: 'value > ${%s}'",
        "check: wanted &&|check: ${%s} &&",
        "next: maintenance-required|next: ${%s}",
        "type: hasLabel|type: ${%s}",
        "- name: os|- name: os\n  selector: ${%s}",
        "body: m|body: '${%s}'",
        "- name: os|- ${%s}\n- name: os",
    ],
)
def test_environment_values_are_not_disclosed(name: str, replacement: str) -> None:
    old, new = replacement.split("|")
    assert old in GOOD
    found = parsed(GOOD.replace(old, new % name))
    assert ENVIRON[name] not in all_texts(found)
    assert name == "POOL" or ENVIRON[name] not in repr(_checks(found))


def _checks(edit: ParsedEdit) -> list[object]:
    """Return the checks that would be evaluated on nodes, whose reasons are shown."""
    profiles = () if edit.edited is None else edit.edited.profiles.values()
    return [
        member.plugin
        for profile in profiles
        for state in State
        for transition in profile.states[state].transitions
        for member in transition.check.members
    ]


def test_files_named_in_an_edit_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2 is the token", encoding="utf-8")
    window = f"{{name: wanted, type: timeWindow, config: {{calendars: [{secret}]}}}}"
    lines = [f"  - {window}" if "name: wanted" in line else line for line in GOOD.splitlines()]
    found = parsed("\n".join(lines))
    assert found.edited is not None
    assert "hunter2" not in all_texts(found)
    assert "VCALENDAR" not in all_texts(found)


def test_regular_expressions_in_an_edit_are_not_evaluated() -> None:
    evil = GOOD.replace("expr: value > 0", """expr: '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" =~ "(a+)+$"'""")
    found = parsed(evil)
    assert [check for check in _checks(found) if "(a+)+" in repr(check)] == []


def test_typed_secret_is_not_echoed() -> None:
    found = parsed(GOOD.replace('token: "${HOOK_TOKEN}"', "token: [typed-hunter2]"))
    assert "typed-hunter2" not in all_texts(found)


def test_correct_and_wrong_secret_guesses_have_equal_results() -> None:
    right = parsed(GOOD.replace('"${HOOK_TOKEN}"', "hunter2-of-the-hook"))
    wrong = parsed(GOOD.replace('"${HOOK_TOKEN}"', "hunter3-of-the-hook"))
    assert all_texts(right) == all_texts(wrong)


def _bomb() -> str:
    """Return a file whose aliases stand for a billion values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, after in pairwise("abcdefghi"):
        lines.append(f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * (MAX_BYTES + 1), "expected at most 1 MiB, found more"),
        ("[" * 200_000, "expected at most 100 values inside each other"),
        ("\x00", "expected YAML or JSON"),
        ("", "expected"),
        (_bomb(), ""),
        ("x: [" + "1," * 30_000 + "]", "expected at most 20000 values in a file, found more"),
    ],
    ids=["too large", "too deep", "no text", "nothing", "a bomb", "too many"],
)
def test_invalid_edit_has_findings(text: str, message: str) -> None:
    found = parsed(text)
    assert found.edited is None
    assert message in found.findings[0].message


def test_edit_with_too_many_checks_is_not_simulated() -> None:
    chain = " && ".join(["wanted"] * 3_000)
    assert parsed(GOOD.replace("wanted && quiet", chain)).is_too_large
    assert not parsed(GOOD).is_too_large
