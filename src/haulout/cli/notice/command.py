"""`haulout notice`: announce maintenance of nodes, list notices, and cancel or end them."""

import re
from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.options import KubectlCommand, OptionalBoolOption, dry_run_option

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.cli.notice.cancellation import EndAction

KINDS = ("Reboot", "Stop", "Migrate", "Terminate", "Freeze", "Unknown")
DEFAULT_SOURCE = "people"
_SOURCE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # as in the CRD
_MAX_ID_LENGTH = 1024

PHASES = ("Planned", "Due", "Active", "Completed", "Cancelled", "Missed")


def _check_source(_ctx: click.Context, _: click.Parameter, source: str) -> str:
    if not _SOURCE.fullmatch(source):
        raise click.BadParameter(
            f"expected a-z, 0-9 and - only, at most 63 characters, no - at the start or end; found {source!r}"
        )
    return source


def _check_id(_ctx: click.Context, _: click.Parameter, notice_id: str | None) -> str | None:
    if notice_id is not None and not 0 < len(notice_id) <= _MAX_ID_LENGTH:
        raise click.BadParameter(f"expected 1 to {_MAX_ID_LENGTH} characters")
    return notice_id


@click.command("create", cls=KubectlCommand, short_help="Announce maintenance of a node.")
@click.argument("node")
@click.option(
    "--kind",
    metavar="KIND",
    type=click.Choice(KINDS, case_sensitive=False),
    required=True,
    help="The kind of maintenance.",
)
@click.option("--start", metavar="TIME", required=True, help="The earliest start.")
@click.option("--end", metavar="TIME", help="The expected end.")
@click.option("--deadline", metavar="TIME", help="The latest start.")
@click.option("--reason", metavar="TEXT", default="", help="The reason, in a word or two.")
@click.option("--description", metavar="TEXT", default="", help="More details, as free text.")
@click.option(
    "--source",
    metavar="NAME",
    default=DEFAULT_SOURCE,
    show_default=True,
    callback=_check_source,
    help="Who announces it, for example the name of a ticket system.",
)
@click.option(
    "--id",
    "notice_id",
    metavar="ID",
    callback=_check_id,
    help="The ID of the maintenance at the source: the same ID updates the same notice.  [default: a new one]",
)
@click.option("--allow-unknown-node", cls=OptionalBoolOption, help="Also for a node that does not exist (yet).")
@dry_run_option
@options.format_option("text", "name", "json", "yaml", text="Format; json and yaml print the object.")
@options.kubeconfig_options
@options.verbose_option
def create(*, output: str, kubeconfig: str | None, context: str | None, **values: Any) -> None:
    """Announce maintenance of NODE, and show what Haulout will do.

    TIME is 2026-12-01T03:00:00Z, or with an offset 2026-12-01T03:00+01:00; relative to now +20m, +1h30m, +2d; or now. A
    maintenance without --end lasts until `haulout notice end`.

    \b
    Kinds:
      Reboot, Stop, Terminate   the machine goes down; Terminate: for good
      Migrate                   the machine keeps running, on another host
      Freeze                    the machine pauses for some seconds: by default not drained
      Unknown                   not specified

    \b
    Exit codes:
      0  announced, or it was already
      1  the node is unknown, notices are not installed, or the server refused
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.connect import connect, run
    from haulout.cli.notice import creation
    from haulout.core.clock import RealClock

    request = creation.parse_request(RealClock().now(), **values)

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            await creation.create_and_print(session.client, request, output=output)

    run(main())


@click.command("list", short_help="List notices of maintenance.")
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-A", "--all", "everything", is_flag=True, help="Also notices that have ended.")
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only notices of this source. Can be repeated."
)
@click.option(
    "--phase",
    "phases",
    multiple=True,
    metavar="PHASE",
    type=click.Choice(PHASES, case_sensitive=False),
    help="Only notices in phase Planned, Due, Active, Completed, Cancelled or Missed. Can be repeated.",
)
@click.option("-w", "--watch", "is_watched", is_flag=True, help="Keep watching: a line for each change, until Ctrl-C.")
@options.format_option(
    "text", "wide", "json", "yaml", "name", text="Format; wide adds ID, deadline, machine and reason."
)
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def list_(
    ctx: click.Context,
    /,
    *,
    nodes: tuple[str, ...],
    is_watched: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
    **filters: Any,
) -> None:
    """List notices of each NODE or of all nodes: what is announced, when, its phase, and when the node is drained.

    The earliest start comes first. Past notices need --all or --phase. ON TIME is whether the node is expected to be
    empty at the start. The command only reads, and works without the operator.

    \b
    Exit codes:
      0  shown, or nothing is announced
      1  a node is unknown, notices are not installed, or you are not allowed to read them
      2  the command line is invalid
      130  interrupted

    \b
    With -o json or yaml, fields are only ever added:
      notices: [{name, node, machine, kind, reason, description,
                 source, id, stage     who announced it, and the stage that the source reports
                 phase, why            the current phase
                 start, end, deadline
                 drainAt               null: at once, not for this kind, or it is over
                 onTime                null: unknown
                 reschedulable, created, endedAt
                 observed              false: the operator has not processed the latest change
                 conditions, history}]
      notes                            what could not be read
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if is_watched and output not in ("text", "wide"):
        raise click.UsageError("--watch requires -o text or wide")
    from haulout.cli.connect import connect, run
    from haulout.cli.node_lookup import strip_node_prefix
    from haulout.cli.notice import notice_text, notice_view

    notice_query = notice_view.NoticeQuery(nodes=tuple(dict.fromkeys(map(strip_node_prefix, nodes))), **filters)

    async def main() -> notice_view.NoticeList:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            if is_watched:
                await notice_text.watch_and_print(session.client, notice_query, output=output)
            return await notice_text.print_notices(session.client, notice_query, output=output)

    ctx.exit(1 if run(main()).unknown_nodes else 0)


@click.group("notice", short_help="Announce maintenance of nodes, and list notices.")
def notice() -> None:
    """Announce maintenance of nodes, list what clouds, users and tools announced, and cancel it.

    An announcement is a MaintenanceNotice (`kubectl get mn`). Profiles decide what to do about it, by the check
    `notice`.
    """


@click.command("show", short_help="Show the details of a notice.")
@click.argument("name")
@options.format_option("text", "json", "yaml")
@options.kubeconfig_options
@options.verbose_option
def show(*, name: str, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show the notice NAME: what is announced, by whom, its phase and why, and its history.

    \b
    Exit codes:
      0  shown
      1  there is no such notice, notices are not installed, or you are not allowed to read them
      2  the command line is invalid

    With -o json or yaml the fields are those of an entry of `haulout notice list`.
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.connect import connect, run
    from haulout.cli.notice import notice_text
    from haulout.cli.notice.notice_view import strip_notice_prefix

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            await notice_text.print_notice(session.client, strip_notice_prefix(name), output=output)

    run(main())


@click.command("cancel", cls=KubectlCommand, short_help="Cancel announced maintenance.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--force", cls=OptionalBoolOption, help="Also if a cloud announced it; the cloud still does the maintenance."
)
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def cancel(ctx: click.Context, /, *, names: tuple[str, ...], **flags: Any) -> None:
    """Cancel what each NAME announces: its node is not drained for it, or returns to service.

    A notice cannot stop a cloud: cancel a cloud's maintenance there. The cloud then updates its notice itself.

    \b
    Exit codes:
      0  cancelled, or it was already
      1  there is no such notice, it has ended, a cloud wrote it, or the server refused
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.notice.cancellation import EndAction

    ctx.exit(_end_notices(names, EndAction.CANCEL, **flags))


@click.command("end", cls=KubectlCommand, short_help="Declare that maintenance has ended.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--force", cls=OptionalBoolOption, help="Also if a cloud announced it, which normally reports the end itself."
)
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def end(ctx: click.Context, /, *, names: tuple[str, ...], **flags: Any) -> None:
    """Declare what each NAME announces as ended: its node returns to service once it is healthy.

    Use it for a maintenance without an end, for one that ended early, and for one that its cloud reports as failed,
    once you have checked the node.

    \b
    Exit codes:
      0  it has ended, or had already
      1  there is no such notice, it has not begun, its cloud reports the end, or the server refused
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.notice.cancellation import EndAction

    ctx.exit(_end_notices(names, EndAction.END, **flags))


def _end_notices(
    names: tuple[str, ...],
    action: "EndAction",
    *,
    force: bool | None,
    dry_run: str,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Cancel or end notices; return the exit code."""
    from haulout.cli.connect import connect, run
    from haulout.cli.notice.cancellation import end_notices
    from haulout.cli.notice.notice_view import strip_notice_prefix

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            wanted = tuple(dict.fromkeys(map(strip_notice_prefix, names)))
            return await end_notices(session.client, wanted, action, force=bool(force), dry_run=dry_run)

    return 0 if run(main()) else 1


for command in (create, list_, show, cancel, end):
    notice.add_command(command)
