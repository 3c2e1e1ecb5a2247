"""A certificate from a mounted folder, taken anew when the files change.

A kubelet changes a mounted Secret by switching a symbolic link, so what is compared is the files that the paths lead
to, not the paths: a look costs two `stat` calls, and there is one every few seconds. No files yet, one of two, a pair
that does not fit (somebody is writing): what was shown stays shown, the trouble is told, and the next look may find
better.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from haulout.core.clock import Clock
from haulout.kube.network.shown import Identity
from haulout.web.presented import Presented, Unfit

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(seconds=10)

_Mark = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Files:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "Files":
        """Return them as Kubernetes names them."""
        return cls(folder / "tls.crt", folder / "tls.key")

    def exist(self) -> bool:
        """Tell whether both are there."""
        return self.certificate.is_file() and self.key.is_file()

    def __str__(self) -> str:
        return f"{self.certificate} and {self.key}"


# Where the Operator Lifecycle Manager mounts them.
OLM = Files(
    Path("/apiserver.local.config/certificates/apiserver.crt"),
    Path("/apiserver.local.config/certificates/apiserver.key"),
)


class FolderSource:
    """Shows what is in the files."""

    def __init__(self, files: Files, presented: Presented, *, clock: Clock) -> None:
        self.problem: str | None = None  # why what is in the files is not shown
        self.trouble: str | None = None  # whoever mounted them has the authority trusted as well
        self._files = files
        self._presented = presented
        self._clock = clock
        self._seen: _Mark | None = None

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await self._clock.sleep(LOOK_EVERY)

    def look(self) -> None:
        """Show what is there now, if it is not what was there before."""
        try:
            mark = _mark(self._files)
            if mark == self._seen and self.problem is None:
                return
            identity = Identity(self._files.certificate.read_bytes(), self._files.key.read_bytes())
            self._presented.show(identity)
        except (OSError, Unfit) as error:
            self._note(f"no certificate in {self._files}: {error}")
            return
        log.info("the webhook shows the certificate in %s", self._files.certificate)
        self._seen, self.problem = mark, None

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s; looking again every %g s", problem, LOOK_EVERY.total_seconds())
        self.problem = problem


def _mark(files: Files) -> _Mark:
    found = (path.stat() for path in (files.certificate, files.key))
    return tuple((it.st_ino, it.st_mtime_ns, it.st_size) for it in found)
