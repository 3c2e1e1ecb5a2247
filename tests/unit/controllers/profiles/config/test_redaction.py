"""Redaction of secrets in any configuration text."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.profiles.config.redaction import redact_config
from haulout.controllers.profiles.plugins.registry import registries

HOOK = "https://hooks.slack.com/services/T0/B0/quiet"


def a_file(*lines: str, top: str = "") -> str:
    body = "".join(f"      {line}\n" for line in lines)
    return f"{top}instances:\n  notify:\n  - name: a\n    type: webhook\n    config:\n{body}"


def redacted(text: str) -> str:
    found = redact_config(text, registries()).text
    assert found.count("\n") == text.count("\n"), "line numbers must not change"
    return found


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("token: hunter2", "token: (hidden)"),
        ("token: 'hunter2'", "token: '(hidden)'"),
        ('token: "hun\\u0074er2"', 'token: "(hidden)"'),
        ("token: !!str hunter2", "token: (hidden)"),
        ("token: ${TOKEN}", "token: ${TOKEN}"),
        ("token: '${TOKEN}'", "token: '${TOKEN}'"),
        ("token: ${TOKEN:hunter2}", "token: ${TOKEN:(hidden)}"),
        ("token: Bearer-${TOKEN}-hunter2", "token: (hidden)${TOKEN}(hidden)"),
        ("token: ${TOKEN", "token: (hidden)"),
        ("token: hunter2  # it is hunter2", "token: (hidden)  # it is (hidden)"),
        ("'token': hunter2", "'token': (hidden)"),
        ("? token\n      : hunter2", "? token\n      : (hidden)"),
        ("token: |\n        hunter2\n        more", "token: (hidden)\n\n"),
        ("token: >-\n        hunter2\n        more", "token: (hidden)\n\n"),
        ('token: "hunter2\n        more"', 'token: "(hidden)"\n'),
        ("url: https://h/x?sig=hunter2", "url: (hidden)"),
        ("secret: 12345678", "secret: (hidden)"),
    ],
)
def test_secret_option_is_redacted_in_any_yaml_style(typed: str, expected: str) -> None:
    assert redacted(a_file(typed)).rstrip("\n") == a_file(expected).rstrip("\n")
    assert "hunter2" not in redacted(a_file(typed))


@pytest.mark.parametrize(
    "text",
    [
        a_file("token: *t", top="x: &t hunter2\n"),
        a_file("<<: *base", top="base: &base {token: hunter2}\n"),
        a_file("token: ${mine}", top="mine: hunter2\n"),
        a_file("token: ${mine}", top="mine: ${other}\nother: hunter2\n"),
        a_file("token: ${NOTHING:${mine}}", top="mine: hunter2\n"),
        a_file("url: u").replace("type: webhook", "type: mistyped") + "      token: hunter2\n",
        a_file("url: u", "apiToken: hunter2"),
        a_file("url: u", "headers: {X-Api-Key: hunter2, Authorization: hunter2}"),
        "cloud:\n  credentials: {user: me, password: hunter2}\n",
        "cloud:\n  passwords: [hunter2, hunter2]\n",
        "x: https://me:hunter2@example.com/\n",
        "x: 1\n---\ntoken: hunter2\n",
        "x: 1\n# token: hunter2\n",
        "x: 1  # password = hunter2\n",
    ],
)
def test_secret_is_redacted_at_any_place_of_a_file(text: str) -> None:
    assert "hunter2" not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        a_file("token: hunter2"),
        a_file("token: ${mine}", top="mine: hunter2\n"),
        a_file("token: *t", top="x: &t hunter2\n"),
        a_file("token: |", "  hunter2", "  hunter2"),
        a_file("'token' : hunter2"),
        a_file('"token": "hunter2"'),
        "instances: {notify: [{name: a, type: webhook, config: {token: hunter2, url: u}\n",
        "x: https://example.com/hunter2\n",
    ],
)
@pytest.mark.parametrize("spoiled", ["\t- [\n", "a: b: c\n", "'\n"])
def test_secret_is_redacted_in_invalid_yaml(text: str, spoiled: str) -> None:
    assert "hunter2" not in redacted(f"{text}{spoiled}")
    assert "hunter2" not in redacted(f"{spoiled}{text}")


def test_text_without_secrets_is_unchanged() -> None:
    text = "intervals: {requeue: 1m}\ninstances:\n  check:\n  - {name: a, type: hasLabel, config: {key: token}}\n"
    assert redacted(text) == text


def test_messages_about_a_file_are_redacted() -> None:
    redacted_config = redact_config(a_file("token: hunter2"), registries(), also=["sesame-open"])
    assert (
        redacted_config.redact("expected x, found 'hunter2' or sesame-open")
        == "expected x, found '(hidden)' or (hidden)"
    )
    assert redacted_config.redact(f"posting to {HOOK} failed") == "posting to https://hooks.slack.com/(hidden) failed"


def hostile() -> Iterator[str]:
    yield "a" * (1 << 20)
    yield "token" * 200_000
    yield "token:" + " " * (1 << 20)
    yield "[" * 500_000
    yield "://a/" * 200_000
    yield "x: [\n" + "".join(f"token: abcdefgh{number}\n" for number in range(20_000))
    yield "a: &a [x, x]\n" + "".join(f"{name}: &{name} [*a, *a]\n" for name in "bcdefghijklmnop")


@pytest.mark.parametrize("text", [*hostile()], ids=range(7))
def test_redaction_is_fast_on_hostile_files(text: str) -> None:
    began = time.process_time()
    redact_config(text, registries())
    assert time.process_time() - began < 5


@given(st.text(alphabet="token: hunter2{}[]&*'\"\n#|>-${}\t,?!%@`\\", max_size=60))
def test_redaction_returns_text_for_any_input(text: str) -> None:
    assert isinstance(redact_config(text, registries()).text, str)
