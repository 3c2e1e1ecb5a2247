"""`haulout top`: the fleet in the terminal, from the API of an operator."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from rich.console import Console

from haulout.cli.top.api_client import UrlApiClient, find_operator
from haulout.cli.top.execution import TopOptions, run_top
from haulout.cli.top.fleet_cache import FleetCache, parse_events
from haulout.cli.top.live_view import parse_keys
from haulout.cli.top.screen import render_screen
from haulout.cli.top.view_state import Sort, ViewState, handle_key, visible_nodes
from haulout.core.clock import Clock, RealClock
from haulout.dashboard.api.types import (
    ApiType,
    Banner,
    Blocker,
    BudgetUsage,
    Command,
    DrainSummary,
    Leader,
    Level,
    NodeDetail,
    NodeList,
    NodesChanged,
    NodeState,
    NodeSummary,
    Notice,
    NoticeList,
    NoticesChanged,
    Summary,
)
from haulout.errors import ExternalError, HauloutError
from haulout.httpserver.connections import DASHBOARD
from haulout.httpserver.listener import listen
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace, a_pod
from support.dashboard.clusters import a_hub_summary, some_clusters

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SUMMARY = Summary(
    version="1",
    cluster="prod",
    leader=Leader(identity="haulout-1"),
    total=4,
    budgets=(BudgetUsage(name="whole cluster", used=2, limit=2, waiting=("n4",)),),
    banners=(Banner(level=Level.WARNING, message="oci is not heard"),),
    has_notices=True,
    time=NOW,
)
TILES = (
    NodeSummary(name="n1", state=NodeState.IDLE, zone="a"),
    NodeSummary(
        name="n2", state=NodeState.DRAINING, since=NOW - 2 * MINUTE, message="3 of 5 pods have left", progress=60
    ),
    NodeSummary(
        name="n3",
        state=NodeState.BLOCKED,
        since=NOW - HOUR,
        message="PodDisruptionBudget shop/cart",
        next_at=NOW + MINUTE,
    ),
    NodeSummary(name="n4", state=NodeState.PLANNED, since=NOW - MINUTE, next_at=NOW + HOUR),
)
NOTICES = (
    Notice(name="oci-1", phase="Due", kind="Reboot", node="n4", start=NOW + HOUR, is_on_time=False),
    Notice(name="oci-0", phase="Completed", kind="Reboot", node="n1", start=NOW - HOUR),
)


def a_fleet_cache(clock: Clock, *tiles: NodeSummary) -> FleetCache:
    """Return the cache of a fleet."""
    fleet_cache = FleetCache(clock, SUMMARY, {it.name: it for it in tiles or TILES}, {it.name: it for it in NOTICES})
    fleet_cache._set_time(NOW)
    fleet_cache.problem = ""
    return fleet_cache


def render(fleet: FleetCache, view: ViewState = ViewState(), *, width: int = 120, height: int | None = 30) -> str:  # noqa: B008 - frozen
    """Return the rendered screen."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_screen(fleet, view, width=width, height=height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


# Screen


async def test_top_shows_leader_budgets_banners_active_nodes_and_notices(clock: Clock) -> None:
    text = render(a_fleet_cache(clock))
    for part in (
        "Haulout prod  leader haulout-1  09:00:00 UTC",
        "4 nodes  idle 1  planned 1  draining 1  blocked 1",
        "budget whole cluster: 2 of 2, 1 waiting",
        "warning: oci is not heard",
        "PodDisruptionBudget shop/cart",
        "60%",
        "Announced: 1",
        "Due  n4  Reboot  in 1h0m  will be late",
    ):
        assert part in text
    assert "n1" not in text, "it is idle"
    lines = [line.split()[0] for line in text.splitlines() if line.startswith(("n2", "n3", "n4"))]
    assert lines == ["n3", "n2", "n4"], "who is blocked comes first"


@pytest.mark.parametrize(("width", "height"), [(120, 24), (60, 12), (30, 8)])
async def test_screen_fits_the_terminal(clock: Clock, width: int, height: int) -> None:
    many = [NodeSummary(name=f"node-{it:04}", state=NodeState.DRAINING, message="x" * 300) for it in range(5000)]
    lines = render(a_fleet_cache(clock, *many), ViewState(selected_row=2500), width=width, height=height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert any(line.startswith("node-2500") for line in lines)


async def test_control_characters_are_escaped(clock: Clock) -> None:
    evil = NodeSummary(name="n\x1b[2J", state=NodeState.BLOCKED, message="[bold]a\nb\x07[/bold]")
    text = render(a_fleet_cache(clock, evil))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]a b" in text


async def test_lost_connection_is_shown_with_the_last_known_data(clock: Clock) -> None:
    fleet_cache = a_fleet_cache(clock)
    fleet_cache.problem = "refused"
    assert "not connected, showing the last known data: refused" in render(fleet_cache)
    assert "n3" in render(fleet_cache)


async def test_node_details_show_blockers_and_commands(clock: Clock) -> None:
    fleet_cache = a_fleet_cache(clock)
    assert "loading details" in render(fleet_cache, ViewState(detail_node="n3"))
    blocker = Blocker(kind="DisruptionBudget", pod="shop/cart-0", reason="needs 2", remedy="run more replicas")
    fleet_cache.details["n3"] = NodeDetail(
        summary=TILES[2],
        drains=(DrainSummary(owner="profile/os", total=5, removed=3, blockers=(blocker,)),),
        commands=(Command(title="Go on", command="kubectl delete pod " + "x" * 90),),
    )
    text = render(fleet_cache, ViewState(detail_node="n3"), width=60)
    assert "drain by profile/os: 3 of 5 pods have left" in text
    assert "shop/cart-0: needs 2" in text
    assert "run more replicas" in text
    assert text.count("x") >= 90, "what is to be typed is there as a whole"
    assert "node gone is gone" in render(fleet_cache, ViewState(detail_node="gone"))


# Keys


def press(typed: str, view_state: ViewState | None = None) -> ViewState:
    """Return the view state after these keys."""
    view_state = view_state or ViewState()
    for key in parse_keys(typed):
        view_state = handle_key(view_state, key, [it.name for it in visible_nodes(view_state, TILES)])
    return view_state


def test_keys_select_rows_details_sort_order_and_filters() -> None:
    assert press("\x1b[B\x1b[B").selected_row == 2
    assert press("jjjjjjj").selected_row == 2, "there are no more"
    assert press("jk\x1b[A").selected_row == 0
    assert press("j\r").detail_node == "n2"
    assert press("j\r\x1b").detail_node == ""
    assert press("s").sort is Sort.NAME
    assert press("ssss").sort is Sort.STATE
    assert press("f").state is NodeState.BLOCKED
    assert press("f\x1b").state is None
    assert press("q").has_quit
    assert not press("j\rq").has_quit, "it goes back first"


def test_search_includes_idle_nodes_and_takes_keys_as_text() -> None:
    view_state = press("/n1")
    assert (view_state.search, view_state.is_searching) == ("n1", True)
    assert [it.name for it in visible_nodes(view_state, TILES)] == ["n1"]
    assert press("/qs\x7f\r").search == "q"
    assert not press("/q\r").is_searching
    assert press("/q\x1b").search == ""


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        (Sort.STATE, ["n3", "n2", "n4"]),
        (Sort.NAME, ["n2", "n3", "n4"]),
        (Sort.SINCE, ["n3", "n2", "n4"]),
        (Sort.NEXT, ["n3", "n4", "n2"]),
    ],
)
def test_nodes_are_sorted_by_the_selected_order(sort: Sort, names: list[str]) -> None:
    assert [it.name for it in visible_nodes(ViewState(sort=sort), TILES)] == names


# Events and status


async def test_events_update_the_fleet_cache(clock: Clock) -> None:
    fleet_cache = a_fleet_cache(clock)
    n5 = NodeSummary(name="n5", state=NodeState.RECOVERING)
    fleet_cache.apply_event(
        "nodes", msgspec.json.encode(NodesChanged(revision="2", changed=(n5,), deleted=("n2", "unknown")))
    )
    assert sorted(fleet_cache.tiles) == ["n1", "n3", "n4", "n5"]
    fleet_cache.apply_event("notices", msgspec.json.encode(NoticesChanged(revision="2", deleted=("oci-1",))))
    assert sorted(fleet_cache.notices) == ["oci-0"]
    fleet_cache.apply_event("summary", msgspec.json.encode(Summary(version="2")))
    assert fleet_cache.summary.version == "2"
    fleet_cache.apply_event("something-new", b"{}")
    with pytest.raises(HauloutError, match="unexpected response of the operator"):
        fleet_cache.apply_event("nodes", b"[]")


async def test_event_stream_is_parsed() -> None:
    async def lines() -> AsyncIterator[bytes]:
        sent = b": hi||id: 1|event: nodes|data: {|data: }||event: reset|data:||"
        for line in sent.split(b"|"):
            yield line

    assert [it async for it in parse_events(lines())] == [("nodes", b"{\n}"), ("reset", b"")]


# An operator


class CannedOperator:
    """An operator with canned responses."""

    def __init__(self) -> None:
        self.queued_events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: dict[str, ApiType] = {
            "summary": SUMMARY,
            "nodes": NodeList(revision="1", total=4, nodes=TILES),
            "notices": NoticeList(revision="1", notices=NOTICES),
        }

    def queue_event(self, event: str, data: Any) -> None:
        """Send an event."""
        self.queued_events.put_nowait(f"event: {event}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode())

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a request."""
        return web.Response(body=msgspec.json.encode(self.answers[request.match_info["what"]]))

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream the queued events."""
        response = web.StreamResponse()
        await response.prepare(request)
        while (event_text := await self.queued_events.get()) is not None:
            await response.write(event_text)
        return response

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Yield its address."""
        app = web.Application()
        app.router.add_get("/api/v2/events", self.events)
        app.router.add_get("/api/v2/{what}", self.answer)
        async with listen(app, host="127.0.0.1", port=0, what="the operator", limits=DASHBOARD) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.real_time
async def test_stream_updates_the_cache_and_a_reset_event_reloads_it() -> None:
    operator = CannedOperator()
    operator.queue_event("hello", {"revision": "1", "time": "2026-01-05T09:00:00Z"})
    operator.queue_event("nodes", NodesChanged(revision="2", deleted=("n2",)))
    operator.queue_event("reset", {})
    operator.queue_event("nodes", NodesChanged(revision="3", deleted=("n3",)))
    operator.queued_events.put_nowait(None)
    async with operator.serving() as url, aiohttp.ClientSession() as session:
        fleet_cache = FleetCache(RealClock())
        await fleet_cache.stream_events(UrlApiClient(url, session))
    assert sorted(fleet_cache.tiles) == ["n1", "n2", "n4"]
    assert abs(fleet_cache.now - NOW) < MINUTE
    assert fleet_cache.problem == ""


@pytest.mark.real_time
async def test_operator_that_is_not_reachable_is_a_short_error() -> None:
    with pytest.raises(ExternalError, match=r"^http://127\.0\.0\.1:1/api/v2/summary: connection refused$"):
        await run_top(TopOptions(url="http://127.0.0.1:1", is_once=True))


@pytest.mark.real_time
async def test_once_prints_plain_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    async with CannedOperator().serving() as url:
        await run_top(TopOptions(url=f"{url}/", is_once=True))
        text = capsys.readouterr().out
        assert "PodDisruptionBudget shop/cart" in text
        assert "q quit" not in text
        assert "\x1b" not in text
        await run_top(TopOptions(url=url, as_json=True))
        found = json.loads(capsys.readouterr().out)
        assert [it["name"] for it in found["nodes"]] == ["n2", "n3", "n4"]
        assert found["summary"]["leader"]["identity"] == "haulout-1"
    with pytest.raises(HauloutError, match="api/v2/summary: "):
        await run_top(TopOptions(url=url, is_once=True))


async def test_operator_pod_is_found_or_the_alternative_is_named(clock: Clock) -> None:
    api = ApiServer(clock)
    client = Client(api.transport("me"), clock=clock, random=Random(1))
    with pytest.raises(HauloutError, match=r"name=haulout; .* kubectl -n NAMESPACE port-forward"):
        await find_operator(client, None)
    api.put(a_namespace("ops"))
    pod = a_pod("ops/haulout-1", labels={"app.kubernetes.io/name": "haulout"})
    api.put({**pod, "status": {"phase": "Running"}})
    api_client = await find_operator(client, None)
    assert api_client.name == "pod ops/haulout-1"
    assert (
        api_client._request("events?node=n1").path == "/api/v1/namespaces/ops/pods/haulout-1:8080/proxy/api/v2/events"
    )
    with pytest.raises(HauloutError, match="to connect another way: kubectl -n NAMESPACE port-forward"):
        await api_client.get("summary")  # which the API server does not let through


@pytest.mark.real_time
async def test_hub_clusters_are_listed_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    clusters = some_clusters()
    hub = CannedOperator()
    hub.answers |= {"summary": a_hub_summary(clusters), "clusters": clusters}
    async with hub.serving() as url:
        await run_top(TopOptions(url=url))
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("Haulout management  a hub, leader haulout-7c9d5f6b8-x2kqp  14:05:00 UTC")
        assert lines[1] == "budget at most 2 clusters in maintenance at once: 2 of 2, 1 waiting"
        assert lines[3] == "warning: 1 cluster cannot be reached: bank/stage"
        assert [line.split()[0] for line in lines[4:9]] == [
            "CLUSTER",
            "bank/stage",
            "edge/store-07",
            "shop/prod-eu",
            "shop/prod-us",
        ]
        assert "https://10.20.0.8:6443: connection refused" in lines[5]
        assert "2 of 2 clusters are in maintenance" in lines[9]
        await run_top(TopOptions(url=url, as_json=True))
        document = json.loads(capsys.readouterr().out)
        assert (document["summary"]["mode"], len(document["clusters"])) == ("management", 11)
