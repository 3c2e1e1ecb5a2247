"""YAML as the Go controller reads it, with the position of each value."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from haulout.compat.goliterals import format_float
from haulout.compat.ucfg import goyaml
from haulout.compat.ucfg.goyaml import Mapping, Scalar, Sequence, Value
from haulout.errors import ConfigErrors

# The results of yaml.v2 2.4.0 for each text.
GO: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "go_yaml.json").read_text())
# Go rejects every version of YAML but 1.1; we accept other versions.
OURS = {"%YAML 1.2\n---\na: 1\n"}


def view(value: Value | None) -> list[Any]:
    match value:
        case Mapping(entries=entries):
            return ["map", [[name, view(entry.value)] for name, entry in sorted(entries.items())]]
        case Sequence(items=items):
            return ["list", [view(each) for each in items]]
        case Scalar(value=float(number)):
            return ["float", format_float(number)]
        case Scalar(value=bool() | str() as found):
            return ["bool" if isinstance(found, bool) else "str", found]
        case Scalar(value=int(number)):
            return ["int", str(number)]
    return ["null"]


def read(text: str) -> list[Any] | None:
    try:
        return view(goyaml.parse(text.encode(), file="f").root)
    except ConfigErrors:
        return None


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        goyaml.parse(text.encode(), file="f")
    return [str(error) for error in caught.value.errors]


def root(text: str) -> Any:
    return goyaml.parse(text.encode(), file="f").root


def test_yaml_is_parsed_as_by_yaml_v2() -> None:
    rows = [row for row in GO if row["input"] not in OURS]
    assert len(rows) > 280
    assert {row["input"]: read(row["input"]) for row in rows} == {row["input"]: row.get("output") for row in rows}


def test_values_and_keys_have_line_and_column() -> None:
    entry = root("a:\n  bc:   11:00\n").get("a").entries["bc"]
    assert (entry.line, entry.column) == (2, 3)
    assert (entry.value.line, entry.value.column) == (2, 9)
    assert entry.value.written == "11:00"


def test_duplicate_key_causes_a_warning_with_both_lines() -> None:
    document = goyaml.parse(b"a: 1\nb: 2\na: 3\n", file="f")
    assert [str(each) for each in document.warnings] == [
        "f:3: a: expected it once, found it in line 1 too; the one in line 3 counts"
    ]


def test_key_overriding_a_merge_key_is_no_duplicate() -> None:
    document = goyaml.parse(b"x: &x {a: 1}\nz: {<<: *x, a: 2}\n", file="f")
    assert document.warnings == ()


def test_all_keys_that_are_no_strings_are_reported_at_once() -> None:
    assert complaints("yes: a\nb:\n  5: c\n") == [
        "f:1: expected a text as key, found yes (true or false); if it is meant, put it in quotes: 'yes'",
        "f:3: b: expected a text as key, found the number 5; if it is meant, put it in quotes: '5'",
    ]


def test_syntax_errors_name_the_line() -> None:
    assert complaints("a: 1\nb: [1, 2\n")[0].startswith("f:3: expected YAML or JSON")


def test_alias_that_contains_itself_is_an_error() -> None:
    assert complaints("a: &a [*a]\n") == [
        "f:1: a[0]: expected a value that does not contain itself, found *a inside it"
    ]


def test_nesting_is_limited() -> None:
    assert "f:1: expected at most 100 values inside each other, found more" in complaints("[" * 300_000)


def test_alias_expansion_is_limited() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert complaints("\n".join(lines)) == ["f:1: expected aliases for at most 400000 values, found more"]


def test_invalid_utf8_is_an_error() -> None:
    with pytest.raises(ConfigErrors, match="found bytes that are no text"):
        goyaml.parse(b"a: \xff", file="f")


@given(st.one_of(st.text(), st.text(alphabet="ab:-[]{}&*!<>|'\"? \n#%@0159.ey_$,~")))
@example("a: !!binary é")
@example("!!int '': 1")
@example("&a : *a")
def test_any_text_is_parsed_or_raises_config_errors(text: str) -> None:
    read(text)
