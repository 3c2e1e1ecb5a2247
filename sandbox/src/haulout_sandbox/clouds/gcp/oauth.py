"""Authentication for the Compute API: expiring access tokens, service account keys, and external tokens.

An external token is exchanged for an access token, which may impersonate a service account.
"""

import base64
import itertools
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.gcp.instances import Document, api_error

_TOKEN_LIFETIME = timedelta(hours=1)
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - names, not secrets
_ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - names, not secrets


class OAuthServer:
    """Issues and checks access tokens."""

    def __init__(self, clock: Clock) -> None:
        self.token_lifetime = _TOKEN_LIFETIME
        self.keys: dict[str, rsa.RSAPublicKey] = {}  # by service account
        self.external_tokens: dict[str, str] = {}  # accepted external tokens, by audience
        self.impersonatable_accounts: set[str] = set()  # service accounts that external tokens may impersonate
        self._clock = clock
        self._numbers = itertools.count(1)
        self._expires_at: dict[str, float] = {}

    def add_service_account_key(self, account: str, public_key_pem: bytes) -> None:
        key = serialization.load_pem_public_key(public_key_pem)
        if not isinstance(key, rsa.RSAPublicKey):
            raise TypeError("expected an RSA key")
        self.keys[account] = key

    def issue_access_token(self) -> Document:
        token = f"ya29.sandbox-{next(self._numbers)}"
        self._expires_at[token] = self._clock.monotonic() + self.token_lifetime.total_seconds()
        return {"access_token": token, "expires_in": int(self.token_lifetime.total_seconds()), "token_type": "Bearer"}

    def revoke_all(self) -> None:
        self._expires_at.clear()

    def check_token(self, authorization: str) -> None:
        """Raise `CloudError` unless the token is valid."""
        expires_at = self._expires_at.get(authorization.removeprefix("Bearer "), 0.0)
        if self._clock.monotonic() >= expires_at:
            raise api_error("Request had invalid authentication credentials.", status=401, code="authError")

    def handle_token_request(self, form: bytes) -> Document:
        """Return an access token for a signed JWT."""
        fields = dict(parse_qsl(form.decode()))
        if fields.get("grant_type") == "refresh_token" and fields.get("refresh_token"):
            return self.issue_access_token()
        claims = self._verify_assertion(fields.get("assertion", "")) if fields.get("grant_type") == _JWT_GRANT else {}
        now = self._clock.now().timestamp()
        if not claims.get("iat", now + 1) - 1 <= now < claims.get("exp", 0) or not claims.get("scope"):
            raise CloudError("Invalid JWT", doing="token", status=400, code="invalid_grant")
        return self.issue_access_token()

    def exchange_token(self, form: bytes) -> Document:
        """Return an access token for an external token."""
        fields = dict(parse_qsl(form.decode()))
        is_valid = (
            fields.get("grant_type") == _TOKEN_EXCHANGE_GRANT
            and fields.get("requested_token_type") == _ACCESS_TOKEN_TYPE
        )
        if not is_valid or not fields.get("scope") or not fields.get("subject_token_type"):
            raise CloudError("Invalid value for a parameter", doing="token", status=400, code="invalid_request")
        expected = self.external_tokens.get(fields.get("audience", ""))
        if expected is None or fields.get("subject_token") != expected:
            raise CloudError("The given credential is rejected", doing="token", status=400, code="invalid_grant")
        return {**self.issue_access_token(), "issued_token_type": _ACCESS_TOKEN_TYPE}

    def generate_access_token(self, account: str, authorization: str, body: bytes) -> Document:
        """Return an access token for a service account."""
        self.check_token(authorization)
        request = msgspec.json.decode(body, type=dict[str, Any])
        if account not in self.impersonatable_accounts or not request.get("scope"):
            raise api_error("Permission iam.serviceAccounts.getAccessToken denied", status=403, code="forbidden")
        expires = (self._clock.now() + self.token_lifetime).replace(microsecond=0)
        return {"accessToken": self.issue_access_token()["access_token"], "expireTime": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}

    def _verify_assertion(self, assertion: str) -> dict[str, Any]:
        signed_part, _, signature = assertion.rpartition(".")
        try:
            claims = msgspec.json.decode(_decode_base64url(signed_part.partition(".")[2]), type=dict[str, Any])
            key = self.keys[claims["iss"]]
            key.verify(_decode_base64url(signature), signed_part.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (msgspec.DecodeError, ValueError, KeyError, InvalidSignature):
            raise CloudError("Invalid JWT Signature.", doing="token", status=400, code="invalid_grant") from None
        return claims


def _decode_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
