"""What a browser keeps: the token that somebody logged in with, or behind a proxy a number that nobody else knows.

No script can read them, and no other site has them sent. They name no path, so that they are for `…/api/v2` only, below
whatever prefix a browser sees that: with `kubectl proxy` all that is in the cluster has one address.
"""

import re
import secrets
from datetime import timedelta

from aiohttp import web

from haulout.web.auth import sites

TOKEN = "haulout-token"  # noqa: S105 - its name
NONCE = "haulout-page"
_LONGEST = 3800  # characters; browsers keep 4,096 together with the name and what is said about it
_KEPT_FOR = timedelta(hours=12)
_LEAST_NONCE = 32
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: what a token may be, and a cookie, too


def can_keep(token: str) -> bool:
    """Tell whether a browser can keep a token."""
    return len(token) <= _LONGEST and _BEARER.fullmatch(token) is not None


def token_of(request: web.Request) -> str:
    """Return the token that somebody logged in with; nothing, if there is none or it is none."""
    kept = request.cookies.get(TOKEN, "")
    return kept if can_keep(kept) else ""


def nonce_of(request: web.Request) -> str:
    """Return the number of a browser; nothing, if it has none."""
    found = request.cookies.get(NONCE, "")
    return found if len(found) >= _LEAST_NONCE else ""


def new_nonce() -> str:
    """Return a number that nobody can guess."""
    return secrets.token_urlsafe(_LEAST_NONCE)


def keep(request: web.Request, response: web.Response, name: str, value: str) -> None:
    """Have the browser keep it."""
    _set(request, response, name, value, kept_for=_KEPT_FOR)


def drop(request: web.Request, response: web.Response, name: str) -> None:
    """Have the browser forget it."""
    _set(request, response, name, "", kept_for=timedelta())


def _set(request: web.Request, response: web.Response, name: str, value: str, *, kept_for: timedelta) -> None:
    said = [f"{name}={value}", f"Max-Age={kept_for.total_seconds():.0f}", "HttpOnly", "SameSite=Strict"]
    said += [] if sites.is_local(request.headers) else ["Secure"]
    response.headers.add("Set-Cookie", "; ".join(said))
