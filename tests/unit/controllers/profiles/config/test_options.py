"""Plugin options: parsing, error messages and descriptions."""

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
        """Yield problems."""
        if self.lives > 9:
            yield "lives", "expected at most 9"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield warnings."""
        if self.mood is Mood.CROSS:
            yield "mood", "it may scratch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """A plugin that accepts any option."""

    fields: Mapping[str, Any] = option("any field", default={}, kind=REST)


def error_texts(cls: type, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(cls, text, environ=environ)
    return [str(error) for error in caught.value.errors]


def warnings(cls: type, text: str, environ: dict[str, str] | None = None) -> list[str]:
    _, found = read(cls, text, environ=environ)
    return [str(each) for each in found]


def test_options_are_parsed_into_their_types() -> None:
    cat, found = read(
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
    assert [str(each) for each in found] == [
        "config:1: napTime: found 90 without a unit, which means seconds: write 90s if so",
        "config:1: mood: it may scratch",
    ]


def test_null_option_keeps_the_default() -> None:
    cat, _ = read(Cat, "name: Tom\nlives: ~\nfriends:\n")
    assert cat == Cat(name="Tom")


def test_all_problems_are_reported_at_once() -> None:
    assert error_texts(Cat, "lives: many\nnapTime: 1d\nmood: crss\nfriends: [[a]]\ntoys: [{}, 5]\nmeal: 60\n") == [
        "config:1: name: expected a text, found nothing",
        "config:1: lives: expected a whole number, found the text 'many'",
        f"config:2: napTime: expected a duration such as 90s, 5m or 1h30m ({UNKNOWN_UNIT}), found the text '1d'",
        "config:3: mood: expected calm or cross, found the text 'crss'; did you mean cross?",
        "config:4: friends[0]: expected a text, found a list",
        "config:5: toys[0].name: expected a text, found nothing",
        "config:5: toys[1]: expected a mapping, found the number 5",
        f"config:6: meal: expected a duration with unit, found the number 60 ({MISSING_UNIT})",
    ]


def test_problem_of_parsed_values_is_reported_at_its_line() -> None:
    assert error_texts(Cat, "name: Tom\nlives: 10\n") == ["config:2: lives: expected at most 9"]


def test_empty_config_is_a_missing_option_or_valid() -> None:
    assert error_texts(Toy, "") == ["config: name: expected a text, found nothing"]
    assert read(Free, "~")[0] == Free()


def test_unknown_key_is_a_warning_with_a_suggestion() -> None:
    assert warnings(Cat, "name: Tom\nnaptime: 5m\nzzz: 1\n") == [
        "config:2: naptime: there is no such key, so it is ignored; did you mean napTime?",
        "config:3: zzz: there is no such key, so it is ignored",
    ]


def test_mapping_instead_of_a_list_counts_as_empty_with_a_warning() -> None:
    cat, found = read(Cat, "name: Tom\nfriends: {a: b}\n")
    assert cat.friends == ()
    assert [str(each) for each in found] == [
        "config:2: friends: expected a list, found a mapping, which counts as an empty list"
    ]


@pytest.mark.parametrize(("written", "becomes"), [("True", "true"), ("yes", "true"), ("010", "8"), ("1.10", "1.1")])
def test_text_that_yaml_changes_is_reported(written: str, becomes: str) -> None:
    toy, found = read(Toy, f"name: {written}\n")
    assert toy.name == becomes
    assert [str(each) for each in found] == [
        f"config:1: name: {written} is read as {becomes}; to keep it unchanged, put it in quotes: '{written}'"
    ]


def test_unchanged_text_is_not_reported() -> None:
    assert warnings(Toy, "name: true\n") == warnings(Toy, "name: 5\n") == []


def test_secret_value_is_never_shown() -> None:
    environ = {"PASSWORD": "hunter2,no", "NUMBER": "0042"}
    shown = error_texts(Cat, "{name: x, lives: '${PASSWORD}', mood: '${PASSWORD}', meal: '${PASSWORD}'}", environ)
    shown += warnings(Toy, "name: ${NUMBER}", environ)
    assert len(shown) == 4
    assert not [text for text in shown if "hunter2" in text or "42" in text or "34" in text]


def test_unset_variable_is_reported_with_its_alternatives() -> None:
    (message,) = error_texts(Toy, "name: ${TEAM}\n")
    assert message.startswith(
        "config:1: name: expected a value for TEAM, found none: the file has no such key at its top, "
    )
    assert message.endswith("to set a default: ${TEAM:text}")


def test_broken_reference_is_an_error_in_ignored_keys_but_an_unset_variable_is_not() -> None:
    assert "expected a } for each ${" in error_texts(Toy, "name: x\nother: ${A\n")[0]
    assert read(Toy, "name: x\nother: ${A}\n")[0] == Toy(name="x")


def test_rest_option_collects_all_other_keys() -> None:
    free, found = read(Free, "{evicted: true, traits: [a, 1], deep: {x: '${Y}'}}", environ={"Y": "5"})
    assert free.fields == {"evicted": True, "traits": ["a", 1], "deep": {"x": 5}}
    assert found == ()


def test_describe_returns_a_row_for_each_option() -> None:
    rows = {row.key: row for row in describe(Cat)}
    assert rows["name"] == OptionRow(
        key="name", kind="text", required=True, default="", description="what it listens to"
    )
    assert (rows["napTime"].kind, rows["napTime"].default) == ("duration", "16h0m0s")
    assert rows["mood"].kind == "calm, cross"
    assert rows["friends"].kind == "list of text"
    assert rows["toys[].name"].required
    assert rows["from"].description == "who sent it"


def test_schema_allows_what_is_parsed() -> None:
    found = schema(Cat)
    assert found["required"] == ["name"]
    assert found["description"] == "A cat."
    assert found["properties"]["mood"]["anyOf"][0] == {"enum": ["calm", "cross"]}
    assert found["properties"]["toys"]["anyOf"][0]["anyOf"][0]["items"]["required"] == ["name"]
    assert "fields" not in schema(Free)["properties"]
