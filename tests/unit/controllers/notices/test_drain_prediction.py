"""How long emptying a node will take, from what is known."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.notices.drain_prediction import MAX_LEAD_TIME, SAFETY_FACTOR, format_seconds, predict_drain

MINUTE = timedelta(minutes=1)
# No clock tells less than a microsecond.
seconds = st.just(0.0) | st.floats(min_value=1e-6, max_value=10 * 86400)
drains = st.lists(seconds, min_size=1, max_size=50)


def test_nothing_known_is_nothing_predicted() -> None:
    assert predict_drain("n1", own=(), similar=[("all nodes", ())]) is None


def test_the_nodes_own_drains_count_before_those_of_its_like() -> None:
    found = predict_drain("n1", own=(2400.0, 1200.0), similar=[("all nodes", [60.0] * 9)])
    assert found is not None
    assert found.with_margin == 50 * MINUTE
    assert found.reason == "draining node n1 took 20m last time, and 40m before"


def test_one_drain_is_told_as_the_last_one() -> None:
    found = predict_drain("n1", own=(2520.0,), similar=())
    assert found is not None
    assert found.reason == "draining node n1 took 42m last time"


def test_the_nearest_kind_counts_of_which_enough_is_known() -> None:
    alike = [("nodes of pool a", [60.0] * 2), ("nodes in zone z", [120.0] * 9 + [6000.0]), ("all nodes", [1.0] * 99)]
    found = predict_drain("n1", own=(), similar=alike)
    assert found is not None
    assert found.with_margin == 3 * MINUTE
    assert found.reason == "90% of 10 drains of nodes in zone z took at most 2m"


def test_a_drain_that_hung_for_a_day_does_not_begin_the_next_one_a_day_ahead() -> None:
    found = predict_drain("n1", own=(86400.0,), similar=())
    assert found is not None
    assert found.with_margin == MAX_LEAD_TIME
    assert found.reason == "draining node n1 took 24h last time; no drain begins more than 6h ahead"


@given(drains)
def test_most_of_what_was_known_fits_into_what_is_predicted(own: list[float]) -> None:
    found = predict_drain("n1", own=own, similar=())
    assert found is not None
    fits = [item for item in own if item * SAFETY_FACTOR <= found.with_margin.total_seconds()]
    assert len(fits) >= 0.9 * len(own) or found.with_margin == MAX_LEAD_TIME
    assert found.with_margin <= MAX_LEAD_TIME
    assert found.with_margin % MINUTE == timedelta()


@given(drains, st.floats(min_value=0, max_value=86400))
def test_a_longer_drain_never_makes_it_shorter(own: list[float], more: float) -> None:
    longer = [*own[:-1], own[-1] + more]
    before, after = predict_drain("n1", own=own, similar=()), predict_drain("n1", own=longer, similar=())
    assert before is not None
    assert after is not None
    assert after.with_margin >= before.with_margin


@pytest.mark.parametrize(("seconds", "words"), [(45.2, "45s"), (95, "1m35s"), (2530, "42m"), (7200, "2h")])
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
