"""Bearer tokens: who holds one, and how a service account gets one.

Tokens of service accounts are JWTs with the claims of real ones, signed with a secret of the sandbox instead of a key
pair. All others are a mapping that whoever starts the sandbox gives. A token that is bound to a pod or a secret says
so in the answer to its request, but outlives it here.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.rbac import AUTHENTICATED, User, account_user
from haulout_sandbox.apiserver.status import bad_request, field_error, invalid

GROUP = "authentication.k8s.io"
ISSUER = "https://kubernetes.default.svc"

Spec = TypeVar("Spec", bound=msgspec.Struct)
FindAccount = Callable[[str, str], JsonObject | None]  # by namespace and name

_HEADER = {"alg": "HS256", "typ": "JWT"}
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
_LEEWAY = timedelta(minutes=1)  # clocks differ
_LEAST_SECONDS = 600


class BadToken(Exception):
    """Nobody is known by this token; the message says why, as the server does."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens that the sandbox recognises: those `given`, and those that it signed with its `secret`."""

    secret: bytes
    find_account: FindAccount
    given: Mapping[str, User] = field(default_factory=dict)

    def sign(self, claims: JsonObject) -> str:
        """Return a token that makes these claims."""
        signed = ".".join(_encoded(msgspec.json.encode(it)) for it in (_HEADER, claims))
        return f"{signed}.{self._signature(signed)}"

    def holder(self, token: str, *, now: datetime, audiences: Sequence[str] = (ISSUER,)) -> tuple[User, list[str]]:
        """Return who holds `token`, and for which of the `audiences` it is meant; raises `BadToken`."""
        known = self.given.get(token)
        if known is not None and ISSUER in audiences:
            return replace(known, groups=tuple(dict.fromkeys((*known.groups, AUTHENTICATED)))), [ISSUER]
        claims = self._claims(token)
        if claims is None:
            raise BadToken("invalid bearer token")
        if problem := self._problem(claims, now=now, audiences=audiences):
            raise BadToken(f"[invalid bearer token, {problem}]")
        about = claims["kubernetes.io"]
        account, extra = about["serviceaccount"], {_CREDENTIAL: [f"JTI={claims['jti']}"]}
        user = account_user(about["namespace"], account["name"], uid=account["uid"], extra=extra)
        return user, [audience for audience in audiences if audience in claims["aud"]]

    def _problem(self, claims: JsonObject, *, now: datetime, audiences: Sequence[str]) -> str:
        if not set(claims["aud"]).intersection(audiences):
            return "the token is not meant for these audiences"
        if now.timestamp() > claims["exp"] + _LEEWAY.total_seconds():
            return "service account token has expired"
        about = claims["kubernetes.io"]
        account = self.find_account(about["namespace"], about["serviceaccount"]["name"])
        if account is None or account["metadata"]["uid"] != about["serviceaccount"]["uid"]:
            return "its service account is gone"
        return ""

    def _claims(self, token: str) -> JsonObject | None:
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(signed).encode(), signature.encode()):
            return None
        payload = signed.partition(".")[2]
        claims: JsonObject = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.new(self.secret, signed.encode(), hashlib.sha256).digest())


class _Request(msgspec.Struct, rename="camel"):
    audiences: list[str] = []
    expiration_seconds: int = 3600
    bound_object_ref: dict[str, Any] | None = None


def issue(tokens: Tokens, account: JsonObject, body: JsonObject, *, now: datetime, token_id: str) -> JsonObject:
    """Answer a TokenRequest, posted to `serviceaccounts/NAME/token`; `token_id` is new and unique."""
    meta, spec = account["metadata"], spec_of(body, _Request)
    audiences, seconds = spec.audiences or [ISSUER], spec.expiration_seconds
    if seconds < _LEAST_SECONDS:
        why = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        raise invalid(GROUP, "TokenRequest", "", [field_error("FieldValueInvalid", "spec.expirationSeconds", why)])
    issued_at = int(now.timestamp())
    about = {"namespace": meta["namespace"], "serviceaccount": {"name": meta["name"], "uid": meta["uid"]}}
    claims = {
        "aud": audiences,
        "exp": issued_at + seconds,
        "iat": issued_at,
        "iss": ISSUER,
        "jti": token_id,
        "kubernetes.io": about,
        "nbf": issued_at,
        "sub": account_user(meta["namespace"], meta["name"]).name,
    }
    expires = now + timedelta(seconds=seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "creationTimestamp": _stamp(now),
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.bound_object_ref,
        },
        "status": {"token": tokens.sign(claims), "expirationTimestamp": _stamp(expires)},
    }


def spec_of(body: JsonObject, kind: type[Spec]) -> Spec:
    """Return the spec of what was posted."""
    try:
        return msgspec.convert(_without_nulls(body.get("spec") or {}), kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"{body.get('kind', 'the object provided')} cannot be handled: spec: {error}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _stamp(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
