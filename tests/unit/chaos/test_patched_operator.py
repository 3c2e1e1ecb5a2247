"""The operator as `make chaos` runs it."""

import os
import random
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.patched_operator import SABOTAGE
from chaos.proxy import Proxy
from chaos.replicas import TESTS, Replica


@pytest.mark.parametrize("sabotage", ["", *SABOTAGE])
def test_each_sabotage_patch_applies_to_the_operator(sabotage: str, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("-7200")
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "CHAOS_SABOTAGE": sabotage, "CHAOS_CLOCK": str(clock)}
    command = [sys.executable, "-m", "chaos.patched_operator", "run", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        ("12:00:01 INFO    leads now\n", []),
        (
            "12:00:01 ERROR   it broke\n    Traceback (most recent call last):\n    KeyError: 1\n",
            ["12:00:01 ERROR   it broke"],
        ),
        ("Traceback (most recent call last):\nKeyError: 1\n", [""]),
    ],
)
async def test_tracebacks_in_replica_logs_are_found(tmp_path: Path, logged: str, found: list[str]) -> None:
    proxy = Proxy("https://127.0.0.1", ssl.create_default_context(), "secret", random.Random(1))
    (tmp_path / "haulout-0.log").write_text(logged)
    assert Replica("haulout-0", proxy, folder=tmp_path).tracebacks() == found
