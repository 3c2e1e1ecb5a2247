"""Credentials: the identity with which a transport authenticates, kept up to date.

Credentials change while the operator runs: the kubelet rotates service account tokens, tools replace certificate files,
exec plugins issue tokens that last minutes. So a transport calls `current` before every request, which is cheap while
nothing changes, and calls `refresh` with an identity that the server rejected. If a file cannot be read temporarily,
the last valid content stays in use.

Exec plugins are in `haulout.kube.transports.exec_plugin`. No repr shows a secret.
"""

import base64
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from haulout.core.clock import Clock
from haulout.errors import CredentialsError
from haulout.kube.transport import Token
from haulout.kube.transports import tls
from haulout.kube.transports.tls import ClientCertificate

# Half of the time between the kubelet's refresh of a projected token and the token's expiry, as in client-go
# (transport/token_source.go).
_TOKEN_READ_INTERVAL = timedelta(minutes=1)
_CERTIFICATE_CHECK_INTERVAL = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Identity:
    """An Authorization header, a client certificate, both or neither."""

    authorization: str | None = field(default=None, repr=False)
    certificate: ClientCertificate | None = None


def identity_of_token(token: Token) -> Identity:
    """Return the identity of a token. It has no client certificate, which would take precedence over the token."""
    return Identity(f"Bearer {token.value}")


class Credentials(Protocol):
    """Supplies the current identity. One object serves all requests of a transport, concurrently."""

    async def current(self) -> Identity:
        """Return the identity to use. It is cheap while nothing changes. Raise `CredentialsError`."""
        ...

    async def refresh(self, rejected: Identity) -> None:
        """Invalidate `rejected`, which the server refused.

        Of several concurrent calls, only the first has an effect.
        """
        ...


class StaticCredentials:
    """An identity that is complete in the kubeconfig, so that there is nothing to refresh."""

    __slots__ = ("_identity",)

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def current(self) -> Identity:
        return self._identity

    async def refresh(self, rejected: Identity) -> None:
        """Do nothing: there is no other identity."""


ANONYMOUS = StaticCredentials(Identity())


class TokenFile:
    """A bearer token in a file: read again every minute, and at once after a rejection.

    The last token stays in use while the file cannot be read; before the first read, `fallback` does if there is one.
    """

    __slots__ = ("_clock", "_identity", "_path", "_read_at")

    def __init__(self, path: Path, *, clock: Clock, fallback: Identity | None = None) -> None:
        self._path = path
        self._clock = clock
        self._identity = fallback
        self._read_at: float | None = None

    async def current(self) -> Identity:
        """Return the token, read at most a minute ago."""
        now = self._clock.monotonic()
        if self._identity and self._read_at is not None and now - self._read_at < _TOKEN_READ_INTERVAL.total_seconds():
            return self._identity
        self._read_at = now
        return self._read()

    async def refresh(self, rejected: Identity) -> None:
        """Read the file again at the next request."""
        # Another request may have refreshed it meanwhile. Then the new identity was not rejected.
        if self._identity == rejected:
            self._read_at = None

    def _read(self) -> Identity:
        try:
            identity = Identity(bearer_header(self._path.read_text("utf-8"), description="it"))
        except (OSError, UnicodeDecodeError, CredentialsError) as error:
            if self._identity is None:
                problem = error.strerror if isinstance(error, OSError) else error
                raise CredentialsError(f"reading the token in {self._path}: {problem}") from None
            return self._identity
        if identity != self._identity:
            self._identity = identity
        return self._identity


class CertificateFiles:
    """A client certificate and key, at least one of them in a file: read again when the files change.

    A pair that is only half replaced, or cannot be read, does not replace the last valid pair.
    """

    __slots__ = ("_certificate", "_checked_at", "_clock", "_file_states", "_identity", "_key", "_owner")

    def __init__(self, certificate: Path | bytes, key: Path | bytes, *, owner: str, clock: Clock) -> None:
        self._owner = owner
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._identity: Identity | None = None
        self._file_states: tuple[object, ...] = ()
        self._checked_at = 0.0

    async def current(self) -> Identity:
        """Return the certificate. Check for changes of the files at most every ten seconds."""
        now = self._clock.monotonic()
        if self._identity and now - self._checked_at < _CERTIFICATE_CHECK_INTERVAL.total_seconds():
            return self._identity
        self._checked_at = now
        return self._check()

    async def refresh(self, rejected: Identity) -> None:
        """Check the files again at the next request."""
        if self._identity == rejected:
            self._checked_at -= _CERTIFICATE_CHECK_INTERVAL.total_seconds()

    def _check(self) -> Identity:
        try:
            # Read the file state before the content: a change in between is then detected the next time.
            file_states = (_file_state(self._certificate), _file_state(self._key))
            if self._identity is None or file_states != self._file_states:
                self._identity, self._file_states = self._read(), file_states
        except (OSError, CredentialsError) as error:
            if self._identity is None:
                raise CredentialsError(
                    f"reading the client certificate of {self._owner}: {_error_text(error)}"
                ) from None
        return self._identity

    def _read(self) -> Identity:
        certificate = ClientCertificate(_content(self._certificate), _content(self._key))
        tls.check_client_certificate(certificate, owner=self._owner)
        return Identity(None, certificate)


class CombinedCredentials:
    """The header of one source and the certificate of another."""

    __slots__ = ("_certificate", "_header")

    def __init__(self, *, header: Credentials, certificate: Credentials) -> None:
        self._header = header
        self._certificate = certificate

    async def current(self) -> Identity:
        header, certificate = await self._header.current(), await self._certificate.current()
        return Identity(header.authorization, certificate.certificate)

    async def refresh(self, rejected: Identity) -> None:
        """Refresh both: the server does not say which of the two it rejected."""
        await self._header.refresh(Identity(rejected.authorization))
        await self._certificate.refresh(Identity(None, rejected.certificate))


def bearer_header(token: str, *, description: str) -> str:
    """Return the header for `token`.

    Raise `CredentialsError`, whose message calls the token `description`, if it is invalid.
    """
    token = token.strip()
    if not token:
        raise CredentialsError(f"{description} is empty")
    # A line break in a header's value would let the file inject further headers.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(
            f"{description} is no bearer token: it has spaces, line breaks or other strange characters in it"
        )
    return f"Bearer {token}"


def basic_header(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")


def _error_text(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _file_state(source: Path | bytes) -> object:
    if isinstance(source, bytes):
        return None
    status = source.stat()
    # The inode changes when a Secret volume's symlink is switched, even if the new file has the same time and size.
    return status.st_mtime_ns, status.st_size, status.st_ino


def _content(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()
