"""The authentication middleware of the dashboard.

    off      everyone may read, and nobody may act
    token    users with a Kubernetes token: programs in each request, browsers once, stored as a cookie
    proxy    users that a proxy authenticates; programs and other replicas may also send a token

Routes that are not public need authorization by the API server. Repeated wrong tokens are delayed, and so are too
frequent requests (`haulout.dashboard.auth.rate_limits`). The middleware has no session state: any replica can answer.

Check the Host header of requests, against DNS rebinding. Pure. A page of another site cannot read our responses, unless
its own name resolves to our address (DNS rebinding). Its browser then sends that name as the Host. So where everyone
who reaches the port may read, the Host must be one that no attacker can own in the public DNS: an IP address,
`localhost`, a name without dots, a Service's name (`….svc` or `….svc.cluster.local`), or a configured name. A client
that is no browser may omit the Host.
"""

import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import urlsplit

from aiohttp import web

from haulout.core.clock import Clock
from haulout.dashboard.api.responses import problem_response
from haulout.dashboard.api.routes import CLIENT_ADDRESS, ROOT, STREAM_DURATION, USER_NAME, handle_errors
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth import cookies
from haulout.dashboard.auth.rate_limits import (
    RequestLimits,
    TokenReviewLimits,
    canonical_address,
    rate_limit_key,
    too_many_wrong_tokens,
)
from haulout.dashboard.auth.replicas import Replicas
from haulout.dashboard.auth.settings import DASHBOARD_URL, AccessSettings
from haulout.dashboard.auth.trusted_proxy import TrustedProxy
from haulout.dashboard.server import FORWARDED_HEADER, FORWARDED_IDENTITY, ForwardedIdentity
from haulout.httpserver.delegated_auth import AccessDecision, DelegatedAuth, User, bearer_token
from haulout.kube.transport import Token

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Routes without data of the cluster, or with an authorization of their own.
PUBLIC_ROUTES = frozenset(
    {
        "/metrics",
        "/static",
        "/static/",
        "/static/{path}",
        "/{rest}",
        f"{ROOT}{{rest}}",
        f"{ROOT}/openapi.json",
        f"{ROOT}/session",
        f"{ROOT}/actions",
    }
)

_JUDGED_AGAIN_AFTER = timedelta(minutes=10)  # open event streams
_UNAUTHENTICATED_REASONS = {
    AuthMode.TOKEN: "not authenticated: log in, or send a Kubernetes token (Authorization: Bearer …)",
    AuthMode.PROXY: "not authenticated: use the proxy in front of the dashboard",
}
_UNKNOWN_HOST = (
    "the Host header of this request is not allowed: expected an IP address, localhost, the name of a Service, "
    "or a name of --dashboard-host (in the Helm chart: a host of its Ingress)"
)

UNAUTHENTICATED = AccessDecision(HTTPStatus.UNAUTHORIZED, "not authenticated")

ANY = "*"
_LOCAL_SUFFIXES = (".localhost", ".svc", ".svc.cluster.local")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The sender of a request; `refusal` says why there is no user."""

    user: User | None = None
    token: Token | None = None  # from the request; None: authenticated by a proxy
    refusal: AccessDecision = UNAUTHENTICATED
    csrf_key: str = ""  # the browser's cookie, to which CSRF tokens are bound; empty: a program
    is_browser: bool = False  # credentials are sent automatically, whichever page causes the request
    forward_headers: Callable[[], Mapping[str, str]] = dict  # headers that carry the identity to another replica


class AuthMiddleware:
    """Authenticates and authorizes requests."""

    def __init__(
        self, settings: AccessSettings, *, delegated_auth: DelegatedAuth, replicas: Replicas, clock: Clock
    ) -> None:
        self.mode = settings.mode
        self._hosts = settings.hosts
        self.delegated_auth = delegated_auth
        self._replicas = replicas
        self._trusted_proxy = TrustedProxy(settings.proxy) if settings.mode is AuthMode.PROXY else None
        self._request_limits = RequestLimits(clock)
        self._review_limits = TokenReviewLimits(clock)

    async def authenticate(self, request: web.Request) -> Requester:
        """Return the sender, and count the request against its rate limit; raise `RateLimited`."""
        requester = await self._identify(request)
        if requester.user is None:
            self._request_limits.check_anonymous(await self._limit_address(request))
        else:
            self._request_limits.check_user(requester.user.name)
        return requester

    async def _identify(self, request: web.Request) -> Requester:
        if self.mode is AuthMode.OFF:
            return Requester()
        if self._trusted_proxy is not None:
            try:
                user = self._trusted_proxy.user(request.headers, peer=request.remote)
            except ValueError as error:
                return Requester(refusal=AccessDecision(HTTPStatus.UNAUTHORIZED, f"the proxy in front: {error}"))
            if user is not None:
                return self._requester_of_proxy(user, request, self._trusted_proxy)
        token = bearer_token(request.headers.get("Authorization", ""))
        if token:
            return await self._requester_of_token(token, request)
        cookie_token = cookies.token_of(request) if self.mode is AuthMode.TOKEN else ""
        if cookie_token:
            return await self._requester_of_token(cookie_token, request, csrf_key=cookie_token)
        return Requester(refusal=AccessDecision(HTTPStatus.UNAUTHORIZED, _UNAUTHENTICATED_REASONS[self.mode]))

    async def authenticate_token(self, token: str, request: web.Request) -> User | AccessDecision:
        """Return the user of a token, or the decision that refuses it; raise `RateLimited`."""
        if self.delegated_auth.is_known(token):
            return await self.delegated_auth.authenticate(token)
        address = await self._limit_address(request)
        if wait := self._review_limits.take(address):
            async with self._review_limits.wait_for_turn(address):
                found = await self.delegated_auth.authenticate(token)
            if _is_unauthenticated(found):
                raise too_many_wrong_tokens(wait)
            return found
        found = await self.delegated_auth.authenticate(token)
        if not _is_unauthenticated(found):
            self._review_limits.refund(address)
        return found

    async def authorize(self, requester: Requester) -> AccessDecision:
        if self.mode is AuthMode.OFF:
            return AccessDecision(HTTPStatus.OK)
        return (
            requester.refusal
            if requester.user is None
            else await self.delegated_auth.authorize(DASHBOARD_URL, requester.user)
        )

    def install(self, app: web.Application) -> None:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self.mode is AuthMode.OFF and not are_allowed(request.headers.getall("Host", ()), names=self._hosts):
                return problem_response(_UNKNOWN_HOST, HTTPStatus.MISDIRECTED_REQUEST)
            resource = request.match_info.route.resource
            if resource is None or resource.canonical in PUBLIC_ROUTES:
                return await handler(request)
            return await handle_errors(lambda guarded_request: self._authorize_and_handle(guarded_request, handler))(
                request
            )

        app.middlewares.append(guard)

    async def _authorize_and_handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        requester = await self.authenticate(request)
        request[CLIENT_ADDRESS] = await self._limit_address(request)
        if self.mode is AuthMode.OFF:
            return await handler(request)
        decision = await self.authorize(requester)
        if not decision.is_allowed:
            challenge = {"WWW-Authenticate": "Bearer"} if decision.status is HTTPStatus.UNAUTHORIZED else None
            return problem_response(decision.reason, decision.status, headers=challenge)
        if requester.user is not None:
            request[USER_NAME] = requester.user.name
        request[FORWARDED_IDENTITY] = ForwardedIdentity(requester.forward_headers)
        request[STREAM_DURATION] = _JUDGED_AGAIN_AFTER
        return await handler(request)

    async def _limit_address(self, request: web.Request) -> str:
        """Return the address for the rate limit of an anonymous client: the one that a replica names, or the peer's."""
        forwarded_address = canonical_address(request.headers.get(FORWARDED_HEADER))
        peer = canonical_address(request.remote)
        if forwarded_address is not None and await self._replicas.includes(peer):
            return rate_limit_key(forwarded_address)
        return "unknown" if peer is None else rate_limit_key(peer)

    async def _requester_of_token(self, token: str, request: web.Request, *, csrf_key: str = "") -> Requester:
        found = await self.authenticate_token(token, request)
        if isinstance(found, AccessDecision):
            return Requester(refusal=found)
        return Requester(
            user=found,
            token=Token(token),
            csrf_key=csrf_key,
            is_browser=bool(csrf_key),
            forward_headers=lambda: {"Authorization": f"Bearer {token}"},
        )

    def _requester_of_proxy(self, user: User, request: web.Request, trusted_proxy: TrustedProxy) -> Requester:
        return Requester(
            user=user,
            csrf_key=cookies.nonce_of(request),
            is_browser=True,
            forward_headers=lambda: trusted_proxy.forward_headers(request.headers),
        )


def _is_unauthenticated(found: User | AccessDecision) -> bool:
    return isinstance(found, AccessDecision) and found.status is HTTPStatus.UNAUTHORIZED


def are_allowed(hosts: Iterable[str], *, names: Collection[str] = ()) -> bool:
    """Return whether all Host headers of a request are allowed; `names` are the configured ones."""
    return ANY in names or all(_is_allowed(host, names) for host in hosts)


def _is_allowed(host: str, names: Collection[str]) -> bool:
    if set(host) & set("@/?#"):
        return False
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return bool(name) and (
        "." not in name or name.endswith(_LOCAL_SUFFIXES) or name in {allowed_name.casefold() for allowed_name in names}
    )
