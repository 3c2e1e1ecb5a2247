"""The JavaScript modules of the pages, each by itself."""

from typing import Any

import pytest
from playwright.sync_api import Page

from browser.conftest import Pages
from support.dashboard.canned_api import CannedApi


@pytest.fixture
def lib(pages: Pages, api: CannedApi) -> Page:
    """Return a page on which `use(MODULE)` loads a module of lib/, and nothing else runs."""
    pages.expect_problems("404")  # the browser requests an icon for its tab
    page = pages.open(f"{api.dashboard_url}style.css")
    page.evaluate("() => { window.use = (name) => import(`/static/lib/${name}.js`); }")
    return page


def test_durations_have_at_most_two_units(lib: Page) -> None:
    seconds = [0, 42, 59.6, 65, 179, 180, 3599, 3600, 3661, 36_000, 90_000, 8 * 86_400]
    durations: list[str] = lib.evaluate("async (all) => all.map((await use('time')).duration)", seconds)
    assert durations == [
        "0 s",
        "42 s",
        "1 min",
        "1 min 5 s",
        "2 min 59 s",
        "3 min",
        "59 min",
        "1 h",
        "1 h 1 min",
        "10 h",
        "1 d 1 h",
        "8 d",
    ]


def test_relative_times_use_the_server_clock(lib: Page) -> None:
    texts = lib.evaluate(
        """async () => {
            const {setNow, relative, short, full} = await use("time");
            setNow(() => Date.parse("2026-11-16T14:05:00Z"));
            return [relative("2026-11-16T14:04:30Z"), relative("2026-11-16T16:05:00Z"),
                    relative("2026-11-16T14:05:01Z"), relative("nonsense"), short("2026-11-16T09:00:00Z"),
                    short("2026-11-17T09:00:00Z"), full("2026-11-17T09:00:00.5Z")];
        }"""
    )
    assert texts == ["30 s ago", "in 2 h", "now", "", "09:00", "17 Nov 09:00", "2026-11-17 09:00:00 UTC"]


def test_typed_text_is_kept_when_the_page_is_redrawn(lib: Page) -> None:
    result = lib.evaluate(
        """async () => {
            const {filterBar} = await use("filter_fields"), heard = [], seen = [];
            const bar = filterBar("Narrow", [{name: "q", label: "Search"}], (it) => heard.push(it.q));
            document.documentElement.append(bar.element);
            const input = bar.element.querySelector("input");
            const type = (text) => { input.value = text; input.dispatchEvent(new Event("input")); };
            const show = (q) => { bar.show({q}); seen.push(input.value); };
            const pause = () => new Promise((done) => setTimeout(done, 300));
            bar.focus();
            type("n1");
            show("");
            await pause();
            show("n1");
            type("n12");
            bar.element.querySelector("button").click();
            show("");
            await pause();
            return [heard, seen];
        }"""
    )
    assert result == [["n1", ""], ["n1", "n1", ""]]


@pytest.mark.parametrize(
    "route",
    [
        {"page": "fleet", "name": "", "parameters": {}},
        {"page": "fleet", "name": "", "parameters": {"state": "blocked,draining", "q": "a&b=c #? ü"}},
        {"page": "nodes", "name": "a/b?c#d%e ü<script>", "parameters": {"tab": "x"}},
    ],
)
def test_route_survives_a_round_trip(lib: Page, route: dict[str, Any]) -> None:
    script = "async (it) => { const {parse, format} = await use('route'); return parse(format(it)); }"
    parsed = lib.evaluate(script, route)
    assert parsed == route


def test_invalid_url_is_parsed_leniently(lib: Page) -> None:
    parsed = lib.evaluate(
        "async () => { const {parse} = await use('route'); return ['', '#', '#/', '#/nodes/%E0%A4%A'].map(parse); }"
    )
    assert [item["page"] for item in parsed] == ["fleet", "fleet", "fleet", "nodes"]
    assert parsed[3]["name"] == "%E0%A4%A"


def test_event_stream_is_parsed_across_chunk_boundaries(lib: Page) -> None:
    stream = (
        ': hello\n\nevent: nodes\r\nid: 7\r\ndata: {"a":\r\ndata: 1}\r\n\r\n'
        'data:{"b":2}\n\nevent: lost\n\nevent: late\ndata: {"c":"ü"}\n\nevent: half'
    )
    results = lib.evaluate(
        """async (text) => {
            const {Parser} = await use("stream");
            const all = [];
            for (let size = 1; size < 40; size += 1) {
                const told = [];
                const parser = new Parser((kind, data) => told.push([kind, data]));
                for (let at = 0; at < text.length; at += size) parser.take(text.slice(at, at + size));
                all.push(JSON.stringify(told));
            }
            return [...new Set(all)].map(JSON.parse);
        }""",
        stream,
    )
    assert results == [[["nodes", {"a": 1}], ["message", {"b": 2}], ["late", {"c": "ü"}]]]


def test_elements_accept_only_text_and_safe_links(lib: Page) -> None:
    made = lib.evaluate(
        """async () => {
            const {h} = await use("dom");
            const links = ["javascript:x", " javascript:x", "data:text/html,x", "//elsewhere", "#/nodes/a", "https://a.b/"];
            const p = h("p", {title: '"><b>', class: ["a", null, false, "b"]}, "<i>", null, [["x", [0]]], false, "");
            return [p.textContent, p.children.length, p.title, p.className,
                    links.map((href) => h("a", {href}).getAttribute("href"))];
        }"""
    )
    assert made == ["<i>x0", 0, '"><b>', "a b", [None, None, None, None, "#/nodes/a", "https://a.b/"]]
