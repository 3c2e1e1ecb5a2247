"""Flags as kubectl takes them, so that a line written for kubectl means the same here.

A switch may have a value (`--force=true`), and one that nobody gave is neither on nor off: then a policy decides.
`--dry-run` alone means `--dry-run=client`. In both cases a value needs its `=`: the next word is the next argument.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DRY_RUN_MODES = ("none", "client", "server")


class OptionalBoolOption(click.Option):
    """A switch that may be given a value."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **{"type": click.BOOL, "default": None, **attributes})

    def make_metavar(self, ctx: click.Context) -> str:
        """Return nothing: its name alone is how it is used."""
        del ctx
        return ""


class KubectlCommand(click.Command):
    """A command whose switches may have values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give a value to each switch that has none, then read the line."""
        expanded = {
            name: f"{name}=true" for item in self.params if isinstance(item, OptionalBoolOption) for name in item.opts
        }
        expanded["--dry-run"] = "--dry-run=client"
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [expanded.get(item, item) for item in args[:end]] + args[end:])


def dry_run_option(command: Command) -> Command:
    """Add --dry-run."""
    return click.option(
        "--dry-run",
        type=click.Choice(DRY_RUN_MODES),
        default="none",
        show_default=True,
        help="client: only say what would be done; server: ask the server too, and change nothing.",
    )(command)


def node_options(command: Command) -> Command:
    """Add the names of nodes and --selector, one of which is to be given."""
    selector = click.option(
        "-l", "--selector", metavar="SELECTOR", help="The nodes with these labels, as in -l pool=a,zone!=b."
    )
    names = click.argument("nodes", nargs=-1, metavar="[NODE]...")
    return names(selector(command))


def check_node_options(nodes: tuple[str, ...], selector: str | None) -> None:
    """Refuse a line that names no nodes, or names them in two ways."""
    if nodes and selector:
        raise click.UsageError("cannot specify both a node name and a --selector option")
    if not nodes and selector is None:
        raise click.UsageError("which nodes? Give their names, or -l SELECTOR")
    if selector is not None and not selector.strip():
        raise click.UsageError("an empty --selector would mean all nodes: name them, or a label that they have")
