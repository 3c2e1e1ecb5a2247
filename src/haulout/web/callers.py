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

from haulout.errors import KubeError
from haulout.kube import answers
from haulout.kube.access import Permission
from haulout.kube.client import Client
from haulout.kube.objects import Base, RawObject
from haulout.kube.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS, Resource
from haulout.kube.transport import Request
from haulout.web.auth.memory import Memory
from haulout.web.auth.users import User

log = logging.getLogger(__name__)

_YES_COUNTS_FOR = timedelta(minutes=1)
_NO_COUNTS_FOR = timedelta(seconds=10)
_REMEMBERED = 1000
_VALID_LATELY = timedelta(hours=12)  # as long as a browser keeps a token
_REMEMBERED_AS_VALID = 10_000
_QUESTIONS_AT_ONCE = 4
_BEARER = "bearer "


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call is answered, and if not, how it is refused."""

    status: HTTPStatus
    why: str = ""

    @property
    def is_allowed(self) -> bool:
        """Tell whether it is answered."""
        return self.status is HTTPStatus.OK


class Callers:
    """Judges calls by their `Authorization` header."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._users: Memory[bytes, User] = Memory(client.clock, most=_REMEMBERED)
        self._refused: Memory[bytes, Verdict] = Memory(client.clock, most=_REMEMBERED)
        self._valid_lately: Memory[bytes, bool] = Memory(client.clock, most=_REMEMBERED_AS_VALID)
        self._verdicts: Memory[tuple[User, str], Verdict] = Memory(client.clock, most=_REMEMBERED)
        self._token_reviews = asyncio.Semaphore(_QUESTIONS_AT_ONCE)
        self._access_reviews = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def may_get(self, path: str, *, authorization: str) -> Verdict:
        """Return whether whoever sent this header may read a path that is no resource, such as `/metrics`."""
        token = bearer(authorization)
        if not token:
            return Verdict(HTTPStatus.UNAUTHORIZED, "expected a bearer token")
        found = await self.holder(token)
        return found if isinstance(found, Verdict) else await self.may_read(path, found)

    def is_known(self, token: str) -> bool:
        """Tell whether a token is remembered, or was valid in the last hours: it is not a new guess."""
        key = _digest(token)
        return self._remembered(key) is not None or self._valid_lately.get(key) is not None

    async def holder(self, token: str) -> User | Verdict:
        """Return whose a token is, or how they are refused."""
        key = _digest(token)
        if (found := self._remembered(key)) is not None:
            return found
        async with self._token_reviews:
            if (found := self._remembered(key)) is not None:  # asked by somebody else meanwhile
                return found
            try:
                found = await self._holder(token)
            except KubeError as error:
                return _unknown("who somebody is", error)
        if isinstance(found, Verdict):
            self._valid_lately.forget(key)
            return self._refused.put(key, found, counts_for=_NO_COUNTS_FOR)
        self._valid_lately.put(key, value=True, counts_for=_VALID_LATELY)
        return self._users.put(key, found, counts_for=_YES_COUNTS_FOR)

    def _remembered(self, key: bytes) -> User | Verdict | None:
        return self._users.get(key) or self._refused.get(key)

    async def may_read(self, path: str, user: User) -> Verdict:
        """Return whether somebody may read a path that is no resource."""
        key = user, path
        if (verdict := self._verdicts.get(key)) is not None:
            return verdict
        async with self._access_reviews:
            if (verdict := self._verdicts.get(key)) is not None:
                return verdict
            try:
                verdict = await self._judged(path, user)
            except KubeError as error:
                return _unknown(f"who may read {path}", error)
        return self._verdicts.put(key, verdict, counts_for=_YES_COUNTS_FOR if verdict.is_allowed else _NO_COUNTS_FOR)

    @property
    def remembered(self) -> int:
        """How many answers are remembered."""
        return len(self._users) + len(self._refused) + len(self._verdicts)

    async def _holder(self, token: str) -> User | Verdict:
        found = await self._review(TOKEN_REVIEWS, {"token": token}, "whose a token is")
        if not found.authenticated:
            return Verdict(HTTPStatus.UNAUTHORIZED, "the API server does not know this token")
        user = found.user
        try:
            return User.of(user.username, groups=user.groups, extra=user.extra, uid=user.uid)
        except ValueError as error:
            return Verdict(HTTPStatus.UNAUTHORIZED, f"the API server knows this token by a name of no use: {error}")

    async def _judged(self, path: str, user: User) -> Verdict:
        question = {
            "user": user.name,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._review(SUBJECT_REVIEWS, question, f"whether somebody may read {path}")
        if not answer.allowed:
            return Verdict(HTTPStatus.FORBIDDEN, f"{user.name} may not get {path}")
        return Verdict(HTTPStatus.OK)

    async def _review(self, resource: Resource[Any], spec: RawObject, what: str) -> "_Status":
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        doing = f"asking the server {what}"
        request = Request(method="POST", path=resource.path(), body=msgspec.json.encode(body))
        response = await self._client.request(request, doing=doing)
        return answers.decode(_Review, response.body, doing=doing).status


def bearer(authorization: str) -> str:
    """Return the token of an `Authorization` header, or nothing."""
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token if token.isascii() and token.isprintable() else ""


def permissions() -> tuple[Permission, ...]:
    """Return what judging callers takes."""
    why = "tell who may read metrics"
    return tuple(
        Permission(("create",), resource.group, resource.plural, None, why)
        for resource in (TOKEN_REVIEWS, SUBJECT_REVIEWS)
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _unknown(what: str, error: KubeError) -> Verdict:
    log.warning("%s cannot be told: %s", what, error)
    return Verdict(HTTPStatus.SERVICE_UNAVAILABLE, "the API server cannot be asked who you are")


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
