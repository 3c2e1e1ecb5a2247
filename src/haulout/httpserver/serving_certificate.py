"""The certificate of a TLS server, replaceable while the server runs.

Each new connection gets the current certificate; open connections keep theirs. We replace whole contexts, not the
certificate inside one: OpenSSL keeps one certificate per key type, so after a change from RSA to EC some clients would
still get the old one. The choice happens at the ClientHello, with or without a server name.
"""

import asyncio
import ssl
from collections.abc import Callable

from haulout.core.key_pair import KeyPair


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
        """Wait until there is a certificate."""
        await self._available.wait()


def swappable_context(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext:
    """Return a context that hands each new connection to `current()`; if that is None, the connection is refused."""

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
    """A certificate and key that no server can use; the message says why."""


def _describe_error(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the private key do not belong together"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"the certificate or the private key cannot be used ({reason}): expected PEM, and a key without a password"
