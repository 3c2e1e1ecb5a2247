"""Where people say who they are, and what they want done: `/api/v2/session` and `/api/v2/acts`.

Who acts is asked more than who reads: that a page of ours asks, that it has seen our answer, and not too often.
"""

import logging
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from haulout.core.clock import Clock
from haulout.kube.transport import Token
from haulout.web.api import asking
from haulout.web.api.answering import once
from haulout.web.api.bodies import body_of
from haulout.web.api.routes import ROOT, guarded
from haulout.web.api.shapes import Act, ActKind, AuthMode, Done, Login, Session
from haulout.web.api.source import Unanswerable
from haulout.web.auth import cookies, sites
from haulout.web.auth.buckets import Buckets
from haulout.web.auth.delegation import Caller
from haulout.web.auth.door import Asker, Door
from haulout.web.auth.rate_limits import TooOften
from haulout.web.auth.users import User
from haulout.web.callers import Verdict

log = logging.getLogger(__name__)

T = TypeVar("T")

_LARGEST = 64 << 10
_FORBIDDEN = HTTPStatus.FORBIDDEN


class Performing(Protocol):
    """Does what people want done."""

    async def offered(self, caller: Caller) -> tuple[ActKind, ...]:
        """Return what somebody may do, as far as can be told beforehand."""
        ...

    async def perform(self, act: Act, caller: Caller) -> Done:
        """Do it as somebody; raises `Unanswerable`."""
        ...


class Desk:
    """Takes requests of people who are known."""

    def __init__(self, door: Door, performing: Performing, *, clock: Clock) -> None:
        self._door = door
        self._performing = performing
        self._of_user = Buckets(clock, burst=30, refill=timedelta(seconds=2))

    def add_routes(self, app: web.Application) -> None:
        """Add the addresses."""
        app.router.add_get(f"{ROOT}/session", guarded(self._session))
        app.router.add_post(f"{ROOT}/session", guarded(self._log_in))
        app.router.add_delete(f"{ROOT}/session", guarded(self._log_out))
        app.router.add_post(f"{ROOT}/acts", guarded(self._act))

    async def _session(self, request: web.Request) -> web.StreamResponse:
        asker = await self._door.asker(request)
        nonce = ""
        if self._door.mode is AuthMode.PROXY and asker.is_browser and not asker.binding:
            nonce = cookies.new_nonce()
            asker = replace(asker, binding=nonce)
        response = once(await self._told(asker))
        if nonce:
            cookies.keep(request, response, cookies.NONCE, nonce)
        return response

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        _check_page(request)
        if self._door.mode is not AuthMode.TOKEN:
            raise Unanswerable(f"nobody logs in here: the dashboard runs with --dashboard-auth={self._door.mode}")
        if sites.is_in_the_clear(request.headers):
            raise Unanswerable(
                "your token would travel for all to read: open this page by https, or by kubectl port-forward",
                _FORBIDDEN,
            )
        token = _read(await body_of(request, largest=_LARGEST), Login).token.strip()
        if not cookies.can_keep(token):
            raise asking.bad("this is no token of Kubernetes, or too long for a browser to keep")
        found = await self._door.holder(token, request)
        if isinstance(found, Verdict):
            raise Unanswerable(found.why, found.status)
        self._check_pace(found)
        log.info("%s has logged in to the dashboard", found.name)
        asker = Asker(user=found, token=Token(token), binding=token, is_browser=True)
        response = once(await self._told(asker))
        cookies.keep(request, response, cookies.TOKEN, token)
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        _check_page(request)
        response = once(Session(mode=self._door.mode, may_read=self._door.mode is AuthMode.OFF))
        for name in (cookies.TOKEN, cookies.NONCE):
            cookies.drop(request, response, name)
        return response

    async def _act(self, request: web.Request) -> web.StreamResponse:
        _check_page(request)
        if self._door.mode is AuthMode.OFF:
            raise Unanswerable("nobody may act here: the dashboard runs with --dashboard-auth=off", _FORBIDDEN)
        asker = await self._door.asker(request)
        if asker.user is None:
            raise Unanswerable(asker.refusal.why, asker.refusal.status)
        if asker.is_browser:
            _check_proof(request, asker, asker.user)
        verdict = await self._door.may_read(asker)
        if not verdict.is_allowed:  # else they could try out what there is
            raise Unanswerable(verdict.why, verdict.status)
        self._check_pace(asker.user)
        act = _read(await body_of(request, largest=_LARGEST), Act)
        return once(await self._performing.perform(act, Caller(asker.user, asker.token)))

    def _check_pace(self, user: User) -> None:
        if wait := self._of_user.take(user.name):
            raise TooOften(f"{user.name} has done too much at once: try again in {wait} s", wait)

    async def _told(self, asker: Asker) -> Session:
        mode, user = self._door.mode, asker.user
        verdict = await self._door.may_read(asker)
        if user is None:
            return Session(mode=mode, may_read=verdict.is_allowed)
        return Session(
            mode=mode,
            user=user.name,
            groups=user.groups,
            may_read=verdict.is_allowed,
            acts=await self._performing.offered(Caller(user, asker.token)),
            csrf=sites.csrf(asker.binding, user.name) if asker.binding else "",
        )


def _check_page(request: web.Request) -> None:
    """Refuse pages of others."""
    if not sites.is_ours(request.headers):
        raise Unanswerable("a page of another site asks for this, which is not done", _FORBIDDEN)


def _check_proof(request: web.Request, asker: Asker, user: User) -> None:
    """Refuse who has not seen our answer."""
    if not asker.binding or not sites.is_proven(request.headers, binding=asker.binding, user=user.name):
        text = f"{sites.CSRF_HEADER} does not say what GET {ROOT}/session says: load the page again"
        raise Unanswerable(text, _FORBIDDEN)


def _read(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise asking.bad(f"the request makes no sense: {error}") from None
    except UnicodeDecodeError:
        raise asking.bad("the request makes no sense: it is no UTF-8") from None
