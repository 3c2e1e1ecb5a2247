"""Options that several commands share, with the same meaning everywhere.

Flags with kubectl's syntax, so that a command line written for kubectl means the same here. A switch may have a value
(`--force=true`). A switch that is not given is neither on nor off: then the policy decides. `--dry-run` alone means
`--dry-run=client`. In both cases a value needs its `=`: the next word is the next argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

VERBOSITY = "verbosity"  # key of the count of -v in click's shared object
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label: RFC 1123

DEFAULT_FILE = "config/maintenance.yaml"  # the operator's default
DRY_RUN_MODES = ("none", "client", "server")


def kubeconfig_options(command: Command) -> Command:
    context = click.option("--context", metavar="NAME", help="Context in the kubeconfig, instead of the current one.")
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig to use, instead of $KUBECONFIG, ~/.kube/config or the pod's service account.",
    )
    return kubeconfig(context(command))


def cluster_options(command: Command) -> Command:
    namespace = click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        callback=check_namespace,
        help="Namespace of the operator, instead of the context's or the pod's.",
    )
    return kubeconfig_options(namespace(command))


def check_namespace(_ctx: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """Refuse an invalid name of a namespace; the callback of an option."""
    if name is not None and not _NAMESPACE.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} is not a valid namespace name: a-z, 0-9 and - only, at most 63 characters, no - at the start "
            "or end"
        )
    return name


def check_namespaces(ctx: click.Context, option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse invalid names; the callback of a repeatable option."""
    for name in names:
        check_namespace(ctx, option, name)
    return names


def configuration_options(command: Command) -> Command:
    """Add --config and --config-map, for commands that evaluate profiles."""
    file = click.option(
        "--config",
        "file",
        metavar="FILE",
        help=f"The maintenance.yaml to use.  [default: {DEFAULT_FILE}, if it exists]",
    )
    config_map = click.option(
        "--config-map",
        metavar="NAMESPACE/NAME",
        help="A ConfigMap with the configuration, under the key maintenance.yaml.",
    )
    return file(config_map(command))


def variables_option(command: Command) -> Command:
    """Add --env, for commands that read such a file."""
    return click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="NAME=value",
        callback=_parse_variables,
        help="A variable for ${NAME} in the file, in addition to the environment. Can be repeated.",
    )(command)


def _parse_variables(_ctx: click.Context, _: click.Parameter, assignments: Sequence[str]) -> Mapping[str, str]:
    pairs = [text.partition("=") for text in assignments]
    for name, equals, _value in pairs:
        if not name or not equals:
            raise click.BadParameter(f"expected NAME=value, found {name!r}")
    return {name: value for name, _equals, value in pairs}


def format_option(*formats: str, text: str = "Format.") -> Callable[[Command], Command]:
    """Add --output with these formats, the first one by default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], show_default=True, help=text)


output_option = format_option("text", "json")


def verbose_option(command: Command) -> Command:
    """Add --verbose, whose callback configures logging."""
    return click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_set_log_level,
        help="Log to stderr, with stack traces of errors; -vv logs more.",
    )(command)


def _set_log_level(ctx: click.Context, _: click.Parameter, count: int) -> None:
    # The option may stand before and after the command's name: the counts add up.
    shared_state = ctx.find_root().ensure_object(dict)
    shared_state[VERBOSITY] = verbosity = shared_state.get(VERBOSITY, 0) + count
    if verbosity:
        import logging

        from haulout.app import logs

        logs.configure(as_json=False, level=logging.DEBUG if verbosity > 1 else logging.INFO)


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
        raise click.UsageError("expected node names or -l SELECTOR")
    if selector is not None and not selector.strip():
        raise click.UsageError("an empty --selector would select all nodes: expected node names or a label")
