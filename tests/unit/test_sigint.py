"""SIGINT reaches the subprocesses of tests, however pytest was started."""

import os
import subprocess
import sys
from pathlib import Path

_TEST = """
import signal
import subprocess
import sys

PROGRAM = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"


def test_it():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "False\\n"
"""


def test_subprocesses_receive_sigint_when_pytest_runs_in_the_background(tmp_path: Path) -> None:
    """A shell without job control starts background jobs with SIGINT ignored, which children inherit."""
    file = tmp_path / "test_it.py"
    file.write_text(_TEST)
    root = Path(__file__).parents[2]
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "-c", "/dev/null", str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "tests"), str(root / "src")))}
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" & wait $!', "sh", *line], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout
