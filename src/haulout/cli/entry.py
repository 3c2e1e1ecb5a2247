"""The root command, and what an error looks like to the one who typed it.

Whatever the cluster, a file or a proxy in between does, a person sees one line that begins with `haulout:`, and what
others wrote into it cannot take over the terminal. A traceback means a bug in Haulout, or that somebody asked for it
with -v.
"""

import io
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import NoReturn

import click

from haulout import __version__
from haulout.cli import options
from haulout.cli.terminal import printable
from haulout.errors import ConfigError, ConfigErrors, HauloutError, UsageError

FAILED = 1
MISUSED = 2
INTERRUPTED = 128 + 2  # as a shell reports a process that SIGINT ended


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `args` (by default the process's own) and exit."""
    _occupy_standard_files()
    sys.exit(_exit_code(args))


_COMMANDS = {  # by name: where it is
    "agent": "agent",
    "approve": "approve",
    "check": "check",
    "cluster-info": "cluster_info",
    "cordon": "cordon",
    "doctor": "doctor",
    "drain": "drain",
    "gather": "gather",
    "history": "history",
    "hold": "hold",
    "maintenance-controller": "maintenance_controller",
    "manifests": "manifests",
    "notice": "notice",
    "oci": "oci",
    "release": "hold",
    "run": "run",
    "runtime-extension-maintenance-controller": "runtime_extension_maintenance_controller",
    "status": "status",
    "top": "top",
    "uncordon": "cordon",
    "version": "version",
    "why": "why",
}


class _Commands(MutableMapping[str, click.Command]):
    """All commands; each is loaded when somebody asks for it, as an operator has no use for the others."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        self._added: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._added:
            module = import_module(f"haulout.cli.{self._places[name]}")
            self._added[name] = getattr(module, name.replace("-", "_"))
        return self._added[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._places[name], self._added[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._added.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@click.group(
    commands=_Commands(_COMMANDS), invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="haulout %(version)s")
@options.verbose
@click.pass_context
def haulout(ctx: click.Context) -> None:
    """Node maintenance for Kubernetes: cordon, drain, repair and return nodes.

    Exit codes: 0 all is well; 1 something is missing, refused or out of reach; 2 the command line or a file it names
    makes no sense; 130 interrupted; 143 terminated.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _exit_code(args: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal cannot show must not end the command half-way.
        sys.stdout.reconfigure(errors="backslashreplace")
    said: dict[str, int] = {}
    try:
        return haulout.main(args=args, prog_name="haulout", standalone_mode=False, obj=said) or 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        _complain(_usage(error) if isinstance(error, click.UsageError) else error.format_message())
        return error.exit_code
    except HauloutError as error:
        _log(error, said)
        for each in error.errors if isinstance(error, ConfigErrors) else [error]:
            _complain(str(each))
        return MISUSED if isinstance(error, UsageError | ConfigError) else FAILED
    except OSError as error:  # what else touches files and the network says so in a HauloutError
        sys.stdout = io.StringIO()  # or Python would try again at its end, and complain itself
        _log(error, said)
        _complain(f"writing the output: {error.strerror or error}")
        return FAILED


def _usage(error: click.UsageError) -> str:
    message = error.format_message()
    end = "" if message.endswith((".", "?", "!", ")")) else "."
    return f"{message}{end} See '{error.ctx.command_path} --help'." if error.ctx else message


def _occupy_standard_files() -> None:
    """Open what was closed of 0, 1 and 2: the next file to get such a number would be taken for a terminal's."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def _complain(message: str) -> None:
    click.echo(f"haulout: {printable(' '.join(message.split()))}", err=True)


def _log(error: Exception, said: Mapping[str, int]) -> None:
    """Log where an error came from, for those who asked: an operator has a log without being asked for it."""
    if not said.get(options.VERBOSITY):
        return
    import logging

    logging.getLogger("haulout").info("where the error came from:", exc_info=error)
