"""Runs rounds, several at a time and each in its own process, until the time is over."""

import asyncio
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from chaos.faults import CLASSES
from chaos.replicas import TESTS
from chaos.report import Round, Run
from controlplane import assets
from haulout.core.clock import RealClock

_ROUND_WITHIN = timedelta(minutes=10)
_MAX_STDERR = 2000


class UnknownClass(ValueError):
    """No fault class has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """Which rounds to run."""

    classes: Sequence[str]
    seed: int
    within: timedelta
    rounds: int | None  # of each class, at most
    jobs: int
    folder: Path
    sabotage: str = ""


def select_classes(text: str) -> list[str]:
    """Return the classes that a comma-separated list names, each by its name or how that begins; empty: all."""
    found: list[str] = []
    for name in filter(None, (candidate.strip() for candidate in text.split(","))):
        matching = [candidate for candidate in CLASSES if candidate == name or candidate.startswith(f"{name}-")]
        if not matching:
            raise UnknownClass(f"no class is called {name}; there are {', '.join(CLASSES)}")
        found += [candidate for candidate in matching if candidate not in found]
    return found or list(CLASSES)


async def run(plan: SuitePlan, on_round: Callable[[Round, str], None]) -> Run:
    """Run all rounds of a plan; call `on_round` with each, and with the end of what its process wrote to stderr."""
    clock = RealClock()
    until = clock.monotonic() + plan.within.total_seconds()
    pending = _schedule(plan)
    done: list[Round] = []

    async def work() -> None:
        while clock.monotonic() < until and (job := next(pending, None)) is not None:
            found, stderr = await _run_one(plan, *job)
            done.append(found)
            on_round(found, stderr)

    async with asyncio.TaskGroup() as group:
        for _ in range(plan.jobs):
            group.create_task(work())
    return Run(day=clock.now().date(), kubernetes=_kubernetes(), machine=_machine(), rounds=done)


def _schedule(plan: SuitePlan) -> Iterator[tuple[str, int]]:
    turns = itertools.count() if plan.rounds is None else range(plan.rounds)
    return ((name, plan.seed + turn) for turn in turns for name in plan.classes)


async def _run_one(plan: SuitePlan, fault: str, seed: int) -> tuple[Round, str]:
    folder = plan.folder / f"{fault}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "chaos", "round", fault, str(seed), "--folder", str(folder)]
    command += ["--sabotage", plan.sabotage] if plan.sabotage else []
    process = await asyncio.create_subprocess_exec(
        *command, cwd=TESTS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = b"", b""
    try:
        async with asyncio.timeout(_ROUND_WITHIN.total_seconds()):
            out, error = await process.communicate()
    except TimeoutError:
        error = f"the round takes longer than {_ROUND_WITHIN}".encode()
    finally:
        if process.returncode is None:
            process.kill()  # its replicas and its control plane end with it
            await process.wait()
    stderr = error.decode(errors="replace")[-_MAX_STDERR:]
    try:
        result = Round(**json.loads(out))
    except ValueError:
        return Round(fault=fault, seed=seed, violations=["round: it did not come to its end"]), stderr
    if not result.violations:
        shutil.rmtree(folder, ignore_errors=True)
    return result, stderr


def _kubernetes() -> str:
    command = [str(assets.find().path("kube-apiserver")), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB"
