"""The root command, and what an error looks like to the one who typed it.

Whatever the cluster, a file or a proxy in between does, a person sees one line that begins with `haulout:`, and what
others wrote into it cannot take over the terminal. A traceback means a bug in Haulout, or that somebody asked for it
with -v.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from haulout.cli import options
from haulout.cli.check import check
from haulout.cli.cluster_info import cluster_info
from haulout.cli.cordon import cordon, uncordon
from haulout.cli.drain import drain
from haulout.cli.history import history
from haulout.cli.maintenance_controller import maintenance_controller
from haulout.cli.manifests import manifests
from haulout.cli.run import run
from haulout.cli.status import status
from haulout.cli.terminal import printable
from haulout.cli.version import version
from haulout.cli.why import why
from haulout.errors import ConfigError, ConfigErrors, HauloutError, UsageError

FAILED = 1
MISUSED = 2
INTERRUPTED = 128 + 2  # as a shell reports a process that SIGINT ended


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line `args` (by default the process's own) and exit."""
    _occupy_standard_files()
    sys.exit(_exit_code(args))


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="haulout", message="haulout %(version)s")
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


haulout.add_command(check)
haulout.add_command(cluster_info)
haulout.add_command(cordon)
haulout.add_command(drain)
haulout.add_command(history)
haulout.add_command(maintenance_controller)
haulout.add_command(manifests)
haulout.add_command(run)
haulout.add_command(status)
haulout.add_command(uncordon)
haulout.add_command(version)
haulout.add_command(why)


def _exit_code(args: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal cannot show must not end the command half-way.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return haulout.main(args=args, prog_name="haulout", standalone_mode=False) or 0
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        _complain(_usage(error) if isinstance(error, click.UsageError) else error.format_message())
        return error.exit_code
    except HauloutError as error:
        _log(error)
        for each in error.errors if isinstance(error, ConfigErrors) else [error]:
            _complain(str(each))
        return MISUSED if isinstance(error, UsageError | ConfigError) else FAILED
    except OSError as error:  # what else touches files and the network says so in a HauloutError
        sys.stdout = io.StringIO()  # or Python would try again at its end, and complain itself
        _log(error)
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


def _log(error: Exception) -> None:
    import logging

    logging.getLogger("haulout").info("where the error came from:", exc_info=error)
