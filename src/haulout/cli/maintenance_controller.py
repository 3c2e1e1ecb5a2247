"""`haulout maintenance-controller`: the operator, for a Deployment that was made for the SAP maintenance-controller."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from haulout.cli.goflags import Flag, parse
from haulout.core import duration
from haulout.errors import UsageError

if TYPE_CHECKING:  # heavy: what runs is imported when it is asked for
    from haulout.web.listening import Address

_LEVELS = {"debug": 10, "info": 20, "error": 40, "panic": 50}
_HELP = frozenset({"-h", "--h", "-help", "--help"})
_FLAGS = {
    "config": Flag("", "The configuration; Haulout's own flag. [default: ./config/maintenance.yaml]"),
    "health-addr": Flag(":8081", "Where /healthz and /readyz are served. Of the address only the port counts."),
    "kubeconfig": Flag("", "The kubeconfig, instead of $KUBECONFIG, the pod's own account or ~/.kube/config."),
    "kubecontext": Flag("", "The context in it, instead of $KUBECONTEXT or the current one."),
    "enable-leader-election": Flag(default=False, help="Taken and not needed: of several replicas one leads, always."),
    "enable-esx-maintenance": Flag(default=False, help="Not there yet: refused."),
    "enable-kubernikus-maintenance": Flag(default=False, help="Not there yet: refused."),
    "metrics-addr": Flag(":8080", "Where /metrics and /api/v1/info are served."),
    "metrics-timeout": Flag("65s", "How long these are served at the end, until /metrics was read once more."),
    "pprof-addr": Flag("", "Taken and of no effect: there is no Go profile of a Python process."),
    "zap-devel": Flag(default=True, help="Whether the log is text; else it is JSON."),
    "zap-encoder": Flag("", "The form of the log: json or console."),
    "zap-log-level": Flag("", "How much is logged: debug, info, error, panic, or a number. [default: info]"),
    "zap-stacktrace-level": Flag("", "Taken and of no effect."),
    "zap-time-encoding": Flag("", "Taken and of no effect: times are ISO 8601."),
}


def _help() -> str:
    lines = [f"  -{name}\n      {flag.help}" for name, flag in sorted(_FLAGS.items())]
    return "\n".join(["\b\nFlags, in the syntax of Go, with one dash or two:", *lines])


@click.command(
    "maintenance-controller",
    short_help="Run the operator, with the flags of the SAP maintenance-controller.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,  # its -h would be found in -health-addr
    epilog=_help(),
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
@click.pass_context
def maintenance_controller(ctx: click.Context, args: tuple[str, ...]) -> None:
    """Run the operator until Ctrl-C or SIGTERM, as `haulout run` does.

    It reads ./config/maintenance.yaml and takes the flags of the SAP maintenance-controller, so that a Deployment of it
    changes only its image and its command. It does not start without a configuration.
    """
    if not _HELP.isdisjoint(args):
        click.echo(ctx.get_help())
        return
    from pathlib import Path

    from haulout.app.configured import USUAL
    from haulout.cli.operate import Wishes, operate

    given = parse(args, _FLAGS)
    for name in ("enable-esx-maintenance", "enable-kubernikus-maintenance"):
        if given[name]:
            raise UsageError(f"-{name}: this integration is not there yet; run the SAP maintenance-controller for it")
    wishes = Wishes(
        namespace=None,
        webhook=None,
        health_port=_address("health-addr", given).port,
        metrics=_address("metrics-addr", given),
        lingers=_time("metrics-timeout", given),
        guards_quorum=True,
    )
    operate(
        wishes,
        kubeconfig=str(given["kubeconfig"]) or None,
        context=str(given["kubecontext"]) or os.environ.get("KUBECONTEXT"),
        as_json=_is_json(str(given["zap-encoder"]), is_devel=bool(given["zap-devel"])),
        config=Path(str(given["config"]) or USUAL),
        level=_level(str(given["zap-log-level"])),
    )


def _address(flag: str, given: Mapping[str, str | bool]) -> "Address":
    from haulout.web.listening import Address

    try:
        return Address.parse(str(given[flag]))
    except UsageError as error:
        raise UsageError(f"-{flag}: {error}") from None


def _time(flag: str, given: Mapping[str, str | bool]) -> timedelta:
    try:
        return duration.parse(str(given[flag]))
    except ValueError as error:
        raise UsageError(f"-{flag}: expected a duration such as 65s: {error}") from None


def _is_json(encoder: str, *, is_devel: bool) -> bool:
    if encoder not in ("", "json", "console"):
        raise UsageError(f"-zap-encoder: expected json or console, found {encoder!r}")
    return encoder == "json" or (not encoder and not is_devel)


def _level(text: str) -> int:
    if not text:
        return _LEVELS["info"]
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return _LEVELS["debug"]
    raise UsageError(f"-zap-log-level: expected debug, info, error, panic or a number from 1, found {text!r}")
