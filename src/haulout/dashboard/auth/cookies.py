"""Cookies of the dashboard: the token of a logged-in user, or a random nonce behind a proxy.

No script can read them, and other sites cannot make a browser send them. They have no path attribute, so that browsers
send them to `…/api/v2` only, below whatever prefix they see: with `kubectl proxy` all Services share one origin.
"""

import re
import secrets
from datetime import timedelta

from aiohttp import web

from haulout.dashboard.auth import csrf

TOKEN_COOKIE = "haulout-token"  # noqa: S105 - the name of the cookie
NONCE_COOKIE = "haulout-page"
_MAX_TOKEN_LENGTH = 3800  # characters; browsers allow 4,096 including name and attributes
_MAX_AGE = timedelta(hours=12)
_MIN_NONCE_LENGTH = 32
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: the characters of tokens, all allowed in cookies


def fits_in_cookie(token: str) -> bool:
    """Return whether a token can be stored in a cookie."""
    return len(token) <= _MAX_TOKEN_LENGTH and _BEARER.fullmatch(token) is not None


def token_of(request: web.Request) -> str:
    """Return the token of a logged-in user, or ""."""
    token = request.cookies.get(TOKEN_COOKIE, "")
    return token if fits_in_cookie(token) else ""


def nonce_of(request: web.Request) -> str:
    """Return the nonce of a browser, or ""."""
    nonce = request.cookies.get(NONCE_COOKIE, "")
    return nonce if len(nonce) >= _MIN_NONCE_LENGTH else ""


def new_nonce() -> str:
    """Return a random nonce."""
    return secrets.token_urlsafe(_MIN_NONCE_LENGTH)


def set_cookie(request: web.Request, response: web.Response, name: str, value: str) -> None:
    _set(request, response, name, value, max_age=_MAX_AGE)


def delete_cookie(request: web.Request, response: web.Response, name: str) -> None:
    _set(request, response, name, "", max_age=timedelta())


def _set(request: web.Request, response: web.Response, name: str, value: str, *, max_age: timedelta) -> None:
    attributes = [f"{name}={value}", f"Max-Age={max_age.total_seconds():.0f}", "HttpOnly", "SameSite=Strict"]
    attributes += [] if csrf.is_local(request.headers) else ["Secure"]
    response.headers.add("Set-Cookie", "; ".join(attributes))
