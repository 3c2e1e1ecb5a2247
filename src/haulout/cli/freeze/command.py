"""`haulout freeze` and `haulout unfreeze`: keep new maintenance from beginning anywhere, and allow it again."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import click

from haulout.cli import options
from haulout.cli.options import KubectlCommand, dry_run_option

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.cli.output import OutputLine
    from haulout.kube.client import Client


@click.command("freeze", cls=KubectlCommand, short_help="Keep new maintenance from beginning, on all nodes.")
@click.option("-l", "--selector", metavar="SELECTOR", help="Only nodes with these labels.  [default: all nodes]")
@click.option("--from", "start", metavar="TIME", help="The start.  [default: now]")
@click.option(
    "--until", metavar="TIME", help="The end, such as 2026-12-01T08:00Z or +2d.  [default: until it is deleted]"
)
@click.option("--reason", metavar="TEXT", default="", help="The reason, shown to other users.")
@click.option("--by", metavar="NAME", help="The user who wants the freeze.  [default: your user name in the cluster]")
@click.option("--hold-notices", is_flag=True, help="Also hold maintenance that a notice announces.")
@click.option("--name", metavar="NAME", help="The name of the MaintenanceFreeze.  [default: freeze-DATE-TIME]")
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
def freeze(  # noqa: PLR0913 - one per option
    *,
    selector: str | None,
    start: str | None,
    until: str | None,
    reason: str,
    by: str | None,
    hold_notices: bool,
    name: str | None,
    dry_run: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Create a MaintenanceFreeze: while it lasts, no new maintenance begins on any node.

    Maintenance that has begun is brought to its end. Maintenance that a cloud announces begins nevertheless, since the
    cloud acts in any case; --hold-notices holds it, too. Nodes that join later are frozen as well. `haulout unfreeze`
    ends it early: then all that waited begins at once.

    TIME is 2026-12-01T03:00:00Z, or with an offset 2026-12-01T03:00+01:00; relative to now +20m, +1h30m, +2d; or now.

    \b
    Exit codes:
      0  created
      1  freezes are not installed, or the server refused
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.freeze.maintenance_freeze import FreezeRequest, create_freeze

    request = FreezeRequest(
        name=name, selector=selector, start=start, until=until, reason=reason, by=by, hold_notices=hold_notices
    )
    _run(lambda client: create_freeze(client, request, dry_run=dry_run), kubeconfig, context)


@click.command("unfreeze", cls=KubectlCommand, short_help="Let maintenance begin again.")
@click.argument("name", required=False)
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
def unfreeze(*, name: str | None, dry_run: str, kubeconfig: str | None, context: str | None) -> None:
    """Delete the MaintenanceFreeze NAME: maintenance that waited begins at once.

    Without NAME, delete the only one that has not ended.

    \b
    Exit codes:
      0  deleted
      1  there is no such freeze, or more than one without NAME, or the server refused
      2  the command line is invalid
      130  interrupted
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    from haulout.cli.freeze.maintenance_freeze import delete_freeze

    _run(lambda client: delete_freeze(client, name, dry_run=dry_run), kubeconfig, context)


def _run(change: "Callable[[Client], AsyncIterator[OutputLine]]", kubeconfig: str | None, context: str | None) -> None:
    from haulout.cli.connect import connect, run

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            async for line in change(session.client):
                line.print()

    run(main())
