"""`haulout version`: the installed version. `haulout cluster-info` shows the cluster's."""

import platform

import click

import haulout
from haulout.cli import options


@click.command
@options.output_option
def version(output: str) -> None:
    """Show the versions of Haulout and Python.

    With -o json: {"haulout": VERSION, "python": VERSION}.
    """
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode({"haulout": haulout.__version__, "python": platform.python_version()}))
    else:
        click.echo(f"haulout {haulout.__version__}, Python {platform.python_version()}")
