"""Lines of output: results go to standard output, all else to standard error."""

from dataclasses import dataclass

import click

from haulout.cli.terminal import printable


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of output."""

    text: str
    is_result: bool = False

    def print(self) -> None:
        click.echo(printable(self.text), err=not self.is_result)

    def print_unless_result(self) -> None:
        """Print to standard error, or not at all: for when standard output is for a program."""
        if not self.is_result:
            self.print()
