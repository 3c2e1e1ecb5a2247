"""Flags with kubectl's syntax, so that a command line written for kubectl means the same here.

A switch may have a value (`--force=true`). A switch that is not given is neither on nor off: then the policy decides.
`--dry-run` alone means `--dry-run=client`. In both cases a value needs its `=`: the next word is the next argument.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DRY_RUN_MODES = ("none", "client", "server")


class OptionalBoolOption(click.Option):
    """A switch with an optional value."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **{"type": click.BOOL, "default": None, **attributes})

    def make_metavar(self, ctx: click.Context) -> str:
        """Return nothing: help shows the name alone."""
        del ctx
        return ""


class KubectlCommand(click.Command):
    """A command whose switches may have values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add a value to each switch without one, then parse."""
        expanded = {
            name: f"{name}=true" for item in self.params if isinstance(item, OptionalBoolOption) for name in item.opts
        }
        expanded["--dry-run"] = "--dry-run=client"
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [expanded.get(item, item) for item in args[:end]] + args[end:])


def dry_run_option(command: Command) -> Command:
    return click.option(
        "--dry-run",
        type=click.Choice(DRY_RUN_MODES),
        default="none",
        show_default=True,
        help="client: only print what would be done; server: send a server-side dry run. Neither changes anything.",
    )(command)


def node_options(command: Command) -> Command:
    """Add the arguments NODE and the option --selector."""
    selector = click.option(
        "-l", "--selector", metavar="SELECTOR", help="The nodes with these labels, as in -l pool=a,zone!=b."
    )
    names = click.argument("nodes", nargs=-1, metavar="[NODE]...")
    return names(selector(command))


def check_node_options(nodes: tuple[str, ...], selector: str | None) -> None:
    """Refuse a command line with neither names nor a selector, or with both."""
    if nodes and selector:
        raise click.UsageError("cannot specify both a node name and a --selector option")
    if not nodes and selector is None:
        raise click.UsageError("give node names, or -l SELECTOR")
    if selector is not None and not selector.strip():
        raise click.UsageError("an empty --selector would select all nodes: give node names, or a label")
