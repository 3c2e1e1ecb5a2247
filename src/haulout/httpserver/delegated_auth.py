"""Who calls, and whether they may: the API server is asked about both, as it would decide about a call to itself.

A token is looked up by a TokenReview, and what its holder may do by a SubjectAccessReview. The answers are remembered
for a short while, under a digest of the token: Prometheus calls every few seconds, and so does who guesses. Valid and
wrong tokens are remembered apart, so that no number of wrong ones makes a valid one forgotten.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import msgspec

from haulout.api.objects import Base, RawObject
from haulout.api.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from haulout.errors import KubeError
from haulout.httpserver.expiring_cache import ExpiringCache
from haulout.httpserver.user import User
from haulout.kube import responses
from haulout.kube.client import Client
from haulout.kube.rbac import Permission
from haulout.kube.transport import Request

log = logging.getLogger(__name__)

_ALLOWED_TTL = timedelta(minutes=1)
_REFUSED_TTL = timedelta(seconds=10)
_MAX_CACHED = 1000
_RECENTLY_VALID_TTL = timedelta(hours=12)  # as long as a browser keeps a token
_MAX_RECENTLY_VALID = 10_000
_MAX_CONCURRENT_REVIEWS = 4
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether a call is answered, and if not, how it is refused."""

    status: HTTPStatus
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        """Tell whether it is answered."""
        return self.status is HTTPStatus.OK


class DelegatedAuth:
    """Judges calls by their `Authorization` header."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._users: ExpiringCache[bytes, User] = ExpiringCache(client.clock, max_size=_MAX_CACHED)
        self._refused: ExpiringCache[bytes, AccessDecision] = ExpiringCache(client.clock, max_size=_MAX_CACHED)
        self._recently_valid: ExpiringCache[bytes, bool] = ExpiringCache(client.clock, max_size=_MAX_RECENTLY_VALID)
        self._decisions: ExpiringCache[tuple[User, str], AccessDecision] = ExpiringCache(
            client.clock, max_size=_MAX_CACHED
        )
        self._token_reviews = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)
        self._access_reviews = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def authorize_get(self, path: str, *, authorization: str) -> AccessDecision:
        """Return whether whoever sent this header may read a path that is no resource, such as `/metrics`."""
        token = bearer_token(authorization)
        if not token:
            return AccessDecision(HTTPStatus.UNAUTHORIZED, "expected a bearer token")
        user = await self.authenticate(token)
        return user if isinstance(user, AccessDecision) else await self.authorize(path, user)

    def is_known(self, token: str) -> bool:
        """Tell whether a token is remembered, or was valid in the last hours: it is not a new guess."""
        key = _digest(token)
        return self._cached(key) is not None or self._recently_valid.get(key) is not None

    async def authenticate(self, token: str) -> User | AccessDecision:
        """Return whose a token is, or how they are refused."""
        key = _digest(token)
        if (found := self._cached(key)) is not None:
            return found
        async with self._token_reviews:
            if (found := self._cached(key)) is not None:  # asked by somebody else meanwhile
                return found
            try:
                found = await self._review_token(token)
            except KubeError as error:
                return _unavailable("who somebody is", error)
        if isinstance(found, AccessDecision):
            self._recently_valid.delete(key)
            return self._refused.put(key, found, ttl=_REFUSED_TTL)
        self._recently_valid.put(key, value=True, ttl=_RECENTLY_VALID_TTL)
        return self._users.put(key, found, ttl=_ALLOWED_TTL)

    def _cached(self, key: bytes) -> User | AccessDecision | None:
        return self._users.get(key) or self._refused.get(key)

    async def authorize(self, path: str, user: User) -> AccessDecision:
        """Return whether somebody may read a path that is no resource."""
        key = user, path
        if (decision := self._decisions.get(key)) is not None:
            return decision
        async with self._access_reviews:
            if (decision := self._decisions.get(key)) is not None:
                return decision
            try:
                decision = await self._review_access(path, user)
            except KubeError as error:
                return _unavailable(f"who may read {path}", error)
        return self._decisions.put(key, decision, ttl=_ALLOWED_TTL if decision.is_allowed else _REFUSED_TTL)

    @property
    def cached_count(self) -> int:
        """How many answers are remembered."""
        return len(self._users) + len(self._refused) + len(self._decisions)

    async def _review_token(self, token: str) -> User | AccessDecision:
        found = await self._create_review(TOKEN_REVIEWS, {"token": token}, "whose a token is")
        if not found.authenticated:
            return AccessDecision(HTTPStatus.UNAUTHORIZED, "the API server does not know this token")
        user = found.user
        try:
            return User.of(user.username, groups=user.groups, extra=user.extra, uid=user.uid)
        except ValueError as error:
            return AccessDecision(
                HTTPStatus.UNAUTHORIZED, f"the API server knows this token by a name of no use: {error}"
            )

    async def _review_access(self, path: str, user: User) -> AccessDecision:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        status = await self._create_review(SUBJECT_ACCESS_REVIEWS, spec, f"whether somebody may read {path}")
        if not status.allowed:
            return AccessDecision(HTTPStatus.FORBIDDEN, f"{user.name} may not get {path}")
        return AccessDecision(HTTPStatus.OK)

    async def _create_review(self, resource: Resource[Any], spec: RawObject, what: str) -> "_Status":
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        description = f"asking the server {what}"
        request = Request(method="POST", path=resource.path(), body=msgspec.json.encode(body))
        response = await self._client.request(request, doing=description)
        return responses.decode(_Review, response.body, doing=description).status


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header, or nothing."""
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token if token.isascii() and token.isprintable() else ""


def permissions() -> tuple[Permission, ...]:
    """Return what judging callers takes."""
    why = "tell who may read metrics"
    return tuple(
        Permission(("create",), resource.group, resource.plural, None, why)
        for resource in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _unavailable(what: str, error: KubeError) -> AccessDecision:
    log.warning("%s cannot be told: %s", what, error)
    return AccessDecision(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot be asked who you are")


class _User(Base, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class _Status(Base, frozen=True):
    """Of either review."""

    authenticated: bool = False
    user: _User = _User()
    allowed: bool = False


class _Review(Base, frozen=True):
    status: _Status = _Status()
