"""The kubeconfig of a running sandbox: there when it can be used, gone when the sandbox ends.

Its place is claimed with a lock before anything else happens, so that a second sandbox hears of the first at once. The
file itself appears as a whole, and only its owner can read it. One that was left behind by a sandbox that was killed is
replaced. A file that is not a sandbox's is never touched: it may be the way to a real cluster.
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

CONTEXT_NAME = "sandbox"  # of its context, its cluster and its user; those of clusters that it manages begin with it
_OTHER_FILE_HINT = "name another file with --write-kubeconfig"


def default_path(environ: Mapping[str, str]) -> Path:
    """Return where it is written when nobody says otherwise: always the same place, of the user's own."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    return Path(cache, "haulout", "sandbox.kubeconfig")


@contextmanager
def reserved(path: Path, *, may_make_folder: bool = False) -> Iterator[None]:
    """Keep `path` for this process; at the end of the context there is no kubeconfig of a sandbox any more."""
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
            with suppress(OSError):  # somebody else keeps something in it by now
                folder.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeContext:
    """The way to a cluster; that of a sandbox has no name but `sandbox`, those that it manages have more."""

    server: str
    token: str
    name: str = CONTEXT_NAME


def context_name(*parts: str) -> str:
    """Return the name of the context of a cluster that the sandbox manages."""
    return "-".join((CONTEXT_NAME, *parts))


def write(path: Path, *contexts: KubeContext, ca_pem: bytes) -> None:
    """Write the kubeconfig, which from then on has a context for each way, the first of which is the current one."""
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
    """Return the file that holds the lock, or None if another process has it."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:  # or its holder removed it, just now: what we have locked is no longer there
                os.truncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
                return file
        except BlockingIOError:
            os.close(file)
            return None
        os.close(file)


def _is_replaceable(path: Path) -> bool:
    """Tell whether nothing would be lost at `path`: nothing is there, or the kubeconfig of a sandbox."""
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
    """Make a folder and those above it; return what was made, the innermost first."""
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
