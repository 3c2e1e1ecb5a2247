"""The HTTP server that people and Prometheus ask: `/api/v1/info`, `/metrics`, and the dashboard.

    /api/v1/info    what was last decided about each node; who does not lead asks the leader
    /api/v2/…       what the dashboard is fed by (`haulout.dashboard.api.routes`), where it is added
    /metrics        in the text format of Prometheus
    /static/        the dashboard; every other path leads there

Paths, redirects and shapes are those of the SAP maintenance-controller, whose dashboards and scripts go on working.
What differs is what was wrong there: an answer says that it is JSON, no nodes are `[]`, and if the leader cannot be
asked the status is 502, with `{"error": …}`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import web

from haulout.api.objects import RawObject
from haulout.dashboard.static_files import add_static_routes
from haulout.errors import HauloutError
from haulout.httpserver import connections
from haulout.httpserver.listener import listen
from haulout.httpserver.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

PORT = 8080
INFO_PATH = "/api/v1/info"
# A follower asked, for the client of this address: whoever is asked does not ask on. Anybody can send it; the address
# counts only from replicas (`haulout.dashboard.auth.replicas`).
FORWARDED_HEADER = "X-Haulout-Forwarded"


@dataclass(frozen=True, slots=True)
class ForwardedIdentity:
    """How the leader is told who asks: `headers` returns what says so; raises `HauloutError`."""

    headers: Callable[[], Mapping[str, str]] = dict


FORWARDED_IDENTITY = web.RequestKey("passed_on", ForwardedIdentity)
NO_FORWARDED_IDENTITY = ForwardedIdentity()


class InfoProvider(Protocol):
    """Whoever leads."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return what it answers to `/api/v1/info`, to who asks with these headers; raises `HauloutError`."""
        ...


class DashboardServer:
    """Answers; `infos` is what we know if we lead, and None if another does."""

    def __init__(
        self,
        *,
        infos: Callable[[], list[RawObject] | None],
        metrics: Callable[[], bytes],
        leader: InfoProvider,
        add_routes: Callable[[web.Application], None] | None = None,
    ) -> None:
        self._infos = infos
        self._metrics = metrics
        self._leader = leader
        self._add_routes = add_routes
        self._scraped = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serve(self, *, host: str | None = None, port: int = PORT) -> AsyncIterator[int]:
        """Answer while the context lasts; yields the port."""
        async with listen(
            self.app(), host=host, port=port, what="metrics and the API", limits=connections.DASHBOARD
        ) as bound_port:
            yield bound_port

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application()
        app.router.add_route("*", INFO_PATH, self._info)
        app.router.add_get("/metrics", self._serve_metrics)
        if self._add_routes is not None:
            self._add_routes(app)
        add_static_routes(app)
        app.router.add_route("*", "/static", _redirect_to_folder)
        app.router.add_route("*", "/{rest:.*}", _redirect_to_page)
        return app

    async def wait_for_scrape(self, timeout: timedelta) -> None:
        """Wait until the numbers have been read once more, so that the last ones are not lost; not for ever."""
        self._scraped.clear()
        with contextlib.suppress(TimeoutError):
            # Not asyncio.timeout: in Python 3.11 it does not raise TimeoutError in a task that is being cancelled.
            await asyncio.wait_for(self._scraped.wait(), timeout.total_seconds())

    async def _info(self, request: web.Request) -> web.Response:
        infos = self._infos()
        if infos is not None:
            return _json(msgspec.json.encode(infos))
        if FORWARDED_HEADER in request.headers:
            return _error("this replica was asked as the leader, and does not lead")
        try:
            identity_headers = request.get(FORWARDED_IDENTITY, NO_FORWARDED_IDENTITY).headers()
            return _json(await self._leader.info({**identity_headers, FORWARDED_HEADER: request.remote or "unknown"}))
        except HauloutError as error:
            log.debug("the leader cannot be asked: %s", error)
            return _error(str(error))

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        body = self._metrics()
        self._scraped.set()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _json(body: bytes, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=body, status=status, content_type="application/json", headers={"Cache-Control": "no-store"}
    )


def _error(text: str) -> web.Response:
    return _json(msgspec.json.encode({"error": text}), HTTPStatus.BAD_GATEWAY)


async def _redirect_to_folder(_: web.Request) -> web.Response:
    return _redirect("/static/")


async def _redirect_to_page(_: web.Request) -> web.Response:
    return _redirect("/static")


def _redirect(location: str) -> web.Response:
    return web.Response(status=HTTPStatus.MOVED_PERMANENTLY, headers={"Location": location})
