"""Holds: an annotation by which a person prevents new maintenance of a node. Pure.

    haulout.dev/hold: database migration
    haulout.dev/hold: until=2026-12-01T03:00:00Z; by=alice; database migration

`until=` and `by=` come before the reason, in any order; all three are optional. Any value holds the node: an invalid
time counts as none and is reported. An expired hold has no effect, and only people remove it.

A hold prevents maintenance from starting. It does not stop maintenance that has started.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from haulout.api import annotations
from haulout.api.objects import Node
from haulout.core.text import format_instant

ANNOTATION = annotations.HOLD
FREEZE_KIND = "MaintenanceFreeze"
HELD = "Held"  # the reason in conditions and events
_CLAUSE = re.compile(r"\s*(?P<key>until|by|reason)\s*=\s*(?P<value>[^;]*)(?:;|$)", re.IGNORECASE)
_REASON = re.compile(r"\s*reason\s*=", re.IGNORECASE)
# People write `haulout.dev/hold: "false"` and expect no hold. To honor that would make a typo release a node; so it
# holds, and says why.
_NEGATIONS = ("false", "no", "off", "none", "0")
_MAX_LENGTH = 200
_EXPECTED = "expected a time such as 2026-12-01T03:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What keeps new maintenance off a node: the parsed annotation, or a MaintenanceFreeze (`haulout.runtime.freezes`).

    Every value of the annotation is a hold, also an invalid one.
    """

    by: str = ""  # empty: unknown
    reason: str = ""
    until: datetime | None = None  # None: until the annotation is removed
    problem: str = ""  # the part that is invalid
    freeze: str = ""  # the name of the MaintenanceFreeze; empty: it is the annotation

    def __str__(self) -> str:
        """Return the hold for users.

        `held by alice: database migration, until 2026-12-01 03:00 UTC`
        `frozen by alice until 2026-12-01 08:00 UTC: Black Friday`
        """
        by = f" by {self.by}" if self.by else ""
        reason = f": {self.reason}" if self.reason else ""
        if self.freeze:
            frozen_until = f" until {format_instant(self.until)}" if self.until else ""
            return f"frozen{by}{frozen_until}{reason}" + (f" ({self.problem})" if self.problem else "")
        until = f", until {format_instant(self.until)}" if self.until else ""
        problem = f" ({self.problem})" if self.problem else ""
        return f"held{by}{reason}{until}{problem}"

    @property
    def source(self) -> str:
        """The object that holds the node, for users."""
        if self.freeze:
            return f"{FREEZE_KIND} {self.freeze}"
        return f"hold of {self.by}" if self.by else "hold"

    def release_command(self, node: str) -> str:
        """Return the command that ends it."""
        return f"haulout unfreeze {self.freeze}" if self.freeze else f"haulout release {node}"

    def is_expired(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now


def hold_of(node: Node) -> Hold | None:
    """Return the hold on a node, expired or not."""
    text = node.metadata.annotations.get(ANNOTATION)
    return None if text is None else parse(text)


def active_hold(node: Node, *, now: datetime) -> Hold | None:
    """Return the hold on a node if it has not expired."""
    found = hold_of(node)
    return None if found is None or found.is_expired(now) else found


def single_line(text: str) -> str:
    """Return text of an object for users: in one line, and not too long."""
    # Cut first: an annotation may have 256 KiB, and this runs for every node in every decision.
    line = " ".join(text[: 4 * _MAX_LENGTH].split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


def describe_hold(node: Node, *, now: datetime) -> str:
    """Return the hold on a node for users, expired or not; empty if there is none."""
    found = hold_of(node)
    if found is None:
        return ""
    return f"{found} (expired)" if found.is_expired(now) else str(found)


def parse(text: str) -> Hold:
    """Parse an annotation. Every value is a hold."""
    found: dict[str, str] = {}
    rest = text
    while (clause := _CLAUSE.match(rest)) and (key := clause["key"].lower()) not in found and key != "reason":
        found[key] = clause["value"].strip()
        rest = rest[clause.end() :]
    reason = single_line(_REASON.sub("", rest, count=1))
    until, problem = _parse_instant(found["until"]) if "until" in found else (None, "")
    if not problem and reason.lower() in _NEGATIONS:
        problem = "any value holds the node; remove the annotation to release it"
    return Hold(by=single_line(found.get("by", "")), reason=reason, until=until, problem=problem)


def format_annotation(*, reason: str = "", by: str = "", until: datetime | None = None) -> str:
    """Return the annotation for a hold. A semicolon in `by` becomes a comma."""
    clauses = [f"until={until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"] if until else []
    clauses += [f"by={single_line(by).replace(';', ',')}"] if by else []
    text = single_line(reason)
    if _CLAUSE.match(text):
        # A reason that begins like a clause would be parsed as one.
        text = f"reason={text}"
    return "; ".join([*clauses, text] if text else clauses)


def _parse_instant(text: str) -> tuple[datetime | None, str]:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None, f"until: {_EXPECTED}, found {single_line(text)!r}; the hold does not expire by itself"
    if found.tzinfo is None:
        return (
            None,
            f"until: {_EXPECTED} with its zone, found {single_line(text)!r}; the hold does not expire by itself",
        )
    try:
        return found.astimezone(UTC), ""
    except OverflowError:
        return None, f"until: {_EXPECTED}, found {single_line(text)!r}; the hold does not expire by itself"
