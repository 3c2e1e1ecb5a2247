"""Authenticate and authorize callers against the API server, with TokenReview and SubjectAccessReview.

Results are cached for a short while under a digest of the token, because Prometheus calls every few seconds, and so may
an attacker who guesses tokens. Valid and rejected tokens have separate caches, so that no number of rejected tokens
evicts a valid one.

A `User` is what the API server or a proxy reports of a caller; it returns clients that impersonate the caller.
"""

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from haulout.api.objects import Base, RawObject
from haulout.api.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from haulout.core.clock import Clock
from haulout.errors import KubeError
from haulout.kube import responses, transport
from haulout.kube.client import Client
from haulout.kube.rbac import Permission
from haulout.kube.transport import Request

log = logging.getLogger(__name__)

# How long a revoked token or permission still works, and how long a newly granted one is still refused.
_ALLOWED_TTL = timedelta(minutes=1)
_REFUSED_TTL = timedelta(seconds=10)
_MAX_CACHED = 1000
_RECENTLY_VALID_TTL = timedelta(hours=12)  # as long as a browser keeps a token
_MAX_RECENTLY_VALID = 10_000
# Guessed tokens must not use up the requests that API priority and fairness grants to the operator.
_MAX_CONCURRENT_REVIEWS = 4
_BEARER = "bearer "

FIELD_MANAGER = "haulout-dashboard"  # as shown in `managedFields`

_AUTHENTICATED = "system:authenticated"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):[^:]+")
# Such entries tell where a token comes from, and grant nothing.
_CREDENTIAL_EXTRA_PREFIX = "authentication.kubernetes.io/"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """Whether a request is allowed, and if not, with which status and reason it is refused."""

    status: HTTPStatus
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.status is HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user, with everything that the API server needs to authorize the user again."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uid: str = ""

    @classmethod
    def of(
        cls, name: str, *, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None, uid: str = ""
    ) -> "User":
        """Return a user; raise `ValueError` if impersonation headers cannot carry its name, groups or extra."""
        extra_items = {key: tuple(values) for key, values in sorted((extra or {}).items())}
        groups = tuple(dict.fromkeys(groups))
        if not name:
            raise ValueError("expected a name")
        # For the check only. A user who cannot be impersonated must not be authenticated.
        transport.impersonation_headers(name, groups=groups, extra=extra_items)
        return cls(name, groups, tuple(extra_items.items()), uid)

    def impersonating_client(self, client: Client) -> Client:
        """Return a client that impersonates this user.

        The API server adds the groups of all users and of all service accounts itself. They are left out, because RBAC
        may allow to impersonate a service account by name only. Everything else is sent, such as the scopes of an
        OpenShift token: a restricted token must not gain rights here.
        """
        account = _SERVICE_ACCOUNT.fullmatch(self.name)
        implicit_groups = {_AUTHENTICATED}
        implicit_groups |= {"system:serviceaccounts", f"system:serviceaccounts:{account[1]}"} if account else set()
        headers = transport.impersonation_headers(
            self.name,
            groups=[group for group in self.groups if group not in implicit_groups],
            extra={key: values for key, values in self.extra if not key.startswith(_CREDENTIAL_EXTRA_PREFIX)},
        )
        return client.impersonate(headers, field_manager=FIELD_MANAGER)


class DelegatedAuth:
    """Authenticates and authorizes requests by their `Authorization` header."""

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
        """Return whether the sender of this header may GET a non-resource path such as `/metrics`."""
        token = bearer_token(authorization)
        if not token:
            return AccessDecision(HTTPStatus.UNAUTHORIZED, "expected a bearer token")
        user = await self.authenticate(token)
        return user if isinstance(user, AccessDecision) else await self.authorize(path, user)

    def is_known(self, token: str) -> bool:
        """Return whether a token is cached or was valid within the last hours, so that it is no new guess."""
        key = _digest(token)
        return self._cached(key) is not None or self._recently_valid.get(key) is not None

    async def authenticate(self, token: str) -> User | AccessDecision:
        """Return the user of a token, or the decision that refuses it."""
        key = _digest(token)
        if (found := self._cached(key)) is not None:
            return found
        async with self._token_reviews:
            if (found := self._cached(key)) is not None:  # a concurrent request has filled the cache meanwhile
                return found
            try:
                found = await self._review_token(token)
            except KubeError as error:
                # Not cached: the API server may answer the next time.
                return _unavailable("authenticate a token", error)
        if isinstance(found, AccessDecision):
            self._recently_valid.delete(key)
            return self._refused.put(key, found, ttl=_REFUSED_TTL)
        self._recently_valid.put(key, value=True, ttl=_RECENTLY_VALID_TTL)
        return self._users.put(key, found, ttl=_ALLOWED_TTL)

    def _cached(self, key: bytes) -> User | AccessDecision | None:
        return self._users.get(key) or self._refused.get(key)

    async def authorize(self, path: str, user: User) -> AccessDecision:
        key = user, path
        if (decision := self._decisions.get(key)) is not None:
            return decision
        async with self._access_reviews:
            if (decision := self._decisions.get(key)) is not None:
                return decision
            try:
                decision = await self._review_access(path, user)
            except KubeError as error:
                return _unavailable(f"authorize a request for {path}", error)
        return self._decisions.put(key, decision, ttl=_ALLOWED_TTL if decision.is_allowed else _REFUSED_TTL)

    async def _review_token(self, token: str) -> User | AccessDecision:
        found = await self._create_review(TOKEN_REVIEWS, {"token": token}, "for the user of a token")
        if not found.authenticated:
            return AccessDecision(HTTPStatus.UNAUTHORIZED, "the API server does not accept this token")
        user = found.user
        try:
            return User.of(user.username, groups=user.groups, extra=user.extra, uid=user.uid)
        except ValueError as error:
            return AccessDecision(
                HTTPStatus.UNAUTHORIZED, f"the API server returned an invalid user name for this token: {error}"
            )

    async def _review_access(self, path: str, user: User) -> AccessDecision:
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        status = await self._create_review(SUBJECT_ACCESS_REVIEWS, spec, f"whether a user may read {path}")
        if not status.allowed:
            return AccessDecision(HTTPStatus.FORBIDDEN, f"{user.name} cannot get {path}")
        return AccessDecision(HTTPStatus.OK)

    async def _create_review(self, resource: Resource[Any], spec: RawObject, what: str) -> "_Status":
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        description = f"asking the server {what}"
        request = Request(method="POST", path=resource.path(), body=msgspec.json.encode(body))
        response = await self._client.request(request, doing=description)
        return responses.decode(_Review, response.body, doing=description).status


def bearer_token(authorization: str) -> str:
    """Return the token of an `Authorization` header, or ""."""
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token if token.isascii() and token.isprintable() else ""


def permissions() -> tuple[Permission, ...]:
    why = "authorize readers of metrics"
    return tuple(
        Permission(("create",), resource.group, resource.plural, None, why)
        for resource in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS)
    )


def _digest(token: str) -> bytes:
    # So that no memory dump of the cache contains a token, and a lookup compares digests, not tokens.
    return hashlib.sha256(token.encode()).digest()


def _unavailable(what: str, error: KubeError) -> AccessDecision:
    log.warning("cannot %s: %s", what, error)
    return AccessDecision(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot check this token now")


class _User(Base, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class _Status(Base, frozen=True):
    """The status of a TokenReview or a SubjectAccessReview."""

    authenticated: bool = False
    user: _User = _User()
    allowed: bool = False


class _Review(Base, frozen=True):
    status: _Status = _Status()


class ExpiringCache(Generic[K, V]):
    """Holds at most `max_size` entries, each with its own TTL."""

    def __init__(self, clock: Clock, *, max_size: int) -> None:
        self._clock = clock
        self._max_size = max_size
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value of an entry that has not expired, else None."""
        found = self._entries.get(key)
        return found[1] if found is not None and self._clock.monotonic() < found[0] else None

    def put(self, key: K, value: V, *, ttl: timedelta) -> V:
        self._entries[key] = self._clock.monotonic() + ttl.total_seconds(), value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_size:
            self._entries.popitem(last=False)
        return value

    def delete(self, key: K) -> None:
        self._entries.pop(key, None)
