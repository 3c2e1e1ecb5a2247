"""`haulout notice create`: announce maintenance of a node."""

import re
from typing import Any

import click

from haulout.cli import options
from haulout.cli.kubectl_flags import KubectlCommand, OptionalBoolOption, dry_run_option

KINDS = ("Reboot", "Stop", "Migrate", "Terminate", "Freeze", "Unknown")
DEFAULT_SOURCE = "people"
_SOURCE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # as in the CRD
_MAX_ID_LENGTH = 1024


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
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "name", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Format; json and yaml print the object.",
)
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
