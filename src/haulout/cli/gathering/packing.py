"""Packs pieces into an archive, or into a folder, with a page that tells what is in it and what is not."""

import io
import tarfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from haulout.cli.gathering.collecting import Piece
from haulout.errors import UsageError

README = "README.txt"


def page(pieces: Iterable[Piece], gaps: Sequence[str], *, now: datetime) -> Piece:
    """Return the page that stands in front."""
    files = [f"  {it.path}  ({len(it.content):,} bytes)" for it in pieces]
    missing = [f"  {it}" for it in gaps] or ["  nothing that was looked for"]
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
    return Piece(README, "\n".join(lines).encode())


def packed(pieces: Iterable[Piece], *, folder: str, now: datetime) -> bytes:
    """Return an archive of them, with everything in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for piece in pieces:
            entry = tarfile.TarInfo(f"{folder}/{piece.path}")
            entry.size, entry.mtime, entry.mode = len(piece.content), int(now.timestamp()), 0o644
            archive.addfile(entry, io.BytesIO(piece.content))
    return buffer.getvalue()


def written(pieces: Iterable[Piece], folder: Path) -> None:
    """Write them into a folder, which is made if need be."""
    for piece in pieces:
        file = folder / piece.path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(piece.content)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror}") from None
