"""Error texts about external systems that are safe to show.

A response may be long, binary or hostile, and may repeat what we sent. It is truncated, made printable, and stripped of
secrets before it is shown. Of a URL only the origin is shown, since paths and queries of webhooks are secrets.
"""

import ssl
from collections.abc import Iterable
from datetime import timedelta
from urllib.parse import urlsplit

from haulout.core.redaction import redact_values
from haulout.kube.transports import connection_errors

_MAX_LENGTH = 160


def quote_response(response: bytes | str, *, secrets: Iterable[str] = ()) -> str:
    """Return a response as one short quoted line, without `secrets`."""
    text = response.decode(errors="replace") if isinstance(response, bytes) else response
    text = redact_values(text, secrets)
    line = "".join(character if character.isprintable() else " " for character in text)
    # Truncated before the split, which would copy a response of megabytes.
    line = " ".join(line[: 4 * _MAX_LENGTH].split())
    return f"'{line}'" if len(line) <= _MAX_LENGTH else f"'{line[:_MAX_LENGTH]}…'"


def origin(url: str) -> str:
    """Return the part of a URL that may be shown: `https://example.com:8443`."""
    try:
        address = urlsplit(url.strip())
        port = f":{address.port}" if address.port else ""
    except ValueError:
        return "an invalid URL"
    return f"{address.scheme}://{address.hostname or ''}{port}"


def url_problem(url: str) -> str | None:
    """Return why `url` is not a usable URL, or None. The text does not repeat the URL: it may contain a secret."""
    try:
        address = urlsplit(url.strip())
        usable = address.scheme in {"http", "https"} and address.hostname and address.port != 0
    except ValueError:
        usable = False
    if usable and not any(character.isspace() for character in url.strip()):
        return None
    return "found no valid URL, expected one such as https://example.com/path"


def connection_error_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or 'no reason given').replace('_', ' ').lower()})"
    return connection_errors.error_text(error)


def timeout_text(peer: str, timeout: timedelta) -> str:
    """Return the error text for a timeout."""
    return f"{peer}: no answer within {timeout.total_seconds():g} s"
