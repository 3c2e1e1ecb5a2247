"""Builds the control plane's binaries from source, with only Go and its module proxy.

One version determines all others: Kubernetes' go.mod says which etcd it is tested with and which modules live in its
staging folder. There, relative paths replace these modules, which do not work outside of its repository, so our module
replaces them by the releases that belong to this version (v0.X.Y for v1.X.Y). So every version is fixed, and Go's
checksum database verifies what is downloaded.

Each binary is built beside the binaries of the cache folder and moved there when complete: an interrupted build leaves
complete binaries or none, and the next build continues. A lock lets a second run wait instead of building the same.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from controlplane import go_toolchain
from haulout.core.clock import RealClock

KUBERNETES = "v1.36.3"

_ETCD_SERVER = "go.etcd.io/etcd/server/v3"
_STAGED = KUBERNETES.replace("v1.", "v0.", 1)
_VERSION_HOLDERS = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


class BuildError(RuntimeError):
    """Go could not build a program; the message is one line."""


def build(programs: Sequence[str], *, into: Path, log: Callable[[str], None]) -> None:
    """Build those of `programs` that the folder `into` does not have yet; what else is needed goes beside it."""
    into.mkdir(parents=True, exist_ok=True)
    with build_lock(into.parent, log=log):
        missing = [program for program in programs if not (into / program).exists()]
        if not missing:
            return
        go = go_toolchain.find(caches=into.parent, log=log)
        with build_folder(into / ".build") as folder:
            _write_module(go, folder, log=log)
            for program in missing:
                _build_one(go, program, folder=folder, log=log)
                (folder / program).replace(into / program)


@contextmanager
def build_lock(folder: Path, *, log: Callable[[str], None]) -> Iterator[None]:
    """Have a second run wait, while this one builds in a folder."""
    with (folder / ".lock").open("w") as lock:  # closing it, or dying, lets go of the lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for another run that is building in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def build_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, which is removed in the end."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write_module(go: Path, folder: Path, *, log: Callable[[str], None]) -> None:
    log(f"downloading the source of Kubernetes {KUBERNETES}; the first build takes some six minutes")
    module = f"k8s.io/kubernetes@{KUBERNETES}"
    download = json.loads(
        run_go(go, "mod", "download", "-json", module, folder=folder, operation=f"downloading {module}")
    )
    source = json.loads(
        run_go(go, "mod", "edit", "-json", download["GoMod"], folder=folder, operation=f"reading {module}")
    )
    (folder / "go.mod").write_text(_go_mod(source))


def _go_mod(source: dict[str, Any]) -> str:
    """Return a go.mod that can build what `source`, the go.mod of Kubernetes as JSON, can build in its own place."""
    etcd = next(module["Version"] for module in source["Require"] if module["Path"] == _ETCD_SERVER)
    staging_modules = [replacement["Old"]["Path"] for replacement in source["Replace"]]
    lines = [
        "module haulout.test/controlplane",
        f"go {source['Go']}",
        f"require k8s.io/kubernetes {KUBERNETES}",
        f"require {_ETCD_SERVER} {etcd}",
        *(f"replace {path} => {path} {_STAGED}" for path in staging_modules),
    ]
    return "\n".join(lines) + "\n"


def _build_one(go: Path, program: str, *, folder: Path, log: Callable[[str], None]) -> None:
    log(f"building {program}")
    clock = RealClock()
    started = clock.monotonic()
    package = _ETCD_SERVER if program == "etcd" else f"k8s.io/kubernetes/cmd/{program}"
    # -mod=mod lets Go write go.sum as it goes; all versions are fixed by then.
    flags = ["-mod=mod", "-trimpath", "-ldflags", _linker_flags(), "-o", str(folder / program)]
    run_go(go, "build", *flags, package, folder=folder, operation=f"building {program}")
    log(f"built {program} in {timedelta(seconds=round(clock.monotonic() - started))}")


def _linker_flags() -> str:
    """Leave symbols out, and put in the version: without it the server calls itself v0.0.0-master."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    facts = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    stamps = [f"-X {holder}.{fact}={value}" for holder in _VERSION_HOLDERS for fact, value in facts.items()]
    return " ".join(["-s", "-w", *stamps])


def run_go(go: Path, *arguments: str, folder: Path, operation: str) -> str:
    """Run Go in a folder, and return what it prints; raises `BuildError`."""
    # A workspace around the cache folder, or another machine to build for, is none of our business.
    foreign = {"GOWORK", "GOOS", "GOARCH"}
    environment = {key: value for key, value in os.environ.items() if key not in foreign}
    environment |= {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run([go, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{operation} with {go} failed: {go_toolchain.failure_reason(done)}")
    return done.stdout
