"""What is answered to whoever asks for an access token: the token, or why there is none."""

from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from haulout.errors import CloudError
from haulout.notices.sources.fetching import UNREADABLE, Fetched, pause_of

DOING = "getting a token of Google"
_OK = 200
_LONGEST = timedelta(hours=12).total_seconds()  # that Google lets one last


class Token(NamedTuple):
    """An access token, and how long it is good for."""

    value: str
    lasts: timedelta


def granted(fetched: Fetched, who: str) -> Token:
    """Return the token that was given (RFC 6749); raises `CloudError`."""
    said = document(fetched, who)
    value, lasts = said.get("access_token"), said.get("expires_in")
    if not isinstance(value, str) or not value:
        raise refusal(fetched, who)
    return Token(value, timedelta(seconds=min(max(lasts, 0), _LONGEST) if isinstance(lasts, int | float) else 0))


def document(fetched: Fetched, who: str) -> dict[str, Any]:
    """Return the answer of somebody who says yes; raises `CloudError`."""
    if fetched.status != _OK:
        raise refusal(fetched, who)
    return _said(fetched)


def refusal(fetched: Fetched, who: str) -> CloudError:
    """Return why there is no token: in the words of OAuth, or in those of Google's own services."""
    said = _said(fetched)
    error: Any = said.get("error")
    told: Any = said.get("error_description")
    if isinstance(error, dict):
        error, told = error.get("status"), error.get("message")
    why = told or fetched.body.decode("utf-8", "replace").strip()[:200] or "no reason given"
    code = error if isinstance(error, str) else ""
    problem = f"{who} gives none: {why}"
    return CloudError(problem, doing=DOING, status=fetched.status, code=code, retry_after=pause_of(fetched))


def _said(fetched: Fetched) -> dict[str, Any]:
    try:
        return msgspec.json.decode(fetched.body, type=dict[str, Any])
    except UNREADABLE:
        return {}
