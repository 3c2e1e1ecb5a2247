"""`haulout doctor`: find what Haulout left behind for owners that are no more, and repair it if asked to."""

import sys
from typing import TYPE_CHECKING

import click

from haulout.cli import options

if TYPE_CHECKING:  # heavy: imported when it is needed
    from haulout.cli.leftovers import Examination


@click.command("doctor", short_help="Find and repair what was left behind on nodes.")
@click.option("--repair", is_flag=True, help="Repair what is found, after a question.")
@click.option("-y", "--yes", is_flag=True, help="With --repair: do not ask.")
@options.cluster
@options.output
@options.verbose
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
    """Find marks, taints, labels, cordons, budget slots and leases of Haulout that nobody holds.

    What a NodeMaintenance, a profile or another live owner holds is left alone. What you may not see is not checked,
    and said.

    \b
    Exit codes:
      0  all could be checked, and nothing is left behind any more
      1  something is left behind, could not be repaired or not be checked
      2  the command line or the kubeconfig makes no sense
      130  interrupted, or the question was answered with no

    \b
    With -o json, fields are only ever added:
      findings: [{object, problem, since, remedy, repaired, error}]
                since is null if nobody knows, repaired is null without --repair
      notChecked: [text]
    """  # noqa: D301 - \b is click's mark for a paragraph to leave as it is
    if yes and not repair:
        raise click.UsageError("--yes goes with --repair")
    if repair and not yes and (output == "json" or not sys.stdin.isatty()):
        raise click.UsageError("--repair asks before it changes anything: use a terminal and -o text, or --yes")
    from haulout.cli import leftovers
    from haulout.cli.connect import connect, run
    from haulout.errors import KubeError

    async def main() -> bool:
        async with connect(kubeconfig=kubeconfig, context=context) as session:
            found = await leftovers.examine(session.client, namespace=namespace)
            if output == "text":
                _print(found)
            is_wanted = repair and bool(found.findings)
            if is_wanted and not yes:
                click.confirm("Repair all of this?", abort=True, err=True)
            errors: list[str | None] = [None] * len(found.findings)
            for number, finding in enumerate(found.findings if is_wanted else ()):
                try:
                    await leftovers.repair(session.client, finding, namespace=namespace)
                    errors[number] = ""
                except KubeError as error:
                    errors[number] = str(error)
            if output == "json":
                click.echo(_as_json(found, errors))
            elif is_wanted:
                _print_repairs(found, errors)
            return not found.notes and all(it == "" for it in errors)

    ctx.exit(0 if run(main()) else 1)


def _print(found: "Examination") -> None:
    from haulout.cli.tables import columns
    from haulout.cli.terminal import printable

    for note in found.notes:
        click.echo(printable(f"not checked: {note}"), err=True)
    if not found.findings:
        click.echo("Nothing is left behind.")
        return
    rows = [("OBJECT", "PROBLEM", "SINCE", "REPAIR")]
    for it in found.findings:
        since = f"{it.since:%Y-%m-%d %H:%M:%S} UTC" if it.since else "unknown"
        rows.append((it.about, it.problem, since, it.remedy))
    for line in columns([tuple(map(printable, row)) for row in rows]):
        click.echo(line)


def _print_repairs(found: "Examination", errors: "list[str | None]") -> None:
    from haulout.cli.terminal import printable

    for it, error in zip(found.findings, errors, strict=True):
        if error:
            click.echo(printable(f"error: {it.about}: {error}"), err=True)
        else:
            click.echo(printable(f"{it.about} repaired"))


def _as_json(found: "Examination", errors: "list[str | None]") -> str:
    import json

    findings = [
        {
            "object": it.about,
            "problem": it.problem,
            "since": None if it.since is None else it.since.isoformat(),
            "remedy": it.remedy,
            "repaired": None if error is None else not error,
            "error": error or "",
        }
        for it, error in zip(found.findings, errors, strict=True)
    ]
    return json.dumps({"findings": findings, "notChecked": list(found.notes)}, indent=2)
