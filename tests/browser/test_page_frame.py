"""What stands around every page."""

import re

from playwright.sync_api import Page, expect

from browser.conftest import Pages
from haulout.dashboard.api.types import Banner, Level
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import a_fleet, a_summary, a_tile


def test_the_page_says_which_cluster_it_shows_what_time_it_is_there_and_that_it_is_live(
    pages: Pages, api: CannedApi
) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator(".cluster")).to_have_text("prod-eu")
    expect(page.locator(".clock")).to_contain_text("14:05:")
    expect(page.locator(".connection")).to_have_attribute("aria-label", "Connection: Live")
    expect(page).to_have_title("Fleet · prod-eu · Haulout")


def test_keys_lead_to_pages_and_a_sheet_lists_them(pages: Pages, api: CannedApi) -> None:
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


def test_the_back_button_leads_back(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.get_by_role("link", name="Health", exact=True).first.click()
    expect(page.locator("h1")).to_have_text("Health")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Fleet")


def test_an_address_that_no_page_has_leads_to_the_fleet(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/elsewhere/at?all")
    expect(page.locator("h1")).to_contain_text("Fleet")
    assert page.url.endswith("#/fleet")


def test_a_theme_that_was_chosen_is_kept(pages: Pages, api: CannedApi) -> None:
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


def test_whoever_tabs_in_can_skip_to_the_content(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator(".tile")).not_to_have_count(0)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()


def test_a_banner_comes_and_goes_with_what_the_operator_says(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    banners = page.get_by_role("status", name="Warnings")
    expect(banners).to_contain_text("AWS has not been heard")
    broken = Banner(level=Level.CRITICAL, message="The configuration is broken: line 3", page="configuration")
    api.update_summary(a_summary(a_fleet(), banners=(broken,)))
    expect(banners).to_have_text(re.compile("^The configuration is broken: line 3See configuration$"))
    api.update_summary(a_summary(a_fleet(), banners=()))
    expect(banners).to_be_hidden()


def test_a_stream_that_breaks_is_opened_again_and_nothing_is_missed(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.close_streams()
    api.update_nodes(a_tile("newcomer"))
    expect(page.locator("h1")).to_contain_text("61 nodes")
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    assert api.requested_paths.count("events") == 2


def test_an_operator_that_is_away_is_told_of_with_what_is_known_of_it(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.fail_requests("events", 503, "nobody leads since 14:02")
    api.close_streams()
    expect(page.locator(".connection")).to_have_attribute("data-state", "reconnecting")
    said = page.get_by_role("status", name="Warnings")
    expect(said).to_contain_text("No connection to the operator: nobody leads since 14:02")
    expect(said).to_contain_text("The data shown is from 14:05:")
    expect(page.locator("h1")).to_contain_text("60 nodes")
    api.clear_failures()
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    expect(said).not_to_contain_text("No connection")


def test_a_hidden_tab_costs_the_operator_nothing(pages: Pages, api: CannedApi) -> None:
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


def test_it_works_below_any_path(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url.replace("/static/", "/some/proxy/static/"))
    expect(page.locator("h1")).to_contain_text("60 nodes")
    page.get_by_role("link", name="Health", exact=True).first.click()
    expect(page.get_by_role("heading", name="Watches")).to_be_visible()


def test_a_phone_has_the_pages_at_the_bottom(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url, width="phone")
    page.get_by_role("navigation", name="Pages, at the bottom").get_by_role("link", name="Health").tap()
    expect(page.locator("h1")).to_have_text("Health")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_who_comes_while_nobody_leads_is_told_so_and_sees_the_fleet_as_soon_as_somebody_does(
    pages: Pages, api: CannedApi
) -> None:
    pages.expect_problems("503")
    nobody = Banner(
        level=Level.CRITICAL, message="No replica is the leader: no maintenance starts or continues", page="health"
    )
    api.answers["summary"] = a_summary(a_fleet(), banners=(nobody,))
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


def test_nodes_that_cannot_be_asked_for_are_asked_for_again(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("502")
    api.fail_requests("nodes", 502, "cannot reach the leader")
    page = pages.open(api.dashboard_url)
    expect(page.locator(".failure")).to_contain_text("cannot reach the leader")
    api.clear_failures()
    expect(page.locator("h1")).to_contain_text("60 nodes")


def test_who_does_not_want_keys_turns_them_off_for_good(pages: Pages, api: CannedApi) -> None:
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


def test_a_page_of_an_older_operator_says_so(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?q=gpu")
    expect(page.locator("h1")).to_contain_text("11 of 60")
    api.update_summary(a_summary(a_fleet(), version="0.2.0"))
    said = page.get_by_role("status", name="Warnings")
    expect(said).to_contain_text("The operator now runs version 0.2.0, and this page was loaded from version 0.1.0.")
    said.get_by_role("link", name="Reload").click()
    expect(said).not_to_contain_text("0.2.0")
    expect(page.locator("h1")).to_contain_text("11 of 60")
