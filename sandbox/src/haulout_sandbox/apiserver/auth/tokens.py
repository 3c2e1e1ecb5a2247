"""Bearer tokens: authentication, and tokens for service accounts.

Tokens of service accounts are JWTs with the claims of real ones, signed with a secret of the sandbox instead of a key
pair. All other tokens are a static mapping. A token bound to a pod or a Secret names it in its TokenRequest, but here
stays valid after that object is deleted.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from haulout_sandbox.apiserver.auth.rbac import AUTHENTICATED, User, service_account_user
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.status import bad_request, invalid, status_cause

GROUP = "authentication.k8s.io"
ISSUER = "https://kubernetes.default.svc"

Spec = TypeVar("Spec", bound=msgspec.Struct)
FindServiceAccount = Callable[[str, str], JsonObject | None]  # by namespace and name

_HEADER = {"alg": "HS256", "typ": "JWT"}
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_LEEWAY = timedelta(minutes=1)  # tolerated clock skew
_MIN_EXPIRATION_SECONDS = 600


class InvalidToken(Exception):
    """The token authenticates nobody; the message says why, as the real server words it."""


@dataclass(frozen=True, kw_only=True)
class TokenAuthenticator:
    """Authenticates `static_tokens`, and tokens signed with `secret`."""

    secret: bytes
    find_service_account: FindServiceAccount
    static_tokens: Mapping[str, User] = field(default_factory=dict)

    def sign(self, claims: JsonObject) -> str:
        """Return a signed token with these claims."""
        signed = ".".join(_base64url(msgspec.json.encode(part)) for part in (_HEADER, claims))
        return f"{signed}.{self._signature(signed)}"

    def authenticate(
        self, token: str, *, now: datetime, audiences: Sequence[str] = (ISSUER,)
    ) -> tuple[User, list[str]]:
        """Return the user of `token`, and those of `audiences` that it is valid for; raise `InvalidToken`."""
        static_user = self.static_tokens.get(token)
        if static_user is not None and ISSUER in audiences:
            return replace(static_user, groups=tuple(dict.fromkeys((*static_user.groups, AUTHENTICATED)))), [ISSUER]
        claims = self._verified_claims(token)
        if claims is None:
            raise InvalidToken("invalid bearer token")
        if problem := self._claims_problem(claims, now=now, audiences=audiences):
            raise InvalidToken(f"[invalid bearer token, {problem}]")
        kubernetes_claims = claims["kubernetes.io"]
        account, extra = kubernetes_claims["serviceaccount"], {_CREDENTIAL_ID: [f"JTI={claims['jti']}"]}
        user = service_account_user(kubernetes_claims["namespace"], account["name"], uid=account["uid"], extra=extra)
        return user, [audience for audience in audiences if audience in claims["aud"]]

    def _claims_problem(self, claims: JsonObject, *, now: datetime, audiences: Sequence[str]) -> str:
        if not set(claims["aud"]).intersection(audiences):
            return "the token is not meant for these audiences"
        if now.timestamp() > claims["exp"] + _LEEWAY.total_seconds():
            return "service account token has expired"
        kubernetes_claims = claims["kubernetes.io"]
        account = self.find_service_account(kubernetes_claims["namespace"], kubernetes_claims["serviceaccount"]["name"])
        if account is None or account["metadata"]["uid"] != kubernetes_claims["serviceaccount"]["uid"]:
            return "its service account is gone"
        return ""

    def _verified_claims(self, token: str) -> JsonObject | None:
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(signed).encode(), signature.encode()):
            return None
        payload = signed.partition(".")[2]
        claims: JsonObject = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims

    def _signature(self, signed: str) -> str:
        return _base64url(hmac.new(self.secret, signed.encode(), hashlib.sha256).digest())


class _Request(msgspec.Struct, rename="camel"):
    audiences: list[str] = []
    expiration_seconds: int = 3600
    bound_object_ref: dict[str, Any] | None = None


def issue_token(
    tokens: TokenAuthenticator, account: JsonObject, body: JsonObject, *, now: datetime, token_id: str
) -> JsonObject:
    """Answer a TokenRequest posted to `serviceaccounts/NAME/token`; `token_id` must be new and unique."""
    meta, spec = account["metadata"], decode_spec(body, _Request)
    audiences, seconds = spec.audiences or [ISSUER], spec.expiration_seconds
    if seconds < _MIN_EXPIRATION_SECONDS:
        detail = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise invalid(GROUP, "TokenRequest", "", [status_cause("FieldValueInvalid", "spec.expirationSeconds", detail)])
    issued_at = int(now.timestamp())
    kubernetes_claims = {"namespace": meta["namespace"], "serviceaccount": {"name": meta["name"], "uid": meta["uid"]}}
    claims = {
        "aud": audiences,
        "exp": issued_at + seconds,
        "iat": issued_at,
        "iss": ISSUER,
        "jti": token_id,
        "kubernetes.io": kubernetes_claims,
        "nbf": issued_at,
        "sub": service_account_user(meta["namespace"], meta["name"]).name,
    }
    expires = now + timedelta(seconds=seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "creationTimestamp": _format_time(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.bound_object_ref,
        },
        "status": {"token": tokens.sign(claims), "expirationTimestamp": _format_time(expires)},
    }


def decode_spec(body: JsonObject, struct: type[Spec]) -> Spec:
    try:
        return msgspec.convert(_without_nulls(body.get("spec") or {}), struct)
    except msgspec.ValidationError as error:
        raise bad_request(f"{body.get('kind', 'the object provided')} cannot be handled: spec: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _format_time(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
