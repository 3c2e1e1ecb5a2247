"""The annotation that records the request for an early start, also when another client wrote it."""

from datetime import UTC, datetime

import pytest

from haulout.api.maintenancenotice import (
    EARLY_START_ANNOTATION,
    EarlyStart,
    EarlyStartAnswer,
    MaintenanceNotice,
    MaintenanceNoticeSpec,
    early_start_of,
    may_have_started,
)
from haulout.api.objects import ObjectMeta

START = datetime(2026, 5, 14, 9, 30, tzinfo=UTC)


def a_notice(annotation: str) -> MaintenanceNotice:
    return MaintenanceNotice(
        metadata=ObjectMeta(name="x", annotations={EARLY_START_ANNOTATION: annotation}),
        spec=MaintenanceNoticeSpec(start=START),
    )


@pytest.mark.parametrize(
    "written", ["", "{", "[]", '{"answer": "Maybe"}', '{"x": ' + "[" * 100_000, '{"said": "\ud800"}']
)
def test_malformed_early_start_annotation_is_ignored(written: str) -> None:
    assert early_start_of(a_notice(written)) is None
    assert not may_have_started(a_notice(written))


@pytest.mark.parametrize(
    ("answer", "may"),
    [(EarlyStartAnswer.REQUESTED, True), (EarlyStartAnswer.ACCEPTED, True), (EarlyStartAnswer.REFUSED, False)],
)
def test_maintenance_may_have_started_unless_the_source_refused(answer: EarlyStartAnswer, *, may: bool) -> None:
    early = EarlyStart(start=START, answer=answer)
    assert may_have_started(a_notice(early.metadata_patch["annotations"][EARLY_START_ANNOTATION])) is may


def test_early_start_answer_for_another_start_is_ignored() -> None:
    early = EarlyStart(start=START.replace(hour=8), answer=EarlyStartAnswer.ACCEPTED)
    assert not may_have_started(a_notice(early.metadata_patch["annotations"][EARLY_START_ANNOTATION]))
