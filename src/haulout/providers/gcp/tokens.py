"""Access tokens for Google, without Google's SDK.

    tokens = TokenCache(MetadataTokenIssuer(fetch), clock=clock)
    headers = {"Authorization": f"Bearer {await tokens.current()}"}

- Without a file the metadata server issues tokens: for the service account of the pod (workload identity), or else for
  that of the machine.
- A file (GOOGLE_APPLICATION_CREDENTIALS) has the key of a service account, which signs a token request, or the result
  of `gcloud auth application-default login`, or names the external token to exchange for one of Google
  (`workload_identity_federation`). It is read for each token, so that a new key applies without a restart. Files of
  other types are rejected.

A token is cached until shortly before it expires, and dropped when it is rejected.
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
from haulout.providers.gcp.workload_identity_federation import (
    DOING,
    AccessToken,
    ExternalAccount,
    exchange_token,
    parse_token,
)
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch

_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_METADATA_TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - a path
_UNAUTHORIZED = 401
_RENEW_BEFORE = timedelta(minutes=4)  # the metadata server has a new token by then
_ASSERTION_LIFETIME = timedelta(hours=1)
_MAX_FILE_BYTES = 1 << 16
_REQUIRED_FIELDS = {
    "service_account": ("client_email", "private_key"),
    "authorized_user": ("client_id", "client_secret", "refresh_token"),
}


class TokenIssuer(Protocol):
    """Issues access tokens. `TokenCache` decides when a new one is needed."""

    async def issue(self) -> AccessToken:
        """Return a new token; raise `CloudError`."""
        ...


class TokenCache:
    """Caches a valid token; safe for concurrent callers."""

    def __init__(self, issuer: TokenIssuer, *, clock: Clock) -> None:
        self._issuer = issuer
        self._clock = clock
        self._cached: tuple[str, float] | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        """Return a valid token; raise `CloudError` if none is issued."""
        # One request at a time: callers that wait get the token that the first one caused.
        async with self._lock:
            now = self._clock.monotonic()
            if self._cached is not None and now < self._cached[1]:
                return self._cached[0]
            token = await self._issuer.issue()
            self._cached = token.value, now + max(token.expires_in - _RENEW_BEFORE, timedelta()).total_seconds()
            return token.value

    def forget(self) -> None:
        """Drop the cached token, since it was rejected."""
        self._cached = None


@dataclass(frozen=True, slots=True)
class MetadataTokenIssuer:
    """Gets tokens from the metadata server, for the account that is attached to the pod or machine."""

    fetch: Fetch

    async def issue(self) -> AccessToken:
        return parse_token(await self.fetch("GET", _METADATA_TOKEN, headers=FLAVOR), "the metadata server")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTokenIssuer:
    """Gets tokens with the credentials in a file; `fetch_for` returns a `Fetch` for an address."""

    path: Path
    scope: str
    fetch_for: Callable[[str], Fetch]
    clock: Clock

    async def issue(self) -> AccessToken:
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
    """Return the credentials in a file; raise `ConfigError`."""
    try:
        content = path.read_bytes()[:_MAX_FILE_BYTES]
        found = msgspec.json.decode(content, type=dict[str, Any])
    except OSError as error:
        raise _config_error(f"expected a readable file, found {str(path)!r}: {error.strerror}") from error
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
    """Return a signed token request (RFC 7523); raise ValueError if the private key is invalid."""
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
        raise ValueError("private_key is not an RSA key in PEM")  # noqa: TRY004 - the value is invalid, not its type
    signing_input = b".".join(_base64url(msgspec.json.encode(part)) for part in (header, claims))
    signature = private_key.sign(signing_input, padding.PKCS1v15(), hashes.SHA256())
    return b".".join((signing_input, _base64url(signature))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _config_error(problem: str) -> ConfigError:
    return ConfigError(problem, file="environment", key=CREDENTIALS_VARIABLE)
