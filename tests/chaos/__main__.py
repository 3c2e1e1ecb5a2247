"""`python -m chaos`: rounds of faults until the time is over, the table, and what to replay."""

import asyncio
import json
import sys
from pathlib import Path

import click

from chaos.faults import CLASSES
from chaos.rounds import run_round


@click.group()
def main() -> None:
    """Inject faults into a real control plane and into the operator, and judge what happens."""


@main.command("round")
@click.argument("fault", type=click.Choice(list(CLASSES)))
@click.argument("seed", type=int)
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--sabotage", default="")
def one_round(fault: str, seed: int, folder: Path, sabotage: str) -> None:
    """Run one round, print its result as JSON, and exit with 1 if it has violations."""
    result = asyncio.run(run_round(fault, seed=seed, folder=folder, sabotage=sabotage))
    click.echo(json.dumps(result.to_json(), indent=2))
    sys.exit(1 if result.violations else 0)


if __name__ == "__main__":
    main(prog_name="python -m chaos")
