"""The door of the dashboard: who asks, and what of it is answered.

    off      everybody may read, and nobody may act
    token    whoever shows a token of Kubernetes: a program in each request, a browser once, which keeps it as a cookie
    proxy    whom a proxy in front names; programs, and other replicas, may show a token, too

What is not meant for everybody is for nobody until the API server says that they may get it. Whoever tries one wrong
token after the other waits, and so does whoever asks too often (`haulout.web.auth.rate_limits`). The door knows nothing
by itself: it can be asked at any replica.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from aiohttp import web

from haulout.core.clock import Clock
from haulout.kube.transport import Token
from haulout.web.api.answering import problem
from haulout.web.api.routes import CLIENT, ENDS_AFTER, ROOT, WHO, guarded
from haulout.web.api.shapes import AuthMode
from haulout.web.auth import cookies, hosts
from haulout.web.auth.addresses import canonical_address, rate_limit_key
from haulout.web.auth.proxies import Proxies
from haulout.web.auth.rate_limits import RateLimits, ReviewLimits, too_many_wrong_tokens
from haulout.web.auth.replicas import Replicas
from haulout.web.auth.settings import DASHBOARD, AccessSettings
from haulout.web.auth.users import User
from haulout.web.callers import Callers, Verdict, bearer
from haulout.web.info import FORWARDED, PASSED_ON, PassedOn

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# What tells nothing of the cluster to nobody in particular, or is a door of its own.
OPEN = frozenset(
    {
        "/metrics",
        "/static",
        "/static/",
        "/static/{path}",
        "/{rest}",
        f"{ROOT}{{rest}}",
        f"{ROOT}/openapi.json",
        f"{ROOT}/session",
        f"{ROOT}/acts",
    }
)

_JUDGED_AGAIN_AFTER = timedelta(minutes=10)  # whoever looks on
_UNKNOWN = {
    AuthMode.TOKEN: "who you are is not known: log in, or send a token of Kubernetes (Authorization: Bearer …)",
    AuthMode.PROXY: "who you are is not known: come through the proxy in front of the dashboard",
}
_NOT_OUR_HOST = (
    "the Host of this request is not known: expected an IP address, localhost, the name of a Service, or one that "
    "--dashboard-host names (in the Helm chart: a host of its Ingress)"
)

NOBODY = Verdict(HTTPStatus.UNAUTHORIZED, "who you are is not known")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks; with why nobody is known, if so."""

    user: User | None = None
    token: Token | None = None  # that they showed; None: a proxy names them
    refusal: Verdict = NOBODY
    binding: str = ""  # what their browser has, to which acts are bound; empty: a program shows it each time
    is_browser: bool = False  # it says by itself who they are, whichever page asks
    passed_on: Callable[[], Mapping[str, str]] = dict  # with what another replica is told who they are


class Door:
    """Lets in those who may."""

    def __init__(self, settings: AccessSettings, *, callers: Callers, replicas: Replicas, clock: Clock) -> None:
        self.mode = settings.mode
        self._hosts = settings.hosts
        self.callers = callers
        self._replicas = replicas
        self._proxies = Proxies(settings.proxy) if settings.mode is AuthMode.PROXY else None
        self._limits = RateLimits(clock)
        self._reviews = ReviewLimits(clock)

    async def asker(self, request: web.Request) -> Asker:
        """Return who asks, and count the request as theirs; raises `TooOften`."""
        asker = await self._identify(request)
        if asker.user is None:
            self._limits.check_anonymous(await self._address(request))
        else:
            self._limits.check_user(asker.user.name)
        return asker

    async def _identify(self, request: web.Request) -> Asker:
        if self.mode is AuthMode.OFF:
            return Asker()
        if self._proxies is not None:
            try:
                user = self._proxies.user(request.headers, peer=request.remote)
            except ValueError as error:
                return Asker(refusal=Verdict(HTTPStatus.UNAUTHORIZED, f"the proxy in front: {error}"))
            if user is not None:
                return self._named(user, request, self._proxies)
        shown = bearer(request.headers.get("Authorization", ""))
        if shown:
            return await self._holder(shown, request)
        kept = cookies.token_of(request) if self.mode is AuthMode.TOKEN else ""
        if kept:
            return await self._holder(kept, request, binding=kept)
        return Asker(refusal=Verdict(HTTPStatus.UNAUTHORIZED, _UNKNOWN[self.mode]))

    async def holder(self, token: str, request: web.Request) -> User | Verdict:
        """Return whose a token is, or how they are refused; raises `TooOften`."""
        if self.callers.is_known(token):
            return await self.callers.holder(token)
        address = await self._address(request)
        if wait := self._reviews.take(address):
            async with self._reviews.turn(address):
                found = await self.callers.holder(token)
            if _is_wrong(found):
                raise too_many_wrong_tokens(wait)
            return found
        found = await self.callers.holder(token)
        if not _is_wrong(found):
            self._reviews.give_back(address)
        return found

    async def may_read(self, asker: Asker) -> Verdict:
        """Return whether somebody may read."""
        if self.mode is AuthMode.OFF:
            return Verdict(HTTPStatus.OK)
        return asker.refusal if asker.user is None else await self.callers.may_read(DASHBOARD, asker.user)

    def add_to(self, app: web.Application) -> None:
        """Stand before all that is served."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self.mode is AuthMode.OFF and not hosts.are_known(request.headers.getall("Host", ()), names=self._hosts):
                return problem(_NOT_OUR_HOST, HTTPStatus.MISDIRECTED_REQUEST)
            resource = request.match_info.route.resource
            if resource is None or resource.canonical in OPEN:
                return await handler(request)
            return await guarded(lambda it: self._let_in(it, handler))(request)

        app.middlewares.append(guard)

    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        asker = await self.asker(request)
        request[CLIENT] = await self._address(request)
        if self.mode is AuthMode.OFF:
            return await handler(request)
        verdict = await self.may_read(asker)
        if not verdict.is_allowed:
            challenge = {"WWW-Authenticate": "Bearer"} if verdict.status is HTTPStatus.UNAUTHORIZED else None
            return problem(verdict.why, verdict.status, headers=challenge)
        if asker.user is not None:
            request[WHO] = asker.user.name
        request[PASSED_ON] = PassedOn(asker.passed_on)
        request[ENDS_AFTER] = _JUDGED_AGAIN_AFTER
        return await handler(request)

    async def _address(self, request: web.Request) -> str:
        """Return by which address an anonymous caller is limited: the one that a replica names, or the peer's."""
        named = canonical_address(request.headers.get(FORWARDED))
        peer = canonical_address(request.remote)
        if named is not None and await self._replicas.include(peer):
            return rate_limit_key(named)
        return "unknown" if peer is None else rate_limit_key(peer)

    async def _holder(self, token: str, request: web.Request, *, binding: str = "") -> Asker:
        found = await self.holder(token, request)
        if isinstance(found, Verdict):
            return Asker(refusal=found)
        return Asker(
            user=found,
            token=Token(token),
            binding=binding,
            is_browser=bool(binding),
            passed_on=lambda: {"Authorization": f"Bearer {token}"},
        )

    def _named(self, user: User, request: web.Request, proxies: Proxies) -> Asker:
        return Asker(
            user=user,
            binding=cookies.nonce_of(request),
            is_browser=True,
            passed_on=lambda: proxies.passed_on(request.headers),
        )


def _is_wrong(found: User | Verdict) -> bool:
    return isinstance(found, Verdict) and found.status is HTTPStatus.UNAUTHORIZED
