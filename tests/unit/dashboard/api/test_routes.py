"""The routes of `/api/v2`: requests, responses and problems."""

import asyncio
import contextlib
import gzip
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from haulout.core.clock import RealClock
from haulout.dashboard.api import routes
from haulout.dashboard.api.backend import HistoryQuery, HttpError, TimelineQuery
from haulout.dashboard.api.forwarder import LeaderForwarder
from haulout.dashboard.api.routes import ApiHandler, add_routes
from haulout.dashboard.api.types import (
    Banner,
    ClusterList,
    Configuration,
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    HistoryList,
    Level,
    NodeDetail,
    NodeList,
    NodeState,
    NodeSummary,
    NoticeList,
    Summary,
    Timeline,
)
from haulout.dashboard.stream.broadcaster import StreamLimiter
from haulout.errors import HauloutError
from haulout.httpserver.connections import DASHBOARD
from haulout.httpserver.listener import listen
from support.expectations.eventually import eventually

pytestmark = pytest.mark.real_time

LOCAL = "127.0.0.1"
T0 = datetime(2026, 5, 1, 10, tzinfo=UTC)
TILES = (
    NodeSummary(name="n1", state=NodeState.IDLE, zone="a", pool="big"),
    NodeSummary(name="n2", state=NodeState.BLOCKED, zone="b", pool="big", message="PodDisruptionBudget shop/cart"),
    NodeSummary(name="n3", state=NodeState.DRAINING, zone="b", profiles={"os": "in-maintenance"}),
)


class FakeBackend:
    """A leader that knows three nodes."""

    def __init__(self) -> None:
        self.timeline_query: TimelineQuery | None = None
        self.history_query: HistoryQuery | None = None
        self.tiles: tuple[NodeSummary, ...] = TILES
        self.messages: list[bytes | None] = [b"event: hello\n\n", None]
        self.since = ""

    async def summary(self) -> Summary:
        """How it stands."""
        return Summary(version="1", total=3)

    async def fleet(self) -> NodeList:
        """Know three."""
        return NodeList(revision="x-1", total=len(self.tiles), nodes=self.tiles)

    async def detail(self, name: str) -> NodeDetail | None:
        """One of them."""
        return next((NodeDetail(summary=tile) for tile in self.tiles if tile.name == name), None)

    async def timeline(self, query: TimelineQuery) -> Timeline:
        """Nothing."""
        self.timeline_query = query
        return Timeline(start=T0, end=T0, now=T0, rows=(), total=0)

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Nothing."""
        self.history_query = query
        return HistoryList(entries=())

    async def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Two pieces, of which the second may be missing."""
        self.history_query = query
        if "busy" in query.terms:
            raise HttpError("others read it", retry_after=timedelta(seconds=5))
        yield b"node,time\r\n"
        if "broken" in query.terms:
            raise HttpError("the history cannot be read")
        yield b"n1,now\r\n"

    async def notices(self) -> NoticeList:
        """Break."""
        raise RuntimeError("a defect")

    async def clusters(self) -> ClusterList:
        """Be no hub."""
        raise HttpError("no hub", HTTPStatus.NOT_FOUND)

    async def configuration(self) -> Configuration:
        """Have none."""
        raise HttpError("it is being read")

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Like what is good."""
        return ConfigurationPreview(is_valid=edit.text == "good")

    async def health(self) -> Health:
        """Be well."""
        return Health(identity="me", version="1", started=T0)

    @asynccontextmanager
    async def subscribe(self, *, since: str = "", node: str = "") -> AsyncIterator[Any]:
        """Tell the same to everybody."""
        del node
        self.since = since
        yield self

    async def next(self) -> bytes | None:
        """Tell one thing."""
        return self.messages.pop(0)


class NoLeaderLocator:
    """Nobody leads."""

    async def base_url(self) -> str:
        """Where."""
        raise HauloutError("no replica is the leader at the moment")


@asynccontextmanager
async def serve_api(
    backend: FakeBackend | None, *, leader: Any = None, stream_limiter: StreamLimiter | None = None
) -> AsyncIterator[Callable[..., Any]]:
    """Yield what asks: it returns status, headers and what was answered."""

    def fallback_summary(reason: str) -> Summary:
        return Summary(version="1", banners=(Banner(level=Level.CRITICAL, message=reason),))

    app = web.Application()
    forwarder = LeaderForwarder(leader or NoLeaderLocator(), RealClock())
    add_routes(
        app,
        ApiHandler(
            backend=lambda: backend,
            forwarder=forwarder,
            fallback_summary=fallback_summary,
            stream_limiter=stream_limiter,
        ),
    )
    async with (
        listen(app, host=LOCAL, port=0, what="tests", limits=DASHBOARD) as port,
        aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as session,
    ):

        async def fetch(path: str, method: str = "GET", **more: Any) -> tuple[int, Any, Any]:
            async with session.request(method, f"http://{LOCAL}:{port}/api/v2{path}", **more) as response:
                body = await response.read()
                is_plain = response.content_type == "application/json" and "Content-Encoding" not in response.headers
                return response.status, response.headers, json.loads(body) if body and is_plain else body

        fetch.base = f"http://{LOCAL}:{port}"  # type: ignore[attr-defined] # the few that need it are spared a class
        yield fetch


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["n1", "n2", "n3"]),
        ("?state=blocked", ["n2"]),
        ("?state=blocked,draining&zone=b", ["n2", "n3"]),
        ("?state=blocked&state=idle", ["n1", "n2"]),
        ("?zone=&pool=big", ["n1", "n2"]),
        ("?profile=os", ["n3"]),
        ("?q=CART%20shop", ["n2"]),
        ("?q=nowhere", []),
    ],
)
async def test_query_parameters_filter_nodes(query: str, names: list[str]) -> None:
    async with serve_api(FakeBackend()) as fetch:
        status, _, fleet = await fetch(f"/nodes{query}")
        assert (status, [node["name"] for node in fleet["nodes"]], fleet["total"]) == (200, names, 3)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/nodes?state=bloked", "unknown state 'bloked'; there are idle, planned"),
        ("/nodes?status=x", "unknown parameter 'status'; there are `state`"),
        ("/summary?x=1", "unknown parameter 'x'; none are supported here"),
        ("/timeline?from=yesterday", "`from` must be an instant such as"),
        ("/timeline?from=2026-05-01T10:00:00", "needs a time zone"),
        ("/timeline?to=0001-01-01T00:00:00%2B10:00", "too far away"),
        ("/timeline?from=2026-05-02T00:00:00Z&to=2026-05-01T00:00:00Z", "`from` must be before `to`"),
        ("/history?from=2026-05-02T00:00:00Z&to=2026-05-01T00:00:00Z", "`from` must be before `to`"),
        ("/history?nodes=n1", "unknown parameter 'nodes'; there are `from`"),
        ("/history.csv?limit=0", "`limit` must be a number"),
        ("/timeline?limit=0", "a number from 1 to 5000"),
        ("/timeline?limit=%D9%A3", "a number from 1 to 5000"),
    ],
)
async def test_invalid_query_is_a_bad_request_with_the_reason(path: str, expected: str) -> None:
    async with serve_api(FakeBackend()) as fetch:
        status, _, body = await fetch(path)
        assert (status, body["status"]) == (400, 400)
        assert expected in body["error"]


async def test_timeline_query_is_parsed() -> None:
    source = FakeBackend()
    async with serve_api(source) as fetch:
        await fetch("/timeline?from=2026-05-01T12:00:00%2B02:00&limit=7&zone=a")
    assert source.timeline_query is not None
    assert (source.timeline_query.start, source.timeline_query.end, source.timeline_query.limit) == (T0, None, 7)
    assert source.timeline_query.node_filter.zones == {"a"}


async def test_history_query_is_parsed() -> None:
    source = FakeBackend()
    async with serve_api(source) as fetch:
        await fetch("/history?from=2026-05-01T12:00:00%2B02:00&node=a,b&object=profile&q=Disk+full&limit=7")
    expected_query = HistoryQuery(
        since=T0, nodes=frozenset({"a", "b"}), objects=frozenset({"profile"}), terms=("disk", "full"), limit=7
    )
    assert source.history_query == expected_query


async def test_history_csv_is_an_attachment() -> None:
    async with (
        serve_api(FakeBackend()) as leader,
        serve_api(None, leader=FixedLocator(leader.base)) as forwarding_fetch,  # type: ignore[attr-defined] # as above
    ):
        for fetch in (leader, forwarding_fetch):
            status, headers, body = await fetch("/history.csv?q=x")
            assert (status, body) == (200, b"node,time\r\nn1,now\r\n")
            assert headers["Content-Type"] == "text/csv; charset=utf-8"
            assert headers["Content-Disposition"] == 'attachment; filename="haulout-history.csv"'


async def test_history_csv_failure_is_a_problem_or_a_broken_transfer() -> None:
    async with serve_api(FakeBackend()) as fetch:
        status, headers, body = await fetch("/history.csv?q=busy")
        assert (status, headers["Retry-After"], body["error"]) == (503, "5", "others read it")
        with pytest.raises(aiohttp.ClientPayloadError):
            await fetch("/history.csv?q=broken")


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/nodes/n9", "GET", 404),
        ("/events?node=n9", "GET", 404),
        ("/nothing", "GET", 404),
        ("", "GET", 404),
        ("/summary", "DELETE", 404),
        ("/notices", "GET", 500),
        ("/configuration", "GET", 503),
    ],
)
async def test_errors_are_json_problems_that_are_not_cached(path: str, method: str, status: int) -> None:
    async with serve_api(FakeBackend()) as fetch:
        found, headers, body = await fetch(path, method)
        assert (found, body["status"], headers["Cache-Control"]) == (status, status, "no-store")
        assert body["error"]


async def test_matching_etag_is_answered_with_not_modified() -> None:
    async with serve_api(FakeBackend()) as fetch:
        _, headers, _ = await fetch("/summary")
        again = await fetch("/summary", headers={"If-None-Match": f'"other", W/{headers["ETag"]}'})
        assert (again[0], again[2]) == (HTTPStatus.NOT_MODIFIED, b"")


async def test_large_response_is_compressed_when_accepted() -> None:
    source = FakeBackend()
    source.tiles = tuple(NodeSummary(name=f"n{at}", state=NodeState.IDLE) for at in range(2000))
    async with serve_api(source) as fetch:
        _, headers, body = await fetch("/nodes", headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(body))["total"] == 2000
        for refused in ("identity", "gzip;q=0"):
            _, headers, _ = await fetch("/nodes", headers={"Accept-Encoding": refused})
            assert "Content-Encoding" not in headers


# Edits


async def test_edit_is_checked() -> None:
    async with serve_api(FakeBackend()) as fetch:
        assert (await fetch("/configuration/check", "POST", json={"text": "good"}))[2] == {"isValid": True}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"text": 1}', "application/json", 400),
        (b'{"text": "", "more": 1}', "application/json", 400),
        (b"text=x", "application/x-www-form-urlencoded", 415),
        (b"x" * (1 << 20) + b"x", "application/json", 413),
    ],
)
async def test_invalid_edit_request_is_refused(body: bytes, kind: str, status: int) -> None:
    async with serve_api(FakeBackend()) as fetch:
        found, _, problem = await fetch(
            "/configuration/check", "POST", data=io.BytesIO(body), headers={"Content-Type": kind}
        )
        assert (found, problem["status"]) == (status, status)


# Streams


async def test_event_stream_resumes_after_the_last_event_id() -> None:
    source = FakeBackend()
    async with serve_api(source) as fetch:
        status, headers, body = await fetch("/events", headers={"Last-Event-ID": "x-7"})
        assert (status, headers["Content-Type"], body) == (
            200,
            "text/event-stream; charset=utf-8",
            b"event: hello\n\n",
        )
    assert source.since == "x-7"


async def test_event_streams_beyond_the_limit_are_refused() -> None:
    limiter = StreamLimiter(max_streams=3, max_per_client=2)
    async with serve_api(FakeBackend(), stream_limiter=limiter) as fetch:
        with contextlib.ExitStack() as stack:
            for address in ("127.0.0.1", "127.0.0.1", "10.0.0.1"):
                stack.enter_context(limiter.admit(address))
            status, headers, body = await fetch("/events")
            assert (status, headers["Retry-After"]) == (503, "10")
            assert "3 event streams are open already" in body["error"]
        assert limiter.open_streams == 0
        with limiter.admit("127.0.0.1"), limiter.admit("127.0.0.1"):
            assert "close some tabs" in (await fetch("/events"))[2]["error"]
            assert (await fetch("/summary"))[0] == 200
        assert (await fetch("/events"))[0] == 200


class Endless(FakeBackend):
    """Has always more to tell."""

    async def next(self) -> bytes | None:
        """Tell a lot."""
        return b"x" * 65536


async def test_event_stream_that_is_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_READ_WITHIN", timedelta(milliseconds=50))
    limiter = StreamLimiter()
    async with serve_api(Endless(), stream_limiter=limiter) as fetch:
        url = URL(fetch.base)  # type: ignore[attr-defined] # as above
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
        writer.write(b"GET /api/v2/events HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()
        assert limiter.open_streams == 1
        assert (await fetch("/summary"))[0] == 200
        await eventually(RealClock(), lambda: limiter.open_streams == 0)
        writer.close()


class Silent(FakeBackend):
    """Has nothing to tell."""

    async def next(self) -> bytes | None:
        """Wait."""
        await asyncio.Event().wait()
        return None


async def test_open_streams_are_limited_and_other_requests_are_served() -> None:
    limiter = StreamLimiter(max_streams=50, max_per_client=20)
    async with serve_api(Silent(), stream_limiter=limiter) as fetch, aiohttp.ClientSession() as session:
        url = f"{fetch.base}/api/v2/events"  # type: ignore[attr-defined] # as above
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(20):
                response = await stack.enter_async_context(session.get(url))
                assert response.status == 200
            for _ in range(20):
                assert (await fetch("/events"))[0] == 503
            assert (await fetch("/nodes"))[0] == 200
            assert limiter.open_streams == 20
        await eventually(RealClock(), lambda: limiter.open_streams == 0)


async def test_shutdown_does_not_wait_for_open_streams() -> None:
    began = RealClock().monotonic()
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        async with serve_api(Silent()) as fetch:
            response = await stack.enter_async_context(session.get(f"{fetch.base}/api/v2/events"))  # type: ignore[attr-defined] # as above
            assert response.status == 200
            assert (await fetch("/events", "HEAD"))[0] == 404
        assert RealClock().monotonic() - began < 3


# Followers


class FixedLocator:
    """Leads at a known address."""

    def __init__(self, base: str) -> None:
        self._base = base

    async def base_url(self) -> str:
        """Where."""
        return self._base


async def test_follower_forwards_queries_edits_and_streams_to_the_leader() -> None:
    async with serve_api(FakeBackend()) as leader, serve_api(None, leader=FixedLocator(leader.base)) as fetch:  # type: ignore[attr-defined] # as above
        assert (await fetch("/nodes?state=blocked"))[2]["nodes"][0]["name"] == "n2"
        assert (await fetch("/nodes/n9"))[0] == 404
        assert (await fetch("/configuration/check", "POST", json={"text": "good"}))[2] == {"isValid": True}
        assert (await fetch("/events"))[2] == b"event: hello\n\n"
        _, headers, summary = await fetch("/summary")
        assert "isThisReplica" not in summary.get("leader", {})
        assert (await leader("/summary"))[2]["leader"]["isThisReplica"]
        assert (await fetch("/summary", headers={"If-None-Match": headers["ETag"]}))[0] == 304


async def test_without_a_leader_the_summary_has_a_banner_and_other_requests_fail() -> None:
    async with serve_api(None) as fetch:
        status, _, body = await fetch("/summary")
        assert (status, body["banners"][0]["message"]) == (200, "no replica is the leader at the moment")
        status, _, body = await fetch("/nodes")
        assert (status, body["error"]) == (503, "no replica is the leader at the moment")


async def test_unreachable_leader_is_a_bad_gateway() -> None:
    async with serve_api(None, leader=FixedLocator(f"http://{LOCAL}:1")) as fetch:
        status, _, body = await fetch("/nodes")
        assert status == 502
        assert "the leader does not answer" in body["error"]


async def test_followers_do_not_forward_to_each_other() -> None:
    async with serve_api(None) as other, serve_api(None, leader=FixedLocator(other.base)) as fetch:  # type: ignore[attr-defined] # as above
        status, _, body = await fetch("/nodes")
        assert (status, body["error"]) == (
            503,
            "the request was forwarded to this replica as the leader, but it is not the leader",
        )


async def test_openapi_description_defines_every_referenced_schema() -> None:
    async with serve_api(FakeBackend()) as fetch:
        _, _, body = await fetch("/openapi.json")
    text = json.dumps(body)
    named = set(body["components"]["schemas"])
    assert {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]} <= named
    assert body["openapi"] == "3.1.0"
