"""Escalation: when a pod is evicted, deleted and force deleted."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.drain.escalation import (
    TIME_TO_TERMINATE,
    Escalation,
    EscalationLimits,
    EscalationStep,
    Termination,
    escalation_for,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SPANS = st.timedeltas(timedelta(), timedelta(hours=3))
LIMITS = st.builds(
    EscalationLimits,
    grace=SPANS,
    may_evict=st.booleans(),
    eviction_timeout=st.none() | SPANS,
    deletion_timeout=st.none() | SPANS,
)
DEADLINES = st.none() | SPANS.map(lambda span: NOW + span)


def a_termination(span: timedelta, grace: timedelta) -> Termination:
    return Termination(NOW + span, NOW + span + grace)


@pytest.mark.parametrize(
    ("limits", "deadline", "minutes"),
    [
        (EscalationLimits(grace=MINUTE), None, None),
        (EscalationLimits(grace=MINUTE), 5, None),
        (EscalationLimits(grace=MINUTE, eviction_timeout=10 * MINUTE), None, 10),
        (EscalationLimits(grace=MINUTE, eviction_timeout=10 * MINUTE), 60, 10),
        (EscalationLimits(grace=5 * MINUTE, eviction_timeout=10 * MINUTE), 12, 6.75),
        (EscalationLimits(grace=30 * MINUTE, eviction_timeout=10 * MINUTE), 12, 0),
    ],
)
def test_pod_is_deleted_after_the_eviction_timeout_or_when_its_grace_period_must_start(
    limits: EscalationLimits, deadline: int | None, minutes: float | None
) -> None:
    steps = escalation_for(limits, since=NOW, deadline=None if deadline is None else NOW + deadline * MINUTE)
    assert steps.evict_at == NOW
    assert steps.delete_at == (None if minutes is None else NOW + minutes * MINUTE)


def test_pods_are_deleted_at_once_when_eviction_is_disabled() -> None:
    assert escalation_for(EscalationLimits(grace=MINUTE, may_evict=False), since=NOW, deadline=None) == Escalation(
        delete_at=NOW
    )


@pytest.mark.parametrize(
    ("timeout", "deadline", "minutes"),
    [(None, 5, None), (1, None, 2), (10, None, 10), (10, 5, 5 - 1 / 12), (10, 1, 2)],
)
def test_pod_is_force_deleted_after_the_deletion_timeout_and_never_within_its_grace_period(
    timeout: int | None, deadline: int | None, minutes: float | None
) -> None:
    limits = EscalationLimits(grace=MINUTE, deletion_timeout=None if timeout is None else timeout * MINUTE)
    end = None if deadline is None else NOW + deadline * MINUTE
    steps = escalation_for(limits, since=NOW, deadline=end, termination=a_termination(timedelta(), 2 * MINUTE))
    assert steps.force_delete_at == (None if minutes is None else NOW + minutes * MINUTE)


def test_step_at_returns_the_last_step_that_was_reached() -> None:
    steps = Escalation(evict_at=NOW, delete_at=NOW + MINUTE)
    assert [steps.step_at(NOW + n * MINUTE) for n in (-1, 0, 1, 2)] == [
        None,
        EscalationStep.EVICT,
        EscalationStep.DELETE,
        EscalationStep.DELETE,
    ]
    assert [steps.next_step_after(NOW + n * MINUTE) for n in (-1, 0, 1)] == [NOW, NOW + MINUTE, None]


@given(limits=LIMITS, deadline=DEADLINES)
def test_deletion_leaves_the_whole_grace_period_before_the_deadline(
    limits: EscalationLimits, deadline: datetime | None
) -> None:
    """Unless the pod was reached too late: then it is deleted at once."""
    at = escalation_for(limits, since=NOW, deadline=deadline).delete_at
    if at is None or deadline is None or at == NOW:
        return
    assert at + limits.grace + TIME_TO_TERMINATE <= deadline


@given(limits=LIMITS, deadline=DEADLINES, span=SPANS)
def test_force_deletion_respects_the_granted_grace_period(
    limits: EscalationLimits, deadline: datetime | None, span: timedelta
) -> None:
    termination = a_termination(span, limits.grace)
    at = escalation_for(limits, since=NOW, deadline=deadline, termination=termination).force_delete_at
    assert at is None or at >= termination.ends_at


@given(limits=LIMITS, deadline=DEADLINES, span=st.none() | SPANS)
def test_escalation_steps_are_ordered_and_within_the_limits(
    limits: EscalationLimits, deadline: datetime | None, span: timedelta | None
) -> None:
    termination = None if span is None else a_termination(span, limits.grace)
    steps = escalation_for(limits, since=NOW, deadline=deadline, termination=termination)
    instants = [at for at in (steps.evict_at, steps.delete_at, steps.force_delete_at) if at is not None]
    assert instants == sorted(instants)
    assert all(at >= NOW for at in instants)
    if termination is None:
        assert (steps.evict_at is not None) is limits.may_evict
        assert steps.delete_at is None or limits.eviction_timeout is not None or not limits.may_evict
        assert steps.force_delete_at is None
    else:
        assert steps.evict_at is steps.delete_at is None
        assert (steps.force_delete_at is not None) is (limits.deletion_timeout is not None)


@given(limits=LIMITS, deadline=DEADLINES)
def test_deletion_is_never_later_than_the_eviction_timeout(limits: EscalationLimits, deadline: datetime | None) -> None:
    at = escalation_for(limits, since=NOW, deadline=deadline).delete_at
    if at is not None and limits.eviction_timeout is not None:
        assert at <= NOW + limits.eviction_timeout
