"""The results of a run: the table for the documentation, and a report with the command that replays each violation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

BEGIN = "<!-- chaos: begin; written by `make chaos WRITE=1` -->"
END = "<!-- chaos: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of a round."""

    fault: str
    seed: int
    violations: Sequence[str] = ()
    recovery_seconds: float | None = None

    @property
    def replay(self) -> str:
        """The command that runs the same round again."""
        return f"make chaos CLASSES={self.fault} SEED={self.seed} ROUNDS=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All rounds of a run, and where they ran."""

    day: date
    kubernetes: str
    machine: str
    rounds: Sequence[Round]

    @property
    def violations(self) -> int:
        """How many violations there are."""
        return sum(len(round_.violations) for round_ in self.rounds)


def table(run: Run, classes: Iterable[str]) -> str:
    """Return the table, one line for each class that ran, as Markdown."""
    lines = ["| class | rounds | violations | recovery p50 | recovery p99 |", "| --- | ---: | ---: | ---: | ---: |"]
    for name in classes:
        rounds = [round_ for round_ in run.rounds if round_.fault == name]
        if not rounds:
            continue
        recovery_times = [round_.recovery_seconds for round_ in rounds if round_.recovery_seconds is not None]
        violations = sum(len(round_.violations) for round_ in rounds)
        cells = (
            f"`{name}`",
            str(len(rounds)),
            str(violations),
            _percentile(recovery_times, 50),
            _percentile(recovery_times, 99),
        )
        lines.append(f"| {' | '.join(cells)} |")
    seeds = sorted({round_.seed for round_ in run.rounds})
    among = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds))
    environment = f"{run.day.isoformat()}, Kubernetes {run.kubernetes}, {run.machine}"
    seed = f"seed{'s' if len(seeds) > 1 else ''} {among}"
    total = f"{count(len(run.rounds), 'round')}, {seed}, {count(run.violations, 'violation')}."
    return "\n".join([f"Measured on {environment}: {total}", "", *lines])


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def insert_table(page: str, content: str) -> str:
    """Return a page with this between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r} between which the table could stand")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def summary(run: Run) -> dict[str, Any]:
    """Return the run as JSON, with what to type to see each violation again."""
    return {
        "date": run.day.isoformat(),
        "kubernetes": run.kubernetes,
        "machine": run.machine,
        "rounds": [
            {
                "class": round_.fault,
                "seed": round_.seed,
                "recoverySeconds": round_.recovery_seconds,
                "violations": [*round_.violations],
            }
            for round_ in run.rounds
        ],
        "replay": [round_.replay for round_ in run.rounds if round_.violations],
    }


def _percentile(values: Sequence[float], percent: int) -> str:
    """Return the nearest-rank percentile in seconds; of a few values the 99th is the largest."""
    if not values:
        return "never"
    rank = max(math.ceil(percent / 100 * len(values)), 1)
    return f"{sorted(values)[rank - 1]:.1f} s"
