"""`haulout notice create`: to announce maintenance of a node."""

import re
from typing import Any

import click

from haulout.cli import options
from haulout.cli.kubectl_flags import KubectlCommand, OptionalBoolOption, dry_run_option

KINDS = ("Reboot", "Stop", "Migrate", "Terminate", "Freeze", "Unknown")
DEFAULT_SOURCE = "people"
_SOURCE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # as the definition of the kind has it
_MAX_ID_LENGTH = 1024


def _check_source(_ctx: click.Context, _: click.Parameter, source: str) -> str:
    if not _SOURCE.fullmatch(source):
        raise click.BadParameter(f"expected a-z, 0-9 and - only, at most 63, - not at an end; found {source!r}")
    return source


def _check_id(_ctx: click.Context, _: click.Parameter, notice_id: str | None) -> str | None:
    if notice_id is not None and not 0 < len(notice_id) <= _MAX_ID_LENGTH:
        raise click.BadParameter(f"expected something, and at most {_MAX_ID_LENGTH} characters")
    return notice_id


@click.command("create", cls=KubectlCommand, short_help="Announce maintenance of a node.")
@click.argument("node")
@click.option(
    "--kind", metavar="KIND", type=click.Choice(KINDS, case_sensitive=False), required=True, help="What happens to it."
)
@click.option("--start", metavar="TIME", required=True, help="When it begins, at the earliest.")
@click.option("--end", metavar="TIME", help="By when it is expected to be over.")
@click.option("--deadline", metavar="TIME", help="The latest that it can begin.")
@click.option("--reason", metavar="TEXT", default="", help="Why, in a word or two.")
@click.option("--description", metavar="TEXT", default="", help="What else there is to say.")
@click.option(
    "--source",
    metavar="NAME",
    default=DEFAULT_SOURCE,
    show_default=True,
    callback=_check_source,
    help="Who says so, for example the name of a ticket system.",
)
@click.option(
    "--id",
    "notice_id",
    metavar="ID",
    callback=_check_id,
    help="What the source calls it: the same again changes the same notice.  [default: a new one]",
)
@click.option("--yes-unknown", cls=OptionalBoolOption, help="Announce it for a node that is not there (yet).")
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
    """Announce that NODE will need maintenance, and say what will come of it.

    TIME is 2026-12-01T03:00:00Z, or with an offset 2026-12-01T03:00+01:00; or from now +20m, +1h30m, +2d; or now.
    A maintenance without --end lasts until `haulout notice end`.

    \b
    Kinds:
      Reboot, Stop, Terminate   the machine goes down; Terminate: for good
      Migrate                   it goes on running, elsewhere
      Freeze                    it stands still for some seconds: by default not drained
      Unknown                   nobody has said

    \b
    Exit codes:
      0  announced, or it was already
      1  the node is unknown, notices are not installed, or the server said no
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.connect import connect, run
    from haulout.cli.notice import creation
    from haulout.core.clock import RealClock

    request = creation.parse_request(RealClock().now(), **values)

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            await creation.create_and_print(session.client, request, output=output)

    run(main())
