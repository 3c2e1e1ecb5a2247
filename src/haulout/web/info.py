"""The HTTP server of profiles: `/api/v1/info`, `/metrics`, and a page that says where things are.

    /api/v1/info    what was last decided about each node; who does not lead asks the leader
    /metrics        in the text format of Prometheus
    /static/        a page; every other path leads there

Paths, redirects and shapes are those of the SAP maintenance-controller, whose dashboards and scripts go on working.
What differs is what was wrong there: an answer says that it is JSON, no nodes are `[]`, and if the leader cannot be
asked the status is 502, with `{"error": …}`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import web

from haulout.errors import HauloutError
from haulout.kube.objects import RawObject
from haulout.web.listening import listening
from haulout.web.metrics import CONTENT_TYPE

log = logging.getLogger(__name__)

PORT = 8080
INFO = "/api/v1/info"
FORWARDED = "X-Haulout-Forwarded"  # a follower asked: whoever is asked does not ask on

_IDLE = timedelta(seconds=90)
_FAREWELL = timedelta(seconds=5)
_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Haulout</title>
<style>body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}</style>
<h1>Haulout</h1>
<p>Node maintenance by profiles. What there is here:</p>
<ul>
<li><a href="/api/v1/info">/api/v1/info</a>: what was last decided about each node, as JSON</li>
<li><a href="/metrics">/metrics</a>: numbers for Prometheus</li>
</ul>
<p>On a command line, <code>haulout why NODE --from URL</code> tells the same in words.</p>
"""


class Leader(Protocol):
    """Whoever leads."""

    async def info(self) -> bytes:
        """Return what it answers to `/api/v1/info`; raises `HauloutError`."""
        ...


class InfoServer:
    """Answers; `infos` is what we know if we lead, and None if another does."""

    def __init__(
        self, *, infos: Callable[[], list[RawObject] | None], metrics: Callable[[], bytes], leader: Leader
    ) -> None:
        self._infos = infos
        self._metrics = metrics
        self._leader = leader
        self._scraped = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self, *, host: str | None = None, port: int = PORT) -> AsyncIterator[int]:
        """Answer while the context lasts; yields the port."""
        runner = web.AppRunner(
            self.app(),
            access_log=None,
            keepalive_timeout=_IDLE.total_seconds(),
            shutdown_timeout=_FAREWELL.total_seconds(),
            handler_cancellation=True,
        )
        async with listening(runner, host=host, port=port, what="metrics and the API") as chosen:
            yield chosen

    def app(self) -> web.Application:
        """Return the routes."""
        app = web.Application()
        app.router.add_route("*", INFO, self._info)
        app.router.add_get("/metrics", self._count)
        app.router.add_get("/static/", _page)
        app.router.add_get("/static/index.html", _page)
        app.router.add_get("/static/{rest:.+}", _nothing)
        app.router.add_route("*", "/static", _to_folder)
        app.router.add_route("*", "/{rest:.*}", _to_page)
        return app

    async def linger(self, within: timedelta) -> None:
        """Wait until the numbers have been read once more, so that the last ones are not lost; not for ever."""
        self._scraped.clear()
        with contextlib.suppress(TimeoutError):
            # Not asyncio.timeout: in Python 3.11 it does not raise TimeoutError in a task that is being cancelled.
            await asyncio.wait_for(self._scraped.wait(), within.total_seconds())

    async def _info(self, request: web.Request) -> web.Response:
        infos = self._infos()
        if infos is not None:
            return _json(msgspec.json.encode(infos))
        if FORWARDED in request.headers:
            return _error("this replica was asked as the leader, and does not lead")
        try:
            return _json(await self._leader.info())
        except HauloutError as error:
            log.debug("the leader cannot be asked: %s", error)
            return _error(str(error))

    async def _count(self, _: web.Request) -> web.Response:
        body = self._metrics()
        self._scraped.set()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _json(body: bytes, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=body, status=status, content_type="application/json", headers={"Cache-Control": "no-store"}
    )


def _error(text: str) -> web.Response:
    return _json(msgspec.json.encode({"error": text}), HTTPStatus.BAD_GATEWAY)


async def _page(_: web.Request) -> web.Response:
    return web.Response(text=_PAGE, content_type="text/html", headers={"X-Content-Type-Options": "nosniff"})


async def _nothing(_: web.Request) -> web.Response:
    return web.Response(status=HTTPStatus.NOT_FOUND, text="there is no such page\n")


async def _to_folder(_: web.Request) -> web.Response:
    return _moved("/static/")


async def _to_page(_: web.Request) -> web.Response:
    return _moved("/static")


def _moved(where: str) -> web.Response:
    return web.Response(status=HTTPStatus.MOVED_PERMANENTLY, headers={"Location": where})
