"""`haulout notice`: to announce maintenance of nodes, to see what is announced, and to call it off."""

from typing import TYPE_CHECKING, Any

import click

from haulout.cli import options
from haulout.cli.kubectl_flags import KubectlCommand, OptionalBoolOption, dry_run_option
from haulout.cli.notice.create_command import create
from haulout.cli.notice.list_command import list_

if TYPE_CHECKING:  # heavy: imported when it is needed
    from haulout.cli.notice.cancellation import EndAction


@click.group("notice", short_help="Announce maintenance of nodes, and see what is announced.")
def notice() -> None:
    """Announce maintenance of nodes, see what clouds, people and tools have announced, and call it off.

    What is announced is a MaintenanceNotice (`kubectl get mn`). What is done about it is for profiles to decide, by
    the check `notice`.
    """


@click.command("show", short_help="Show all that is known of a notice.")
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
    """Show the notice NAME: what is announced, by whom, how it stands and why, and what happened to it.

    \b
    Exit codes:
      0  shown
      1  there is no such notice, notices are not installed, or you may not see them
      2  the command line makes no sense

    With -o json or yaml it has the fields of one of those of `haulout notice list`.
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.connect import connect, run
    from haulout.cli.notice import printer
    from haulout.cli.notice.notice_view import strip_notice_prefix

    async def main() -> None:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            await printer.print_notice(session.client, strip_notice_prefix(name), output=output)

    run(main())


@click.command("cancel", cls=KubectlCommand, short_help="Call a maintenance off.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", cls=OptionalBoolOption, help="Even if a cloud announced it, which does it nevertheless.")
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def cancel(ctx: click.Context, /, *, names: tuple[str, ...], **flags: Any) -> None:
    """Call off what each NAME announces: its node is not drained for it, or comes back.

    A cloud that announced something does it, whatever is said here: call it off there. It then says so itself.

    \b
    Exit codes:
      0  called off, or it was already
      1  there is no such notice, it is over, a cloud wrote it, or the server said no
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    from haulout.cli.notice.cancellation import EndAction

    ctx.exit(_end_notices(names, EndAction.CANCEL, **flags))


@click.command("end", cls=KubectlCommand, short_help="Say that a maintenance is over.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--force", cls=OptionalBoolOption, help="Even if a cloud announced it, which tells by itself when it is over."
)
@dry_run_option
@options.kubeconfig_options
@options.verbose_option
@click.pass_context
def end(ctx: click.Context, /, *, names: tuple[str, ...], **flags: Any) -> None:
    """Say that what each NAME announces is over: its node comes back once it is well.

    For a maintenance without an end, for one that is over early, and for one that its cloud calls failed, once you have
    seen to the node.

    \b
    Exit codes:
      0  it is over, or was already
      1  there is no such notice, it has not begun, its cloud will tell, or the server said no
      2  the command line makes no sense
      130  interrupted
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
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
    """Say it of each; return the exit code."""
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
