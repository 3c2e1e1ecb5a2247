"""Where promtool is, with which Prometheus tries rules: what `PROMTOOL` names, the one on PATH, or a build from source.

No package index has it as a wheel. It is built as the control plane is, with nothing but Go and its module proxy, once,
and without the discovery of targets in all clouds, which is most of its source.
"""

import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from controlplane import assets, build, toolchain

VERSION = "v0.313.5"  # as a module; Prometheus calls it 3.13.5

_MODULE = "github.com/prometheus/prometheus"
_GO_MOD = (
    f"module haulout.test/promtool\ngo {toolchain.MINIMUM[0]}.{toolchain.MINIMUM[1]}.0\nrequire {_MODULE} {VERSION}\n"
)


class PromtoolMissing(RuntimeError):
    """It is neither here nor can it be built; the message is one line."""


def find(*, say: Callable[[str], None] | None = None) -> Path:
    """Return where it is; build it if it is nowhere, and tell `say` (by default stderr) how it goes."""
    if given := os.environ.get("PROMTOOL") or shutil.which("promtool"):
        return Path(given)
    program = cache_folder() / "promtool"
    if not program.exists():
        try:
            _build(program, say=say or assets.say_on_stderr)
        except (build.BuildFailed, toolchain.NoToolchain, OSError) as failure:
            raise PromtoolMissing(
                f"no promtool ({' '.join(str(failure).split())}): install it, on Debian with the package prometheus, or"
                " name it by PROMTOOL"
            ) from failure
    return program


def cache_folder() -> Path:
    """Return the folder for this version, beside that of the control plane: both share a Go."""
    here = f"prometheus-{VERSION}-{sys.platform}-{platform.machine().lower()}"
    return assets.cache_folder().parent / here


def _build(program: Path, *, say: Callable[[str], None]) -> None:
    into = program.parent
    into.mkdir(parents=True, exist_ok=True)
    with build.alone_in(into.parent, say=say):
        if program.exists():  # another run has built it meanwhile
            return
        go = toolchain.find(caches=into.parent, say=say)
        with build.workshop(into / ".build") as folder:
            (folder / "go.mod").write_text(_GO_MOD)
            say("building promtool, which takes a minute or two")
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
            build.run_go(go, "build", *flags, f"{_MODULE}/cmd/promtool", folder=folder, doing="building promtool")
            (folder / "promtool").replace(program)
