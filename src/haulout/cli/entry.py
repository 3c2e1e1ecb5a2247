"""The root command, and the output of errors.

Whatever the cluster, a file or a proxy does, users see one line that begins with `haulout:`, and text from other
sources cannot control the terminal. A traceback means a bug in Haulout, or the flag -v.
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
from haulout.cli.output import printable
from haulout.errors import ConfigError, ConfigErrors, HauloutError, UsageError

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 128 + 2  # the exit code that shells use for SIGINT


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `args` (by default that of the process) and exit."""
    _reopen_standard_streams()
    sys.exit(_exit_code(args))


_COMMAND_MODULES = {  # module by command
    "agent": "agent",
    "approve": "approve.command",
    "check": "check.command",
    "cluster-info": "cluster_info.command",
    "cordon": "cordon.command",
    "doctor": "doctor.command",
    "drain": "drain.command",
    "freeze": "freeze.command",
    "gather": "gather.command",
    "history": "history.command",
    "hold": "hold.command",
    "maintenance-controller": "maintenance_controller",
    "manifests": "manifests",
    "notice": "notice.command",
    "oci": "oci",
    "release": "hold.command",
    "run": "run.command",
    "runtime-extension-maintenance-controller": "runtime_extension_maintenance_controller",
    "status": "status.command",
    "top": "top.command",
    "uncordon": "cordon.command",
    "unfreeze": "freeze.command",
    "version": "version",
    "why": "why.command",
}


class _LazyCommands(MutableMapping[str, click.Command]):
    """All commands; each is imported at its first use, because an operator needs only one."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = import_module(f"haulout.cli.{self._modules[name]}")
            self._loaded[name] = getattr(module, name.replace("-", "_"))
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules[name], self._loaded[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


@click.group(
    commands=_LazyCommands(_COMMAND_MODULES),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="haulout %(version)s")
@options.verbose_option
@click.pass_context
def haulout(ctx: click.Context) -> None:
    """Node maintenance for Kubernetes: cordon, drain, repair and return nodes.

    Exit codes: 0 success; 1 something is missing, refused or unreachable; 2 invalid command line or input file; 130
    interrupted; 143 terminated.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _exit_code(args: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Output that the terminal cannot encode must not end the command half-way.
        sys.stdout.reconfigure(errors="backslashreplace")
    shared_state: dict[str, int] = {}
    try:
        return haulout.main(args=args, prog_name="haulout", standalone_mode=False, obj=shared_state) or 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        _print_error(_usage_message(error) if isinstance(error, click.UsageError) else error.format_message())
        return error.exit_code
    except HauloutError as error:
        _log_traceback(error, shared_state)
        for problem in error.errors if isinstance(error, ConfigErrors) else [error]:
            _print_error(str(problem))
        return USAGE_ERROR if isinstance(error, UsageError | ConfigError) else FAILED
    except OSError as error:  # all other file and network errors are a HauloutError
        sys.stdout = io.StringIO()  # or Python would flush again at exit, and print its own error
        _log_traceback(error, shared_state)
        _print_error(f"writing the output: {error.strerror or error}")
        return FAILED


def _usage_message(error: click.UsageError) -> str:
    message = error.format_message()
    end = "" if message.endswith((".", "?", "!", ")")) else "."
    return f"{message}{end} See '{error.ctx.command_path} --help'." if error.ctx else message


def _reopen_standard_streams() -> None:
    """Open closed standard streams: otherwise the next opened file would get their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _print_error(message: str) -> None:
    click.echo(f"haulout: {printable(' '.join(message.split()))}", err=True)


def _log_traceback(error: Exception, shared_state: Mapping[str, int]) -> None:
    """Log the traceback of an error, but only with -v."""
    if not shared_state.get(options.VERBOSITY):
        return
    import logging

    logging.getLogger("haulout").info("where the error came from:", exc_info=error)
