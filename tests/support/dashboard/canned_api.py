"""The dashboard's files and an API with canned responses, for browser tests without an operator.

    with serving_canned_api(CannedApi.of(a_fleet())) as api:
        page.goto(api.dashboard_url)
        api.update_nodes(tile)                  # sends an event, and changes later responses
        api.fail_requests("nodes", 503, "no leader")
        api.close_streams()

Files are served as by the operator, so that a violation of the content security policy fails here too.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from haulout.dashboard.api.types import (
    ApiType,
    AuthMode,
    ClusterList,
    ClustersChanged,
    ClusterSummary,
    Hello,
    Mode,
    NodeList,
    NodesChanged,
    NodeSummary,
    NoticeList,
    NoticesChanged,
    Problem,
    Session,
    Summary,
)
from haulout.dashboard.server import add_static_routes
from haulout.httpserver.connections import DASHBOARD
from haulout.httpserver.listener import listen
from support.servers.background_server import HOST, in_thread


@dataclass
class CannedApi:
    """The canned responses and the open event streams. Created and used by the test's thread."""

    answers: dict[str, ApiType | Callable[[web.Request], ApiType]]
    address: str = ""
    requested_paths: list[str] = field(default_factory=list)  # addresses below /api/v2/, in order
    problems: dict[str, Problem] = field(default_factory=dict)
    _streams: "set[asyncio.Queue[bytes | None]]" = field(default_factory=set)
    _loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def of(cls, fleet: NodeList, summary: Summary, **more: ApiType) -> "CannedApi":
        """Return an API with these nodes; `more` are responses by path."""
        session = Session(mode=AuthMode.OFF, may_read=True)
        notices = NoticeList(revision="1", notices=())
        return cls(answers={"summary": summary, "nodes": fleet, "session": session, "notices": notices, **more})

    @property
    def dashboard_url(self) -> str:
        """Return where the page is."""
        return f"{self.address}/static/"

    def update_nodes(self, *tiles: NodeSummary, gone: tuple[str, ...] = ()) -> None:
        """Change nodes in later responses, and send an event."""
        fleet = self.answers["nodes"]
        assert isinstance(fleet, NodeList)
        kept = {tile.name: tile for tile in fleet.nodes} | {tile.name: tile for tile in tiles}
        revision = str(int(fleet.revision) + 1)
        nodes = tuple(tile for name, tile in kept.items() if name not in gone)
        self.answers["nodes"] = NodeList(revision=revision, total=len(nodes), nodes=nodes)
        self.send_event("nodes", NodesChanged(revision=revision, changed=tiles, deleted=gone))

    def update_clusters(self, *tiles: ClusterSummary, gone: tuple[str, ...] = ()) -> None:
        """Change clusters of a hub in later responses, and send an event."""
        known = self.answers["clusters"]
        assert isinstance(known, ClusterList)
        kept = {tile.key: tile for tile in known.clusters} | {tile.key: tile for tile in tiles}
        revision = str(int(known.revision) + 1)
        clusters = tuple(tile for key, tile in sorted(kept.items()) if key not in gone)
        self.answers["clusters"] = ClusterList(revision=revision, total=len(clusters), clusters=clusters)
        self.send_event("clusters", ClustersChanged(revision=revision, changed=tiles, deleted=gone))

    def update_notices(self, changed: NoticesChanged) -> None:
        """Send an event about notices."""
        self.send_event("notices", changed)

    def update_summary(self, summary: Summary) -> None:
        """Change the summary in later responses, and send an event."""
        self.answers["summary"] = summary
        self.send_event("summary", summary)

    def send_event(self, kind: str, data: ApiType) -> None:
        """Send an event to all open streams."""
        event = b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(data))
        self._broadcast(event)

    def close_streams(self) -> None:
        """End all streams."""
        self._broadcast(None)

    def fail_requests(self, path: str, status: int, error: str) -> None:
        """Answer requests for a path with a problem until `clear_failures`."""
        self.problems[path] = Problem(error=error, status=status)

    def clear_failures(self) -> None:
        """Answer all requests again."""
        self.problems.clear()

    def _broadcast(self, event: bytes | None) -> None:
        def put() -> None:
            for stream in self._streams:
                stream.put_nowait(event)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(put)

    # What runs in the server's thread

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["CannedApi"]:
        """Answer while the context lasts."""
        self._loop = asyncio.get_running_loop()
        app = web.Application()
        for prefix in ("", "/some/proxy"):  # a proxy may add the prefix
            app.router.add_get(f"{prefix}/api/v2/events", self._events)
            app.router.add_route("*", f"{prefix}/api/v2/{{path:.+}}", self._answer)
            add_static_routes(app, prefix=f"{prefix}/static/")
        async with listen(app, host=HOST, port=0, what="a canned API", limits=DASHBOARD) as port:
            self.address = f"http://{HOST}:{port}"
            yield self
            for stream in self._streams:
                stream.put_nowait(None)

    def _hello_event(self) -> Hello:
        is_hub = "clusters" in self.answers
        return Hello(revision="1", mode=Mode.MANAGEMENT if is_hub else Mode.CLUSTER)

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        self.requested_paths.append(path)
        found = self.problems.get(path) or self.answers.get(path)
        if callable(found):
            found = found(request)
        if found is None:
            found = Problem(error=f"there is no {path}", status=404)
        status = found.status if isinstance(found, Problem) else 200
        return web.Response(body=msgspec.json.encode(found), status=status, content_type="application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self.requested_paths.append(f"events?{request.query_string}" if request.query_string else "events")
        if "events" in self.problems:
            problem = self.problems["events"]
            return web.json_response(json.loads(msgspec.json.encode(problem)), status=problem.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(stream)
        try:
            await response.write(b"event: hello\ndata: %s\n\n" % msgspec.json.encode(self._hello_event()))
            while (event := await stream.get()) is not None:
                await response.write(event)
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            self._streams.discard(stream)
        return response


@contextmanager
def serving_canned_api(api: CannedApi) -> Iterator[CannedApi]:
    """Serve it in a thread of its own until the context ends."""
    with in_thread(api.serving) as served:
        yield served
