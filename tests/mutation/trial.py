"""Runs the tests of a line on a copy of the product in which that line is changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mutation.mutants import Mutant

_MAX_TESTS = 200  # of a line, the quickest: a change that none of them detects is rarely detected by others
_MIN_TIMEOUT_SECONDS = 30.0  # before a run counts as hanging
_TIMEOUT_FACTOR = 4.0
_TESTS_FAILED = 1
_NOT_COLLECTED = (2, 4)  # a test module cannot be imported; 4 if its tests are named one by one


class TrialResult(StrEnum):
    """The result of a mutant's tests."""

    KILLED = "killed"
    TIMED_OUT = "timed out"  # which counts as killed: the change is detected
    SURVIVED = "survived"
    NOT_REACHED = "not reached"
    EQUIVALENT = "equivalent"  # no test can detect it: not run, and not counted
    BROKEN = "broken"  # the tests could not be run


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant, and the result of its tests."""

    module: str
    mutant: Mutant
    result: TrialResult
    detail: str = ""

    @property
    def is_killed(self) -> bool:
        """Return whether a test noticed the change."""
        return self.result in (TrialResult.KILLED, TrialResult.TIMED_OUT)

    @property
    def is_alive(self) -> bool:
        """Return whether a test should notice the change, and none does."""
        return self.result in (TrialResult.SURVIVED, TrialResult.NOT_REACHED)


class SourceCopy:
    """A copy of the product, in which one module at a time is changed."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self._repository = repository
        self._source = folder / "src"
        shutil.copytree(repository / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, module: str, mutant: Mutant, tests: Mapping[str, float], *, max_seconds: float) -> Trial:
        """Run the tests of a mutant, each with the seconds that it takes without it.

        For `max_seconds` seconds at most.
        """
        if not tests:
            return Trial(module, mutant, TrialResult.NOT_REACHED)
        file = self._source / "haulout" / module
        original = file.read_text()
        file.write_text(mutant.source)
        try:
            chosen = _within_time(tests, max_seconds)
            seconds = max(_MIN_TIMEOUT_SECONDS, _TIMEOUT_FACTOR * sum(chosen.values()))
            return self._run(module, mutant, tuple(chosen), seconds)
        finally:
            file.write_text(original)

    def _run(self, module: str, mutant: Mutant, tests: tuple[str, ...], seconds: float) -> Trial:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._source), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command,
                cwd=self._repository,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Trial(module, mutant, TrialResult.TIMED_OUT)
        if done.returncode == 0:
            return Trial(module, mutant, TrialResult.SURVIVED, f"{len(tests)} tests")
        failed = next((line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        is_noticed = done.returncode == _TESTS_FAILED or (done.returncode in _NOT_COLLECTED and failed)
        result = TrialResult.KILLED if is_noticed else TrialResult.BROKEN
        return Trial(module, mutant, result, failed or done.stdout[-300:])


def _within_time(tests: Mapping[str, float], max_seconds: float) -> dict[str, float]:
    """Return the first tests, as many as may be run; at least one."""
    chosen: dict[str, float] = {}
    for test, seconds in list(tests.items())[:_MAX_TESTS]:
        if chosen and sum(chosen.values()) + seconds > max_seconds:
            break
        chosen[test] = seconds
    return chosen
