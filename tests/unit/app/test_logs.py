"""Log lines: one per event, with the node as a field."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from haulout.app import logs


@pytest.fixture(autouse=True)
def restore_root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def logged(*, as_json: bool, failing: bool = False) -> str:
    stream = io.StringIO()
    logs.configure(as_json=as_json, stream=stream)
    try:
        raise ValueError("no such thing")
    except ValueError:
        logging.getLogger("haulout.test").info("it %s", "begins", extra={"node": "n1"}, exc_info=failing)
    return stream.getvalue()


def test_text_log_line_ends_with_its_extra_fields() -> None:
    assert logged(as_json=False).endswith("Z INFO    it begins node=n1\n")


def test_json_log_line_has_its_extra_fields_as_keys() -> None:
    line = json.loads(logged(as_json=True))
    assert {key: line[key] for key in ("level", "logger", "message", "node")} == {
        "level": "info",
        "logger": "haulout.test",
        "message": "it begins",
        "node": "n1",
    }
    assert line["time"].endswith("Z")


def test_exceptions_are_logged_in_both_formats() -> None:
    assert "ValueError: no such thing" in json.loads(logged(as_json=True, failing=True))["exception"]
    assert logged(as_json=False, failing=True).endswith("ValueError: no such thing\n")


FORGED = "\n2026-01-01T00:00:00.000Z ERROR   forged"
HOSTILE = ["n1" + end + FORGED for end in ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")]


def hostile(value: str, *, as_json: bool) -> str:
    stream = io.StringIO()
    logs.configure(as_json=as_json, stream=stream)
    try:
        raise ValueError(value)
    except ValueError:
        logging.getLogger("haulout.test").exception("it %s begins", value, extra={"node": value})
    return stream.getvalue()


@pytest.mark.parametrize("value", HOSTILE)
def test_line_breaks_in_values_cannot_forge_a_log_record(value: str) -> None:
    (line,) = hostile(value, as_json=True).splitlines()
    assert json.loads(line)["node"] == value
    first, *traceback = hostile(value, as_json=False).splitlines()
    assert "forged" in first
    assert traceback
    assert all(it.startswith("    ") for it in traceback)


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x07", "\x9b2J", "\x7f", "\u202e", "\u2066"])
@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_are_removed_from_log_lines(sign: str, as_json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert sign[0] not in hostile(sign, as_json=as_json)


def test_traceback_lines_are_indented() -> None:
    lines = logged(as_json=False, failing=True).splitlines()[1:]
    assert lines[0] == "    Traceback (most recent call last):"
    assert lines[-1] == "    ValueError: no such thing"


def test_printable_unicode_is_logged_unchanged() -> None:
    assert "Grüße 日本 🚢 \\n" in hostile("Grüße 日本 🚢 \\n", as_json=False)
