"""Cookies of the dashboard: the token of a logged-in user, or a random nonce behind a proxy.

No script can read them, and other sites cannot make a browser send them. They have no path attribute, so that browsers
send them to `…/api/v2` only, below whatever prefix they see: with `kubectl proxy` all Services share one origin.

Protection against cross-site request forgery. Pure. A browser sends cookies, and the credentials of a proxy, with
requests of any page. Other pages cannot set `Sec-Fetch-Site` or `Origin`, read our responses, or send a custom header
without a CORS preflight, which we never allow. A request that changes something must therefore meet both conditions:

- the browser says that the page is ours: by `Sec-Fetch-Site`, or by `Origin` in older browsers;
- the header X-Haulout-Csrf has the value from our answer to `GET /api/v2/session`. It is derived from the browser's
  cookie and not stored, so that all replicas compute the same.
"""

import contextlib
import hashlib
import hmac
import ipaddress
import re
import secrets
from datetime import timedelta
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDictProxy

TOKEN_COOKIE = "haulout-token"  # noqa: S105 - the name of the cookie
NONCE_COOKIE = "haulout-page"
_MAX_TOKEN_LENGTH = 3800  # characters; browsers allow 4,096 including name and attributes
_MAX_AGE = timedelta(hours=12)
_MIN_NONCE_LENGTH = 32
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: the characters of tokens, all allowed in cookies

CSRF_HEADER = "X-Haulout-Csrf"

Headers = CIMultiDictProxy[str]


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
    return secrets.token_urlsafe(_MIN_NONCE_LENGTH)


def set_cookie(request: web.Request, response: web.Response, name: str, value: str) -> None:
    _set(request, response, name, value, max_age=_MAX_AGE)


def delete_cookie(request: web.Request, response: web.Response, name: str) -> None:
    _set(request, response, name, "", max_age=timedelta())


def _set(request: web.Request, response: web.Response, name: str, value: str, *, max_age: timedelta) -> None:
    attributes = [f"{name}={value}", f"Max-Age={max_age.total_seconds():.0f}", "HttpOnly", "SameSite=Strict"]
    attributes += [] if is_local(request.headers) else ["Secure"]
    response.headers.add("Set-Cookie", "; ".join(attributes))


def is_same_origin(headers: Headers) -> bool:
    """Return whether the browser says that the page is ours, or no browser is involved."""
    sites, origins = headers.getall("Sec-Fetch-Site", []), headers.getall("Origin", [])
    if sites:
        return sites == ["same-origin"]
    if not origins:
        return True
    # A page of another site cannot change either header to its own host.
    hosts = {value.casefold() for name in ("Host", "X-Forwarded-Host") for value in headers.getall(name, [])}
    return len(origins) == 1 and _host(origins[0]) in hosts


def csrf_token(csrf_key: str, user: str) -> str:
    """Return the CSRF token: only the owner of `csrf_key` can compute it."""
    return hmac.new(csrf_key.encode(), b"haulout csrf\0" + user.encode(), hashlib.sha256).hexdigest()


def has_valid_csrf_token(headers: Headers, *, csrf_key: str, user: str) -> bool:
    """Return whether the request has the correct CSRF token."""
    sent = headers.get(CSRF_HEADER, "")
    return hmac.compare_digest(sent.encode(errors="replace"), csrf_token(csrf_key, user).encode())


def is_local(headers: Headers) -> bool:
    """Return whether the page is local and without TLS, as through `kubectl port-forward`."""
    if headers.get("X-Forwarded-Proto", "").casefold() == "https" or headers.get("Origin", "").startswith("https:"):
        return False
    name = ""
    with contextlib.suppress(ValueError):
        name = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_cleartext(headers: Headers) -> bool:
    """Return whether the page came over a network without TLS, so that others can read it."""
    return headers.get("Origin", "").startswith("http:") and not is_local(headers)


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:
        return ""
