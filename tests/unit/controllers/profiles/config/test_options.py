"""Options of plugins: reading them, what is said when they are wrong, and what they say about themselves."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from haulout.controllers.profiles.config.options import REST, OptionRow, describe, option, schema
from haulout.controllers.profiles.config.reader import read
from haulout.core import duration
from haulout.core.yaml_decoder import TextFormat
from haulout.errors import ConfigErrors

UNKNOWN_UNIT = 'time: unknown unit "d" in duration "1d"'
MISSING_UNIT = (
    'time: missing unit in duration "60": expected numbers with units (ns, us, ms, s, m, h), such as 90s, 1.5h or 1h30m'
)


class Mood(enum.StrEnum):
    """A mood."""

    CALM = "calm"
    CROSS = "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """A toy."""

    name: str = option("its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cat:
    """A cat."""

    name: str = option("what it listens to")
    lives: int = option("how many are left", default=9)
    nap_time: timedelta = option("how long it sleeps", default=timedelta(hours=16))
    meal: timedelta | None = option(
        "how long it eats", default=None, kind=TextFormat("a duration with unit", duration.parse)
    )
    mood: Mood = option("how it is", default=Mood.CALM)
    size: Literal["small", "large"] = option("how big it is", default="small")
    friends: tuple[str, ...] = option("whom it likes", default=())
    tags: Mapping[str, str] = option("anything", default={})
    toys: tuple[Toy, ...] = option("what it plays with", default=())
    sender: str = option("who sent it", default="", key="from")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        if self.lives > 9:
            yield "lives", "expected at most 9"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what is odd."""
        if self.mood is Mood.CROSS:
            yield "mood", "it may scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Takes everything."""

    fields: Mapping[str, Any] = option("any field", default={}, kind=REST)


def complaints(cls: type, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(cls, text, environ=environ)
    return [str(error) for error in caught.value.errors]


def warnings(cls: type, text: str, environ: dict[str, str] | None = None) -> list[str]:
    _, found = read(cls, text, environ=environ)
    return [str(each) for each in found]


def test_everything_is_read_into_its_type() -> None:
    cat, told = read(
        Cat,
        "{name: Tom, lives: 7.9, napTime: 90, meal: 5m, mood: cross, size: large, friends: Spike, "
        "tags: {a: 1}, toys: [{name: ball}], from: me}",
    )
    assert cat == Cat(
        name="Tom",
        lives=7,
        nap_time=timedelta(seconds=90),
        meal=timedelta(minutes=5),
        mood=Mood.CROSS,
        size="large",
        friends=("Spike",),
        tags={"a": "1"},
        toys=(Toy(name="ball"),),
        sender="me",
    )
    assert [str(each) for each in told] == [
        "config:1: napTime: found 90 without a unit, which means seconds: write 90s if so",
        "config:1: mood: it may scratch",
    ]


def test_null_leaves_the_default() -> None:
    cat, _ = read(Cat, "name: Tom\nlives: ~\nfriends:\n")
    assert cat == Cat(name="Tom")


def test_all_problems_are_reported_at_once() -> None:
    assert complaints(Cat, "lives: many\nnapTime: 1d\nmood: crss\nfriends: [[a]]\ntoys: [{}, 5]\nmeal: 60\n") == [
        "config:1: name: expected a text, found nothing",
        "config:1: lives: expected a whole number, found the text 'many'",
        f"config:2: napTime: expected a duration such as 90s, 5m or 1h30m ({UNKNOWN_UNIT}), found the text '1d'",
        "config:3: mood: expected calm or cross, found the text 'crss'; did you mean cross?",
        "config:4: friends[0]: expected a text, found a list",
        "config:5: toys[0].name: expected a text, found nothing",
        "config:5: toys[1]: expected a mapping, found the number 5",
        f"config:6: meal: expected a duration with unit, found the number 60 ({MISSING_UNIT})",
    ]


def test_what_only_the_values_show_is_told_at_their_line() -> None:
    assert complaints(Cat, "name: Tom\nlives: 10\n") == ["config:2: lives: expected at most 9"]


def test_nothing_at_all_is_an_ordinary_error_or_fine() -> None:
    assert complaints(Toy, "") == ["config: name: expected a text, found nothing"]
    assert read(Free, "~")[0] == Free()


def test_a_key_that_nobody_knows_is_a_warning_with_the_one_that_was_meant() -> None:
    assert warnings(Cat, "name: Tom\nnaptime: 5m\nzzz: 1\n") == [
        "config:2: naptime: there is no such key, so it is ignored; did you mean napTime?",
        "config:3: zzz: there is no such key, so it is ignored",
    ]


def test_a_mapping_for_a_list_counts_as_empty_with_a_warning() -> None:
    cat, told = read(Cat, "name: Tom\nfriends: {a: b}\n")
    assert cat.friends == ()
    assert [str(each) for each in told] == [
        "config:2: friends: expected a list, found a mapping, which counts as an empty list"
    ]


@pytest.mark.parametrize(("written", "becomes"), [("True", "true"), ("yes", "true"), ("010", "8"), ("1.10", "1.1")])
def test_a_text_that_yaml_changes_is_told(written: str, becomes: str) -> None:
    toy, told = read(Toy, f"name: {written}\n")
    assert toy.name == becomes
    assert [str(each) for each in told] == [
        f"config:1: name: {written} is read as {becomes}; to keep it unchanged, put it in quotes: '{written}'"
    ]


def test_a_text_that_stays_as_written_is_not_told() -> None:
    assert warnings(Toy, "name: true\n") == warnings(Toy, "name: 5\n") == []


def test_a_secret_is_never_shown() -> None:
    environ = {"PASSWORD": "hunter2,no", "NUMBER": "0042"}
    shown = complaints(Cat, "{name: x, lives: '${PASSWORD}', mood: '${PASSWORD}', meal: '${PASSWORD}'}", environ)
    shown += warnings(Toy, "name: ${NUMBER}", environ)
    assert len(shown) == 4
    assert not [text for text in shown if "hunter2" in text or "42" in text or "34" in text]


def test_a_variable_that_is_not_set_is_told_with_the_way_out() -> None:
    (told,) = complaints(Toy, "name: ${TEAM}\n")
    assert told.startswith(
        "config:1: name: expected a value for TEAM, found none: it is no key at the top of this file"
    )
    assert told.endswith("${TEAM:text} has a default")


def test_a_broken_reference_is_an_error_even_where_nobody_looks_but_a_missing_name_is_not() -> None:
    assert "expected a } for each ${" in complaints(Toy, "name: x\nother: ${A\n")[0]
    assert read(Toy, "name: x\nother: ${A}\n")[0] == Toy(name="x")


def test_all_other_keys_can_be_had_as_plain_values() -> None:
    free, told = read(Free, "{evicted: true, traits: [a, 1], deep: {x: '${Y}'}}", environ={"Y": "5"})
    assert free.fields == {"evicted": True, "traits": ["a", 1], "deep": {"x": 5}}
    assert told == ()


def test_rows_describe_a_class() -> None:
    rows = {row.key: row for row in describe(Cat)}
    assert rows["name"] == OptionRow(
        key="name", kind="text", required=True, default="", description="what it listens to"
    )
    assert (rows["napTime"].kind, rows["napTime"].default) == ("duration", "16h0m0s")
    assert rows["mood"].kind == "calm, cross"
    assert rows["friends"].kind == "list of text"
    assert rows["toys[].name"].required
    assert rows["from"].description == "who sent it"


def test_a_schema_allows_what_is_read() -> None:
    found = schema(Cat)
    assert found["required"] == ["name"]
    assert found["description"] == "A cat."
    assert found["properties"]["mood"]["anyOf"][0] == {"enum": ["calm", "cross"]}
    assert found["properties"]["toys"]["anyOf"][0]["anyOf"][0]["items"]["required"] == ["name"]
    assert "fields" not in schema(Free)["properties"]
