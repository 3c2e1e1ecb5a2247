"""A command line for kubectl has the same meaning here."""

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


def output_of(*args: str) -> str:
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
def test_optional_bool_flag_accepts_a_value_only_with_an_equals_sign(args: list[str], force: bool | None) -> None:  # noqa: FBT001 - a table
    assert output_of(*args) == f"{force} none n1"


def test_dry_run_without_a_value_means_client() -> None:
    assert output_of("--dry-run", "n1") == "None client n1"
    assert output_of("--dry-run=server", "n1") == "None server n1"
    assert "'maybe' is not one of 'none', 'client', 'server'" in output_of("--dry-run=maybe", "n1")


def test_arguments_after_a_double_dash_are_node_names() -> None:
    assert output_of("--", "--force") == "None none --force"


def test_invalid_boolean_value_is_a_usage_error() -> None:
    assert "'perhaps' is not a valid boolean" in output_of("--force=perhaps", "n1")


def test_optional_bool_flag_has_no_value_in_the_help() -> None:
    help_text = CliRunner().invoke(example, ["--help"]).output
    assert "  --force  " in help_text


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "expected node names or -l SELECTOR"),
        (["n1", "-l", "a=b"], "cannot specify both a node name and a --selector option"),
        (["-l", " "], "an empty --selector would select all nodes"),
    ],
)
def test_nodes_are_selected_by_name_or_by_selector_but_not_both(args: list[str], problem: str) -> None:
    assert problem in output_of(*args)
