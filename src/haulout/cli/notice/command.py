"""`haulout notice`: announce maintenance of nodes, list notices, and cancel or end them."""

from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.kubectl_flags import KubectlCommand, OptionalBoolOption, dry_run_option
from haulout.cli.notice.create_command import create
from haulout.cli.notice.list_command import list_

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.cli.notice.cancellation import EndAction


@click.group("notice", short_help="Announce maintenance of nodes, and list notices.")
def notice() -> None:
    """Announce maintenance of nodes, list what clouds, users and tools announced, and cancel it.

    An announcement is a MaintenanceNotice (`kubectl get mn`). Profiles decide what to do about it, by the check
    `notice`.
    """


@click.command("show", short_help="Show the details of a notice.")
@click.argument("name")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Format.",
)
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
    from haulout.cli.notice import printer
    from haulout.cli.notice.notice_view import strip_notice_prefix

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            await printer.print_notice(session.client, strip_notice_prefix(name), output=output)

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
