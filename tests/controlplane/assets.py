"""Finds the binaries of the control plane.

Each binary is looked up separately, in this order:

1. the folder that `KUBEBUILDER_ASSETS` names, if set; it often lacks the two controllers,
2. this project's folder in the user's cache,
3. a build from source into that folder (`controlplane.build`), which takes minutes, once.

Without etcd, kube-apiserver and kubectl there is no control plane: the error is one line that says what to install. The
controllers are optional: only tests that need a controller report that it is missing.
"""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane import build, go_toolchain

ESSENTIAL = ("etcd", "kube-apiserver", "kubectl")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
PROGRAMS = (*ESSENTIAL, *CONTROLLERS)  # in this order they are built: what is needed most, first


class AssetsMissing(RuntimeError):
    """A program is neither installed nor can it be built."""


@dataclass(frozen=True, slots=True)
class Assets:
    """The programs that were found; `build_error` tells what kept the others from being built."""

    paths: Mapping[str, Path]
    build_error: str = ""

    def path(self, program: str) -> Path:
        """Return where `program` is."""
        try:
            return self.paths[program]
        except KeyError:
            raise AssetsMissing(_install_hint([program], reason=self.build_error)) from None

    @property
    def folders(self) -> list[Path]:
        """The folders that have the programs: one, unless `KUBEBUILDER_ASSETS` had only some of them."""
        return list(dict.fromkeys(path.parent for path in self.paths.values()))

    @property
    def absent(self) -> list[str]:
        """The programs that could not be had."""
        return [program for program in PROGRAMS if program not in self.paths]


def find(*, log: Callable[[str], None] | None = None) -> Assets:
    """Find all programs, build those that are missing, and tell `log` (by default stderr) how it goes."""
    folders = [*_configured_folders(), cache_folder()]
    assets = Assets(_programs_in(folders))
    if not assets.absent:
        return assets
    try:
        build.build(assets.absent, into=cache_folder(), log=log or log_to_stderr)
    except (build.BuildError, go_toolchain.ToolchainNotFound, OSError) as failure:
        assets = Assets(_programs_in(folders), build_error=str(failure))
        if missing := [program for program in assets.absent if program in ESSENTIAL]:
            raise AssetsMissing(_install_hint(missing, reason=str(failure))) from failure
        return assets
    return Assets(_programs_in(folders))


def cache_folder() -> Path:
    """Return this project's folder for programs of this version, for this kind of machine."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "haulout" / "controlplane" / f"{build.KUBERNETES}-{sys.platform}-{platform.machine().lower()}"


def _configured_folders() -> list[Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if not given:
        return []
    if not Path(given).is_dir():
        raise AssetsMissing(f"KUBEBUILDER_ASSETS names {given}, which is not a folder: correct or unset it")
    return [Path(given).absolute()]


def _programs_in(folders: list[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for program in PROGRAMS:
        candidates = (folder / program for folder in folders)
        path = next((path for path in candidates if path.is_file() and os.access(path, os.X_OK)), None)
        if path is not None:
            found[program] = path
    return found


def _install_hint(missing: list[str], *, reason: str) -> str:
    return (
        f"no {', '.join(missing)} for a control plane ({' '.join(reason.split())}): install {go_toolchain.WANTED} and "
        "let it reach a Go module proxy, or set KUBEBUILDER_ASSETS to a folder that has them"
    )


def log_to_stderr(line: str) -> None:
    """Tell how it goes."""
    sys.stderr.write(f"controlplane: {line}\n")
    sys.stderr.flush()
