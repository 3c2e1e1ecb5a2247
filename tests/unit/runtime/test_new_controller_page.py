"""The listings of docs/contributing/a-new-controller.md are complete: their tests pass as they are printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.docs.page_modules import save_listings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/contributing/a-new-controller.md"


@pytest.mark.real_time
def test_listings_pass_their_own_tests(tmp_path: Path) -> None:
    files = save_listings(PAGE, tmp_path)
    assert files.keys() == {"quarantine", "test_quarantine"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        "-c",
        "pyproject.toml",
    ]
    run = subprocess.run(
        [*command, "-p", "conftest", str(files["test_quarantine"])],
        cwd=ROOT,
        env={
            "PYTHONPATH": f"{tmp_path}:{ROOT / 'tests'}:{ROOT / 'src'}:{ROOT / 'sandbox/src'}",
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("....  ")
