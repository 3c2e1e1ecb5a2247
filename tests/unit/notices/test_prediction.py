"""How long emptying a node will take, from what is known."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.notices.prediction import MOST, SAFETY, predicted, said

MINUTE = timedelta(minutes=1)
# No clock tells less than a microsecond.
seconds = st.just(0.0) | st.floats(min_value=1e-6, max_value=10 * 86400)
drains = st.lists(seconds, min_size=1, max_size=50)


def test_nothing_known_is_nothing_predicted() -> None:
    assert predicted("n1", own=(), alike=[("all nodes", ())]) is None


def test_the_nodes_own_drains_count_before_those_of_its_like() -> None:
    found = predicted("n1", own=(2400.0, 1200.0), alike=[("all nodes", [60.0] * 9)])
    assert found is not None
    assert found.takes == 50 * MINUTE
    assert found.why == "emptying n1 took 20m last time, and 40m before"


def test_one_drain_is_told_as_the_last_one() -> None:
    found = predicted("n1", own=(2520.0,), alike=())
    assert found is not None
    assert found.why == "emptying n1 took 42m last time"


def test_the_nearest_kind_counts_of_which_enough_is_known() -> None:
    alike = [("nodes of pool a", [60.0] * 2), ("nodes in zone z", [120.0] * 9 + [6000.0]), ("all nodes", [1.0] * 99)]
    found = predicted("n1", own=(), alike=alike)
    assert found is not None
    assert found.takes == 3 * MINUTE
    assert found.why == "of 10 drains of nodes in zone z nine in ten took no longer than 2m"


def test_a_drain_that_hung_for_a_day_does_not_begin_the_next_one_a_day_ahead() -> None:
    found = predicted("n1", own=(86400.0,), alike=())
    assert found is not None
    assert found.takes == MOST
    assert found.why == "emptying n1 took 24h last time; no node is emptied more than 6h ahead"


@given(drains)
def test_most_of_what_was_known_fits_into_what_is_predicted(own: list[float]) -> None:
    found = predicted("n1", own=own, alike=())
    assert found is not None
    fits = [it for it in own if it * SAFETY <= found.takes.total_seconds()]
    assert len(fits) >= 0.9 * len(own) or found.takes == MOST
    assert found.takes <= MOST
    assert found.takes % MINUTE == timedelta()


@given(drains, st.floats(min_value=0, max_value=86400))
def test_a_longer_drain_never_makes_it_shorter(own: list[float], more: float) -> None:
    longer = [*own[:-1], own[-1] + more]
    before, after = predicted("n1", own=own, alike=()), predicted("n1", own=longer, alike=())
    assert before is not None
    assert after is not None
    assert after.takes >= before.takes


@pytest.mark.parametrize(("seconds", "words"), [(45.2, "45s"), (95, "1m35s"), (2530, "42m"), (7200, "2h")])
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert said(seconds) == words
