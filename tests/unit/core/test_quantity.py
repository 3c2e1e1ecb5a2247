from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core.quantity import Format, Quantity, parse

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "e-3": Fraction(1, 1000),
    "e3": Fraction(1000),
    "E+2": Fraction(100),
}
numbers = st.tuples(
    st.sampled_from(["", "+", "-"]),
    st.integers(min_value=0, max_value=10**7),
    st.one_of(st.none(), st.integers(min_value=0, max_value=10**6).map(str)),
)
quantities = st.builds(Quantity, st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(list(Format)))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Mi", "0"),
        ("100m", "100m"),
        ("0.1", "100m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("2", "2"),
        ("2000", "2k"),
        ("128974848", "128974848"),
        ("123Mi", "123Mi"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.0001Ki", "1024102400u"),
        ("129e6", "129e6"),
        ("129000e3", "129e6"),
        ("1E3", "1e3"),
        ("12E", "12E"),
        ("-5Gi", "-5Gi"),
        ("+7", "7"),
        ("0.0000000001", "1n"),
        ("1e-300", "1e-9"),
        ("9Ei", "9223372036854775807"),
        ("1000000E", "1000000E"),
    ],
)
def test_quantity_is_formatted_as_by_the_api_server(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1.2.3", "1Zi", "1ki", "1K", "1mm", "e", "1e", "--1", "1e3Mi", "0x1", "٣"]
)
def test_malformed_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse(text)


def test_too_large_quantity_is_rejected() -> None:
    with pytest.raises(ValueError, match="too large"):
        parse("1e999999999")


def test_equal_amounts_in_other_formats_are_equal() -> None:
    assert parse("1Gi") == parse("1073741824") == parse("1048576Ki")
    assert len({parse("1"), parse("1000m"), parse("1e0")}) == 1
    assert parse("999m") < parse("1") < parse("1Ki")


def test_milli_and_value_are_rounded_up() -> None:
    assert parse("250m").milli == 250
    assert parse("100001u").milli == 101
    assert parse("0.5Ki").value == 512
    assert parse("1500m").value == 2
    assert parse("-1500m").value == -1


def test_sum_has_the_format_of_its_first_nonzero_operand() -> None:
    assert str(parse("0") + parse("1Gi")) == "1Gi"
    assert str(parse("512Mi") + parse("512Mi")) == "1Gi"
    assert str(parse("1") - parse("250m")) == "750m"
    assert not parse("1Gi") - parse("1Gi")


@given(number=numbers, suffix=st.sampled_from(list(SUFFIXES)))
def test_a_quantity_is_the_number_times_its_suffix_rounded_away_from_zero(
    number: tuple[str, int, str | None], suffix: str
) -> None:
    sign, whole, part = number
    written = f"{whole}" if part is None else f"{whole}.{part}"
    exact = Fraction(written) * SUFFIXES[suffix] * 10**9
    nano = -(-exact.numerator // exact.denominator)
    assert parse(f"{sign}{written}{suffix}").nano == (-nano if sign == "-" else nano)


@given(quantity=quantities)
def test_formatted_quantity_parses_to_the_same_value(quantity: Quantity) -> None:
    again = parse(str(quantity))
    if quantity.format is not Format.BINARY_SI or abs(quantity.nano) <= (2**63 - 1) * 10**9:
        assert again == quantity
    assert str(again) == str(parse(str(again)))


@given(one=quantities, other=quantities)
def test_quantities_add_and_compare_as_numbers_do(one: Quantity, other: Quantity) -> None:
    assert (one + other).nano == one.nano + other.nano
    assert (one < other) is (one.nano < other.nano)
    assert one + other - other == one
