"""The certificate that a server shows, which may be exchanged while it serves.

Each new connection gets the one of the moment; those that stand keep theirs. Whole contexts are exchanged, not the
certificate within one: OpenSSL keeps one certificate for each kind of key, so that after a change from RSA to EC the
old one would still be shown to some. The choice is made when a client has said hello, with a server name or without.
"""

import asyncio
import ssl
from collections.abc import Callable

from haulout.kube.network.shown import Identity


class Presented:
    """What new connections are shown: nothing at first, and then what `show` was told last."""

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.context = exchanging_context(lambda: self._current)
        self._current: ssl.SSLContext | None = None
        self._there = asyncio.Event()

    def show(self, identity: Identity) -> None:
        """Show this from now on; `Unfit`, and the former is kept, if its two parts do not fit."""
        if identity == self.identity:
            return
        try:
            self._current = identity.server_context()
        except ssl.SSLError as error:
            raise Unfit(_in_words(error)) from None
        self.identity = identity
        self._there.set()

    async def wait(self) -> None:
        """Return when there is something to show."""
        await self._there.wait()


def exchanging_context(current: Callable[[], ssl.SSLContext | None]) -> ssl.SSLContext:
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


class Unfit(ValueError):
    """A certificate and a key that no server can use; the message says why."""


def _in_words(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the private key do not belong together"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return f"the certificate or the private key cannot be used ({reason}): expected PEM, and a key without a password"
