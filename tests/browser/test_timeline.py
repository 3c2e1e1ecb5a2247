"""Past, running and coming maintenance on one axis of time."""

import re
from collections.abc import Callable

import pytest
from aiohttp import web
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import Timeline
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import NOW
from support.dashboard.poll import wait_until
from support.dashboard.timeline import a_timeline, a_timeline_without_history


@pytest.fixture(autouse=True)
def _timeline(api: CannedApi) -> None:
    api.answers["timeline"] = a_timeline(NOW)


def open_timeline_page(
    pages: Pages, api: CannedApi, query: str = "", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{api.dashboard_url}#/timeline{query}", width=width, theme=theme)
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    return page


def bar(page: Page, name: str) -> Locator:
    return page.locator(f'.tl-bar[aria-label*="{name}"]')


def left_edge(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    x: float = box["x"]
    return x


def test_each_node_has_a_row_with_past_running_and_planned_bars_and_a_line_for_now(
    pages: Pages, api: CannedApi
) -> None:
    page = open_timeline_page(pages, api)
    expect(page.locator(".tl-name").first).to_have_text("general-05")
    expect(bar(page, "patch-08").first).to_contain_text("patch-08 · Failed")
    now = left_edge(page.locator(".tl-now"))
    assert left_edge(bar(page, "patch-08").first) < now < left_edge(bar(page, "Reboot: EVACUATION"))


def test_open_ended_bar_fades_out_after_now(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    running = bar(page, "profile os, running")
    assert running.evaluate("it => getComputedStyle(it).maskImage") != "none"
    box = running.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] > left_edge(page.locator(".tl-now"))


def test_windows_and_blackouts_are_drawn_behind_the_rows(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api, "?span=1w")
    expect(page.locator(".tl-band-name")).to_have_text("os: night")
    assert page.locator(".tl-grid .tl-band.is-window:visible").count() == 7
    expect(page.locator(".tl-grid .tl-band.is-blackout")).to_be_visible()


def test_tooltip_of_a_bar_shows_times_duration_and_reason(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    bar(page, "Reboot: EVACUATION").hover()
    card = page.get_by_role("tooltip")
    for text in (
        "Mon 16 Nov, 14:17 UTC",
        "Mon 16 Nov, 15:17 UTC",
        "for 1 h",
        "large-01",
        "its drain has not begun",
    ):
        expect(card).to_contain_text(text)
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()


def test_click_on_a_bar_opens_its_node(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404")
    page = open_timeline_page(pages, api)
    bar(page, "patch-08").first.click()
    expect(page).to_have_url(f"{api.dashboard_url}#/nodes/general-08")


def test_zoom_buttons_update_the_url(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    page.get_by_role("button", name="1w").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/timeline?span=1w")
    expect(page.locator(".tl-large").first).to_have_text("Sat 14 Nov")
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/timeline?span=6300m")


def test_url_reproduces_the_time_range(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api, "?span=6h&at=2026-11-17T19:00Z")
    expect(page.locator(".filter-bar .note")).to_have_text("Tue 17 Nov, 16:00 UTC \N{EN DASH} Tue 17 Nov, 22:00 UTC")
    expect(bar(page, "Stop: PowerFeed")).to_be_visible()
    expect(page.locator(".tl-now")).to_be_hidden()
    page.get_by_role("button", name="Now").click()
    expect(page.locator(".tl-now")).to_be_visible()


def test_ctrl_and_wheel_zoom_around_the_pointer(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    target = bar(page, "Reboot: EVACUATION")
    before = target.bounding_box()
    assert before is not None
    page.mouse.move(before["x"], before["y"] + 5)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_url("**span=*m&at=*")
    after = target.bounding_box()
    assert after is not None
    assert after["width"] > before["width"] * 1.3
    assert abs(after["x"] - before["x"]) < 6


def test_drag_moves_the_time_range_without_a_click(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    target = bar(page, "patch-08").first
    before = target.bounding_box()
    assert before is not None
    page.mouse.move(before["x"] + 20, before["y"] + 8)
    page.mouse.down()
    page.mouse.move(before["x"] + 120, before["y"] + 8, steps=5)
    page.mouse.up()
    page.wait_for_url("**at=*")
    after = target.bounding_box()
    assert after is not None
    assert abs(after["x"] - before["x"] - 100) < 4
    assert "#/timeline" in page.url


def test_keys_move_zoom_and_step_through_rows_and_bars(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404")
    page = open_timeline_page(pages, api)
    chart = page.get_by_role("group", name="Timeline", exact=True)
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**at=2026-11-16T21:0*")
    page.keyboard.press("Home")
    page.wait_for_url(f"{api.dashboard_url}#/timeline")
    page.keyboard.press("-")
    page.wait_for_url("**span=2160m")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tl-name").first).to_be_focused()
    page.keyboard.press("Shift+ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("maintenance-required")
    page.keyboard.press("Escape")
    expect(page.get_by_role("tooltip")).to_be_hidden()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{api.dashboard_url}#/nodes/large-01")


def test_row_without_visible_bars_links_to_the_nearest_one(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    row = page.locator('.tl-row[data-node="general-001"]')
    expect(row.locator(".tl-bar:visible")).to_have_count(0)
    row.get_by_title("Earlier").click()
    expect(row.locator(".tl-bar:visible")).not_to_have_count(0)


def test_only_visible_rows_are_rendered_and_scrolling_is_smooth(pages: Pages, api: CannedApi) -> None:
    api.answers["timeline"] = a_timeline(NOW, rows=200)
    page = open_timeline_page(pages, api)
    expect(page.locator(".tl-name").first).to_be_visible()
    assert page.locator(".tl-row").count() < 60
    page.locator(".tl").evaluate("it => it.scrollTop = it.scrollHeight")
    expect(page.get_by_role("link", name="general-202")).to_be_visible()
    frame_time = page.evaluate(
        """async () => {
          const chart = document.querySelector(".tl");
          const frame = () => new Promise(requestAnimationFrame);
          const took = [];
          let last = await frame();
          for (let step = 0; step < 40; step += 1) {
            chart.scrollTop = (step * 173) % chart.scrollHeight;
            const next = await frame();
            took.push(next - last);
            last = next;
          }
          return took.sort((a, b) => a - b)[20];
        }"""
    )
    assert frame_time < 60  # milliseconds a frame, also on a machine that has other things to do


def test_timeline_request_covers_more_than_the_visible_range(pages: Pages, api: CannedApi) -> None:
    ranges: list[tuple[str, str]] = []

    def answer(request: web.Request) -> Timeline:
        ranges.append((request.query["from"], request.query["to"]))
        return a_timeline(NOW)

    api.answers["timeline"] = answer
    page = open_timeline_page(pages, api)
    expect(page.locator(".tl-name").first).to_be_visible()
    request_count = len(ranges)
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**at=*")
    page.wait_for_timeout(400)
    assert len(ranges) == request_count
    page.get_by_role("button", name="1mo").click()
    page.wait_for_function("document.querySelector('.tl-large').textContent.includes('2026')")
    wait_until(page, lambda: len(ranges) > request_count)
    page.wait_for_timeout(400)
    assert len(ranges) == request_count + 1


def test_filters_are_in_the_url_and_in_the_request(pages: Pages, api: CannedApi) -> None:
    queries: list[str] = []

    def answer(request: web.Request) -> Timeline:
        queries.append(request.query_string)
        return a_timeline(NOW)

    api.answers["timeline"] = answer
    page = open_timeline_page(pages, api)
    page.get_by_label("Zone").select_option("eu-west-1a")
    page.keyboard.press("Escape")
    page.get_by_label("Search nodes").fill("large")
    page.wait_for_url("**zone=eu-west-1a&q=large")
    wait_until(page, lambda: "zone=eu-west-1a" in queries[-1] and "q=large" in queries[-1])
    assert "zone=eu-west-1a" in queries[-1]
    assert "q=large" in queries[-1]
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_label("Search nodes")).to_have_value("")


def test_times_are_utc_or_local(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="Local time")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Local time")).to_be_visible()


def test_table_view_has_the_same_content_running_first(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api, "?view=table")
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("general-05")
    expect(rows.filter(has_text="DrainTimedOut: 30m passed")).to_contain_text("for 5 h so far")
    expect(rows.filter(has_text="EVACUATION")).to_contain_text(re.compile("begins in 1[12] min, for 1 h"))


def test_missing_history_and_truncated_rows_are_reported(pages: Pages, api: CannedApi) -> None:
    api.answers["timeline"] = a_timeline_without_history(NOW)
    page = open_timeline_page(pages, api)
    note = page.locator(".tl-note")
    expect(note).to_contain_text("The past is missing")
    expect(note).to_contain_text("4 of 120 nodes are shown")


def test_failed_request_is_shown_with_a_retry_button(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    api.fail_requests("timeline", 503, "nobody leads")
    page = open_timeline_page(pages, api)
    expect(page.get_by_text("nobody leads")).to_be_visible()
    api.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".tl-name").first).to_be_visible()


def test_hostile_text_is_not_interpreted(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api)
    evil = page.locator(".tl-row").filter(has_text="evil-").locator(".tl-bar").first
    evil.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("<script>")
    page.goto(f"{api.dashboard_url}#/timeline?view=table")
    expect(page.locator("tbody")).to_contain_text("<script>")
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("query", ["", "?span=1w", "?view=table"])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], query: str, theme: Theme
) -> None:
    page = open_timeline_page(pages, api, query, theme=theme)
    expect(page.get_by_text("general-05").first).to_be_visible()
    accessible(page)


@pytest.mark.parametrize("query", ["", "?view=chart"])
def test_phone_page_does_not_scroll_sideways(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], query: str
) -> None:
    page = open_timeline_page(pages, api, query, width="phone")
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.get_by_text("general-05").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)


def test_pinch_gesture_zooms(pages: Pages, api: CannedApi) -> None:
    page = open_timeline_page(pages, api, "?view=chart", width="phone")
    expect(page.locator(".tl-name").first).to_be_visible()
    before = page.locator(".filter-bar .note").text_content()
    page.locator(".tl").evaluate(
        """it => {
          const how = { pointerType: "touch", clientY: 500, button: 0, bubbles: true };
          const at = (type, pointerId, clientX) =>
            it.dispatchEvent(new PointerEvent(type, { pointerId, clientX, ...how }));
          at("pointerdown", 1, 200); at("pointerdown", 2, 240);
          at("pointermove", 1, 160); at("pointermove", 2, 300);
          at("pointerup", 1, 160); at("pointerup", 2, 300);
        }"""
    )
    page.wait_for_url("**span=*")
    assert page.locator(".filter-bar .note").text_content() != before


def test_first_tap_shows_the_tooltip_and_the_second_opens_the_node(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404")
    page = open_timeline_page(pages, api, "?view=chart", width="phone")
    target = bar(page, "patch-08").first
    target.tap()
    expect(page.get_by_role("tooltip")).to_contain_text("DrainTimedOut")
    expect(page).to_have_url(f"{api.dashboard_url}#/timeline?view=chart")
    target.tap()
    expect(page).to_have_url(f"{api.dashboard_url}#/nodes/general-08")


def open_frozen_page(pages: Pages, url: str, *, theme: Theme = "light") -> Page:
    """Return a page with a stopped clock that has rendered its content."""
    page = pages.open(url, theme=theme, frozen_at=NOW)
    expect(page.locator(".tl")).to_be_attached()
    page.clock.run_for(300)
    return page
