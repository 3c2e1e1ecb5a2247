"""Prediction of the drain time from recorded drains."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.controllers.notices.drain_prediction import MAX_LEAD_TIME, SAFETY_FACTOR, format_seconds, predict_drain

MINUTE = timedelta(minutes=1)
# No clock has a higher resolution than a microsecond.
seconds = st.just(0.0) | st.floats(min_value=1e-6, max_value=10 * 86400)
drains = st.lists(seconds, min_size=1, max_size=50)


def test_no_drains_mean_no_prediction() -> None:
    assert predict_drain("n1", own=(), similar=[("all nodes", ())]) is None


def test_own_drains_take_precedence_over_similar_nodes() -> None:
    found = predict_drain("n1", own=(2400.0, 1200.0), similar=[("all nodes", [60.0] * 9)])
    assert found is not None
    assert found.with_margin == 50 * MINUTE
    assert found.reason == "draining node n1 took 20m last time, and 40m before"


def test_reason_mentions_a_single_drain_as_the_last_one() -> None:
    found = predict_drain("n1", own=(2520.0,), similar=())
    assert found is not None
    assert found.reason == "draining node n1 took 42m last time"


def test_nearest_group_with_enough_drains_is_used() -> None:
    alike = [("nodes of pool a", [60.0] * 2), ("nodes in zone z", [120.0] * 9 + [6000.0]), ("all nodes", [1.0] * 99)]
    found = predict_drain("n1", own=(), similar=alike)
    assert found is not None
    assert found.with_margin == 3 * MINUTE
    assert found.reason == "90% of 10 drains of nodes in zone z took at most 2m"


def test_prediction_is_limited_to_the_maximum_lead_time() -> None:
    found = predict_drain("n1", own=(86400.0,), similar=())
    assert found is not None
    assert found.with_margin == MAX_LEAD_TIME
    assert found.reason == "draining node n1 took 24h last time; no drain begins more than 6h ahead"


@given(drains)
def test_prediction_covers_most_known_drains(own: list[float]) -> None:
    found = predict_drain("n1", own=own, similar=())
    assert found is not None
    fits = [item for item in own if item * SAFETY_FACTOR <= found.with_margin.total_seconds()]
    assert len(fits) >= 0.9 * len(own) or found.with_margin == MAX_LEAD_TIME
    assert found.with_margin <= MAX_LEAD_TIME
    assert found.with_margin % MINUTE == timedelta()


@given(drains, st.floats(min_value=0, max_value=86400))
def test_longer_drain_never_shortens_the_prediction(own: list[float], more: float) -> None:
    longer = [*own[:-1], own[-1] + more]
    before, after = predict_drain("n1", own=own, similar=()), predict_drain("n1", own=longer, similar=())
    assert before is not None
    assert after is not None
    assert after.with_margin >= before.with_margin


@pytest.mark.parametrize(("seconds", "words"), [(45.2, "45s"), (95, "1m35s"), (2530, "42m"), (7200, "2h")])
def test_format_seconds_is_human_readable(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
