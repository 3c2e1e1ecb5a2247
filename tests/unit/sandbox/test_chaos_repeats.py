"""The same seed gives the same history, byte for byte, in any process and whatever befalls the cluster."""

import os
import subprocess
import sys
from pathlib import Path

import haulout

TESTS = Path(__file__).parents[2]
SOURCES = Path(haulout.__file__).parents[1]


def histories(*runs: tuple[int, str], story: str = "support.faults.seeded_chaos") -> list[str]:
    """Return the digests of stories, each by its seed and told in a process with its own hashes, all at once."""
    path = os.pathsep.join((str(TESTS), str(SOURCES)))
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", story, str(seed)],
            env={"PYTHONPATH": path, "PYTHONHASHSEED": hashes, "PATH": os.environ.get("PATH", os.defpath)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, hashes in runs
    ]
    told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(runs)
    return told


def test_the_same_seed_gives_the_same_history_though_hashes_differ_and_faults_strike() -> None:
    first, again, another = histories((7, "1"), (7, "2"), (8, "1"))
    assert first == again
    assert first != another
    assert int(first.split()[1]) > 200


def test_the_same_seed_gives_the_same_history_of_a_larger_cluster() -> None:
    """Caches, shared parts and batches of work leave no trace of hashes or addresses."""
    first, again = histories((7, "1"), (7, "2"), story="support.faults.seeded_restarts")
    assert first == again
    assert int(first.split()[1]) > 1000
