"""Sends mail to an SMTP server, with aiosmtplib.

The rules are those of Go's `net/smtp`, which existing configurations rely on:

- TLS by STARTTLS if the server offers it, with certificate verification; implicit TLS on port 465;
- a password is sent only over TLS or to localhost: by AUTH PLAIN; if the server does not offer it, by LOGIN or
  CRAM-MD5;
- a mail is accepted for all of its recipients or for none.

One timeout covers the whole dialogue; aiosmtplib limits the length of each reply. A mail counts as delivered when the
server has accepted its data. Any later error changes nothing.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

import aiosmtplib
from aiosmtplib import SMTP, SMTPException, SMTPStatus

from haulout.controllers.profiles.external.error_text import connection_error_text, quote_response, timeout_text
from haulout.errors import ExternalError, UndeliverableMessage

_IMPLICIT_TLS_PORT = 465
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}
_QUIT_TIMEOUT = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What AUTH sends. Never shown: `_error_text` redacts the password in all its encodings."""

    user: str
    password: str = field(repr=False)
    identity: str = ""

    @property
    def plain(self) -> str:
        # RFC 4616: authorization identity, NUL, user, NUL, password.
        return _base64(f"{self.identity}\0{self.user}\0{self.password}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A mail with its sender, recipients and server."""

    server: str  # host:port
    sender: str
    recipients: tuple[str, ...]
    content: bytes = field(repr=False)  # headers and text, 7-bit; any line endings
    login: Credentials | None = None


def split_server(server: str) -> tuple[str, int] | None:
    """Return host and port of `host:port`, also of `[::1]:25`; None for anything else."""
    host, colon, port = server.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = colon and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    return (host, int(port)) if is_port and host and not host.startswith("[") else None


async def deliver(envelope: Envelope, *, tls: ssl.SSLContext, timeout: timedelta) -> None:
    """Send a mail. Raise `ExternalError` if the server did not accept it."""
    address = split_server(envelope.server)
    if address is None:
        raise UndeliverableMessage(f"mail server {quote_response(envelope.server)}: expected host:port")
    host, port = address
    secure = port == _IMPLICIT_TLS_PORT
    # STARTTLS is used if the server offers it. Single commands have no timeout; the whole dialogue has one.
    client = SMTP(hostname=host, port=port, use_tls=secure, tls_context=tls, local_hostname="localhost", timeout=None)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await client.connect()
            await _send(client, envelope)
        with contextlib.suppress(OSError, SMTPException):  # a TimeoutError is an OSError
            async with asyncio.timeout(_QUIT_TIMEOUT.total_seconds()):
                await client.quit()
    except (SMTPException, OSError, ValueError) as error:
        raise ExternalError(f"mail server {envelope.server}{_error_text(error, envelope.login, timeout)}") from None
    finally:
        client.close()


async def _send(client: SMTP, envelope: Envelope) -> None:
    # After STARTTLS the client must greet again, since the first greeting was not protected (RFC 3207, section 4.2).
    if client.is_ehlo_or_helo_needed:  # not greeted yet on this connection, or the greeting was before STARTTLS
        await _greet(client)
    if envelope.login is not None:
        await _log_in(client, envelope.login)
    addresses = (envelope.sender, *envelope.recipients)
    if broken := next((address for address in addresses if "\r" in address or "\n" in address), None):
        raise SMTPException(f"cannot be sent {quote_response(broken)}: it contains a line break")
    is_ascii = all(address.isascii() for address in addresses)
    if not is_ascii and not client.supports_extension("smtputf8"):
        raise SMTPException("does not support addresses with non-ASCII characters")
    await client.mail(envelope.sender, options=() if is_ascii else ("SMTPUTF8",), encoding="utf-8")
    for recipient in envelope.recipients:
        await client.rcpt(recipient, encoding="utf-8")
    await client.data(envelope.content)


async def _greet(client: SMTP) -> None:
    try:
        await client.ehlo()
    except aiosmtplib.SMTPHeloError:
        await client.helo()


async def _log_in(client: SMTP, login: Credentials) -> None:
    """Authenticate with one mechanism that the server offers: each failure may count towards an account lockout."""
    # The rule of PlainAuth in Go's src/net/smtp/auth.go.
    if client.get_transport_info("sslcontext") is None and client.hostname not in _LOCAL_HOSTS:
        raise SMTPException("does not offer TLS, without which no password is sent")
    if not client.supports_extension("auth"):
        raise SMTPException("does not support authentication; remove auth")
    offered = client.server_auth_methods
    if "plain" in offered or login.identity:  # no other mechanism supports an authorization identity
        reply = await client.execute_command(b"AUTH", b"PLAIN", login.plain.encode())
        if reply.code != SMTPStatus.auth_successful:
            raise aiosmtplib.SMTPAuthenticationError(reply.code, reply.message)
    elif "login" in offered:
        await client.auth_login(login.user, login.password)
    elif "cram-md5" in offered:
        await client.auth_crammd5(login.user, login.password)
    else:
        raise SMTPException(f"supports none of PLAIN, LOGIN and CRAM-MD5, only: {quote_response(', '.join(offered))}")


def _error_text(error: Exception, login: Credentials | None, timeout: timedelta) -> str:
    """Return the error text that follows the name of the server."""
    secrets = () if login is None else (login.password, login.plain, _base64(login.password))
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return f" {_response_error_text(error, login, secrets)}"
    if isinstance(error, SMTPException) and isinstance(error, OSError):
        cause = error.__cause__
        return (
            f": {connection_error_text(cause)}"
            if isinstance(cause, OSError) and not isinstance(cause, SMTPException)
            else " closed the connection"
        )
    if isinstance(error, SMTPException):
        return f" {error.message}"
    if isinstance(error, TimeoutError):
        return timeout_text("", timeout)
    text = connection_error_text(error) if isinstance(error, OSError) else quote_response(str(error), secrets=secrets)
    return f": {text}"


def _response_error_text(
    error: aiosmtplib.SMTPResponseException, login: Credentials | None, secrets: Iterable[str]
) -> str:
    if error.code == SMTPStatus.invalid_response:
        _, is_quoted, line = error.message.partition("line: ")
        response = f"it answered {quote_response(line, secrets=secrets)}" if is_quoted else "its reply is too long"
        return f"does not speak SMTP: {response}"
    response = quote_response(f"{error.code} {error.message}", secrets=secrets)
    return f"refused {_refused_part(error, login)}: {response}"


def _refused_part(error: aiosmtplib.SMTPResponseException, login: Credentials | None) -> str:
    match error:
        case aiosmtplib.SMTPConnectResponseError() | aiosmtplib.SMTPHeloError():
            return "the connection"
        case aiosmtplib.SMTPAuthenticationError() if login is not None:
            return f"user {login.user}"
        case aiosmtplib.SMTPSenderRefused():
            return "the sender"
        case aiosmtplib.SMTPRecipientRefused():
            return f"recipient {error.recipient}"
        case aiosmtplib.SMTPDataError():
            return "the message"
    return "STARTTLS"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
