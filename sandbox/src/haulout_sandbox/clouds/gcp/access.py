"""Who may ask the Compute API: tokens that are given and that expire, keys of service accounts, and foreign tokens.

A foreign token is exchanged for one of ours, which may be used to speak for a service account.
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
from haulout_sandbox.clouds.gcp.instances import Document, refused

_LASTS = timedelta(hours=1)
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS = "urn:ietf:params:oauth:token-type:access_token"


class Access:
    """Gives tokens, and knows those that are good."""

    def __init__(self, clock: Clock) -> None:
        self.lasts = _LASTS
        self.keys: dict[str, rsa.RSAPublicKey] = {}  # by service account
        self.foreign: dict[str, str] = {}  # tokens of others that are believed, by audience
        self.spoken_for: set[str] = set()  # accounts that whoever has such a token may speak for
        self._clock = clock
        self._numbers = itertools.count(1)
        self._good_until: dict[str, float] = {}

    def know(self, account: str, public_key_pem: bytes) -> None:
        """Let a service account ask with a key."""
        key = serialization.load_pem_public_key(public_key_pem)
        if not isinstance(key, rsa.RSAPublicKey):
            raise TypeError("expected an RSA key")
        self.keys[account] = key

    def give(self) -> Document:
        """Return a new token."""
        token = f"ya29.sandbox-{next(self._numbers)}"
        self._good_until[token] = self._clock.monotonic() + self.lasts.total_seconds()
        return {"access_token": token, "expires_in": int(self.lasts.total_seconds()), "token_type": "Bearer"}

    def revoke(self) -> None:
        """Have no token be good any more."""
        self._good_until.clear()

    def check(self, authorization: str) -> None:
        """Raise `CloudError` unless a token is good."""
        good_until = self._good_until.get(authorization.removeprefix("Bearer "), 0.0)
        if self._clock.monotonic() >= good_until:
            raise refused("Request had invalid authentication credentials.", status=401, code="authError")

    def issue(self, form: bytes) -> Document:
        """Return a new token for a signed request."""
        asked = dict(parse_qsl(form.decode()))
        if asked.get("grant_type") == "refresh_token" and asked.get("refresh_token"):
            return self.give()
        claims = self._verified(asked.get("assertion", "")) if asked.get("grant_type") == _GRANT else {}
        now = self._clock.now().timestamp()
        if not claims.get("iat", now + 1) - 1 <= now < claims.get("exp", 0) or not claims.get("scope"):
            raise CloudError("Invalid JWT", doing="token", status=400, code="invalid_grant")
        return self.give()

    def exchange(self, form: bytes) -> Document:
        """Return a new token for a foreign one."""
        asked = dict(parse_qsl(form.decode()))
        is_right = asked.get("grant_type") == _EXCHANGE and asked.get("requested_token_type") == _ACCESS
        if not is_right or not asked.get("scope") or not asked.get("subject_token_type"):
            raise CloudError("Invalid value for a parameter", doing="token", status=400, code="invalid_request")
        believed = self.foreign.get(asked.get("audience", ""))
        if believed is None or asked.get("subject_token") != believed:
            raise CloudError("The given credential is rejected", doing="token", status=400, code="invalid_grant")
        return {**self.give(), "issued_token_type": _ACCESS}

    def speak_for(self, account: str, authorization: str, body: bytes) -> Document:
        """Return a new token of a service account."""
        self.check(authorization)
        wanted = msgspec.json.decode(body, type=dict[str, Any])
        if account not in self.spoken_for or not wanted.get("scope"):
            raise refused("Permission iam.serviceAccounts.getAccessToken denied", status=403, code="forbidden")
        expires = (self._clock.now() + self.lasts).replace(microsecond=0)
        return {"accessToken": self.give()["access_token"], "expireTime": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}

    def _verified(self, assertion: str) -> dict[str, Any]:
        head, _, signature = assertion.rpartition(".")
        try:
            claims = msgspec.json.decode(_decoded(head.partition(".")[2]), type=dict[str, Any])
            key = self.keys[claims["iss"]]
            key.verify(_decoded(signature), head.encode(), padding.PKCS1v15(), hashes.SHA256())
        except (msgspec.DecodeError, ValueError, KeyError, InvalidSignature):
            raise CloudError("Invalid JWT Signature.", doing="token", status=400, code="invalid_grant") from None
        return claims


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
