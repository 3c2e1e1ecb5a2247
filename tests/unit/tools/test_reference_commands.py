"""The reference page of commands is generated and up to date."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from haulout.cli.entry import haulout
from tools.reference.commands import PAGE, page

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def commands(parent: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in getattr(parent, "commands", {}).items():
        yield " ".join([*path, name]), command
        yield from commands(command, *path, name)


def test_reference_page_is_up_to_date() -> None:
    assert (REFERENCE / PAGE).read_text(encoding="utf-8") == page(REFERENCE), "make reference"


@pytest.mark.parametrize(("path", "command"), list(commands(haulout)))
def test_reference_lists_each_command_with_options_and_exit_codes(path: str, command: click.Command) -> None:
    section = re.search(rf"^## haulout {path}\n(.*?)(?=^## |\Z)", page(REFERENCE), re.DOTALL | re.MULTILINE)
    assert section
    options = {name for item in command.params if isinstance(item, click.Option) for name in item.opts}
    assert [item for item in options - {"-v", "--verbose"} if item not in section[1]] == []
    silent = isinstance(command, click.Group) or path in {"version", "maintenance-controller", "manifests"}
    assert silent or "Exit codes:" in section[1]


def test_reference_shows_defaults_in_their_own_column() -> None:
    row = next(line for line in page(REFERENCE).splitlines() if line.startswith("| `--speed"))
    assert row == "| `--speed FACTOR` | How many times faster than real time the cluster's clock runs. | 1 |"
