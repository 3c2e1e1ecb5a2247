"""An edit that anybody may send: what it can learn, what it can break, and what is told of it."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from haulout.profiles import config
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import State
from haulout.profiles.plugins.registry import registries
from haulout.web.api.configuration import File
from haulout.web.api.edits import LARGEST, Read, read_edit

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
    return config.load(text.encode(), registries(), environ).configuration


def read(text: str, *, good: str = GOOD, environ: Mapping[str, str] = ENVIRON) -> Read:
    file = File(path="maintenance.yaml", newest=good.encode(), good=good.encode(), environ=environ)
    return read_edit(text, file, registries(), in_force=loaded(good, environ))


def said(found: Read) -> str:
    """Return all that can be told of an edit."""
    return f"{found.findings} {found.profiles}"


def test_an_edit_that_says_the_same_is_the_same_with_all_its_secrets() -> None:
    found = read(f"# a comment\n{GOOD}")
    assert found.after is not None
    assert found.after.profiles == loaded(GOOD).profiles
    [finding] = [it for it in found.findings if it.level == "info"]
    assert "${HOOK_TOKEN} is not looked at here" in finding.message


@pytest.mark.parametrize("name", ENVIRON)
@pytest.mark.parametrize(
    "place",
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
def test_no_value_of_the_environment_is_ever_told(name: str, place: str) -> None:
    old, new = place.split("|")
    assert old in GOOD
    found = read(GOOD.replace(old, new % name))
    assert ENVIRON[name] not in said(found)
    assert name == "POOL" or ENVIRON[name] not in repr(_checks(found))


def _checks(found: Read) -> list[object]:
    """Return the checks that would be asked of nodes, whose reasons are told."""
    profiles = () if found.after is None else found.after.profiles.values()
    return [
        member.plugin
        for profile in profiles
        for state in State
        for way in profile.states[state].transitions
        for member in way.check.members
    ]


def test_no_file_is_opened_that_an_edit_names(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hunter2 is the token", encoding="utf-8")
    window = f"{{name: wanted, type: timeWindow, config: {{calendars: [{secret}]}}}}"
    lines = [f"  - {window}" if "name: wanted" in line else line for line in GOOD.splitlines()]
    found = read("\n".join(lines))
    assert found.after is not None
    assert "hunter2" not in said(found)
    assert "VCALENDAR" not in said(found)


def test_regular_expressions_of_others_are_not_tried() -> None:
    evil = GOOD.replace("expr: value > 0", """expr: '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" =~ "(a+)+$"'""")
    found = read(evil)
    assert [it for it in _checks(found) if "(a+)+" in repr(it)] == []


def test_a_secret_that_is_typed_is_not_told_back() -> None:
    found = read(GOOD.replace('token: "${HOOK_TOKEN}"', "token: [typed-hunter2]"))
    assert "typed-hunter2" not in said(found)


def test_a_guess_at_a_secret_is_not_told_from_another_one() -> None:
    right = read(GOOD.replace('"${HOOK_TOKEN}"', "hunter2-of-the-hook"))
    wrong = read(GOOD.replace('"${HOOK_TOKEN}"', "hunter3-of-the-hook"))
    assert said(right) == said(wrong)


def _bomb() -> str:
    """Return a file whose aliases stand for a billion values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for before, after in pairwise("abcdefghi"):
        lines.append(f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x" * (LARGEST + 1), "expected at most 1 MiB, found more"),
        ("[" * 200_000, "expected at most 100 values inside each other"),
        ("\x00", "expected YAML or JSON"),
        ("", "expected"),
        (_bomb(), ""),
        ("x: [" + "1," * 30_000 + "]", "expected at most 20000 values in a file, found more"),
    ],
    ids=["too large", "too deep", "no text", "nothing", "a bomb", "too many"],
)
def test_what_makes_no_sense_is_an_answer(text: str, message: str) -> None:
    found = read(text)
    assert found.after is None
    assert message in found.findings[0].message


def test_an_edit_that_asks_too_much_of_nodes_is_not_tried_on_them() -> None:
    chain = " && ".join(["wanted"] * 3_000)
    assert read(GOOD.replace("wanted && quiet", chain)).is_too_much
    assert not read(GOOD).is_too_much
