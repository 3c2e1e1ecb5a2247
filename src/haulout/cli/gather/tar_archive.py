"""Packs pieces into an archive, or into a folder, with a page that tells what is in it and what is not."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from haulout.cli.gather.collector import ArchiveFile
from haulout.errors import UsageError

README = "README.txt"


def readme(archive_files: Iterable[ArchiveFile], gaps: Sequence[str], *, now: datetime) -> ArchiveFile:
    """Return the page that stands in front."""
    files = [f"  {entry.path}  ({len(entry.content):,} bytes)" for entry in archive_files]
    missing = [f"  {entry}" for entry in gaps] or ["  nothing that was looked for"]
    lines = (
        f"What haulout gather found at {now:%Y-%m-%d %H:%M:%S} UTC.",
        "",
        "Secrets were not asked for. What is called a secret in ConfigMaps, variables, logs and elsewhere, or looks",
        "like one, reads (hidden). Names of nodes, pods and namespaces are as they are: look through it before you",
        "give it to others.",
        "",
        "Files",
        *files,
        "",
        "Missing",
        *missing,
        "",
    )
    return ArchiveFile(README, "\n".join(lines).encode())


def build_archive(files: Iterable[ArchiveFile], *, folder: str, now: datetime) -> bytes:
    """Return an archive of them, with everything in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{folder}/{file.path}")
            entry.size, entry.mtime, entry.mode = len(file.content), int(now.timestamp()), 0o644
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def write_files(files: Iterable[ArchiveFile], folder: Path) -> None:
    """Write them into a folder, which is made if need be."""
    for file in files:
        target = folder / file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}") from None
