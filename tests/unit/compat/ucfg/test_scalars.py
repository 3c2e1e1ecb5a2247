"""Values into the types of options, and `${…}` in them, compared with go-ucfg 0.9.1."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.compat.goliterals import format_float
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.config.reader import read
from haulout.core import duration
from haulout.errors import ConfigErrors

GO: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "go_coercions.json").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sub:
    """A nested object."""

    a: str = option("a", default="")
    b: int = option("b", default=0)


def wanting(kind: Any, **more: Any) -> Any:
    fields = {"__annotations__": {"v": kind}, "v": option("v", **more)}
    return dataclass(frozen=True, kw_only=True)(type("Wanting", (), fields))


KINDS = {
    "str": wanting(str, default=""),
    "str!": wanting(str, required=True),
    "bool": wanting(bool, default=False),
    "bool!": wanting(bool, default=False, required=True),
    "int": wanting(int, default=0),
    "int!": wanting(int, required=True),
    "float": wanting(float, default=0.0),
    "duration": wanting(timedelta, default=timedelta()),
    "duration!": wanting(timedelta, required=True),
    "list": wanting(tuple[str, ...], default=()),
    "list!": wanting(tuple[str, ...], required=True),
    "ints": wanting(tuple[int, ...], default=()),
    "object": wanting(Sub, default=None),
    "objects": wanting(tuple[Sub, ...], default=()),
    "map": wanting(Mapping[str, str], default={}),
}


def view(kind: str, value: Any) -> Any:
    match value:
        case Sub():
            return [value.a, value.b]
        case timedelta():
            return duration.format(value)
        case tuple():
            return [view("", each) for each in value]
        case float():
            return format_float(value)
        case int() if kind.startswith("int"):
            return str(value)
    return value


def outcome(row: dict[str, Any]) -> Any:
    beside = GO["beside"] if row["value"].startswith('"') else ""
    try:
        found, _ = read(KINDS[row["kind"]], f"{beside}v: {row['value']}\n", environ=GO["environ"])
    except ConfigErrors:
        return "refused"
    return view(row["kind"], found.v)


def is_our_deviation(row: dict[str, Any]) -> bool:
    """Return whether we reject what Go converts wrongly: numbers that overflow, and keys that are list indexes."""
    nonsense = "nan" in row["value"].lower() or "inf" in row["value"].lower()
    too_long = row["kind"].startswith("duration") and (
        "7758" in row["value"] or "7095516" in row["value"] or "e300" in row["value"]
    )
    return (nonsense and not row["kind"].startswith(("str", "list", "float"))) or too_long or row["value"] == "{'0': x}"


COMPARED = [row for row in GO["rows"] if not is_our_deviation(row)]


def test_values_are_coerced_as_by_go_ucfg() -> None:
    accepted = [row for row in COMPARED if "output" in row]
    assert len(accepted) > 800
    ours = {(row["kind"], row["value"]): outcome(row) for row in accepted}
    assert ours == {(row["kind"], row["value"]): row["output"] for row in accepted}


def test_only_known_values_that_go_ucfg_rejects_are_accepted() -> None:
    accepted = {
        (row["kind"], row["value"]): found
        for row in COMPARED
        if "refused" in row and (found := outcome(row)) != "refused"
    }
    texts = {value: found for (kind, value), found in accepted.items() if kind == "str"}
    assert texts['"${SECRET}"'] == "pa,ss}w$rd"
    assert texts['"Hello, ${NAME}"'] == "Hello, value"
    assert texts['"{{ .Node }} ${NAME}"'] == "{{ .Node }} value"
    assert {kind for kind, _ in accepted} == {"str", "bool", "list", "ints"}
    assert len(accepted) < 45


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", ".nan"), ("duration", ".inf"), ("duration", "9223372036854775807"), ("duration", "1e300")],
)
def test_numbers_that_overflow_in_go_are_rejected(kind: str, value: str) -> None:
    assert outcome({"kind": kind, "value": value}) == "refused"
