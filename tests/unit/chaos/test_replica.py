"""The operator as `make chaos` runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.replica import SABOTAGE
from chaos.replicas import TESTS


@pytest.mark.parametrize("sabotage", ["", *SABOTAGE])
def test_every_way_to_break_the_operator_finds_what_it_breaks(sabotage: str, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("-7200")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "CHAOS_SABOTAGE": sabotage, "CHAOS_CLOCK": str(clock)}
    command = [sys.executable, "-m", "chaos.replica", "run", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")
