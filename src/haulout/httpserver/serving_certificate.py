"""The certificate of a TLS server, replaceable while the server runs.

Each new connection gets the current certificate; open connections keep theirs. We replace whole contexts, not the
certificate inside one: OpenSSL keeps one certificate per key type, so after a change from RSA to EC some clients would
still get the old one. The choice happens at the ClientHello, with or without a server name.

`CertificateWatcher` reloads a serving certificate from a mounted folder when the files change. The kubelet updates a
mounted Secret by switching a symbolic link. The watcher therefore compares the files that the paths resolve to, not the
paths. A poll costs two `stat` calls and runs every POLL_INTERVAL.

If the files are missing, incomplete or do not match (a write is in progress), the watcher keeps serving the previous
certificate, reports the problem, and tries again at the next poll.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from haulout.core.clock import Clock
from haulout.core.key_pair import KeyPair

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=10)

_FileVersions = tuple[tuple[int, int, int], ...]


class ServingCertificate:
    """The certificate for new connections: none at first, then the one of the last `update`."""

    def __init__(self) -> None:
        self.identity: KeyPair | None = None
        self.context = swappable_context(lambda: self._current_context)
        self._current_context: ssl.SSLContext | None = None
        self._available = asyncio.Event()

    def update(self, identity: KeyPair) -> None:
        """Use this certificate from now on; on a mismatch of certificate and key, keep the previous one.

        Raise `InvalidCertificate` on a mismatch.
        """
        if identity == self.identity:
            return
        try:
            self._current_context = identity.server_context()
        except ssl.SSLError as error:
            raise InvalidCertificate(_describe_error(error)) from None
        self.identity = identity
        self._available.set()

    async def wait(self) -> None:
        await self._available.wait()


def swappable_context(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext:
    """Return a context that hands each new connection to `current()`; if that is None, the connection is refused."""

    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        chosen = current()
        if chosen is None:
            # The callback refuses a handshake by returning an alert. An exception in it would be printed to stderr.
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = chosen
        return None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sni_callback = choose
    return context


class InvalidCertificate(ValueError):
    """A certificate and key that no server can use; the message says why."""


def _describe_error(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the private key do not belong together"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"the certificate or the private key cannot be used ({reason}): expected PEM, and a key without a password"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The paths of a certificate and its private key."""

    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "CertificateFiles":
        """Return the paths of a mounted Secret of type `kubernetes.io/tls`."""
        return cls(folder / "tls.crt", folder / "tls.key")

    def exist(self) -> bool:
        return self.certificate.is_file() and self.key.is_file()

    def __str__(self) -> str:
        return f"{self.certificate} and {self.key}"


# Where the Operator Lifecycle Manager mounts the certificate.
OLM = CertificateFiles(
    Path("/apiserver.local.config/certificates/apiserver.crt"),
    Path("/apiserver.local.config/certificates/apiserver.key"),
)


class CertificateWatcher:
    """Keep a ServingCertificate equal to the content of the files."""

    def __init__(self, files: CertificateFiles, serving_certificate: ServingCertificate, *, clock: Clock) -> None:
        self.problem: str | None = None  # why the files on disk are not served
        self.trust_problem: str | None = None  # always None: the party that mounts the files also injects the CA bundle
        self._files = files
        self._serving_certificate = serving_certificate
        self._clock = clock
        self._loaded_versions: _FileVersions | None = None

    async def run(self) -> NoReturn:
        while True:
            self.reload()
            await self._clock.sleep(POLL_INTERVAL)

    def reload(self) -> None:
        """Load the files if they changed since the last successful load."""
        try:
            versions = _file_versions(self._files)
            # After a problem, read again even if nothing has changed: the first read may have seen half a write.
            if versions == self._loaded_versions and self.problem is None:
                return
            identity = KeyPair(self._files.certificate.read_bytes(), self._files.key.read_bytes())
            self._serving_certificate.update(identity)
        except (OSError, InvalidCertificate) as error:
            self._set_problem(f"no certificate in {self._files}: {error}")
            return
        log.info("the webhook serves the certificate in %s", self._files.certificate)
        self._loaded_versions, self.problem = versions, None

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s; checking again every %g s", problem, POLL_INTERVAL.total_seconds())
        self.problem = problem


def _file_versions(files: CertificateFiles) -> _FileVersions:
    stats = (path.stat() for path in (files.certificate, files.key))
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)
