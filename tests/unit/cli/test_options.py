"""A line written for kubectl means the same here."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from haulout.cli.options import KubectlCommand, OptionalBoolOption, check_node_options, dry_run_option, node_options


@click.command(cls=KubectlCommand)
@node_options
@click.option("--force", cls=OptionalBoolOption, help="Do it.")
@dry_run_option
def example(**given: Any) -> None:
    check_node_options(given["nodes"], given["selector"])
    click.echo(f"{given['force']} {given['dry_run']} {' '.join(given['nodes'])}")


def said(*args: str) -> str:
    done = CliRunner().invoke(example, args)
    return done.output.strip()


@pytest.mark.parametrize(
    ("args", "force"),
    [
        (["n1"], None),
        (["--force", "n1"], True),
        (["n1", "--force"], True),
        (["--force=true", "n1"], True),
        (["--force=false", "n1"], False),
        (["--force=f", "n1"], False),
        (["n1", "--force", "--force=false"], False),
    ],
)
def test_a_switch_may_have_a_value_and_never_takes_the_next_word(args: list[str], force: bool | None) -> None:  # noqa: FBT001 - a table
    assert said(*args) == f"{force} none n1"


def test_a_dry_run_is_the_clients_unless_it_says_more() -> None:
    assert said("--dry-run", "n1") == "None client n1"
    assert said("--dry-run=server", "n1") == "None server n1"
    assert "'maybe' is not one of 'none', 'client', 'server'" in said("--dry-run=maybe", "n1")


def test_what_stands_after_two_dashes_is_a_name() -> None:
    assert said("--", "--force") == "None none --force"


def test_a_switch_that_is_given_nonsense_says_so() -> None:
    assert "'perhaps' is not a valid boolean" in said("--force=perhaps", "n1")


def test_a_switch_looks_like_one_in_the_help() -> None:
    shown = CliRunner().invoke(example, ["--help"]).output
    assert "  --force  " in shown


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "give node names, or -l SELECTOR"),
        (["n1", "-l", "a=b"], "cannot specify both a node name and a --selector option"),
        (["-l", " "], "an empty --selector would select all nodes"),
    ],
)
def test_nodes_are_named_in_one_way(args: list[str], problem: str) -> None:
    assert problem in said(*args)
