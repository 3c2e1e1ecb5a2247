"""Options that several commands share, with the same meaning everywhere."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

VERBOSITY = "verbosity"  # key of the count of -v in click's shared object
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label: RFC 1123


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


def output_option(command: Command) -> Command:
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format."
    )(command)


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
