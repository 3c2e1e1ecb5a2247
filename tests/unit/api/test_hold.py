"""The annotation that puts a node on hold: the accepted formats and the resulting hold."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.hold import ANNOTATION, Hold, active_hold, format_annotation, hold_of, parse
from haulout.api.objects import Node, ObjectMeta

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
UNTIL = datetime(2026, 12, 1, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "hold"),
    [
        ("", Hold()),
        ("database migration", Hold(reason="database migration")),
        ("until=2026-12-01T03:00:00Z; database migration", Hold(reason="database migration", until=UNTIL)),
        ("until=2026-12-01T03:00:00Z;by=alice;migration", Hold(reason="migration", until=UNTIL, by="alice")),
        ("by=alice; until=2026-12-01T03:00:00Z", Hold(until=UNTIL, by="alice")),
        ("  Until = 2026-12-01 04:00+01:00 ;  a; b=c ", Hold(reason="a; b=c", until=UNTIL)),
        ("until=2026-12-01T03:00:00Z", Hold(until=UNTIL)),
        ("until=; why not", Hold(reason="why not", problem="?")),
        ("until=friday; why not", Hold(reason="why not", problem="?")),
        ("until=2026-12-01T03:00:00; no zone", Hold(reason="no zone", problem="?")),
        ("until=0001-01-01T00:00:00+23:00; before all time", Hold(reason="before all time", problem="?")),
        ("false", Hold(reason="false", problem="?")),
        ("by=alice; by=bob", Hold(by="alice", reason="by=bob")),
        ("reason=until=now; or so", Hold(reason="until=now; or so")),
        ("until friday", Hold(reason="until friday")),
        ("two\nlines\tand\x0b more", Hold(reason="two lines and more")),
    ],
)
def test_hold_annotation_is_parsed_or_holds_without_expiry(text: str, hold: Hold) -> None:
    found = parse(text)
    assert (found.by, found.reason, found.until) == (hold.by, hold.reason, hold.until)
    assert bool(found.problem) is bool(hold.problem)


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("", "held"),
        ("migration", "held: migration"),
        ("until=2026-12-01T03:00:00Z; by=alice; migration", "held by alice: migration, until 2026-12-01 03:00 UTC"),
        (
            "until=friday; migration",
            (
                "held: migration (until: expected a time such as 2026-12-01T03:00:00Z, found 'friday'; "
                "the hold does not expire by itself)"
            ),
        ),
        (
            "False",
            "held: False (any value holds the node; remove the annotation to release it)",
        ),
    ],
)
def test_hold_text_names_author_reason_expiry_and_problem(text: str, description: str) -> None:
    assert str(parse(text)) == description


@given(
    reason=st.text(max_size=60),
    by=st.text(max_size=20),
    until=st.none() | st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_formatted_hold_annotation_parses_to_the_same_hold(reason: str, by: str, until: datetime | None) -> None:
    found = parse(format_annotation(reason=reason, by=by, until=until))
    assert found.until == (until.replace(microsecond=0) if until else None)
    assert found.reason == " ".join(reason.split())
    assert found.by == " ".join(by.split()).replace(";", ",")


@given(st.text())
def test_any_hold_annotation_holds_and_has_a_short_one_line_text(text: str) -> None:
    found = str(parse(text))
    assert found.startswith("held")
    assert "\n" not in found
    assert len(found) < 800


def test_hold_expires_exactly_at_until() -> None:
    node = Node(metadata=ObjectMeta(name="n1", annotations={ANNOTATION: format_annotation(until=UNTIL)}))
    assert active_hold(node, now=UNTIL - timedelta(microseconds=1)) == Hold(until=UNTIL)
    assert active_hold(node, now=UNTIL) is None
    assert hold_of(node) == Hold(until=UNTIL)
    assert active_hold(Node(), now=NOW) is None
