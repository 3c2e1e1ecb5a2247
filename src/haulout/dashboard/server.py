"""The HTTP server of the dashboard and Prometheus: `/api/v1/info`, `/metrics`, and static files.

    /api/v1/info    the last decision about each node; other replicas forward to the leader
    /api/v2/…       the API of the dashboard (`haulout.dashboard.api.routes`), if it is added
    /metrics        in the text format of Prometheus
    /static/        the dashboard; every other path redirects there

Paths, redirects and values are those of the SAP maintenance-controller, so that existing dashboards and scripts
continue to work. Only its bugs are not kept: responses have the content type JSON, no nodes are `[]`, and if the leader
is unreachable the status is 502, with `{"error": …}`.

The static files of the dashboard: those in `haulout/dashboard/static`, and no others. Files are read on request,
because they are small and rarely requested: browsers store them and only revalidate. The headers restrict a page to
content from here and forbid inline scripts: text from node names and labels can never run as a script.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Protocol

import msgspec
from aiohttp import web

from haulout.api.objects import RawObject
from haulout.dashboard.api.responses import cacheable_response
from haulout.errors import HauloutError
from haulout.httpserver import connections
from haulout.httpserver.listener import listen
from haulout.httpserver.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

PORT = 8080
INFO_PATH = "/api/v1/info"
# Set by a replica that forwards for the client with this address; the receiver does not forward again. Any client can
# send it; the address counts only from replicas (`haulout.dashboard.auth.replicas`).
FORWARDED_HEADER = "X-Haulout-Forwarded"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_INDEX = "index.html"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}


@dataclass(frozen=True, slots=True)
class ForwardedIdentity:
    """The headers that carry the user's identity to the leader; `headers` raises `HauloutError` if there are none."""

    headers: Callable[[], Mapping[str, str]] = dict


FORWARDED_IDENTITY = web.RequestKey("passed_on", ForwardedIdentity)
NO_FORWARDED_IDENTITY = ForwardedIdentity()


class InfoProvider(Protocol):
    """The leader."""

    async def info(self, headers: Mapping[str, str] | None = None) -> bytes:
        """Return its answer to `/api/v1/info`; `headers` carry the identity of the user. Raise `HauloutError`."""
        ...


class DashboardServer:
    """The server; `infos` returns the data of this replica if it leads, else None."""

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
        """Serve while the context lasts; yield the port."""
        async with listen(
            self.app(), host=host, port=port, what="metrics and the API", limits=connections.DASHBOARD
        ) as bound_port:
            yield bound_port

    def app(self) -> web.Application:
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
        """Wait for one more scrape, at most `timeout`, so that the last values are not lost."""
        self._scraped.clear()
        with contextlib.suppress(TimeoutError):
            # Not asyncio.timeout: in Python 3.11 it does not raise TimeoutError in a task that is being cancelled.
            await asyncio.wait_for(self._scraped.wait(), timeout.total_seconds())

    async def _info(self, request: web.Request) -> web.Response:
        infos = self._infos()
        if infos is not None:
            return _json(msgspec.json.encode(infos))
        if FORWARDED_HEADER in request.headers:
            return _error("the request was forwarded to this replica as the leader, but it is not the leader")
        try:
            identity_headers = request.get(FORWARDED_IDENTITY, NO_FORWARDED_IDENTITY).headers()
            return _json(await self._leader.info({**identity_headers, FORWARDED_HEADER: request.remote or "unknown"}))
        except HauloutError as error:
            log.debug("cannot reach the leader: %s", error)
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


def add_static_routes(app: web.Application, *, prefix: str = "/static/") -> None:
    """Serve the files below `prefix`; `prefix` itself is the page."""
    app.router.add_get(prefix, _serve)
    app.router.add_get(f"{prefix}{{path:.+}}", _serve)


async def _serve(request: web.Request) -> web.Response:
    path = request.match_info.get("path", _INDEX)
    kind = _TYPES.get(path[path.rfind(".") :])
    file = None if kind is None else find_file(path)
    if file is None or kind is None:
        return web.Response(status=404, text="page not found\n", headers=HEADERS)
    response = await cacheable_response(request, file.read_bytes(), content_type=kind, headers=HEADERS)
    if response.body and not kind.startswith("image/"):
        response.charset = "utf-8"
    return response


def find_file(path: str) -> Traversable | None:
    """Return the file at `path`; each path component must be a listed name, so that no path leaves the folder."""
    current: Traversable | None = resources.files("haulout.dashboard") / "static"
    for name in path.split("/"):
        children = current.iterdir() if current is not None and current.is_dir() else ()
        current = next((child for child in children if child.name == name), None)
    return current if current is not None and current.is_file() else None
