"""The frame of every page: header, navigation, banners and dialogs."""

import re

from playwright.sync_api import Page, expect

from browser.conftest import Pages
from haulout.dashboard.api.types import Banner, Level
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import a_fleet, a_summary, a_tile


def test_header_shows_cluster_time_and_connection_state(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator(".cluster")).to_have_text("prod-eu")
    expect(page.locator(".clock")).to_contain_text("14:05:")
    expect(page.locator(".connection")).to_have_attribute("aria-label", "Connection: Live")
    expect(page).to_have_title("Fleet · prod-eu · Haulout")


def test_keys_open_pages_and_a_dialog_lists_them(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.locator("h1")).to_have_text("Health")
    expect(page.locator("h1")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text(
        "Map or list" if "fleet" in page.url else "Timeline"
    )
    page.keyboard.press("g")  # not while the sheet is there
    page.keyboard.press("f")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("h1")).to_contain_text("Fleet")


def test_back_button_opens_the_previous_page(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.get_by_role("link", name="Health", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Health")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Fleet")


def test_unknown_route_redirects_to_the_fleet(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/elsewhere/at?all")
    expect(page.locator("h1")).to_contain_text("Fleet")
    assert page.url.endswith("#/fleet")


def test_selected_theme_is_kept(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    light = _background_color(page)
    page.get_by_role("button", name="Theme: as the system").click()
    dark = _background_color(page)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert _background_color(page) == dark
    page.keyboard.press("d")  # light
    page.keyboard.press("d")  # as the system
    page.emulate_media(color_scheme="dark")
    assert _background_color(page) == dark


def _background_color(page: Page) -> object:
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def test_skip_link_moves_focus_to_the_content(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator(".tile")).not_to_have_count(0)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()


def test_banners_follow_the_summary(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    banners = page.get_by_role("status", name="Warnings")
    expect(banners).to_contain_text("AWS has not been heard")
    broken = Banner(level=Level.CRITICAL, message="The configuration is broken: line 3", page="configuration")
    api.update_summary(a_summary(a_fleet(), banners=(broken,)))
    expect(banners).to_have_text(re.compile("^The configuration is broken: line 3See configuration$"))
    api.update_summary(a_summary(a_fleet(), banners=()))
    expect(banners).to_be_hidden()


def test_closed_stream_is_reopened_without_losing_events(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.close_streams()
    api.update_nodes(a_tile("newcomer"))
    expect(page.locator("h1")).to_contain_text("61 nodes")
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    assert api.requested_paths.count("events") == 2


def test_lost_operator_is_shown_with_the_last_known_data(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.fail_requests("events", 503, "nobody leads since 14:02")
    api.close_streams()
    expect(page.locator(".connection")).to_have_attribute("data-state", "reconnecting")
    banner = page.get_by_role("status", name="Warnings")
    expect(banner).to_contain_text("No connection to the operator: nobody leads since 14:02")
    expect(banner).to_contain_text("The data shown is from 14:05:")
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.clear_failures()
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    expect(banner).not_to_contain_text("No connection")


def test_hidden_tab_closes_its_stream(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    _set_visibility(page, "hidden")
    expect(page.locator(".connection")).to_have_attribute("data-state", "paused")
    api.update_nodes(a_tile("newcomer"))
    assert "61" not in page.locator("h1").inner_text()
    _set_visibility(page, "visible")
    expect(page.locator("h1")).to_contain_text("61 nodes")


def _set_visibility(page: Page, state: str) -> None:
    page.evaluate(
        """(state) => {
            Object.defineProperty(document, "hidden", {value: state === "hidden", configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        state,
    )


def test_dashboard_works_below_any_path_prefix(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url.replace("/static/", "/some/proxy/static/"))
    expect(page.locator("h1")).to_contain_text("60 nodes")
    page.get_by_role("link", name="Health", exact=True).first.click()
    expect(page.get_by_role("heading", name="Watches")).to_be_visible()


def test_phone_has_navigation_at_the_bottom(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url, width="phone")
    page.get_by_role("navigation", name="Pages, at the bottom").get_by_role("link", name="Health").tap()
    expect(page.locator("h1")).to_have_text("Health")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_missing_leader_is_shown_until_one_is_elected(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    no_leader_banner = Banner(
        level=Level.CRITICAL, message="No replica is the leader: no maintenance starts or continues", page="health"
    )
    api.answers["summary"] = a_summary(a_fleet(), banners=(no_leader_banner,))
    api.fail_requests("events", 503, "no replica is the leader at the moment")
    page = pages.open(api.dashboard_url)
    expect(page.locator(".failure")).to_contain_text("no replica is the leader at the moment")
    expect(page.get_by_role("status", name="Warnings")).to_contain_text(
        "No replica is the leader: no maintenance starts"
    )
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    api.clear_failures()
    page.evaluate("document.querySelector('.failure button')?.click()")  # the page may have tried by itself by now
    expect(page.locator("h1")).to_contain_text("60 nodes")


def test_failed_node_list_is_retried(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("502")
    api.fail_requests("nodes", 502, "cannot reach the leader")
    page = pages.open(api.dashboard_url)
    expect(page.locator(".failure")).to_contain_text("cannot reach the leader")
    api.clear_failures()
    expect(page.locator("h1")).to_contain_text("60 nodes")


def test_keyboard_shortcuts_can_be_disabled_permanently(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.keyboard.press("?")
    page.get_by_role("checkbox", name="Enable keyboard shortcuts").uncheck()
    page.get_by_role("button", name="Close").click()
    page.reload()
    expect(page.locator("h1")).to_contain_text("60 nodes")
    page.keyboard.press("?")
    page.keyboard.press("m")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".map")).to_be_visible()
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("checkbox", name="Enable keyboard shortcuts").check()
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    expect(page.locator("table.nodes")).to_be_visible()


def test_page_from_an_older_operator_version_offers_a_reload(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?q=gpu")
    expect(page.locator("h1")).to_contain_text("11 of 60")
    api.update_summary(a_summary(a_fleet(), version="0.2.0"))
    banner = page.get_by_role("status", name="Warnings")
    expect(banner).to_contain_text("The operator now runs version 0.2.0, and this page was loaded from version 0.1.0.")
    banner.get_by_role("link", name="Reload").click()
    expect(banner).not_to_contain_text("0.2.0")
    expect(page.locator("h1")).to_contain_text("11 of 60")
