"""Finds promtool, which tests Prometheus rules: the one that `PROMTOOL` names, the one on PATH, or a build from source.

No package index has it as a wheel. It is built once, like the control plane, with only Go and its module proxy, and
without service discovery for clouds, which is most of its source.
"""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from controlplane import assets, build, go_toolchain

VERSION = "v0.313.5"  # as a module; Prometheus calls it 3.13.5

_MODULE = "github.com/prometheus/prometheus"
_GO_MOD = (
    "module haulout.test/promtool\ngo "
    f"{go_toolchain.MINIMUM[0]}.{go_toolchain.MINIMUM[1]}.0\nrequire {_MODULE} {VERSION}\n"
)


class PromtoolNotFound(RuntimeError):
    """It is neither here nor can it be built; the message is one line."""


def find(*, log: Callable[[str], None] | None = None) -> Path:
    """Return where it is; build it if it is nowhere, and tell `log` (by default stderr) how it goes."""
    if given := os.environ.get("PROMTOOL") or shutil.which("promtool"):
        return Path(given)
    program = cache_folder() / "promtool"
    if not program.exists():
        try:
            _build(program, log=log or assets.log_to_stderr)
        except (build.BuildError, go_toolchain.ToolchainNotFound, OSError) as failure:
            raise PromtoolNotFound(
                f"no promtool ({' '.join(str(failure).split())}): install it, on Debian with the package prometheus, or"
                " name it by PROMTOOL"
            ) from failure
    return program


def cache_folder() -> Path:
    """Return the folder for this version, beside that of the control plane: both share a Go."""
    name = f"prometheus-{VERSION}-{sys.platform}-{platform.machine().lower()}"
    return assets.cache_folder().parent / name


def _build(program: Path, *, log: Callable[[str], None]) -> None:
    into = program.parent
    into.mkdir(parents=True, exist_ok=True)
    with build.build_lock(into.parent, log=log):
        if program.exists():  # another run has built it meanwhile
            return
        go = go_toolchain.find(caches=into.parent, log=log)
        with build.build_folder(into / ".build") as folder:
            (folder / "go.mod").write_text(_GO_MOD)
            log("building promtool, which takes a minute or two")
            flags = [
                "-mod=mod",
                "-trimpath",
                "-tags",
                "remove_all_sd",
                "-ldflags",
                "-s -w",
                "-o",
                str(folder / "promtool"),
            ]
            build.run_go(go, "build", *flags, f"{_MODULE}/cmd/promtool", folder=folder, operation="building promtool")
            (folder / "promtool").replace(program)
