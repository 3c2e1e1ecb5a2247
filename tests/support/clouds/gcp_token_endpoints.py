"""Google Cloud with the token endpoints for keys of service accounts and for tokens of other issuers.

An external token is exchanged for an access token, which may impersonate a service account.
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp.access_tokens import TOKEN_LIFETIME
from haulout_sandbox.clouds.gcp.instances import Document, api_error
from haulout_sandbox.clouds.gcp.request_handler import HttpResponse, error_response, json_response

_TOKEN_PATH, _EXCHANGE_PATH = "/token", "/v1/token"
_ACCOUNTS_PREFIX, _GENERATE_SUFFIX = "/v1/projects/-/serviceAccounts/", ":generateAccessToken"
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"


class GcpTokenEndpoints(GcpCloud):
    """A project whose clients may authenticate with keys and with external tokens."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.keys: dict[str, rsa.RSAPublicKey] = {}  # by service account
        self.external_tokens: dict[str, str] = {}  # accepted external tokens, by audience
        self.impersonatable_accounts: set[str] = set()  # service accounts that external tokens may impersonate

    def add_service_account_key(self, account: str, public_key_pem: bytes) -> None:
        key = serialization.load_pem_public_key(public_key_pem)
        assert isinstance(key, rsa.RSAPublicKey)
        self.keys[account] = key

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> HttpResponse:
        """Answer a request; raise `CloudError` with status 0 if no response must be sent."""
        path = urlsplit(target).path
        is_account = path.startswith(_ACCOUNTS_PREFIX)
        if path not in (_TOKEN_PATH, _EXCHANGE_PATH) and not is_account:
            return await super().answer(method, target, headers, body)
        try:
            if path == _TOKEN_PATH:
                return json_response(await self.faults.call("Token", lambda: self._grant_token(body)))
            if path == _EXCHANGE_PATH:
                return json_response(await self.faults.call("Exchange", lambda: self._exchange_token(body)))
            account = path.removeprefix(_ACCOUNTS_PREFIX).removesuffix(_GENERATE_SUFFIX)
            bearer = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
            return json_response(
                await self.faults.call("Speak", lambda: self._generate_access_token(account, bearer, body))
            )
        except CloudError as error:
            return error_response(error, _account_error if is_account else _token_error)

    def _grant_token(self, form: bytes) -> Document:
        """Return an access token for a signed JWT."""
        fields = dict(parse_qsl(form.decode()))
        if fields.get("grant_type") == "refresh_token" and fields.get("refresh_token"):
            return self.access_tokens.issue()
        claims = self._verify_assertion(fields.get("assertion", "")) if fields.get("grant_type") == _JWT_GRANT else {}
        now = self.clock.now().timestamp()
        if not claims.get("iat", now + 1) - 1 <= now < claims.get("exp", 0) or not claims.get("scope"):
            raise CloudError("Invalid JWT", doing="token", status=400, code="invalid_grant")
        return self.access_tokens.issue()

    def _exchange_token(self, form: bytes) -> Document:
        """Return an access token for an external token."""
        fields = dict(parse_qsl(form.decode()))
        is_valid = (
            fields.get("grant_type") == _EXCHANGE_GRANT and fields.get("requested_token_type") == _ACCESS_TOKEN_TYPE
        )
        if not is_valid or not fields.get("scope") or not fields.get("subject_token_type"):
            raise CloudError("Invalid value for a parameter", doing="token", status=400, code="invalid_request")
        expected = self.external_tokens.get(fields.get("audience", ""))
        if expected is None or fields.get("subject_token") != expected:
            raise CloudError("The given credential is rejected", doing="token", status=400, code="invalid_grant")
        return {**self.access_tokens.issue(), "issued_token_type": _ACCESS_TOKEN_TYPE}

    def _generate_access_token(self, account: str, authorization: str, body: bytes) -> Document:
        """Return an access token for a service account."""
        self.access_tokens.check(authorization)
        request = msgspec.json.decode(body, type=dict[str, Any])
        if account not in self.impersonatable_accounts or not request.get("scope"):
            raise api_error("Permission iam.serviceAccounts.getAccessToken denied", status=403, code="forbidden")
        expires = (self.clock.now() + TOKEN_LIFETIME).replace(microsecond=0)
        token = self.access_tokens.issue()["access_token"]
        return {"accessToken": token, "expireTime": f"{expires:%Y-%m-%dT%H:%M:%SZ}"}

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


def _token_error(error: CloudError) -> HttpResponse:
    return json_response({"error": error.code, "error_description": error.message})


def _account_error(error: CloudError) -> HttpResponse:
    return json_response({"error": {"code": error.status, "message": error.message}})
