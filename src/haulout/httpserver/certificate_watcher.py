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
from haulout.core.key_pair import KeyPair
from haulout.httpserver.serving_certificate import InvalidCertificate, ServingCertificate

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=10)

_FileVersions = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where a certificate and its key are."""

    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "CertificateFiles":
        """Return them as Kubernetes names them."""
        return cls(folder / "tls.crt", folder / "tls.key")

    def exist(self) -> bool:
        """Tell whether both are there."""
        return self.certificate.is_file() and self.key.is_file()

    def __str__(self) -> str:
        return f"{self.certificate} and {self.key}"


# Where the Operator Lifecycle Manager mounts them.
OLM = CertificateFiles(
    Path("/apiserver.local.config/certificates/apiserver.crt"),
    Path("/apiserver.local.config/certificates/apiserver.key"),
)


class CertificateWatcher:
    """Shows what is in the files."""

    def __init__(self, files: CertificateFiles, serving_certificate: ServingCertificate, *, clock: Clock) -> None:
        self.problem: str | None = None  # why what is in the files is not shown
        self.trust_problem: str | None = None  # whoever mounted them has the authority trusted as well
        self._files = files
        self._serving_certificate = serving_certificate
        self._clock = clock
        self._loaded_versions: _FileVersions | None = None

    async def run(self) -> NoReturn:
        """Look again and again, until cancelled."""
        while True:
            self.reload()
            await self._clock.sleep(POLL_INTERVAL)

    def reload(self) -> None:
        """Show what is there now, if it is not what was there before."""
        try:
            versions = _file_versions(self._files)
            if versions == self._loaded_versions and self.problem is None:
                return
            identity = KeyPair(self._files.certificate.read_bytes(), self._files.key.read_bytes())
            self._serving_certificate.update(identity)
        except (OSError, InvalidCertificate) as error:
            self._set_problem(f"no certificate in {self._files}: {error}")
            return
        log.info("the webhook shows the certificate in %s", self._files.certificate)
        self._loaded_versions, self.problem = versions, None

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s; looking again every %g s", problem, POLL_INTERVAL.total_seconds())
        self.problem = problem


def _file_versions(files: CertificateFiles) -> _FileVersions:
    stats = (path.stat() for path in (files.certificate, files.key))
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)
