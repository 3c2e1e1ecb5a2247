"""The certificate that a server shows, which may be exchanged while it serves.

Each new connection gets the one of the moment; those that stand keep theirs. Whole contexts are exchanged, not the
certificate within one: OpenSSL keeps one certificate for each kind of key, so that after a change from RSA to EC the
old one would still be shown to some. The choice is made when a client has said hello, with a server name or without.
"""

import asyncio
import ssl
from collections.abc import Callable

from haulout.core.key_pair import KeyPair


class ServingCertificate:
    """What new connections are shown: nothing at first, and then what `update` was told last."""

    def __init__(self) -> None:
        self.identity: KeyPair | None = None
        self.context = swappable_context(lambda: self._current_context)
        self._current_context: ssl.SSLContext | None = None
        self._available = asyncio.Event()

    def update(self, identity: KeyPair) -> None:
        """Show this from now on; `InvalidCertificate`, and the former is kept, if its two parts do not fit."""
        if identity == self.identity:
            return
        try:
            self._current_context = identity.server_context()
        except ssl.SSLError as error:
            raise InvalidCertificate(_describe_error(error)) from None
        self.identity = identity
        self._available.set()

    async def wait(self) -> None:
        """Return when there is something to show."""
        await self._available.wait()


def swappable_context(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext:
    """Return a context of which each new connection gets the one of the moment; None: it is refused."""

    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int | None:
        chosen = current()
        if chosen is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = chosen
        return None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sni_callback = choose
    return context


class InvalidCertificate(ValueError):
    """A certificate and a key that no server can use; the message says why."""


def _describe_error(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the private key do not belong together"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"the certificate or the private key cannot be used ({reason}): expected PEM, and a key without a password"
