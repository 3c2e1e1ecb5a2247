"""Semantic versions: strict, and in the order of precedence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core import semver
from haulout.core.semver import Version

# The order that semver.org gives, with some more.
ORDERED = [
    "0.0.1",
    "0.1.0",
    "1.0.0-0",
    "1.0.0-9",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-alpha-",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "18446744073709551615.0.0",
]


def test_versions_are_ordered_by_precedence() -> None:
    assert [str(it) for it in sorted(map(semver.parse, reversed(ORDERED)))] == ORDERED


def test_build_metadata_is_ignored_in_comparisons() -> None:
    one, other = semver.parse("1.2.3+a.001"), semver.parse("1.2.3")
    assert one == other
    assert hash(one) == hash(other)
    assert not one < other
    assert str(one) == "1.2.3+a.001"


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.02.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+"),
        *(" 1.2.3", "1.2.3-ä", "1.2.\N{ARABIC-INDIC DIGIT THREE}", "-1.2.3", "1.2.3+a+b", "1.2.3-a_b", "1.2.3\n"),
        "18446744073709551616.0.0",
    ],
)
def test_malformed_version_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"version|larger"):
        semver.parse(text)


NUMBERS = st.integers(0, 50)
PARTS = st.lists(st.one_of(NUMBERS, st.from_regex(r"[a-z-][a-z0-9-]{0,3}", fullmatch=True)), max_size=3)


@given(NUMBERS, NUMBERS, NUMBERS, PARTS)
def test_formatted_version_parses_to_the_same_value(major: int, minor: int, patch: int, pre: list[int | str]) -> None:
    version = Version(major, minor, patch, tuple(pre))
    assert semver.parse(str(version)) == version
