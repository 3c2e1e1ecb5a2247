"""`haulout notice create`: from words to a notice, and what it says then."""

from datetime import datetime, timedelta

import click

from haulout.cli import documents
from haulout.cli.cordoning import SUFFIXES
from haulout.cli.holders import elapsed
from haulout.cli.lines import Line
from haulout.cli.nodes import bare
from haulout.cli.noticing.creating import Made, Verb, Wanted, check, create
from haulout.cli.noticing.outlook import looked_at, outlook
from haulout.cli.times import instant
from haulout.errors import UsageError
from haulout.kinds.notice import Kind
from haulout.kube.client import Client
from haulout.notices.calling_off import CLOUDS

_NOTABLE = timedelta(seconds=30)  # between two clocks


async def announce(client: Client, asked: Wanted, *, output: str) -> None:
    """Make the notice, and print it or what will come of it."""
    made = await create(client, asked)
    match output:
        case "json":
            click.echo(documents.as_json(made.raw))
        case "yaml":
            click.echo(documents.as_yaml(made.raw), nl=False)
        case "name":
            Line(_named(made), is_result=True).print()
        case _:
            await _tell(client, asked, made)


def wanted(  # noqa: PLR0913 - as many as there are options
    now: datetime,
    *,
    node: str,
    kind: str,
    source: str,
    start: str,
    end: str | None,
    deadline: str | None,
    notice_id: str | None,
    yes_unknown: bool | None,
    **texts: str,
) -> Wanted:
    """Return what was typed; raises `UsageError`."""
    if source in CLOUDS:
        raise UsageError(
            f"--source: {source} is for what that cloud says, which Haulout asks itself: take another name"
        )
    asked = Wanted(
        node=bare(node),
        kind=Kind(kind),
        source=source,
        start=_instant("--start", start, now),
        end=None if end is None else _instant("--end", end, now),
        deadline=None if deadline is None else _instant("--deadline", deadline, now),
        notice_id=notice_id or "",
        may_be_unknown=bool(yes_unknown),
        **texts,
    )
    check(asked, now=now)
    return asked


def _instant(option: str, text: str, now: datetime) -> datetime:
    try:
        return instant(text, now=now)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


async def _tell(client: Client, asked: Wanted, made: Made) -> None:
    Line(f"{_named(made)} {made.verb}{SUFFIXES[asked.dry_run]}", is_result=True).print()
    for change in made.changes:
        Line(f"  {change}").print()
    off = clocks_apart(made, now=client.clock.now())
    is_real = asked.dry_run == "none"
    seen = await looked_at(client, made.notice) if is_real else await looked_at(client, made.notice, within=timedelta())
    for sentence in outlook(seen, is_there=made.node is not None, is_real=is_real):
        Line(sentence).print()
    if off:
        Line(off).print()


def clocks_apart(made: Made, *, now: datetime) -> str:
    """Return what to say if the cluster has another time than we: what is told from now means something else there."""
    created = made.notice.metadata.creation_timestamp
    if made.verb is not Verb.CREATED or created is None or abs(created - now) < _NOTABLE:
        return ""
    apart = f"{elapsed(abs(created - now))} {'ahead of' if created > now else 'behind'} yours"
    return f"Beware: the clock of the cluster is {apart}. Say times as its clock has them."


def _named(made: Made) -> str:
    return f"maintenancenotice.haulout.dev/{made.notice.name}"
