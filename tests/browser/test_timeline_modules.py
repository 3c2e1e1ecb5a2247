"""The JavaScript modules for timelines, differences and YAML, each by itself."""

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


def test_axis_has_round_times_without_overlap(lib: Page) -> None:
    assert ticks(lib, "2026-11-16T02:07:00Z", 6, 600)["small"] == [f"{hour:02}:00" for hour in range(2, 9)]
    week = ticks(lib, "2026-11-16T02:07:00Z", 7 * 24, 600)
    assert week["small"][:3] == ["Mon 16", "Tue 17", "Wed 18"]
    assert week["large"] == ["November 2026"]
    year = ticks(lib, "2026-11-16T02:07:00Z", 120 * 24, 300)
    assert year["small"] == ["1 Nov", "1 Dec", "1 Jan", "1 Feb", "1 Mar"]


def test_local_time_axis_stays_round_across_a_daylight_saving_change(lib: Page) -> None:
    assert ticks(lib, "2026-10-24T20:00:00Z", 10, 500, "LOCAL")["small"] == [
        "22:00",
        "00:00",
        "02:00",
        "04:00",
        "06:00",
    ]
    assert ticks(lib, "2026-03-28T23:00:00Z", 46, 500, "LOCAL")["large"] == ["Sun 29 Mar", "Mon 30 Mar"]


def test_overlapping_spans_get_separate_lanes_per_kind(lib: Page) -> None:
    spans = [
        {"kind": "profile", "from": 0, "to": 10},
        {"kind": "profile", "from": 10, "to": 20},
        {"kind": "profile", "from": 15, "to": None},
        {"kind": "drain", "from": 12, "to": 13},
        {"kind": "notice", "from": 30, "to": 40},
        {"kind": "window", "from": 0, "to": 50},
    ]
    result: dict[str, Any] = lib.evaluate(
        """async (spans) => {
            const { placed, count } = (await use("lanes")).lanes(spans, { horizon: 1e9 });
            return { placed: placed.map(({ span, lane }) => [span.kind, span.from, lane]), count };
        }""",
        spans,
    )
    assert result == {
        "placed": [["notice", 30, 0], ["profile", 0, 1], ["profile", 10, 1], ["profile", 15, 2], ["drain", 12, 3]],
        "count": 4,
    }


@pytest.mark.parametrize(
    "parameters", [{}, {"span": "6h"}, {"span": "1mo", "at": "2026-11-17T19:00Z"}, {"span": "90m"}]
)
def test_view_parameters_survive_a_round_trip(lib: Page, parameters: dict[str, str]) -> None:
    result = lib.evaluate(
        "async (it) => { const v = await use('view'); return v.toParameters(v.fromParameters(it)); }", parameters
    )
    assert result == {"span": "", "at": "", **parameters}


@pytest.mark.parametrize("span", ["", "never", "1y", "0m", "-5h", "999999d"])
def test_invalid_view_parameters_fall_back_to_a_valid_range(lib: Page, span: str) -> None:
    length = lib.evaluate("async (span) => (await use('view')).fromParameters({ span, at: 'noon' }).length", span)
    assert 10 * 60_000 <= length <= 120 * 86_400_000


def test_zoom_keeps_the_time_under_the_pointer(lib: Page) -> None:
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
def test_differing_lines_are_found(lib: Page, before: str, after: str, lines: list[int], gone: int) -> None:
    result = lib.evaluate(
        """async ([before, after]) => {
            const { lines, gone } = (await use("diff")).differing(before, after);
            return [[...lines], gone];
        }""",
        [before, after],
    )
    assert result == [lines, gone]


def test_yaml_highlighting_loses_no_text(lib: Page) -> None:
    line = """  - {name: "a # b", key: 'x', max: 10, on: true, url: ${HOOK}} # why: <b>not</b>"""
    result = lib.evaluate(
        """async (line) => {
            const pieces = (await use("yaml")).yamlLine(line);
            const text = (it) => (typeof it === "string" ? it : it.textContent);
            const told = pieces.filter((it) => it.className).map((it) => [it.className, text(it)]);
            return [pieces.map(text).join(""), told];
        }""",
        line,
    )
    assert result[0] == line
    assert ["yaml-text", '"a # b"'] in result[1]
    assert ["yaml-value", "10"] in result[1]
    assert ["yaml-variable", "${HOOK}"] in result[1]
    assert ["yaml-comment", "# why: <b>not</b>"] in result[1]
