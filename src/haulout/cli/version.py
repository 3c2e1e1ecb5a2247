"""`haulout version`: what is installed here. What a cluster runs is told by `haulout cluster-info`."""

import platform

import click

import haulout
from haulout.cli import options


@click.command
@options.output_option
def version(output: str) -> None:
    """Show the version of Haulout and of Python.

    With -o json: {"haulout": VERSION, "python": VERSION}.
    """
    if output == "json":
        import msgspec

        click.echo(msgspec.json.encode({"haulout": haulout.__version__, "python": platform.python_version()}))
    else:
        click.echo(f"haulout {haulout.__version__}, Python {platform.python_version()}")
