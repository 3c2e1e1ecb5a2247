"""Tests that start servers at the same time use different ports."""

import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.ports import claim_block, free_ports
from controlplane.server_process import ControlPlaneError

TESTS = Path(__file__).parents[2]


def test_two_processes_never_choose_the_same_port() -> None:
    mine = free_ports(100)
    script = "from controlplane.ports import free_ports; print(*free_ports(100))"
    theirs = subprocess.run(
        [sys.executable, "-c", script], cwd=TESTS, capture_output=True, text=True, check=True
    ).stdout
    assert not set(mine) & set(map(int, theirs.split()))


def test_ports_are_claimed_until_none_are_left(tmp_path: Path) -> None:
    claimed = [claim_block(tmp_path) for _ in range(32)]
    assert len({port for block in claimed for port in block}) == sum(map(len, claimed)) > 12_000
    with pytest.raises(ControlPlaneError, match="32 processes have all ports"):
        claim_block(tmp_path)


def test_the_ports_of_a_process_that_ended_are_given_again(tmp_path: Path) -> None:
    script = (
        f"from pathlib import Path; from controlplane.ports import *; print(claim_block(Path({str(tmp_path)!r}))[0])"
    )
    first = subprocess.run([sys.executable, "-c", script], cwd=TESTS, capture_output=True, text=True, check=True).stdout
    assert claim_block(tmp_path)[0] == int(first)


def test_consecutive_calls_return_different_ports() -> None:
    assert not set(free_ports(100)) & set(free_ports(100))
