import math
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core.backoff import Backoff

SECOND = timedelta(seconds=1)

backoffs = st.builds(
    lambda first, times, factor, jitter: Backoff(first=first, factor=factor, limit=first * times, jitter=jitter),
    st.timedeltas(timedelta(milliseconds=1), timedelta(minutes=1)),
    st.integers(1, 1_000),
    st.floats(1, 10),
    st.floats(0, 1),
)


def test_delays_grow_by_the_factor_up_to_the_limit(rng: random.Random) -> None:
    backoff = Backoff(first=SECOND, factor=2, limit=10 * SECOND, jitter=0)
    delays = [backoff.delay(attempt, rng) for attempt in range(1, 7)]
    assert delays == [SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND, 10 * SECOND, 10 * SECOND]


def test_attempt_below_one_counts_as_one(rng: random.Random) -> None:
    assert Backoff(first=SECOND, jitter=0).delay(0, rng) == SECOND


def test_factor_of_one_keeps_the_delay_constant(rng: random.Random) -> None:
    backoff = Backoff(first=SECOND, factor=1, limit=10 * SECOND, jitter=0)
    assert backoff.delay(10_000, rng) == SECOND


def test_after_ten_thousand_failures_the_delay_is_the_limit(rng: random.Random) -> None:
    backoff = Backoff(first=SECOND, factor=10, limit=timedelta(hours=1), jitter=0)
    assert backoff.delay(10_000, rng) == timedelta(hours=1)


@given(backoff=backoffs, attempt=st.integers(1, 20_000), seed=st.integers())
def test_jitter_shortens_the_delay_by_at_most_its_share(backoff: Backoff, attempt: int, seed: int) -> None:
    full = Backoff(first=backoff.first, factor=backoff.factor, limit=backoff.limit, jitter=0)
    most = full.delay(attempt, random.Random(seed))
    delay = backoff.delay(attempt, random.Random(seed))
    assert most * (1 - backoff.jitter) - timedelta.resolution <= delay <= most <= backoff.limit


@given(backoff=backoffs, attempt=st.integers(1, 100))
def test_delay_without_jitter_never_decreases(backoff: Backoff, attempt: int) -> None:
    full = Backoff(first=backoff.first, factor=backoff.factor, limit=backoff.limit, jitter=0)
    assert full.delay(attempt, random.Random(7)) <= full.delay(attempt + 1, random.Random(7))


def test_jitter_spreads_clients_that_failed_together(rng: random.Random) -> None:
    backoff = Backoff(first=SECOND, jitter=0.5)
    delays = [backoff.delay(1, rng) for _ in range(1_000)]
    assert len(set(delays)) > 900
    assert min(delays) < 0.55 * SECOND
    assert max(delays) > 0.95 * SECOND


def test_delay_is_deterministic_for_the_same_random_seed() -> None:
    backoff = Backoff(jitter=1)
    assert backoff.delay(3, random.Random(1)) == backoff.delay(3, random.Random(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"first": timedelta()}, "0 < first <= limit"),
        ({"first": 2 * SECOND, "limit": SECOND}, "0 < first <= limit"),
        ({"factor": 0.5}, "a number from 1"),
        ({"factor": math.nan}, "a number from 1"),
        ({"factor": math.inf}, "a number from 1"),
        ({"jitter": -0.1}, "from 0 to 1"),
        ({"jitter": 1.1}, "from 0 to 1"),
    ],
)
def test_invalid_backoff_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backoff(**settings)
