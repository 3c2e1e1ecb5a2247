"""One line for each thing that happened, which can be followed by node."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from haulout.app import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
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


def test_a_text_line_ends_with_what_it_is_about() -> None:
    assert logged(as_json=False).endswith("Z INFO    it begins node=n1\n")


def test_a_json_line_has_what_it_is_about_as_a_key() -> None:
    line = json.loads(logged(as_json=True))
    assert {key: line[key] for key in ("level", "logger", "message", "node")} == {
        "level": "info",
        "logger": "haulout.test",
        "message": "it begins",
        "node": "n1",
    }
    assert line["time"].endswith("Z")


def test_an_exception_is_told_in_both() -> None:
    assert "ValueError: no such thing" in json.loads(logged(as_json=True, failing=True))["exception"]
    assert logged(as_json=False, failing=True).endswith("ValueError: no such thing\n")
