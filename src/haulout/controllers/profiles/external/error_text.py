"""What others said, and why they said nothing, in words that may be shown.

Whatever comes from outside may be long, binary or hostile, and may repeat what we sent: it is cut, made printable, and
cleared of secrets before anybody sees it. Of an address only the host is shown, since paths and queries of webhooks
are secrets themselves.
"""

import ssl
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import urlsplit

from haulout.core.redaction import redact_values
from haulout.kube.transports import connection_errors

_MAX_LENGTH = 160


def quote_response(response: bytes | str, *, secrets: Iterable[str] = ()) -> str:
    """Return what was said as one short line in quotes, without `secrets`."""
    text = response.decode(errors="replace") if isinstance(response, bytes) else response
    text = redact_values(text, secrets)
    line = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(line[: 4 * _MAX_LENGTH].split())
    return f"'{line}'" if len(line) <= _MAX_LENGTH else f"'{line[:_MAX_LENGTH]}…'"


def origin(url: str) -> str:
    """Return of an address what may be shown: `https://example.com:8443`."""
    try:
        address = urlsplit(url.strip())
        port = f":{address.port}" if address.port else ""
    except ValueError:
        return "an address that makes no sense"
    return f"{address.scheme}://{address.hostname or ''}{port}"


def url_problem(url: str) -> str | None:
    """Say why nothing can be sent to `url`, or None. It may hold a secret, so it is not repeated."""
    try:
        address = urlsplit(url.strip())
        usable = address.scheme in {"http", "https"} and address.hostname and address.port != 0
    except ValueError:
        usable = False
    if usable and not any(character.isspace() for character in url.strip()):
        return None
    return "found something else than a web address, expected such as https://example.com/path"


def connection_error_text(error: OSError) -> str:
    """Return why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    return connection_errors.error_text(error)


def timeout_text(peer: str, timeout: timedelta) -> str:
    """Return that somebody did not answer in time."""
    return f"{peer}: no answer within {timeout.total_seconds():g} s"
