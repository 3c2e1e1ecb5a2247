"""`haulout check`: validate a maintenance.yaml, and explain it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from haulout.cli import component_flags, options

if TYPE_CHECKING:
    from haulout.controllers.profiles.config.dry_run import DryRun

EXIT_OK, EXIT_WARNINGS, EXIT_ERRORS = 0, 1, 2


def read_input(file: str) -> bytes:
    """Return the content of a file, or of standard input for `-`; raise `ConfigErrors`."""
    from haulout.runtime.config_watcher import read_file

    return sys.stdin.buffer.read() if file == "-" else read_file(Path(file), file)


def print_schema(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the schema and exit; the callback of an option."""
    if not is_given:
        return
    from haulout.controllers.profiles.config.layout import schema_text
    from haulout.controllers.profiles.plugins.registry import registries

    click.echo(schema_text(registries()), nl=False)
    ctx.exit()


def print_default(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the default configuration and exit; the callback of an option."""
    if not is_given:
        return
    from haulout.controllers.profiles import default_profile

    click.echo(default_profile.text(), nl=False)
    ctx.exit()


@click.command("check", short_help="Check a maintenance.yaml, and explain what it does.")
@click.argument("file")
@component_flags.check_options
@click.option("-q", "--quiet", is_flag=True, help="Print only errors and warnings, no explanation.")
@click.option("--strict", is_flag=True, help="Exit with 1 if there are warnings.")
@click.option("--graph", is_flag=True, help="Print the profiles as Mermaid state diagrams instead.")
@click.option(
    "--permissions", is_flag=True, help="Print the permissions that the operator needs for these profiles instead."
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="haulout",
    show_default=True,
    callback=options.check_namespace,
    help="The namespace of the operator, for --permissions.",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_schema,
    help="Print the JSON schema of such files, for editors, and exit.",
)
@click.option(
    "--print-default",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_default,
    help="Print the default configuration, which applies without profiles, to copy and change, and exit.",
)
@options.variables_option
@click.option(
    "--ignore-env", is_flag=True, help="Assume that ${NAME} that are not set here are set where the operator runs."
)
@options.output_option
@options.verbose_option
@click.pass_context
def check(  # noqa: PLR0913 - one per option
    ctx: click.Context,
    *,
    file: str,
    kinds: Mapping[str, bool],
    quiet: bool,
    strict: bool,
    graph: bool,
    permissions: bool,
    namespace: str,
    variables: Mapping[str, str],
    ignore_env: bool,
    output: str,
) -> None:
    """Check FILE, a maintenance.yaml (- is standard input), and explain what it does to nodes. No cluster is needed.

    Files of some components are checked, too: there is an option for each.

    All errors are reported at once, each with its line, its key, the value found and the value expected. Warnings are
    about valid input that is probably a mistake: mistyped keys, unused instances, unreachable states.

    \b
    Exit codes:
      0  it can be used
      1  with --strict: it can be used, but there are warnings
      2  it cannot be used, or the command line is invalid

    \b
    With -o json, fields are only ever added:
      file, ok                                   ok: it can be used
      errors, warnings: [{line, key, problem}]   line and key may be null
      unset                                      variables that are needed and not set here
      requeue                                    null if there are errors, as are the next three
      profiles: [{name, selector, onNotice, states: [{state, reachable, enter, notify,
                  transitions: [{next, check, checks, trigger}]}]}]
      instances: [{family, name, type, options}] those that are used; without secrets
      permissions: [{verbs, group, resource, namespace, names, why, instances}]
                                                 namespace null: everywhere; no names: all
      budget: [{max, groupBy, selector}]         how many nodes may be out of service at once
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if graph and (output != "text" or permissions):
        other = "--permissions" if permissions else "--output"
        raise click.UsageError(f"--graph prints Mermaid, so it cannot be combined with {other}")
    import os

    from haulout.cli.check import check_text, component_file
    from haulout.controllers.profiles.config.dry_run import dry_run
    from haulout.controllers.profiles.plugins.registry import registries

    name = "standard input" if file == "-" else file
    if (component := component_file.component_of(file, kinds)) is not None:
        if graph or permissions or ignore_env:
            raise click.UsageError("--graph, --permissions and --ignore-env: only for a maintenance.yaml")
        environ = {**os.environ, **variables}
        errors, warnings = component_file.print_report(
            component, read_input(file), file=name, environ=environ, quiet=quiet, as_json=output == "json"
        )
        ctx.exit(EXIT_ERRORS if errors else EXIT_WARNINGS if strict and warnings else EXIT_OK)
    result = dry_run(
        read_input(file), registries(), {**os.environ, **variables}, file=name, assume_placeholders=ignore_env
    )
    if output == "json":
        click.echo(check_text.as_json(result, file=name, namespace=namespace))
    else:
        section = "graph" if graph else "permissions" if permissions else "" if quiet else "words"
        _print(result, file=name, assumed=ignore_env, section=section, namespace=namespace)
    exit_code = EXIT_WARNINGS if strict and result.warnings else EXIT_OK
    ctx.exit(EXIT_ERRORS if result.errors else exit_code)


def _print(result: "DryRun", *, file: str, assumed: bool, section: str, namespace: str) -> None:
    from haulout.cli import configuration_files
    from haulout.cli.check import check_text

    for line in check_text.finding_lines(result):
        click.echo(line, err=section == "graph")
    for line in check_text.unset_variable_hints(result, assumed=assumed):
        click.echo(line, err=True)
    if section == "permissions" and result.loaded is not None:
        configuration_files.print_permissions(result.loaded.configuration, namespace=namespace)
    elif section == "graph":
        click.echo(check_text.state_diagrams(result), nl=False)
    elif section:
        for line in check_text.explanation_lines(result, file=file):
            click.echo(line)
