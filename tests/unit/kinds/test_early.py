"""What is written down when a source was told to begin early, also when somebody else wrote it."""

from datetime import UTC, datetime

import pytest

from haulout.kinds.early import ANNOTATION, Answer, Early, early_of, may_have_begun
from haulout.kinds.notice import MaintenanceNotice, Spec
from haulout.kube.objects import Metadata

START = datetime(2026, 5, 14, 9, 30, tzinfo=UTC)


def a_notice(written: str) -> MaintenanceNotice:
    return MaintenanceNotice(metadata=Metadata(name="x", annotations={ANNOTATION: written}), spec=Spec(start=START))


@pytest.mark.parametrize(
    "written", ["", "{", "[]", '{"answer": "Maybe"}', '{"x": ' + "[" * 100_000, '{"said": "\ud800"}']
)
def test_what_makes_no_sense_was_written_by_nobody(written: str) -> None:
    assert early_of(a_notice(written)) is None
    assert not may_have_begun(a_notice(written))


@pytest.mark.parametrize(("answer", "may"), [(Answer.ASKING, True), (Answer.AGREED, True), (Answer.REFUSED, False)])
def test_it_may_have_begun_unless_the_source_said_no(answer: Answer, *, may: bool) -> None:
    early = Early(start=START, answer=answer)
    assert may_have_begun(a_notice(early.change["annotations"][ANNOTATION])) is may


def test_what_was_said_of_another_start_says_nothing_of_this_one() -> None:
    early = Early(start=START.replace(hour=8), answer=Answer.AGREED)
    assert not may_have_begun(a_notice(early.change["annotations"][ANNOTATION]))
