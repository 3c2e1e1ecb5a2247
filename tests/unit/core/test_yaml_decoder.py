"""Decoding YAML into structs: all errors are reported at once, with line and key."""

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest

from haulout.core import quantity, yaml_decoder
from haulout.core.yaml_decoder import TextFormat
from haulout.errors import ConfigError, ConfigErrors

Amount = Annotated[str, TextFormat("a quantity such as 500m", quantity.parse, accepts_numbers=True).meta]


class Cat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A struct with one field of each type."""

    name: str
    lives: Annotated[int, msgspec.Meta(ge=1, le=9)] = 9
    weight: Annotated[float, msgspec.Meta(ge=0)] = 4.5
    is_awake: bool = False
    naps: timedelta | None = None
    mood: Literal["calm", "cross"] = "calm"
    eats: Amount = "100"
    tags: dict[str, str] = {}
    anything: Any = None
    fears: str | tuple[str, ...] = ()


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """A struct with a list of structs."""

    cats: tuple[Cat, ...] = ()


def read(text: str) -> Home:
    return yaml_decoder.decode(text.encode(), Home, file="home.yaml").value


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(text)
    return [str(error) for error in caught.value.errors]


def test_all_field_types_are_decoded() -> None:
    home = read(
        """
        cats:
          - name: tom
            lives: 7
            weight: 5
            isAwake: yes
            naps: 1h30m
            mood: cross
            eats: 2
            tags: {colour: black}
            anything: {since: 2020-01-02, list: [1, null]}
            fears: [water, "1"]
        """
    )
    tom = Cat(
        name="tom",
        lives=7,
        weight=5,
        is_awake=True,
        naps=timedelta(hours=1.5),
        mood="cross",
        eats="2",
        tags={"colour": "black"},
        anything={"since": "2020-01-02", "list": [1, None]},
        fears=("water", "1"),
    )
    assert home == Home(cats=(tom,))


@pytest.mark.parametrize("text", ["", "# nothing", "{}", "cats:", "cats: []", "---\n"])
def test_missing_fields_have_their_defaults(text: str) -> None:
    assert read(text) == Home()


def test_json_is_decoded_as_yaml() -> None:
    assert read('{"cats": [{"name": "tom", "fears": "water"}]}') == Home(cats=(Cat(name="tom", fears="water"),))


def test_yaml_merge_keys_are_applied_and_overridden() -> None:
    home = read(
        """
        cats:
          - &tom {name: tom, lives: 3, mood: cross}
          - &kit {<<: *tom, name: kit}
          - {<<: *kit, lives: 1}
        """
    )
    assert [(cat.name, cat.lives, cat.mood) for cat in home.cats] == [
        ("tom", 3, "cross"),
        ("kit", 3, "cross"),
        ("kit", 1, "cross"),
    ]


@pytest.mark.parametrize(
    ("cat", "problem"),
    [
        ("{}", "cats[0].name: expected text, found nothing"),
        ("{name: }", "cats[0].name: expected text, found nothing"),
        ("tom", "cats[0]: expected a mapping, found text"),
        ("{name: 12}", "cats[0].name: expected text, found a number; if it is meant as text, put it in quotes: '12'"),
        (
            "{name: no}",
            "cats[0].name: expected text, found true or false; if it is meant as text, put it in quotes: 'no'",
        ),
        ("{name: [a]}", "cats[0].name: expected text, found a list"),
        ("{name: tom, lifes: 3}", "cats[0].lifes: there is no such key; did you mean lives?"),
        (
            "{name: tom, qqq: 3}",
            (
                "cats[0].qqq: there is no such key; there are name, lives, weight, isAwake, naps, mood, eats, tags, "
                "anything, fears"
            ),
        ),
        ("{name: tom, lives: 0}", "cats[0].lives: expected a whole number from 1 to 9, found 0"),
        ("{name: tom, lives: 10}", "cats[0].lives: expected a whole number from 1 to 9, found 10"),
        ("{name: tom, lives: 1.5}", "cats[0].lives: expected a whole number from 1 to 9, found a number"),
        ("{name: tom, lives: many}", "cats[0].lives: expected a whole number from 1 to 9, found text"),
        ("{name: tom, weight: -1}", "cats[0].weight: expected a number of at least 0, found -1"),
        ("{name: tom, weight: .nan}", "cats[0].weight: expected a number of at least 0, found .nan"),
        ("{name: tom, isAwake: 1}", "cats[0].isAwake: expected true or false, found a number"),
        (
            "{name: tom, naps: 5}",
            'cats[0].naps: expected a duration such as 90s, 5m or 1h30m: time: missing unit in duration "5"',
        ),
        ("{name: tom, naps: -5m}", "cats[0].naps: expected a duration that is not negative, found -5m"),
        ("{name: tom, naps: [5m]}", "cats[0].naps: expected a duration such as 90s, 5m or 1h30m, found a list"),
        ("{name: tom, mood: cros}", "cats[0].mood: expected calm or cross, found 'cros'; did you mean cross?"),
        (
            "{name: tom, eats: much}",
            (
                "cats[0].eats: expected a quantity such as 500m, found 'much' (the quantity 'much' is not a number "
                "with a suffix such as m, k, M, Ki, Mi or e3)"
            ),
        ),
        ("{name: tom, eats: {}}", "cats[0].eats: expected a quantity such as 500m, found a mapping"),
        ("{name: tom, tags: [a]}", "cats[0].tags: expected a mapping, found a list"),
        (
            "{name: tom, tags: {a: 1}}",
            "cats[0].tags.a: expected text, found a number; if it is meant as text, put it in quotes: '1'",
        ),
        ("{name: tom, fears: {}}", "cats[0].fears: expected text or a list, found a mapping"),
        ("{name: tom, name: kit}", "cats[0].name: expected it once, found it in line 1 too"),
        ("&tom {name: tom, fears: [*tom]}", "cats[0].fears[0]: expected a value that does not contain itself"),
        (
            "{name: !!python/name:os.system x}",
            "cats[0].name: expected text, found a value tagged python/name:os.system",
        ),
    ],
)
def test_invalid_values_are_reported_with_line_and_key(cat: str, problem: str) -> None:
    assert problems(f"cats: [{cat}]") == [f"home.yaml:1: {problem}"]


def test_all_errors_are_reported_at_once_in_line_order() -> None:
    found = problems(
        """\
        cats:
          - name: tom
            lives: 0
          - lives: 1
            moods: calm
        dogs: []
        """
    )
    assert found == [
        "home.yaml:3: cats[0].lives: expected a whole number from 1 to 9, found 0",
        "home.yaml:4: cats[1].name: expected text, found nothing",
        "home.yaml:5: cats[1].moods: there is no such key; did you mean mood?",
        "home.yaml:6: dogs: there is no such key; there are cats",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cats: [", "home.yaml:2: expected YAML or JSON: did not find expected node content"),
        ("- 1", "home.yaml:1: expected a mapping, found a list"),
    ],
)
def test_file_that_cannot_be_parsed_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(problem)


def test_error_at_finds_the_line_of_a_key() -> None:
    found = yaml_decoder.decode(b"cats:\n  - name: tom\n\n  - name: kit\n", Home, file="home.yaml")
    assert str(found.error_at("cats[1].name", "sleeps")) == "home.yaml:4: cats[1].name: sleeps"
    assert str(found.error_at("cats[1].lives", "too few")) == "home.yaml:4: cats[1].lives: too few"
    assert str(found.error_at("dogs", "missing")) == "home.yaml: dogs: missing"


def test_too_deeply_nested_file_is_rejected_without_a_crash() -> None:
    with pytest.raises(ConfigError, match="expected at most 100 values inside each other"):
        yaml_decoder.decode(b"[" * 300_000, Cat, file="cat.yaml")
