"""As whom Google is asked: access tokens, without Google's SDK.

    tokens = Tokens(FromMetadata(fetch), clock=clock)
    headers = {"Authorization": f"Bearer {await tokens.current()}"}

- Without a file the metadata server gives them: for the service account that a pod has by workload identity, or else
  for that of the machine.
- A file (GOOGLE_APPLICATION_CREDENTIALS) has the key of a service account, with which a request for a token is signed,
  or what `gcloud auth application-default login` leaves for a person, or says whose token is exchanged for one of
  Google's (`workload_identity_federation`). It is read for each token, so that a new key is used without a restart.
  Files of other kinds are refused.

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
from haulout.providers.gcp import workload_identity_federation
from haulout.providers.gcp.metadata_event_source import FLAVOR
from haulout.providers.gcp.settings import CREDENTIALS_VARIABLE
from haulout.providers.gcp.token_response import DOING, Token, parse_token
from haulout.providers.gcp.workload_identity_federation import ExternalAccount, exchange_token
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch

_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_METADATA_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - a path
_UNAUTHORIZED = 401
_RENEW_BEFORE = timedelta(minutes=4)  # the metadata server has a new one by then
_ASSERTION_LIFETIME = timedelta(hours=1)
_MAX_FILE_BYTES = 1 << 16
_REQUIRED_FIELDS = {
    "service_account": ("client_email", "private_key"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}


class TokenIssuer(Protocol):
    """Gives tokens."""

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        ...


class TokenCache:
    """Has a token that is good; many may ask at once."""

    def __init__(self, issuer: TokenIssuer, *, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._cached: tuple[str, float] | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        """Return a token; raises `CloudError` if none can be had."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._cached is not None and now < self._cached[1]:
                return self._cached[0]
            token = await self._issuer.issue()
            self._cached = token.value, now + max(token.expires_in - _RENEW_BEFORE, timedelta()).total_seconds()
            return token.value

    def forget(self) -> None:
        """Get another for the next call: this one was refused."""
        self._cached = None


@dataclass(frozen=True, slots=True)
class MetadataTokenIssuer:
    """The metadata server gives them."""

    fetch: Fetch

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        return parse_token(await self.fetch("GET", _METADATA_TOKEN, headers=FLAVOR), "the metadata server")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTokenIssuer:
    """They are given for what is in a file; `fetch_for` makes the way to an address."""

    path: Path
    scope: str
    fetch_for: Callable[[str], Fetch]
    clock: Clock

    async def issue(self) -> Token:
        """Return a new one; raises `CloudError`."""
        try:
            key = read_credentials(self.path)
            if isinstance(key, ExternalAccount):
                return await exchange_token(key, scope=self.scope, fetch_for=self.fetch_for, clock=self.clock)
            form = self._form(key)
        except (ConfigError, ValueError) as error:
            raise CloudError(str(error), doing=DOING, status=_UNAUTHORIZED, code="NoAccess") from error
        url = urlsplit(key.get("token_uri") or _TOKEN_URI)
        fetch = self.fetch_for(f"{url.scheme}://{url.netloc}")
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return parse_token(await fetch("POST", url.path, headers=headers, body=urlencode(form).encode()), url.netloc)

    def _form(self, key: Mapping[str, str]) -> dict[str, str]:
        if key["type"] == "authorized_user":
            return {
                "grant_type": "refresh_token",
                **{field: key[field] for field in _REQUIRED_FIELDS["authorized_user"]},
            }
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        return {"grant_type": grant, "assertion": signed_assertion(key, scope=self.scope, now=self.clock.now())}


def read_credentials(path: Path) -> Mapping[str, str] | ExternalAccount:
    """Return what a file with credentials says; raises `ConfigError`."""
    try:
        content = path.read_bytes()[:_MAX_FILE_BYTES]
        found = msgspec.json.decode(content, type=dict[str, Any])
    except OSError as error:
        raise _config_error(f"expected a file that can be read, found {str(path)!r}: {error.strerror}") from error
    except DECODE_ERRORS as error:
        raise _config_error(f"expected JSON in {str(path)!r}: {error}") from error
    kind = str(found.get("type") or "")
    if kind == workload_identity_federation.TYPE:
        try:
            return workload_identity_federation.parse_external_account(found)
        except ValueError as error:
            raise _config_error(f"{error}, in {str(path)!r}") from error
    if kind not in _REQUIRED_FIELDS:
        expected = f"expected the type {', '.join((*_REQUIRED_FIELDS, workload_identity_federation.TYPE))}"
        raise _config_error(f"{expected}, in {str(path)!r}; found type {kind or 'none'}, which is not supported")
    for name in _REQUIRED_FIELDS[kind]:
        if not isinstance(found.get(name), str) or not found[name]:
            raise _config_error(f"expected {name} in {str(path)!r}, found none")
    return {name: value for name, value in found.items() if isinstance(value, str)}


def signed_assertion(key: Mapping[str, str], *, scope: str, now: datetime) -> str:
    """Return a signed request for a token (RFC 7523); raises ValueError if the private key is none."""
    # Only those need it who have a file.
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    header = {"alg": "RS256", "typ": "JWT", "kid": key.get("private_key_id", "")}
    issued_at = int(now.timestamp())
    claims = {
        "iss": key["client_email"],
        "scope": scope,
        "aud": key.get("token_uri") or _TOKEN_URI,
        "iat": issued_at,
        "exp": issued_at + int(_ASSERTION_LIFETIME.total_seconds()),
    }
    try:
        private_key = serialization.load_pem_private_key(key["private_key"].encode(), password=None)
    except (ValueError, TypeError):
        private_key = None
    if not isinstance(private_key, rsa.RSAPrivateKey):
        raise ValueError("private_key is no RSA key in PEM")  # noqa: TRY004 - what is wrong is what it says
    signing_input = b".".join(_base64url(msgspec.json.encode(part)) for part in (header, claims))
    signature = private_key.sign(signing_input, padding.PKCS1v15(), hashes.SHA256())
    return b".".join((signing_input, _base64url(signature))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _config_error(problem: str) -> ConfigError:
    return ConfigError(problem, file="environment", key=CREDENTIALS_VARIABLE)
