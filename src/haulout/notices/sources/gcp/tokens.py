"""As whom Google is asked: access tokens, without Google's SDK.

    tokens = Tokens(FromMetadata(fetch), clock=clock)
    headers = {"Authorization": f"Bearer {await tokens.current()}"}

- Without a file the metadata server gives them: for the service account that a pod has by workload identity, or else
  for that of the machine.
- A file (GOOGLE_APPLICATION_CREDENTIALS) has the key of a service account, with which a request for a token is signed,
  or what `gcloud auth application-default login` leaves for a person, or says whose token is exchanged for one of
  Google's (`federation`). It is read for each token, so that a new key is used without a restart. Files of other kinds
  are refused.

A token is kept until shortly before it expires, and forgotten when it is refused.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError, ConfigError
from haulout.notices.sources.fetching import UNREADABLE, Fetch
from haulout.notices.sources.gcp import federation
from haulout.notices.sources.gcp.federation import Federated, exchanged
from haulout.notices.sources.gcp.granting import DOING, Token, granted
from haulout.notices.sources.gcp.metadata import FLAVOR
from haulout.notices.sources.gcp.settings import FILE

_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_METADATA_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - a path
_UNAUTHORIZED = 401
_RENEWED_BEFORE = timedelta(minutes=4)  # the metadata server has a new one by then
_LASTS = timedelta(hours=1)
_LONGEST_FILE = 1 << 16
_NEEDED = {
    "service_account": ("client_email", "private_key"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}


class Issuer(Protocol):
    """Gives tokens."""

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        ...


class Tokens:
    """Has a token that is good; many may ask at once."""

    def __init__(self, issuer: Issuer, *, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._known: tuple[str, float] | None = None
        self._busy = asyncio.Lock()

    async def current(self) -> str:
        """Return a token; raises `CloudError` if none can be had."""
        async with self._busy:
            now = self._clock.monotonic()
            if self._known is not None and now < self._known[1]:
                return self._known[0]
            token = await self._issuer.issue()
            self._known = token.value, now + max(token.lasts - _RENEWED_BEFORE, timedelta()).total_seconds()
            return token.value

    def forget(self) -> None:
        """Get another for the next call: this one was refused."""
        self._known = None


@dataclass(frozen=True, slots=True)
class FromMetadata:
    """The metadata server gives them."""

    fetch: Fetch

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        return granted(await self.fetch("GET", _METADATA_TOKEN, headers=FLAVOR), "the metadata server")


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    """They are given for what is in a file; `reach` makes the way to an address."""

    path: Path
    scope: str
    reach: Callable[[str], Fetch]
    clock: Clock

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        try:
            key = read_key(self.path)
            if isinstance(key, Federated):
                return await exchanged(key, scope=self.scope, reach=self.reach, clock=self.clock)
            form = self._form(key)
        except (ConfigError, ValueError) as error:
            raise CloudError(str(error), doing=DOING, status=_UNAUTHORIZED, code="NoAccess") from error
        url = urlsplit(key.get("token_uri") or _TOKEN_URI)
        fetch = self.reach(f"{url.scheme}://{url.netloc}")
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return granted(await fetch("POST", url.path, headers=headers, body=urlencode(form).encode()), url.netloc)

    def _form(self, key: Mapping[str, str]) -> dict[str, str]:
        if key["type"] == "authorized_user":
            return {"grant_type": "refresh_token", **{it: key[it] for it in _NEEDED["authorized_user"]}}
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        return {"grant_type": grant, "assertion": assertion(key, scope=self.scope, now=self.clock.now())}


def read_key(path: Path) -> Mapping[str, str] | Federated:
    """Return what a file with credentials says; raises `ConfigError`."""
    try:
        written = path.read_bytes()[:_LONGEST_FILE]
        found = msgspec.json.decode(written, type=dict[str, Any])
    except OSError as error:
        raise _wrong(f"expected a file that can be read, found {str(path)!r}: {error.strerror}") from error
    except UNREADABLE as error:
        raise _wrong(f"expected JSON in {str(path)!r}: {error}") from error
    kind = str(found.get("type") or "")
    if kind == federation.TYPE:
        try:
            return federation.read(found)
        except ValueError as error:
            raise _wrong(f"{error}, in {str(path)!r}") from error
    if kind not in _NEEDED:
        expected = f"expected the type {', '.join((*_NEEDED, federation.TYPE))}"
        raise _wrong(f"{expected}, in {str(path)!r}; found type {kind or 'none'}, which is not supported")
    for name in _NEEDED[kind]:
        if not isinstance(found.get(name), str) or not found[name]:
            raise _wrong(f"expected {name} in {str(path)!r}, found none")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def assertion(key: Mapping[str, str], *, scope: str, now: datetime) -> str:
    """Return a signed request for a token (RFC 7523); raises ValueError if the private key is none."""
    # Only those need it who have a file.
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    header = {"alg": "RS256", "typ": "JWT", "kid": key.get("private_key_id", "")}
    begins = int(now.timestamp())
    claims = {
        "iss": key["client_email"],
        "scope": scope,
        "aud": key.get("token_uri") or _TOKEN_URI,
        "iat": begins,
        "exp": begins + int(_LASTS.total_seconds()),
    }
    try:
        private = serialization.load_pem_private_key(key["private_key"].encode(), password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError("private_key is no RSA key in PEM")  # noqa: TRY004 - what is wrong is what it says
    signed = b".".join(_encoded(msgspec.json.encode(it)) for it in (header, claims))
    signature = private.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return b".".join((signed, _encoded(signature))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _wrong(problem: str) -> ConfigError:
    return ConfigError(problem, file="environment", key=FILE)
