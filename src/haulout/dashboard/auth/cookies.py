"""What a browser keeps: the token that somebody logged in with, or behind a proxy a number that nobody else knows.

No script can read them, and no other site has them sent. They name no path, so that they are for `…/api/v2` only, below
whatever prefix a browser sees that: with `kubectl proxy` all that is in the cluster has one address.
"""

import re
import secrets
from datetime import timedelta

from aiohttp import web

from haulout.dashboard.auth import csrf

TOKEN_COOKIE = "haulout-token"  # noqa: S105 - its name
NONCE_COOKIE = "haulout-page"
_MAX_TOKEN_LENGTH = 3800  # characters; browsers keep 4,096 together with the name and what is said about it
_MAX_AGE = timedelta(hours=12)
_MIN_NONCE_LENGTH = 32
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: what a token may be, and a cookie, too


def fits_in_cookie(token: str) -> bool:
    """Tell whether a browser can keep a token."""
    return len(token) <= _MAX_TOKEN_LENGTH and _BEARER.fullmatch(token) is not None


def token_of(request: web.Request) -> str:
    """Return the token that somebody logged in with; nothing, if there is none or it is none."""
    token = request.cookies.get(TOKEN_COOKIE, "")
    return token if fits_in_cookie(token) else ""


def nonce_of(request: web.Request) -> str:
    """Return the number of a browser; nothing, if it has none."""
    nonce = request.cookies.get(NONCE_COOKIE, "")
    return nonce if len(nonce) >= _MIN_NONCE_LENGTH else ""


def new_nonce() -> str:
    """Return a number that nobody can guess."""
    return secrets.token_urlsafe(_MIN_NONCE_LENGTH)


def set_cookie(request: web.Request, response: web.Response, name: str, value: str) -> None:
    """Have the browser keep it."""
    _set(request, response, name, value, max_age=_MAX_AGE)


def delete_cookie(request: web.Request, response: web.Response, name: str) -> None:
    """Have the browser forget it."""
    _set(request, response, name, "", max_age=timedelta())


def _set(request: web.Request, response: web.Response, name: str, value: str, *, max_age: timedelta) -> None:
    attributes = [f"{name}={value}", f"Max-Age={max_age.total_seconds():.0f}", "HttpOnly", "SameSite=Strict"]
    attributes += [] if csrf.is_local(request.headers) else ["Secure"]
    response.headers.add("Set-Cookie", "; ".join(attributes))
