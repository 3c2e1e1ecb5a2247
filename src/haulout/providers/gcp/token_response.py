"""Parse responses to requests for an access token: the token, or the reason why there is none."""

from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from haulout.errors import CloudError
from haulout.providers.http_fetch import DECODE_ERRORS, FetchedResponse, retry_after

DOING = "getting a Google access token"
_OK = 200
_MAX_LIFETIME_SECONDS = timedelta(hours=12).total_seconds()  # the longest lifetime that Google issues


class Token(NamedTuple):
    """An access token and its remaining lifetime."""

    value: str
    expires_in: timedelta


def parse_token(fetched: FetchedResponse, host: str) -> Token:
    """Return the token in a response (RFC 6749); raise `CloudError`."""
    fields = parse_fields(fetched, host)
    value, expires_in = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(value, str) or not value:
        raise token_error(fetched, host)
    return Token(
        value,
        timedelta(seconds=min(max(expires_in, 0), _MAX_LIFETIME_SECONDS) if isinstance(expires_in, int | float) else 0),
    )


def parse_fields(fetched: FetchedResponse, host: str) -> dict[str, Any]:
    """Return the fields of a successful response; raise `CloudError`."""
    if fetched.status != _OK:
        raise token_error(fetched, host)
    return _decode(fetched)


def token_error(fetched: FetchedResponse, host: str) -> CloudError:
    """Return the error of a response, in OAuth's format or in that of Google's APIs."""
    fields = _decode(fetched)
    error: Any = fields.get("error")
    description: Any = fields.get("error_description")
    if isinstance(error, dict):
        error, description = error.get("status"), error.get("message")
    reason = description or fetched.body.decode("utf-8", "replace").strip()[:200] or "no reason given"
    code = error if isinstance(error, str) else ""
    problem = f"{host} issued no token: {reason}"
    return CloudError(problem, doing=DOING, status=fetched.status, code=code, retry_after=retry_after(fetched))


def _decode(fetched: FetchedResponse) -> dict[str, Any]:
    try:
        return msgspec.json.decode(fetched.body, type=dict[str, Any])
    except DECODE_ERRORS:
        return {}
