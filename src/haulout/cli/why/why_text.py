"""Output of `haulout why`: text or JSON."""

from collections.abc import Iterator
from datetime import datetime

import click
import msgspec

from haulout.cli.cordon_owners import format_elapsed, format_since
from haulout.cli.output import Marks, printable
from haulout.controllers.profiles.explain.explanation import (
    AnnouncedMaintenance,
    CheckExplanation,
    NodeExplanation,
    OrderedMaintenance,
    OtherCordonOwner,
    ProfileExplanation,
    TransitionExplanation,
)
from haulout.controllers.profiles.explain.remedies import Remedy, format_remedy
from haulout.controllers.profiles.view import topics
from haulout.core.text import format_time


def to_json(explanation: NodeExplanation) -> bytes:
    """Return the explanation as JSON; `haulout why --help` documents the fields."""
    return msgspec.json.format(msgspec.json.encode(explanation))


def text_lines(explanation: NodeExplanation, *, marks: Marks) -> Iterator[str]:
    at = f", as of {format_time(explanation.time)}" if explanation.time else ""
    yield click.style(printable(f"Node {explanation.node}{at}"), bold=True)
    if explanation.problem:
        yield printable(explanation.problem)
    if explanation.hold:
        yield printable(f"  {explanation.hold}; to end that: {explanation.release_command}")
    yield from (f"  announced: {printable(_notice_text(item))}" for item in explanation.notices)
    yield from (
        f"  ordered: {printable(_maintenance_text(item))}; more: haulout status {explanation.node}"
        for item in explanation.maintenances
    )
    yield from (f"  asked: {printable(item)}" for item in explanation.machine_requests)
    yield from (f"  held: {printable(_owner_text(item, explanation))}" for item in explanation.cordon_owners)
    for profile in explanation.profiles:
        yield ""
        yield from _profile_lines(profile, explanation.time, marks)
    if not (explanation.problem or explanation.profiles or explanation.maintenances or explanation.cordon_owners):
        yield "No profile matches the node: nothing is done until its labels change or a notice announces maintenance."
    if not explanation.problem:
        yield ""
        yield from _next_look_lines(explanation)
    for note in explanation.notes:
        yield printable(f"Note: {note}")


def _notice_text(notice: AnnouncedMaintenance) -> str:
    about = f"{notice.kind} ({notice.reason})" if notice.reason else notice.kind
    end = f", until {format_time(notice.end)}" if notice.end else ""
    return f"{about}, notice {notice.notice}, {notice.phase}: {notice.message}{end}"


def _owner_text(owner: OtherCordonOwner, explanation: NodeExplanation) -> str:
    since_text = (
        f"since {format_since(owner.since, now=explanation.time)}"
        if explanation.time
        else f"since {format_time(owner.since)}"
    )
    more = f"haulout history {explanation.node}, kubectl describe node {explanation.node}"
    return f"{owner.owner.replace('/', ' ', 1)}, {since_text}: {owner.message}; more: {more}"


def _maintenance_text(maintenance: OrderedMaintenance) -> str:
    why = f" ({maintenance.reason})" if maintenance.reason else ""
    return f"NodeMaintenance {maintenance.maintenance}{why}, {maintenance.phase}: {maintenance.message}"


def _profile_lines(profile: ProfileExplanation, at: datetime | None, marks: Marks) -> Iterator[str]:
    if not profile.configured:
        yield printable(f"profile {profile.name}: not in the configuration, so nothing happens")
        return
    since_text = f", since {format_since(profile.since, now=at)}" if profile.since and at else ""
    yield click.style(printable(f"profile {profile.name}: {profile.state}{since_text}"), bold=True)
    if profile.error:
        yield f"  {marks.no} {printable(profile.error)}"
    if profile.waiting_for:
        yield f"  {marks.unknown} in transition: {printable(profile.waiting_for)}"
    for transition in profile.transitions:
        yield from _transition_lines(transition, at, marks)
    if not profile.transitions and not profile.error and not profile.waiting_for:
        yield "  no transition leads out of this state"
    if profile.next not in ("", profile.state):
        yield f"  {marks.yes} it moves to {printable(profile.next)} at the next reconcile"


def _transition_lines(transition: TransitionExplanation, at: datetime | None, marks: Marks) -> Iterator[str]:
    mark = marks.yes if transition.passed else marks.no
    yield f"  {mark} to {printable(transition.target)} when {printable(' '.join(transition.expression.split()))}"
    width = max((len(printable(item.name)) for item in transition.checks), default=0)
    for check in transition.checks:
        yield f"      {_check_mark(check, marks)} {printable(check.name):{width}}  {printable(_check_text(check, at))}"
    if transition.veto:
        yield f"      {marks.no} {printable(transition.veto)}"
    for line in _remedy_lines(transition.remedies):
        yield f"      {printable(line)}"


def _check_mark(check: CheckExplanation, marks: Marks) -> str:
    if check.passed is None:
        return marks.unknown
    return marks.yes if check.passed else marks.off


def _check_text(check: CheckExplanation, at: datetime | None) -> str:
    outcome = {True: "passes", False: "does not pass", None: "is unknown"}[check.passed]
    reason = check.error or check.reason
    changes = ""
    if check.changes_at and at:
        changes = f"; may change at {format_time(check.changes_at)}, {_format_until(check.changes_at, at)}"
    return f"{check.type} {outcome}" + (f": {reason}" if reason else "") + changes


def _remedy_lines(remedies: tuple[Remedy, ...]) -> Iterator[str]:
    """Yield a line per alternative that would make the transition pass."""
    for number, remedy in enumerate(remedies):
        start = "it would pass if" if number == 0 else "or if"
        yield f"{start} {format_remedy(remedy)}"


def _next_look_lines(explanation: NodeExplanation) -> Iterator[str]:
    if (
        explanation.next_reconcile is msgspec.UNSET
        or explanation.time is None
        or not any(profile.configured for profile in explanation.profiles)
    ):
        return
    if explanation.next_reconcile is not None:
        yield (
            f"Next reconcile: {format_time(explanation.next_reconcile)}, "
            f"{_format_until(explanation.next_reconcile, explanation.time)}, or earlier when"
        )
    else:
        yield "Next reconcile: when"
    triggers = ["the node itself changes", *map(topics.describe, explanation.requeue_on)]
    if explanation.query_interval is not None:
        triggers.append(f"the answer of an external service changes (queried every {explanation.query_interval})")
    yield from (f"  - {printable(trigger)}" for trigger in triggers)


def _format_until(instant: datetime, now: datetime) -> str:
    return f"in {format_elapsed(instant - now)}" if instant > now else "now"
