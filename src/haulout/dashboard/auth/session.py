"""The routes for sessions and actions: `/api/v2/session` and `/api/v2/actions`.

Actions have stricter checks than reads: the same origin, a CSRF token, and a rate limit per user.
"""

import logging
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol, TypeVar

import msgspec
from aiohttp import web

from haulout.core.clock import Clock
from haulout.dashboard.api import requests
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.requests import read_body
from haulout.dashboard.api.responses import uncached_response
from haulout.dashboard.api.routes import ROOT, handle_errors
from haulout.dashboard.api.types import Action, ActionResponse, ActionType, AuthMode, Login, Session
from haulout.dashboard.auth import cookies
from haulout.dashboard.auth.cookies import CSRF_HEADER, csrf_token, has_valid_csrf_token, is_cleartext, is_same_origin
from haulout.dashboard.auth.middleware import AuthMiddleware, Requester
from haulout.dashboard.auth.rate_limits import RateLimited, TokenBuckets
from haulout.dashboard.auth.user_clients import Caller
from haulout.httpserver.delegated_auth import AccessDecision, User
from haulout.kube.transport import Token

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_BODY_BYTES = 64 << 10
_FORBIDDEN = HTTPStatus.FORBIDDEN


class Executor(Protocol):
    """Executes actions of users."""

    async def allowed_actions(self, caller: Caller) -> tuple[ActionType, ...]:
        """Return the actions that a user may execute, as far as known in advance."""
        ...

    async def execute(self, action: Action, caller: Caller) -> ActionResponse:
        """Execute an action as a user; raise `HttpError`."""
        ...


class SessionRoutes:
    """The handlers of the routes."""

    def __init__(self, auth: AuthMiddleware, executor: Executor, *, clock: Clock) -> None:
        self._auth = auth
        self._executor = executor
        self._user_limiter = TokenBuckets(clock, burst=30, refill=timedelta(seconds=2))

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get(f"{ROOT}/session", handle_errors(self._get_session))
        app.router.add_post(f"{ROOT}/session", handle_errors(self._log_in))
        app.router.add_delete(f"{ROOT}/session", handle_errors(self._log_out))
        app.router.add_post(f"{ROOT}/actions", handle_errors(self._execute_action))

    async def _get_session(self, request: web.Request) -> web.StreamResponse:
        requester = await self._auth.authenticate(request)
        nonce = ""
        if self._auth.mode is AuthMode.PROXY and requester.is_browser and not requester.csrf_key:
            nonce = cookies.new_nonce()
            requester = replace(requester, csrf_key=nonce)
        response = uncached_response(await self._to_session(requester))
        if nonce:
            cookies.set_cookie(request, response, cookies.NONCE_COOKIE, nonce)
        return response

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        _check_origin(request)
        if self._auth.mode is not AuthMode.TOKEN:
            raise HttpError(f"login is disabled: the dashboard runs with --dashboard-auth={self._auth.mode}")
        if is_cleartext(request.headers):
            raise HttpError(
                "your token would be sent unencrypted: open this page with https, or with kubectl port-forward",
                _FORBIDDEN,
            )
        token = _decode(await read_body(request, max_bytes=_MAX_BODY_BYTES), Login).token.strip()
        if not cookies.fits_in_cookie(token):
            raise requests.bad_request("this is not a Kubernetes token, or it is too long for a cookie")
        user = await self._auth.authenticate_token(token, request)
        if isinstance(user, AccessDecision):
            raise HttpError(user.reason, user.status)
        self._check_rate_limit(user)
        log.info("%s logged in to the dashboard", user.name)
        requester = Requester(user=user, token=Token(token), csrf_key=token, is_browser=True)
        response = uncached_response(await self._to_session(requester))
        cookies.set_cookie(request, response, cookies.TOKEN_COOKIE, token)
        return response

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        _check_origin(request)
        response = uncached_response(Session(mode=self._auth.mode, may_read=self._auth.mode is AuthMode.OFF))
        for name in (cookies.TOKEN_COOKIE, cookies.NONCE_COOKIE):
            cookies.delete_cookie(request, response, name)
        return response

    async def _execute_action(self, request: web.Request) -> web.StreamResponse:
        _check_origin(request)
        if self._auth.mode is AuthMode.OFF:
            raise HttpError("actions are disabled: the dashboard runs with --dashboard-auth=off", _FORBIDDEN)
        requester = await self._auth.authenticate(request)
        if requester.user is None:
            raise HttpError(requester.refusal.reason, requester.refusal.status)
        if requester.is_browser:
            _check_csrf(request, requester, requester.user)
        decision = await self._auth.authorize(requester)
        if not decision.is_allowed:  # otherwise the errors would reveal which objects exist
            raise HttpError(decision.reason, decision.status)
        self._check_rate_limit(requester.user)
        action = _decode(await read_body(request, max_bytes=_MAX_BODY_BYTES), Action)
        return uncached_response(await self._executor.execute(action, Caller(requester.user, requester.token)))

    def _check_rate_limit(self, user: User) -> None:
        if wait := self._user_limiter.take(user.name):
            raise RateLimited(f"too many actions by {user.name}: try again in {wait} s", wait)

    async def _to_session(self, requester: Requester) -> Session:
        mode, user = self._auth.mode, requester.user
        decision = await self._auth.authorize(requester)
        if user is None:
            return Session(mode=mode, may_read=decision.is_allowed)
        return Session(
            mode=mode,
            user=user.name,
            groups=user.groups,
            may_read=decision.is_allowed,
            actions=await self._executor.allowed_actions(Caller(user, requester.token)),
            csrf=csrf_token(requester.csrf_key, user.name) if requester.csrf_key else "",
        )


def _check_origin(request: web.Request) -> None:
    """Refuse requests of other sites' pages."""
    if not is_same_origin(request.headers):
        raise HttpError("cross-site requests are not allowed", _FORBIDDEN)


def _check_csrf(request: web.Request, requester: Requester, user: User) -> None:
    """Refuse requests without our CSRF token."""
    if not requester.csrf_key or not has_valid_csrf_token(request.headers, csrf_key=requester.csrf_key, user=user.name):
        text = f"{CSRF_HEADER} does not match the csrf value of GET {ROOT}/session: reload the page"
        raise HttpError(text, _FORBIDDEN)


def _decode(body: bytes, expected: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=expected)
    except msgspec.MsgspecError as error:
        raise requests.bad_request(f"invalid request: {error}") from None
    except UnicodeDecodeError:
        raise requests.bad_request("invalid request: the body is not UTF-8") from None
