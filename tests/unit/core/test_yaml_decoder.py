"""YAML into structs: what fits is read, and all that does not is told at once, with its place."""

from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec
import pytest

from haulout.core import quantity, yaml_decoder
from haulout.core.yaml_decoder import TextFormat
from haulout.errors import ConfigError, ConfigErrors

Amount = Annotated[str, TextFormat("a quantity such as 500m", quantity.parse, accepts_numbers=True).meta]


class Cat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something with one field of each kind."""

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
    """Several of them."""

    cats: tuple[Cat, ...] = ()


def read(text: str) -> Home:
    return yaml_decoder.decode(text.encode(), Home, file="home.yaml").value


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read(text)
    return [str(error) for error in caught.value.errors]


def test_everything_that_fits_is_read() -> None:
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
def test_what_is_not_there_has_its_default(text: str) -> None:
    assert read(text) == Home()


def test_json_is_yaml() -> None:
    assert read('{"cats": [{"name": "tom", "fears": "water"}]}') == Home(cats=(Cat(name="tom", fears="water"),))


def test_defaults_may_be_merged_and_overridden() -> None:
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
def test_what_does_not_fit_is_told_with_its_key(cat: str, problem: str) -> None:
    assert problems(f"cats: [{cat}]") == [f"home.yaml:1: {problem}"]


def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
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
def test_a_file_that_is_no_such_thing_is_one_problem(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(problem)


def test_a_complaint_about_the_whole_finds_its_line() -> None:
    found = yaml_decoder.decode(b"cats:\n  - name: tom\n\n  - name: kit\n", Home, file="home.yaml")
    assert str(found.error_at("cats[1].name", "sleeps")) == "home.yaml:4: cats[1].name: sleeps"
    assert str(found.error_at("cats[1].lives", "too few")) == "home.yaml:4: cats[1].lives: too few"
    assert str(found.error_at("dogs", "missing")) == "home.yaml: dogs: missing"


def test_a_file_that_is_nested_too_deep_is_refused_and_does_not_end_the_process() -> None:
    with pytest.raises(ConfigError, match="expected at most 100 values inside each other"):
        yaml_decoder.decode(b"[" * 300_000, Cat, file="cat.yaml")
