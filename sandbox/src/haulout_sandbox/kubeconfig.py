"""The kubeconfig of a running sandbox: written when the API server is reachable, removed when the sandbox ends.

A lock file claims the path before anything else happens, so that a second sandbox fails at once. The kubeconfig is
written atomically, and only its owner can read it. A kubeconfig left behind by a killed sandbox is replaced. A file
that is not a sandbox's kubeconfig is never changed: it may be the access to a real cluster.
"""

import base64
import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from haulout.errors import UsageError

CONTEXT_NAME = "sandbox"  # name of its context, cluster and user; prefix of those of workload clusters
_OTHER_FILE_HINT = "name another file with --write-kubeconfig"


def default_path(environ: Mapping[str, str]) -> Path:
    """Return the default path of the kubeconfig, which belongs to the user and never varies."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(cache, "haulout", "sandbox.kubeconfig")


@contextmanager
def reserved(path: Path, *, may_make_folder: bool = False) -> Iterator[None]:
    """Lock `path` for this process. No sandbox kubeconfig is left there when the context ends."""
    path = path.absolute()
    made_folders = _make_folder(path.parent) if may_make_folder else []
    try:
        with _lock_held(path):
            if not _is_replaceable(path):
                raise UsageError(f"{path} is there already and is no kubeconfig of a sandbox; {_OTHER_FILE_HINT}")
            try:
                yield
            finally:
                if _is_replaceable(path):
                    path.unlink(missing_ok=True)
    finally:
        for folder in made_folders:
            with suppress(OSError):  # the folder may contain other files by now
                folder.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeContext:
    """How to reach one cluster. The sandbox itself is called `sandbox`; workload clusters have longer names."""

    server: str
    token: str
    name: str = CONTEXT_NAME


def context_name(*parts: str) -> str:
    """Return the name of the context of a workload cluster."""
    return "-".join((CONTEXT_NAME, *parts))


def write(path: Path, *contexts: KubeContext, ca_pem: bytes) -> None:
    """Write a kubeconfig with one context per cluster; the first one becomes the current context."""
    ca_data = base64.b64encode(ca_pem).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0].name,
        "clusters": [
            {"name": context.name, "cluster": {"server": context.server, "certificate-authority-data": ca_data}}
            for context in contexts
        ],
        "users": [{"name": context.name, "user": {"token": context.token}} for context in contexts],
        "contexts": [
            {"name": context.name, "context": {"cluster": context.name, "user": context.name}} for context in contexts
        ],
    }
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _usage_errors(path):
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(yaml.safe_dump(content, sort_keys=False, encoding="utf-8"))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _lock_held(path: Path) -> Iterator[None]:
    lock = path.with_name(f".{path.name}.lock")
    with _usage_errors(path):
        file = _try_lock(lock)
    if file is None:
        holder = ""
        with suppress(OSError):
            holder = f" (process {lock.read_text().strip()})"
        raise UsageError(
            f"a sandbox is running already{holder}, with the kubeconfig {path}; end it, or have two: {_OTHER_FILE_HINT}"
        )
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(file)


def _try_lock(lock: Path) -> int | None:
    """Return the file descriptor that holds the lock, or None if another process holds it."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # otherwise its holder has just removed the file, and the lock is on an unlinked file
            if os.fstat(file).st_nlink:
                os.truncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
                return file
        except BlockingIOError:
            os.close(file)
            return None
        os.close(file)


def _is_replaceable(path: Path) -> bool:
    """Return whether overwriting `path` loses nothing: it does not exist, or is a sandbox's kubeconfig."""
    with _usage_errors(path):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return True
    try:
        config: Any = yaml.load(content, Loader=yaml.CSafeLoader)
        names = set() if config is None else {str(item["name"]) for item in config["contexts"] + config["clusters"]}
        return config is None or (
            CONTEXT_NAME in names and all(item.startswith(f"{CONTEXT_NAME}-") for item in names - {CONTEXT_NAME})
        )
    except (yaml.YAMLError, TypeError, KeyError):
        return False


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder and its parents; return those created, the innermost first."""
    missing = [candidate for candidate in (folder, *folder.parents) if not candidate.exists()]
    with _usage_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return missing


@contextmanager
def _usage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UsageError(
            f"cannot write the kubeconfig {path}: there is no folder {path.parent}; make it, or {_OTHER_FILE_HINT}"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write the kubeconfig {path}: {reason}; {_OTHER_FILE_HINT}") from None
