"""The difference of two objects, applied as a merge patch, turns the one into the other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haulout.kube.patches import difference
from support.builders.nodemaintenance_observation import apply_merge_patch

_LEAVES = st.sampled_from((None, True, False, 0, 1, "", "x"))
_KEYS = st.sampled_from("abc")


def _without_null(value: Any) -> Any:
    """Return a value as an object can have it: a merge patch cannot write null into a map."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return value


_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=6
)
_OBJECTS = st.dictionaries(_KEYS, _VALUES, max_size=3).map(_without_null)


@given(old=_OBJECTS, new=_OBJECTS)
def test_applying_the_difference_as_a_merge_patch_gives_the_new_object(old: Any, new: Any) -> None:
    assert apply_merge_patch(old, difference(old, new)) == new


@given(old=_OBJECTS)
def test_difference_of_equal_objects_is_empty(old: Any) -> None:
    assert difference(old, old) == {}


def test_difference_contains_only_the_fields_that_differ() -> None:
    old = {"a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2], "f": 1}
    new = {"a": 1, "b": {"c": 3, "d": 2}, "e": [1], "g": 2}
    assert difference(old, new) == {"b": {"c": 3}, "e": [1], "f": None, "g": 2}
