"""Holds: a person keeps new maintenance off a node, by an annotation that can be typed. Pure.

    haulout.dev/hold: database migration
    haulout.dev/hold: until=2026-12-01T03:00:00Z; by=alice; database migration

What stands before the reason is `until=` and `by=`, in any order; both may be missing, and so may the reason. Whatever
else it says, the node is held: a time that cannot be read counts as none, and that is said. A hold whose time is over
counts for nothing, and is cleared away by nobody but people.

It keeps maintenance from beginning. What has begun goes on.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from haulout.kube.objects import Node

ANNOTATION = "haulout.dev/hold"
HELD = "Held"  # the reason in conditions and events
_CLAUSE = re.compile(r"\s*(?P<key>until|by|reason)\s*=\s*(?P<value>[^;]*)(?:;|$)", re.IGNORECASE)
_REASON = re.compile(r"\s*reason\s*=", re.IGNORECASE)
_OPPOSITES = ("false", "no", "off", "none", "0")
_LONGEST = 200
_EXPECTED = "expected a time such as 2026-12-01T03:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What an annotation says."""

    by: str = ""  # empty: it does not say
    reason: str = ""
    until: datetime | None = None  # None: until somebody takes it off
    problem: str = ""  # what in it makes no sense

    def __str__(self) -> str:
        """Return it for people: `held by alice: database migration, until 2026-12-01 03:00 UTC`."""
        by = f" by {self.by}" if self.by else ""
        reason = f": {self.reason}" if self.reason else ""
        until = f", until {_told(self.until)}" if self.until else ""
        problem = f" ({self.problem})" if self.problem else ""
        return f"held{by}{reason}{until}{problem}"

    def is_over(self, now: datetime) -> bool:
        """Tell whether its time has passed."""
        return self.until is not None and self.until <= now


def hold_of(node: Node) -> Hold | None:
    """Return the hold on a node, be it over or not."""
    text = node.metadata.annotations.get(ANNOTATION)
    return None if text is None else parse(text)


def holding(node: Node, *, now: datetime) -> Hold | None:
    """Return the hold that keeps maintenance off a node now."""
    found = hold_of(node)
    return None if found is None or found.is_over(now) else found


def told(node: Node, *, now: datetime) -> str:
    """Return the hold on a node for people, also if it is over; empty if there is none."""
    found = hold_of(node)
    if found is None:
        return ""
    return f"{found}, which is over" if found.is_over(now) else str(found)


def parse(text: str) -> Hold:
    """Return what a value says; there is none that does not hold."""
    found: dict[str, str] = {}
    rest = text
    while (clause := _CLAUSE.match(rest)) and (key := clause["key"].lower()) not in found and key != "reason":
        found[key] = clause["value"].strip()
        rest = rest[clause.end() :]
    reason = _line(_REASON.sub("", rest, count=1))
    until, problem = _instant(found["until"]) if "until" in found else (None, "")
    if not problem and reason.lower() in _OPPOSITES:
        problem = "whatever the value is, the node is held; take the annotation off to release it"
    return Hold(by=_line(found.get("by", "")), reason=reason, until=until, problem=problem)


def written(*, reason: str = "", by: str = "", until: datetime | None = None) -> str:
    """Return the value that says this; characters that would end a name are left out of it."""
    clauses = [f"until={until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"] if until else []
    clauses += [f"by={_line(by).replace(';', ',')}"] if by else []
    said = _line(reason)
    if _CLAUSE.match(said):
        said = f"reason={said}"
    return "; ".join([*clauses, said] if said else clauses)


def _instant(text: str) -> tuple[datetime | None, str]:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None, f"until: {_EXPECTED}, found {_line(text)!r}; so it is until somebody releases it"
    if found.tzinfo is None:
        return None, f"until: {_EXPECTED} with its zone, found {_line(text)!r}; so it is until somebody releases it"
    try:
        return found.astimezone(UTC), ""
    except OverflowError:
        return None, f"until: {_EXPECTED}, found {_line(text)!r}; so it is until somebody releases it"


def _line(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _told(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
