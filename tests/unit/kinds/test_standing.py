"""How a notice stands at an instant."""

from datetime import UTC, datetime, timedelta

import pytest

from haulout.kinds.notice import Phase, Spec, Stage
from haulout.kinds.standing import drain_at, standing

START = datetime(2026, 4, 16, 2, tzinfo=UTC)
END = START + timedelta(hours=2)
LEAD = timedelta(minutes=15)


def after(start: timedelta) -> datetime:
    return START + start


@pytest.mark.parametrize(
    ("stage", "since_start", "phase"),
    [
        pytest.param("", timedelta(days=-2), Phase.PLANNED, id="two days ahead"),
        pytest.param("", -LEAD - timedelta(seconds=1), Phase.PLANNED, id="a second before it is due"),
        pytest.param("", -LEAD, Phase.DUE, id="exactly a quarter of an hour ahead"),
        pytest.param("", timedelta(0), Phase.ACTIVE, id="the clock alone begins it"),
        pytest.param("", timedelta(hours=2), Phase.COMPLETED, id="the clock alone ends it"),
        pytest.param(Stage.SCHEDULED, timedelta(days=-2), Phase.PLANNED, id="scheduled ahead"),
        pytest.param(Stage.SCHEDULED, timedelta(minutes=30), Phase.DUE, id="who tells has not told of its beginning"),
        pytest.param(Stage.SCHEDULED, timedelta(hours=2), Phase.MISSED, id="its time is over and nobody told"),
        pytest.param(Stage.STARTED, timedelta(days=-2), Phase.ACTIVE, id="begun early"),
        pytest.param(Stage.STARTED, timedelta(hours=3), Phase.ACTIVE, id="takes longer than was said"),
        pytest.param(Stage.FAILED, timedelta(hours=3), Phase.ACTIVE, id="failed"),
        pytest.param(Stage.ENDED, timedelta(days=-2), Phase.COMPLETED, id="ended early"),
        pytest.param(Stage.CANCELLED, timedelta(minutes=1), Phase.CANCELLED, id="cancelled"),
    ],
)
def test_how_it_stands(stage: str, since_start: timedelta, phase: Phase) -> None:
    found = standing(Spec(stage=stage, start=START, end=END), now=after(since_start), lead=LEAD)
    assert found.phase is phase
    assert found.why


@pytest.mark.parametrize("stage", ["", *Stage])
@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("start", [None, START])
def test_it_changes_when_it_says_and_not_before(stage: str, start: datetime | None, end: datetime | None) -> None:
    spec = Spec(stage=stage, start=start, end=end)
    now = START - timedelta(days=1)
    for _ in range(5):
        found = standing(spec, now=now, lead=LEAD)
        if found.until is None:
            assert standing(spec, now=now + timedelta(days=365), lead=LEAD) == found
            return
        assert found.until > now
        assert standing(spec, now=found.until - timedelta(microseconds=1), lead=LEAD) == found
        assert standing(spec, now=found.until, lead=LEAD) != found
        now = found.until
    pytest.fail("it changes for ever")


def test_without_a_start_it_is_due_at_once() -> None:
    assert standing(Spec(stage=Stage.SCHEDULED), now=START).phase is Phase.DUE
    assert drain_at(Spec(), lead=LEAD) is None
    assert drain_at(Spec(start=START), lead=LEAD) == START - LEAD


def test_a_start_in_the_year_one_is_no_trouble() -> None:
    spec = Spec(start=datetime(1, 1, 1, tzinfo=UTC))
    assert standing(spec, now=START).phase is Phase.ACTIVE
    assert drain_at(spec, lead=LEAD) == spec.start
