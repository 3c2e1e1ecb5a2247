"""`python -m chaos`: runs rounds of faults for a given time, then prints the table and the commands to replay."""

import asyncio
import json
import os
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click

from chaos import report, suite
from chaos.faults import CLASSES
from chaos.invariants import find_violations
from chaos.patched_operator import SABOTAGE
from chaos.recording import load
from chaos.round_runner import RULES, run_round

_ROOT = Path(__file__).parents[2]
_RELIABILITY_PAGE = _ROOT / "docs" / "operations" / "reliability.md"


@click.group()
def main() -> None:
    """Inject faults into a real control plane and into the operator, and judge what happens."""


@main.command()
def classes() -> None:
    """List the fault classes."""
    for name, fault in CLASSES.items():
        click.echo(f"{name:20} {(fault.__doc__ or '').splitlines()[0]}")


@main.command()
@click.option("--minutes", type=float, default=25, help="Start no round after this.", show_default=True)
@click.option("--seed", type=int, default=1, help="Of the first round of each class.", show_default=True)
@click.option("--classes", "names", default="", help="Classes, or how their names begin. [default: all]")
@click.option("--rounds", type=int, help="At most so many of each class. [default: as many as there is time for]")
@click.option("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="Rounds at a time.", show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), default=_ROOT / ".chaos", help="Where reports are kept.")
@click.option("--write", is_flag=True, help="Write the table into docs/operations/reliability.md.")
@click.option("--sabotage", type=click.Choice(list(SABOTAGE)), default=None, help="Break the operator on purpose.")
def run(
    *,
    minutes: float,
    seed: int,
    names: str,
    rounds: int | None,
    jobs: int,
    folder: Path,
    write: bool,
    sabotage: str | None,
) -> None:
    """Run rounds of all classes in turn. Exit with 1 if any violates an invariant."""
    try:
        wanted = suite.select_classes(names)
    except suite.UnknownClass as problem:
        raise click.UsageError(str(problem)) from None
    plan = suite.SuitePlan(
        classes=wanted,
        seed=seed,
        within=timedelta(minutes=minutes),
        rounds=rounds,
        jobs=jobs,
        folder=folder,
        sabotage=sabotage or "",
    )
    found = asyncio.run(suite.run(plan, _print_round))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report.summary(found), indent=2))
    content = report.table(found, CLASSES)
    click.echo(content)
    if write:
        _RELIABILITY_PAGE.write_text(report.insert_table(_RELIABILITY_PAGE.read_text(), content))
    for round_ in found.rounds:
        if round_.violations:
            click.echo(f"again: {round_.replay}")
    sys.exit(1 if found.violations else 0)


@main.command("round")
@click.argument("fault", type=click.Choice(list(CLASSES)))
@click.argument("seed", type=int)
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="Where its recording is kept.")
@click.option("--sabotage", type=click.Choice(list(SABOTAGE)), default=None, help="Break the operator on purpose.")
def one_round(fault: str, seed: int, folder: Path, sabotage: str | None) -> None:
    """Run one round, print its result as JSON, and exit with 1 if it violates an invariant."""
    result = asyncio.run(run_round(fault, seed=seed, folder=folder, sabotage=sabotage or ""))
    click.echo(json.dumps(asdict(result), indent=2))
    sys.exit(1 if result.violations else 0)


@main.command("judge")
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def judge_again(folder: Path) -> None:
    """Judge the recording that a round left in FOLDER."""
    for violation in find_violations(load(folder), RULES):
        click.echo(violation)


def _print_round(done: report.Round, stderr: str) -> None:
    took = "never" if done.recovery_seconds is None else f"{done.recovery_seconds:.1f} s"
    click.echo(f"{done.fault} {done.seed}: recovery {took}, {report.count(len(done.violations), 'violation')}")
    for violation in done.violations:
        click.echo(f"  {violation}")
    if done.violations and stderr:
        click.echo(stderr, err=True)


if __name__ == "__main__":
    main(prog_name="python -m chaos")
