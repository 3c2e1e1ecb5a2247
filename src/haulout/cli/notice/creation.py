"""`haulout notice create`: parse the flags, create the notice, and print the outlook."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import click

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, MaintenanceNotice, NoticeCondition
from haulout.cli.cordon.node_changes import DRY_RUN_SUFFIXES
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.node_lookup import strip_node_prefix
from haulout.cli.notice.apply import ApplyResult, ApplyVerb, NoticeRequest, apply_notice, check_times
from haulout.cli.notice.notice_text import drain_text, lead_time_text
from haulout.cli.notice.notice_view import NoticeView, view_of
from haulout.cli.output import OutputLine, to_json, to_yaml
from haulout.cli.times import format_instant, parse_instant
from haulout.controllers.notices.cancellation import CLOUD_SOURCES
from haulout.errors import KubeError, UsageError
from haulout.kube.client import Client

_OPERATOR_TIMEOUT = timedelta(seconds=2)
_POLL_INTERVAL = timedelta(milliseconds=250)


async def wait_for_operator(
    client: Client, notice: MaintenanceNotice, *, timeout: timedelta = _OPERATOR_TIMEOUT
) -> NoticeView:
    """Return the notice once the operator has observed it, or unchanged after `timeout`."""
    until = client.clock.now() + timeout
    view = view_of(notice, now=client.clock.now())
    while not view.is_observed and client.clock.now() < until:
        await client.clock.sleep(_POLL_INTERVAL)
        try:
            view = view_of(await client.get(MAINTENANCE_NOTICES, notice.name), now=client.clock.now())
        except KubeError:
            break  # it is written, even if we may not read it
    return view


def outlook_lines(view: NoticeView, *, node_exists: bool, is_created: bool = True) -> Iterator[str]:
    """Yield sentences; `node_exists` and `is_created` (not a dry run) decide about further hints."""
    spec, now = view.notice.spec, view.now
    start = "at any moment" if spec.start is None else f"at {format_instant(spec.start, now=now)}"
    end = "" if spec.end is None else f", expected to end by {format_instant(spec.end, now=now)}"
    yield f"{spec.kind} of node {spec.node_name} {start}{end}."
    if not node_exists:
        yield f"Node {spec.node_name} does not exist yet: the notice takes effect when it is created."
    yield from _drain_lines(view)
    if spec.end is None:
        yield f"No end is set. When the maintenance has ended, run: haulout notice end {view.notice.name}"
    if is_created and not view.is_observed:
        yield "The operator has not processed the notice yet. Is it running?"


def _drain_lines(view: NoticeView) -> Iterator[str]:
    spec = view.notice.spec
    if spec.kind == MaintenanceKind.FREEZE:
        yield "A Freeze takes seconds: by default the node is not drained for it."
        return
    if spec.start is not None and spec.start <= view.now:
        yield "The start is not in the future: the maintenance counts as begun, and the node is drained at once."
        return
    when = f"{drain_text(view)}{lead_time_text(view)}" if view.drain_at and view.drain_at > view.now else "at once"
    yield f"A profile with the check `notice` drains the node {when}."
    on_time = view.notice.status.condition(NoticeCondition.ON_TIME)
    if view.is_observed and on_time is not None and on_time.status == "False":
        yield f"The node will not be empty in time: {on_time.message}"


_MAX_CLOCK_SKEW = timedelta(seconds=30)  # between our clock and the server's


async def create_and_print(client: Client, request: NoticeRequest, *, output: str) -> None:
    """Create the notice, and print it or the outlook."""
    result = await apply_notice(client, request)
    match output:
        case "json":
            click.echo(to_json(result.raw))
        case "yaml":
            click.echo(to_yaml(result.raw), nl=False)
        case "name":
            OutputLine(_resource_name(result), is_result=True).print()
        case _:
            await _print_result(client, request, result)


def parse_request(  # noqa: PLR0913 - one per option
    now: datetime,
    *,
    node: str,
    kind: str,
    source: str,
    start: str,
    end: str | None,
    deadline: str | None,
    notice_id: str | None,
    allow_unknown_node: bool | None,
    **texts: str,
) -> NoticeRequest:
    """Parse the flags; raise `UsageError`."""
    if source in CLOUD_SOURCES:
        raise UsageError(
            f"--source: {source} is reserved for notices that Haulout reads from that cloud: use another name"
        )
    request = NoticeRequest(
        node=strip_node_prefix(node),
        kind=MaintenanceKind(kind),
        source=source,
        start=_parse_instant_option("--start", start, now),
        end=None if end is None else _parse_instant_option("--end", end, now),
        deadline=None if deadline is None else _parse_instant_option("--deadline", deadline, now),
        notice_id=notice_id or "",
        allow_unknown_node=bool(allow_unknown_node),
        **texts,
    )
    check_times(request, now=now)
    return request


def _parse_instant_option(option: str, text: str, now: datetime) -> datetime:
    try:
        return parse_instant(text, now=now)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


async def _print_result(client: Client, request: NoticeRequest, result: ApplyResult) -> None:
    OutputLine(f"{_resource_name(result)} {result.verb}{DRY_RUN_SUFFIXES[request.dry_run]}", is_result=True).print()
    for change in result.changes:
        OutputLine(f"  {change}").print()
    skew_warning = clock_skew_warning(result, now=client.clock.now())
    is_real = request.dry_run == "none"
    view = (
        await wait_for_operator(client, result.notice)
        if is_real
        else await wait_for_operator(client, result.notice, timeout=timedelta())
    )
    for sentence in outlook_lines(view, node_exists=result.node is not None, is_created=is_real):
        OutputLine(sentence).print()
    if skew_warning:
        OutputLine(skew_warning).print()


def clock_skew_warning(result: ApplyResult, *, now: datetime) -> str:
    """Return a warning if the server's clock differs from ours: relative times would mean something else there."""
    created = result.notice.metadata.creation_timestamp
    if result.verb is not ApplyVerb.CREATED or created is None or abs(created - now) < _MAX_CLOCK_SKEW:
        return ""
    skew = f"{format_elapsed(abs(created - now))} {'ahead of' if created > now else 'behind'} yours"
    return f"Warning: the clock of the cluster is {skew}. Give times by the clock of the cluster."


def _resource_name(result: ApplyResult) -> str:
    return f"maintenancenotice.haulout.dev/{result.notice.name}"
