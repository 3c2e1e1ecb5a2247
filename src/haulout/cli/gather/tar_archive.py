"""Pack files into an archive or a folder, with a README that lists files and gaps."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from haulout.cli.gather.collector import ArchiveFile
from haulout.errors import UsageError

README = "README.txt"


def readme(archive_files: Iterable[ArchiveFile], gaps: Sequence[str], *, now: datetime) -> ArchiveFile:
    """Return the README."""
    files = [f"  {entry.path}  ({len(entry.content):,} bytes)" for entry in archive_files]
    missing = [f"  {entry}" for entry in gaps] or ["  nothing"]
    lines = (
        f"Output of haulout gather at {now:%Y-%m-%d %H:%M:%S} UTC.",
        "",
        "Secrets were not read. Values that are named as secrets in ConfigMaps, variables, logs and elsewhere, or",
        "look like secrets, are replaced by (hidden). Names of nodes, pods and namespaces are unchanged. Review the",
        "files before you give them to others.",
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
    """Return a gzipped tar archive with all files in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{folder}/{file.path}")
            entry.size, entry.mtime, entry.mode = len(file.content), int(now.timestamp()), 0o644
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def write_files(files: Iterable[ArchiveFile], folder: Path) -> None:
    """Write files into a folder, creating it if necessary."""
    for file in files:
        target = folder / file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}") from None
