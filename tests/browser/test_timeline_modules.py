"""What the pages draw and compare with: each module asked by itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from support.dashboard.canned_api import CannedApi


@pytest.fixture
def lib(browser: Browser, api: CannedApi) -> Iterator[Page]:
    """Return a page in Berlin on which `use(MODULE)` loads a module of lib/, and nothing else runs."""
    with browser.new_context(timezone_id="Europe/Berlin") as context:
        page = context.new_page()
        page.goto(f"{api.dashboard_url}style.css")
        page.evaluate("() => { window.use = (name) => import(`/static/lib/${name}.js`); }")
        yield page


def ticks(lib: Page, start: str, hours: float, width: int, calendar: str = "UTC") -> dict[str, list[str]]:
    labels: dict[str, list[str]] = lib.evaluate(
        """async ([start, hours, width, calendar]) => {
            const it = await use("axis");
            const from = Date.parse(start);
            const { small, large } = it.axis(from, from + hours * 3_600_000, width, { calendar: it[calendar] });
            return { small: small.map((it) => it.text), large: large.map((it) => it.text) };
        }""",
        [start, hours, width, calendar],
    )
    return labels


def test_an_axis_has_round_times_that_do_not_crowd(lib: Page) -> None:
    assert ticks(lib, "2026-11-16T02:07:00Z", 6, 600)["small"] == [f"{hour:02}:00" for hour in range(2, 9)]
    week = ticks(lib, "2026-11-16T02:07:00Z", 7 * 24, 600)
    assert week["small"][:3] == ["Mon 16", "Tue 17", "Wed 18"]
    assert week["large"] == ["November 2026"]
    year = ticks(lib, "2026-11-16T02:07:00Z", 120 * 24, 300)
    assert year["small"] == ["1 Nov", "1 Dec", "1 Jan", "1 Feb", "1 Mar"]


def test_an_axis_in_local_time_stays_round_when_the_clocks_are_changed(lib: Page) -> None:
    assert ticks(lib, "2026-10-24T20:00:00Z", 10, 500, "LOCAL")["small"] == [
        "22:00",
        "00:00",
        "02:00",
        "04:00",
        "06:00",
    ]
    assert ticks(lib, "2026-03-28T23:00:00Z", 46, 500, "LOCAL")["large"] == ["Sun 29 Mar", "Mon 30 Mar"]


def test_spans_that_overlap_stand_in_lanes_of_their_own_and_kinds_do_not_mix(lib: Page) -> None:
    spans = [
        {"kind": "profile", "from": 0, "to": 10},
        {"kind": "profile", "from": 10, "to": 20},
        {"kind": "profile", "from": 15, "to": None},
        {"kind": "drain", "from": 12, "to": 13},
        {"kind": "notice", "from": 30, "to": 40},
        {"kind": "window", "from": 0, "to": 50},
    ]
    told: dict[str, Any] = lib.evaluate(
        """async (spans) => {
            const { placed, count } = (await use("lanes")).lanes(spans, { horizon: 1e9 });
            return { placed: placed.map(({ span, lane }) => [span.kind, span.from, lane]), count };
        }""",
        spans,
    )
    assert told == {
        "placed": [["notice", 30, 0], ["profile", 0, 1], ["profile", 10, 1], ["profile", 15, 2], ["drain", 12, 3]],
        "count": 4,
    }


@pytest.mark.parametrize(
    "parameters", [{}, {"span": "6h"}, {"span": "1mo", "at": "2026-11-17T19:00Z"}, {"span": "90m"}]
)
def test_what_the_address_says_of_a_view_is_what_it_says_again(lib: Page, parameters: dict[str, str]) -> None:
    told = lib.evaluate(
        "async (it) => { const v = await use('view'); return v.toParameters(v.fromParameters(it)); }", parameters
    )
    assert told == {"span": "", "at": "", **parameters}


@pytest.mark.parametrize("span", ["", "never", "1y", "0m", "-5h", "999999d"])
def test_an_address_that_makes_no_sense_shows_something_that_does(lib: Page, span: str) -> None:
    length = lib.evaluate("async (span) => (await use('view')).fromParameters({ span, at: 'noon' }).length", span)
    assert 10 * 60_000 <= length <= 120 * 86_400_000


def test_zooming_keeps_what_is_under_the_pointer_where_it_is(lib: Page) -> None:
    before, after = lib.evaluate(
        """async () => {
            const { range, zoomed } = await use("view");
            const view = { length: 1_000_000_000, at: 5_000_000_000 };
            const at = (it) => { const { start, end } = range(it, 0); return start + (end - start) * 0.2; };
            return [at(view), at(zoomed(view, 0.5, 0.2, 0))];
        }"""
    )
    assert abs(before - after) < 1000


@pytest.mark.parametrize(
    ("before", "after", "lines", "gone"),
    [
        ("a\nb\nc", "a\nb\nc", [], 0),
        ("a\nb\nc", "a\nx\nc", [2], 1),
        ("a\nb\nc", "a\nb\nnew\nc\nd", [3, 5], 0),
        ("a\nb\nc\nd", "a\nd", [], 2),
        ("", "a", [1], 1),
    ],
)
def test_lines_that_differ_are_found(lib: Page, before: str, after: str, lines: list[int], gone: int) -> None:
    told = lib.evaluate(
        """async ([before, after]) => {
            const { lines, gone } = (await use("diff")).differing(before, after);
            return [[...lines], gone];
        }""",
        [before, after],
    )
    assert told == [lines, gone]


def test_a_file_is_told_apart_piece_by_piece_and_nothing_of_it_is_lost(lib: Page) -> None:
    line = """  - {name: "a # b", key: 'x', max: 10, on: true, url: ${HOOK}} # why: <b>not</b>"""
    told = lib.evaluate(
        """async (line) => {
            const pieces = (await use("yaml")).yamlLine(line);
            const text = (it) => (typeof it === "string" ? it : it.textContent);
            const told = pieces.filter((it) => it.className).map((it) => [it.className, text(it)]);
            return [pieces.map(text).join(""), told];
        }""",
        line,
    )
    assert told[0] == line
    assert ["yaml-text", '"a # b"'] in told[1]
    assert ["yaml-value", "10"] in told[1]
    assert ["yaml-variable", "${HOOK}"] in told[1]
    assert ["yaml-comment", "# why: <b>not</b>"] in told[1]
