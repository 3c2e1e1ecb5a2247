"""Whether a page of ours asks, or one of somebody else in the same browser. Pure.

A browser sends cookies, and what a proxy knows people by, along with whatever any page has it ask. What other pages
cannot do: set `Sec-Fetch-Site` or `Origin`, read our answers, or send a header of their own without asking first, which
nobody here says yes to. So of what changes something each of these is wanted:

- the browser says that the page is ours: `Sec-Fetch-Site`, or `Origin` where it knows no other;
- the header X-Haulout-Csrf says what our answer to `GET /api/v2/session` said. It is made from what the browser has,
  not kept: every replica makes the same.
"""

import contextlib
import hashlib
import hmac
import ipaddress
from urllib.parse import urlsplit

from multidict import CIMultiDictProxy

CSRF_HEADER = "X-Haulout-Csrf"

Headers = CIMultiDictProxy[str]


def is_same_origin(headers: Headers) -> bool:
    """Tell whether a browser says that a page of ours asks, or no browser says anything."""
    sites, origins = headers.getall("Sec-Fetch-Site", []), headers.getall("Origin", [])
    if sites:
        return sites == ["same-origin"]
    if not origins:
        return True
    # A page elsewhere cannot have either of them say its own host.
    hosts = {value.casefold() for name in ("Host", "X-Forwarded-Host") for value in headers.getall(name, [])}
    return len(origins) == 1 and _host(origins[0]) in hosts


def csrf_token(csrf_key: str, user: str) -> str:
    """Return what is to be sent back: only who knows `csrf_key` can tell."""
    return hmac.new(csrf_key.encode(), b"haulout csrf\0" + user.encode(), hashlib.sha256).hexdigest()


def has_valid_csrf_token(headers: Headers, *, csrf_key: str, user: str) -> bool:
    """Tell whether they have sent it back."""
    sent = headers.get(CSRF_HEADER, "")
    return hmac.compare_digest(sent.encode(errors="replace"), csrf_token(csrf_key, user).encode())


def is_local(headers: Headers) -> bool:
    """Tell whether the page is one of this very machine, as through `kubectl port-forward`, and without TLS."""
    if headers.get("X-Forwarded-Proto", "").casefold() == "https" or headers.get("Origin", "").startswith("https:"):
        return False
    name = ""
    with contextlib.suppress(ValueError):
        name = urlsplit(f"//{headers.get('Host', '')}").hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def is_cleartext(headers: Headers) -> bool:
    """Tell whether the page came without TLS over a network, so that others could have read along."""
    return headers.get("Origin", "").startswith("http:") and not is_local(headers)


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.casefold()
    except ValueError:
        return ""
