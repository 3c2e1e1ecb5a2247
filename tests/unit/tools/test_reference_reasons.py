"""The reference page of reasons is generated from `haulout.api`, is not stale, and lists every key of log lines."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from haulout.api import reasons
from tools.reference.reasons import LOG_KEYS, PAGE, MissingMeaningError, members, page

ROOT = Path(__file__).parents[3]


def test_reference_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / PAGE).read_text(encoding="utf-8") == page(), "make reference"


def test_a_reason_without_a_meaning_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "reasons.py"
    file.write_text('class Some(StrEnum):\n    KNOWN = "Known"  # it is known\n', encoding="utf-8")
    monkeypatch.setattr(reasons, "__file__", str(file))
    assert members(reasons, "Some") == [("Known", "it is known")]
    file.write_text('class Some(StrEnum):\n    BARE = "Bare"\n', encoding="utf-8")
    with pytest.raises(MissingMeaningError, match="BARE"):
        members(reasons, "Some")


def _dicts_of_extra(tree: ast.AST) -> Iterator[ast.Dict]:
    """Yield the dicts of log fields: of log calls and of transitions, by a keyword or a variable."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="extra" | "log_fields", value=ast.Dict() as found):
                yield found
            case ast.Assign(targets=[ast.Name(id="extra" | "log_fields")], value=ast.Dict() as found):
                yield found
            case ast.AugAssign(target=ast.Name(id="log_fields"), value=ast.Dict() as found):
                yield found


def _log_keys() -> set[str]:
    found = set[str]()
    for path in (ROOT / "src" / "haulout").rglob("*.py"):
        if path.name != "yaml_decoder.py":  # `extra` is the context of its errors
            for keys in _dicts_of_extra(ast.parse(path.read_text(encoding="utf-8"))):
                found |= {str(key.value) for key in keys.keys if isinstance(key, ast.Constant)}
    return found


def test_every_log_key_is_listed() -> None:
    assert _log_keys() == set(LOG_KEYS)
