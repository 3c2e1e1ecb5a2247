"""`haulout top`: the fleet in the terminal, from what an operator says."""

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
from haulout.errors import HauloutError
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


def a_picture(clock: Clock, *tiles: NodeSummary) -> FleetCache:
    """Return what is known of a fleet."""
    picture = FleetCache(clock, SUMMARY, {it.name: it for it in tiles or TILES}, {it.name: it for it in NOTICES})
    picture._set_time(NOW)
    picture.problem = ""
    return picture


def seen(picture: FleetCache, choice: ViewState = ViewState(), *, width: int = 120, height: int | None = 30) -> str:  # noqa: B008 - frozen
    """Return what a terminal shows."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render_screen(picture, choice, width=width, height=height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


# What is shown


async def test_it_shows_who_leads_budgets_banners_busy_nodes_and_what_is_announced(clock: Clock) -> None:
    text = seen(a_picture(clock))
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
async def test_it_is_never_larger_than_the_terminal(clock: Clock, width: int, height: int) -> None:
    many = [NodeSummary(name=f"node-{it:04}", state=NodeState.DRAINING, message="x" * 300) for it in range(5000)]
    lines = seen(a_picture(clock, *many), ViewState(selected_row=2500), width=width, height=height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert any(line.startswith("node-2500") for line in lines)


async def test_what_others_wrote_cannot_take_over_the_terminal(clock: Clock) -> None:
    evil = NodeSummary(name="n\x1b[2J", state=NodeState.BLOCKED, message="[bold]a\nb\x07[/bold]")
    text = seen(a_picture(clock, evil))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]a b" in text


async def test_a_lost_connection_is_told_with_what_was_known_last(clock: Clock) -> None:
    picture = a_picture(clock)
    picture.problem = "refused"
    assert "not connected, showing the last known data: refused" in seen(picture)
    assert "n3" in seen(picture)


async def test_all_about_a_node_names_blockers_and_what_to_type(clock: Clock) -> None:
    picture = a_picture(clock)
    assert "loading details" in seen(picture, ViewState(detail_node="n3"))
    blocker = Blocker(kind="DisruptionBudget", pod="shop/cart-0", reason="needs 2", remedy="run more replicas")
    picture.details["n3"] = NodeDetail(
        summary=TILES[2],
        drains=(DrainSummary(owner="profile/os", total=5, removed=3, blockers=(blocker,)),),
        commands=(Command(title="Go on", command="kubectl delete pod " + "x" * 90),),
    )
    text = seen(picture, ViewState(detail_node="n3"), width=60)
    assert "drain by profile/os: 3 of 5 pods have left" in text
    assert "shop/cart-0: needs 2" in text
    assert "run more replicas" in text
    assert text.count("x") >= 90, "what is to be typed is there as a whole"
    assert "node gone is gone" in seen(picture, ViewState(detail_node="gone"))


# Keys


def press(typed: str, choice: ViewState | None = None) -> ViewState:
    """Return the choice after these keys."""
    choice = choice or ViewState()
    for key in parse_keys(typed):
        choice = handle_key(choice, key, [it.name for it in visible_nodes(choice, TILES)])
    return choice


def test_keys_choose_rows_details_order_and_filters() -> None:
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


def test_a_search_finds_idle_nodes_too_and_takes_keys_as_text() -> None:
    choice = press("/n1")
    assert (choice.search, choice.is_searching) == ("n1", True)
    assert [it.name for it in visible_nodes(choice, TILES)] == ["n1"]
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
def test_nodes_are_sorted_as_chosen(sort: Sort, names: list[str]) -> None:
    assert [it.name for it in visible_nodes(ViewState(sort=sort), TILES)] == names


# What is told


async def test_events_change_the_picture(clock: Clock) -> None:
    picture = a_picture(clock)
    n5 = NodeSummary(name="n5", state=NodeState.RECOVERING)
    picture.apply_event(
        "nodes", msgspec.json.encode(NodesChanged(revision="2", changed=(n5,), deleted=("n2", "unknown")))
    )
    assert sorted(picture.tiles) == ["n1", "n3", "n4", "n5"]
    picture.apply_event("notices", msgspec.json.encode(NoticesChanged(revision="2", deleted=("oci-1",))))
    assert sorted(picture.notices) == ["oci-0"]
    picture.apply_event("summary", msgspec.json.encode(Summary(version="2")))
    assert picture.summary.version == "2"
    picture.apply_event("something-new", b"{}")
    with pytest.raises(HauloutError, match="unexpected response of the operator"):
        picture.apply_event("nodes", b"[]")


async def test_a_stream_is_read_as_events() -> None:
    async def lines() -> AsyncIterator[bytes]:
        sent = b": hi||id: 1|event: nodes|data: {|data: }||event: reset|data:||"
        for line in sent.split(b"|"):
            yield line

    assert [it async for it in parse_events(lines())] == [("nodes", b"{\n}"), ("reset", b"")]


# An operator


class Canned:
    """An operator that says what a test has it say."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.answers: dict[str, ApiType] = {
            "summary": SUMMARY,
            "nodes": NodeList(revision="1", total=4, nodes=TILES),
            "notices": NoticeList(revision="1", notices=NOTICES),
        }

    def tell(self, event: str, data: Any) -> None:
        """Tell an event."""
        self.told.put_nowait(f"event: {event}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode())

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a question."""
        return web.Response(body=msgspec.json.encode(self.answers[request.match_info["what"]]))

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Tell what there is to tell."""
        response = web.StreamResponse()
        await response.prepare(request)
        while (told := await self.told.get()) is not None:
            await response.write(told)
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
async def test_a_picture_is_kept_by_the_stream_and_asked_for_anew_when_it_must() -> None:
    operator = Canned()
    operator.tell("hello", {"revision": "1", "time": "2026-01-05T09:00:00Z"})
    operator.tell("nodes", NodesChanged(revision="2", deleted=("n2",)))
    operator.tell("reset", {})
    operator.tell("nodes", NodesChanged(revision="3", deleted=("n3",)))
    operator.told.put_nowait(None)
    async with operator.serving() as url, aiohttp.ClientSession() as session:
        picture = FleetCache(RealClock())
        await picture.stream_events(UrlApiClient(url, session))
    assert sorted(picture.tiles) == ["n1", "n2", "n4"]
    assert abs(picture.now - NOW) < MINUTE
    assert picture.problem == ""


@pytest.mark.real_time
async def test_once_is_for_pipes_and_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    async with Canned().serving() as url:
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


async def test_the_operators_pod_is_found_in_the_cluster_or_it_is_said_how_else(clock: Clock) -> None:
    api = ApiServer(clock)
    client = Client(api.transport("me"), clock=clock, random=Random(1))
    with pytest.raises(HauloutError, match=r"name=haulout; .* kubectl -n NAMESPACE port-forward"):
        await find_operator(client, None)
    api.put(a_namespace("ops"))
    pod = a_pod("ops/haulout-1", labels={"app.kubernetes.io/name": "haulout"})
    api.put({**pod, "status": {"phase": "Running"}})
    way = await find_operator(client, None)
    assert way.name == "pod ops/haulout-1"
    assert way._request("events?node=n1").path == "/api/v1/namespaces/ops/pods/haulout-1:8080/proxy/api/v2/events"
    with pytest.raises(HauloutError, match="to connect another way: kubectl -n NAMESPACE port-forward"):
        await way.get("summary")  # which the API server does not let through


@pytest.mark.real_time
async def test_of_a_hub_the_clusters_are_printed_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    clusters = some_clusters()
    hub = Canned()
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
        told = json.loads(capsys.readouterr().out)
        assert (told["summary"]["mode"], len(told["clusters"])) == ("management", 11)
