"""The details of one node: what its profiles wait for, its drains with blockers, and commands."""

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from haulout.cli.top.fleet_cache import FleetCache
from haulout.cli.top.text_format import STATE_STYLES, format_age, format_relative, one_line
from haulout.dashboard.api.types import Check, DrainSummary, NodeDetail, ProfileState, Transition

_MAX_HISTORY = 10
_CHECK_SIGNS = {None: "?", True: "+", False: "-"}


def detail_lines(fleet: FleetCache, name: str) -> list[Text]:
    """Return the details of a node as lines."""
    detail = fleet.details.get(name)
    tile = detail.summary if detail is not None else fleet.tiles.get(name)
    if tile is None:
        return [Text(f"node {one_line(name)} is gone", "bold")]
    head = Text.assemble(
        (one_line(tile.name), "bold"), "  ", (str(tile.state), STATE_STYLES[tile.state]), f"  {one_line(tile.message)}"
    )
    if detail is None:
        return [Text(""), head, Text("loading details", "dim")]
    return [Text(""), head, *_sections(detail, fleet.now)]


def _sections(detail: NodeDetail, now: datetime) -> Iterator[Text]:
    if detail.problem:
        yield Text(one_line(detail.problem), "red")
    if detail.summary.hold:
        yield Text(one_line(detail.summary.hold), "yellow")
    for drain in detail.drains:
        yield from _drain_lines(drain, now)
    for profile in detail.profiles:
        yield from _profile_lines(profile, now)
    for order in detail.maintenances:
        yield Text(f"order {one_line(order.name)}: {one_line(order.phase)}  {one_line(order.error or order.reason)}")
    for notice in detail.notices:
        yield Text(
            f"notice {one_line(notice.name)}: {notice.phase}, "
            f"{format_relative(notice.start, now)}  {one_line(notice.on_time_message)}"
        )
    if detail.next_reconcile is not None:
        yield Text(f"next reconcile: {format_relative(detail.next_reconcile, now)}")
    for command in detail.commands:
        yield Text.assemble(f"{one_line(command.title)}: ", (one_line(command.command), "cyan"))
    for entry in detail.history[:_MAX_HISTORY]:
        yield Text(
            f"{entry.time:%m-%d %H:%M}  {one_line(entry.object)}  {one_line(entry.to)}  {one_line(entry.reason)}", "dim"
        )


def _drain_lines(drain: DrainSummary, now: datetime) -> Iterator[Text]:
    progress = one_line(drain.message) or f"{drain.removed} of {drain.total} pods have left"
    yield Text(f"drain by {one_line(drain.owner)}: {progress}", "bold")
    for blocker in drain.blockers:
        pod_prefix = f"{one_line(blocker.pod)}: " if blocker.pod else ""
        yield Text(f"  {pod_prefix}{one_line(blocker.reason)}  {format_age(blocker.since, now)}", "red")
        if blocker.remedy:
            yield Text(f"    {one_line(blocker.remedy)}")


def _profile_lines(profile: ProfileState, now: datetime) -> Iterator[Text]:
    yield Text(f"profile {one_line(profile.name)}: {one_line(profile.state)}  {format_age(profile.since, now)}", "bold")
    if profile.error or profile.waiting_for:
        yield Text(f"  {one_line(profile.error or profile.waiting_for)}", "red" if profile.error else "")
    for transition in profile.transitions:
        if transition.is_current:
            yield from _transition_lines(transition)


def _transition_lines(transition: Transition) -> Iterator[Text]:
    outcome = "passes" if transition.passed else one_line(transition.veto or transition.error) or "waits"
    yield Text(f"  to {one_line(transition.target)}: {outcome}")
    yield from map(_check_line, transition.checks)


def _check_line(check: Check) -> Text:
    return Text(f"    {_CHECK_SIGNS[check.passed]} {one_line(check.name)}: {one_line(check.error or check.reason)}")
