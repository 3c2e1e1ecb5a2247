"""`haulout doctor`: find leftovers of Haulout whose owners are deleted, and repair them on request."""

import sys
from typing import TYPE_CHECKING

import click

from haulout.cli import options

if TYPE_CHECKING:  # heavy: imported at use
    from haulout.cli.doctor.leftovers import Examination


@click.command("doctor", short_help="Find and repair leftovers of maintenance on nodes.")
@click.option("--repair", is_flag=True, help="Repair the findings, after confirmation.")
@click.option("-y", "--yes", is_flag=True, help="With --repair: do not ask for confirmation.")
@options.cluster_options
@options.output_option
@options.verbose_option
@click.pass_context
def doctor(
    ctx: click.Context,
    *,
    repair: bool,
    yes: bool,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Find leftovers of Haulout: annotations, taints, labels, cordons, budget slots and leases without an owner.

    Whatever an existing NodeMaintenance, profile or other owner holds is not touched. Objects that you may not read are
    listed, but not checked.

    \b
    Exit codes:
      0  everything was checked, and there are no leftovers
      1  there are leftovers, or something could not be repaired or checked
      2  the command line or the kubeconfig is invalid
      130  interrupted, or the repair was not confirmed

    \b
    With -o json, fields are only ever added:
      findings: [{object, problem, since, remedy, repaired, error}]
                since is null if unknown, repaired is null without --repair
      notChecked: [text]
    """  # noqa: D301 - click does not rewrap a paragraph after \b
    if yes and not repair:
        raise click.UsageError("--yes requires --repair")
    if repair and not yes and (output == "json" or not sys.stdin.isatty()):
        raise click.UsageError("--repair asks before it changes anything: use a terminal and -o text, or --yes")
    from haulout.cli.connect import connect, run
    from haulout.cli.doctor import leftovers
    from haulout.errors import KubeError

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            examination = await leftovers.examine(session.client, namespace=namespace)
            if output == "text":
                _print(examination)
            needs_repair = repair and bool(examination.findings)
            if needs_repair and not yes:
                click.confirm("Repair all findings?", abort=True, err=True)
            errors: list[str | None] = [None] * len(examination.findings)
            for number, finding in enumerate(examination.findings if needs_repair else ()):
                try:
                    await leftovers.repair(session.client, finding, namespace=namespace)
                    errors[number] = ""
                except KubeError as error:
                    errors[number] = str(error)
            if output == "json":
                click.echo(_as_json(examination, errors))
            elif needs_repair:
                _print_repairs(examination, errors)
            return not examination.notes and all(repair_error == "" for repair_error in errors)

    ctx.exit(0 if run(main()) else 1)


def _print(examination: "Examination") -> None:
    from haulout.cli.output import format_table, printable

    for note in examination.notes:
        click.echo(printable(f"not checked: {note}"), err=True)
    if not examination.findings:
        click.echo("No leftovers found.")
        return
    rows = [("OBJECT", "PROBLEM", "SINCE", "REPAIR")]
    for finding in examination.findings:
        since = f"{finding.since:%Y-%m-%d %H:%M:%S} UTC" if finding.since else "unknown"
        rows.append((finding.object_name, finding.problem, since, finding.remedy))
    for line in format_table([tuple(map(printable, row)) for row in rows]):
        click.echo(line)


def _print_repairs(examination: "Examination", errors: "list[str | None]") -> None:
    from haulout.cli.output import printable

    for finding, error in zip(examination.findings, errors, strict=True):
        if error:
            click.echo(printable(f"error: {finding.object_name}: {error}"), err=True)
        else:
            click.echo(printable(f"{finding.object_name} repaired"))


def _as_json(examination: "Examination", errors: "list[str | None]") -> str:
    import json

    findings = [
        {
            "object": finding.object_name,
            "problem": finding.problem,
            "since": None if finding.since is None else finding.since.isoformat(),
            "remedy": finding.remedy,
            "repaired": None if error is None else not error,
            "error": error or "",
        }
        for finding, error in zip(examination.findings, errors, strict=True)
    ]
    return json.dumps({"findings": findings, "notChecked": list(examination.notes)}, indent=2)
