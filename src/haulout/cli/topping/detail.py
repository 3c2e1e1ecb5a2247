"""All about one node, line by line: what its profiles wait for, its drains and who blocks them, and what to type."""

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from haulout.cli.topping.picture import Picture
from haulout.cli.topping.words import STYLES, lasting, safe, when
from haulout.web.api.shapes import Check, Drain, NodeDetail, ProfileState, Transition

_MOST_HISTORY = 10
_SIGNS = {None: "?", True: "+", False: "-"}


def about(picture: Picture, name: str) -> list[Text]:
    """Return what is known of a node."""
    detail = picture.details.get(name)
    tile = detail.tile if detail is not None else picture.tiles.get(name)
    if tile is None:
        return [Text(f"node {safe(name)} is gone", "bold")]
    head = Text.assemble((safe(tile.name), "bold"), "  ", (str(tile.state), STYLES[tile.state]), f"  {safe(tile.why)}")
    if detail is None:
        return [Text(""), head, Text("more is being asked for", "dim")]
    return [Text(""), head, *_told(detail, picture.now)]


def _told(detail: NodeDetail, now: datetime) -> Iterator[Text]:
    if detail.problem:
        yield Text(safe(detail.problem), "red")
    if detail.tile.hold:
        yield Text(safe(detail.tile.hold), "yellow")
    for drain in detail.drains:
        yield from _drain(drain, now)
    for profile in detail.profiles:
        yield from _profile(profile, now)
    for order in detail.orders:
        yield Text(f"order {safe(order.name)}: {safe(order.phase)}  {safe(order.error or order.reason)}")
    for notice in detail.notices:
        yield Text(f"notice {safe(notice.name)}: {notice.phase}, {when(notice.start, now)}  {safe(notice.on_time)}")
    if detail.next_look is not None:
        yield Text(f"next look: {when(detail.next_look, now)}")
    for command in detail.commands:
        yield Text.assemble(f"{safe(command.title)}: ", (safe(command.command), "cyan"))
    for it in detail.history[:_MOST_HISTORY]:
        yield Text(f"{it.time:%m-%d %H:%M}  {safe(it.what)}  {safe(it.after)}  {safe(it.why)}", "dim")


def _drain(drain: Drain, now: datetime) -> Iterator[Text]:
    stands = safe(drain.words) or f"{drain.gone} of {drain.total} pods have left"
    yield Text(f"drain by {safe(drain.by)}: {stands}", "bold")
    for blocker in drain.blockers:
        whose = f"{safe(blocker.pod)}: " if blocker.pod else ""
        yield Text(f"  {whose}{safe(blocker.reason)}  {lasting(blocker.since, now)}", "red")
        if blocker.advice:
            yield Text(f"    {safe(blocker.advice)}")


def _profile(profile: ProfileState, now: datetime) -> Iterator[Text]:
    yield Text(f"profile {safe(profile.name)}: {safe(profile.state)}  {lasting(profile.since, now)}", "bold")
    if profile.error or profile.waits_for:
        yield Text(f"  {safe(profile.error or profile.waits_for)}", "red" if profile.error else "")
    for way in profile.transitions:
        if way.is_current:
            yield from _way(way)


def _way(way: Transition) -> Iterator[Text]:
    stands = "passes" if way.passed else safe(way.veto or way.error) or "waits"
    yield Text(f"  to {safe(way.target)}: {stands}")
    yield from map(_check, way.checks)


def _check(check: Check) -> Text:
    return Text(f"    {_SIGNS[check.passed]} {safe(check.name)}: {safe(check.error or check.reason)}")
