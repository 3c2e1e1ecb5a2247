"""What `haulout why` says: to people, or to programs."""

from collections.abc import Iterator
from datetime import datetime

import click
import msgspec

from haulout.cli.holders import elapsed, since
from haulout.cli.terminal import Marks, printable
from haulout.profiles import topics
from haulout.profiles.remedies import Remedy, said
from haulout.profiles.why import Announced, CheckWhy, HeldBy, Ordered, ProfileWhy, TransitionWhy, Why
from haulout.profiles.words import clock_time


def as_json(found: Why) -> bytes:
    """Return it for programs; `haulout why --help` documents the fields."""
    return msgspec.json.format(msgspec.json.encode(found))


def as_text(found: Why, *, marks: Marks) -> Iterator[str]:
    """Yield lines for a terminal."""
    at = f", as of {clock_time(found.at)}" if found.at else ""
    yield click.style(printable(f"Node {found.node}{at}"), bold=True)
    if found.problem:
        yield printable(found.problem)
    if found.hold:
        yield printable(f"  {found.hold}; to end that: haulout release {found.node}")
    yield from (f"  announced: {printable(_announcement(it))}" for it in found.announced)
    yield from (f"  ordered: {printable(_order(it))}; more: haulout status {found.node}" for it in found.ordered)
    yield from (f"  asked: {printable(it)}" for it in found.asked)
    yield from (f"  held: {printable(_held(it, found))}" for it in found.held)
    for profile in found.profiles:
        yield ""
        yield from _profile(profile, found.at, marks)
    if not (found.problem or found.profiles or found.ordered or found.held):
        yield "No profile is on it: nothing is done about it, until its labels or what is announced for it say so."
    if not found.problem:
        yield ""
        yield from _next_look(found)
    for note in found.notes:
        yield printable(f"Note: {note}")


def _announcement(it: Announced) -> str:
    about = f"{it.kind} ({it.reason})" if it.reason else it.kind
    end = f", until {clock_time(it.end)}" if it.end else ""
    return f"{about}, notice {it.notice}, {it.phase}: {it.says}{end}"


def _held(it: HeldBy, found: Why) -> str:
    begun = f"since {since(it.since, now=found.at)}" if found.at else f"since {clock_time(it.since)}"
    more = f"haulout history {found.node}, kubectl describe node {found.node}"
    return f"{it.by.replace('/', ' ', 1)}, {begun}: {it.says}; more: {more}"


def _order(it: Ordered) -> str:
    why = f" ({it.reason})" if it.reason else ""
    return f"NodeMaintenance {it.maintenance}{why}, {it.phase}: {it.says}"


def _profile(profile: ProfileWhy, at: datetime | None, marks: Marks) -> Iterator[str]:
    if not profile.configured:
        yield printable(f"profile {profile.name}: the file has no such profile, so nothing happens")
        return
    begun = f", since {since(profile.since, now=at)}" if profile.since and at else ""
    yield click.style(printable(f"profile {profile.name}: {profile.state}{begun}"), bold=True)
    if profile.error:
        yield f"  {marks.no} {printable(profile.error)}"
    if profile.waits_for:
        yield f"  {marks.unknown} on its way: {printable(profile.waits_for)}"
    for transition in profile.transitions:
        yield from _transition(transition, at, marks)
    if not profile.transitions and not profile.error and not profile.waits_for:
        yield "  no transition leads out of this state"
    if profile.next not in ("", profile.state):
        yield f"  {marks.yes} it moves to {printable(profile.next)} as soon as the operator looks at it"


def _transition(transition: TransitionWhy, at: datetime | None, marks: Marks) -> Iterator[str]:
    mark = marks.yes if transition.passed else marks.no
    yield f"  {mark} to {printable(transition.target)} when {printable(' '.join(transition.expression.split()))}"
    width = max((len(printable(it.name)) for it in transition.checks), default=0)
    for check in transition.checks:
        yield f"      {_mark(check, marks)} {printable(check.name):{width}}  {printable(_said(check, at))}"
    if transition.veto:
        yield f"      {marks.no} {printable(transition.veto)}"
    for line in _remedies(transition.remedies):
        yield f"      {printable(line)}"


def _mark(check: CheckWhy, marks: Marks) -> str:
    if check.passed is None:
        return marks.unknown
    return marks.yes if check.passed else marks.off


def _said(check: CheckWhy, at: datetime | None) -> str:
    verdict = {True: "passes", False: "does not pass", None: "cannot be told"}[check.passed]
    reason = check.error or check.reason
    changes = ""
    if check.wakes_at and at:
        changes = f"; may change at {clock_time(check.wakes_at)}, {_ahead(check.wakes_at, at)}"
    return f"{check.type} {verdict}" + (f": {reason}" if reason else "") + changes


def _remedies(found: tuple[Remedy, ...]) -> Iterator[str]:
    """Yield what would be enough, a line each."""
    for number, remedy in enumerate(found):
        start = "it would pass if" if number == 0 else "or if"
        yield f"{start} {said(remedy)}"


def _next_look(found: Why) -> Iterator[str]:
    if found.next_look is msgspec.UNSET or found.at is None or not any(it.configured for it in found.profiles):
        return
    if found.next_look is not None:
        yield f"Next look: {clock_time(found.next_look)}, {_ahead(found.next_look, found.at)}, or earlier when"
    else:
        yield "Next look: when"
    whens = ["the node itself changes", *map(topics.said, found.wakes_on)]
    if found.asks_every is not None:
        whens.append(f"an answer from outside changes (it is asked for every {found.asks_every})")
    yield from (f"  - {printable(when)}" for when in whens)


def _ahead(instant: datetime, now: datetime) -> str:
    return f"in {elapsed(instant - now)}" if instant > now else "now"
