"""Runs one task in a process of its own, on one core, and hands back its numbers.

A fresh process has no memory that an earlier measurement left behind, and with a core to itself a client is not
disturbed by the server it talks to. Where there is only one core, they share it.

    python worker.py CORE TASK ARGUMENTS        arguments and numbers are JSON
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_TIMEOUT_SECONDS = 600


class TaskFailed(RuntimeError):
    """A measurement failed."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Which processes run on which cores."""

    client: int
    servers: frozenset[int]


def cores() -> Cores:
    """Give the client one core, and everybody else the others."""
    first, *others = sorted(os.sched_getaffinity(0))
    return Cores(first, frozenset(others or [first]))


def measure(task: str, **arguments: Any) -> dict[str, Any]:
    """Run `task` of `tasks` or `simulations` in a new process and return its numbers."""
    command = [sys.executable, __file__, str(cores().client), task, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise TaskFailed(f"measuring {task} with {arguments}:\n{done.stderr.strip()}")
    numbers: dict[str, Any] = json.loads(done.stdout)
    return numbers


def _main(core: str, task: str, arguments: str) -> None:
    import uvloop

    from simulations import SIMULATIONS
    from tasks import TASKS

    os.sched_setaffinity(0, {int(core)})
    decoded = json.loads(arguments)
    # What is simulated brings its own loop, and its own time.
    numbers = SIMULATIONS[task](**decoded) if task in SIMULATIONS else uvloop.run(TASKS[task](**decoded))
    json.dump(numbers, sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
