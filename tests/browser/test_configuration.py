"""The file in force, what is wrong with it, and what another one would change."""

from collections.abc import Callable

import pytest
from aiohttp import web
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import Configuration, ConfigurationPreview, Finding, ProfileDescription
from support.dashboard.canned_api import CannedApi
from support.dashboard.notices_and_configuration import (
    GOOD_FILE,
    HOSTILE,
    LONG_TEXT,
    a_broken_configuration,
    a_configuration,
    preview,
    the_default_configuration,
)
from support.dashboard.poll import wait_until


@pytest.fixture(autouse=True)
def _configuration(api: CannedApi) -> None:
    api.answers["configuration"] = a_configuration()
    api.answers["configuration/check"] = preview(GOOD_FILE)


def open_configuration_page(
    pages: Pages, api: CannedApi, query: str = "", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{api.dashboard_url}#/configuration{query}", width=width, theme=theme)
    expect(page.get_by_role("heading", level=1)).to_have_text("Configuration")
    return page


def edit_configuration(page: Page, api: CannedApi, text: str, answer: ConfigurationPreview) -> None:
    api.answers["configuration/check"] = answer
    page.locator(".editor-field").fill(text)


def test_file_is_shown_with_line_numbers_and_findings(pages: Pages, api: CannedApi) -> None:
    page = open_configuration_page(pages, api)
    expect(page.get_by_role("heading", name="config/maintenance.yaml")).to_be_visible()
    expect(page.locator(".line")).to_have_count(GOOD_FILE.count("\n"))
    expect(page.locator("#line-28")).to_contain_text("no chain uses tell_the_team")
    expect(page.get_by_text("In force, with 1 warning.")).to_be_visible()


def test_profiles_are_explained_beside_the_file(pages: Pages, api: CannedApi) -> None:
    page = open_configuration_page(pages, api)
    expect(page.get_by_role("region", name="Explanation")).to_contain_text(
        "to in-maintenance when night && one_at_a_time"
    )


def test_invalid_file_is_marked_and_the_last_valid_one_has_a_tab(pages: Pages, api: CannedApi) -> None:
    api.answers["configuration"] = a_broken_configuration()
    page = open_configuration_page(pages, api)
    expect(page.get_by_text("The newest file cannot be used: 2 errors.")).to_be_visible()
    expect(page.locator(".line.is-wrong")).to_have_count(2)
    page.get_by_role("button", name="In force").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/configuration?tab=good")
    expect(page.locator("#line-3")).to_contain_text("requeue: 1m")
    expect(page.locator(".line.is-wrong")).to_have_count(0)


def test_keys_move_between_findings(pages: Pages, api: CannedApi) -> None:
    api.answers["configuration"] = a_broken_configuration()
    page = open_configuration_page(pages, api)
    expect(page.locator("#line-3")).to_be_visible()
    for line in (3, 7, 28, 3):
        page.keyboard.press("n")
        expect(page.locator(".line.is-lit")).to_have_id(f"line-{line}")
    page.keyboard.press("p")
    expect(page.locator(".line.is-lit")).to_have_id("line-28")
    page.get_by_role("button", name="line 7").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/configuration?line=7")


def test_line_link_highlights_its_line(pages: Pages, api: CannedApi) -> None:
    page = open_configuration_page(pages, api, "?line=19")
    expect(page.locator(".line.is-lit")).to_have_id("line-19")
    expect(page.locator("#line-19")).to_be_in_viewport()


def test_default_configuration_is_named_when_there_is_no_file(pages: Pages, api: CannedApi) -> None:
    api.answers["configuration"] = the_default_configuration()
    page = open_configuration_page(pages, api)
    expect(
        page.get_by_text("There is no configuration file: the default configuration of Haulout is in force.")
    ).to_be_visible()


# Preview


def test_edit_preview_lists_changes_per_node(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404")
    page = open_configuration_page(pages, api)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".editor-field")).to_have_value(GOOD_FILE)
    expect(page.get_by_text("nothing would change.")).to_be_visible()
    edit_configuration(page, api, GOOD_FILE.replace("max: 1", "max: 2"), preview("another"))
    expect(page.get_by_text("42 nodes were evaluated; this would change:")).to_be_visible()
    expect(page.locator(".editor-gutter .is-changed")).to_have_text("19")
    changes = page.get_by_role("region", name="For nodes")
    expect(changes).to_contain_text("would go into maintenance now")
    expect(changes).to_contain_text("and 22 more")
    changes.get_by_role("link", name="general-06").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/nodes/general-06")


def test_invalid_edit_is_marked_at_its_line(pages: Pages, api: CannedApi) -> None:
    page = open_configuration_page(pages, api, "?tab=try")
    text = GOOD_FILE.replace("type: hasLabel", "type: hasLable")
    edit_configuration(page, api, text, preview(text))
    expect(page.get_by_text("Invalid: 1 error.")).to_be_visible()
    expect(page.locator(".editor-gutter .is-bad")).to_have_text("7")
    page.get_by_role("button", name="line 7").click()
    field = page.locator(".editor-field")
    expect(field).to_be_focused()
    assert field.evaluate("it => it.value.slice(it.selectionStart, it.selectionEnd)") == "    type: hasLable"


def test_typing_is_debounced(pages: Pages, api: CannedApi) -> None:
    texts: list[int] = []

    def answer(_: web.Request) -> ConfigurationPreview:
        texts.append(1)
        return preview(GOOD_FILE)

    page = open_configuration_page(pages, api, "?tab=try")
    expect(page.get_by_text("nothing would change.")).to_be_visible()
    api.answers["configuration/check"] = answer
    page.locator(".editor-field").press_sequentially("# a remark", delay=10)
    wait_until(page, lambda: bool(texts))
    page.wait_for_timeout(1200)
    assert len(texts) == 1


def test_edit_is_kept_across_pages_and_can_be_reset(pages: Pages, api: CannedApi) -> None:
    page = open_configuration_page(pages, api, "?tab=try")
    expect(page.get_by_role("button", name="Reset to the current file")).to_be_disabled()
    edit_configuration(page, api, "profiles: []\n", preview("another"))
    page.get_by_role("link", name="Notices").first.click()
    page.get_by_role("link", name="Configuration").first.click()
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".editor-field")).to_have_value("profiles: []\n")
    page.get_by_role("button", name="Reset to the current file").click()
    expect(page.locator(".editor-field")).to_have_value(GOOD_FILE)
    expect(page.get_by_text("no changes", exact=True)).to_be_visible()


def test_failed_check_of_an_edit_shows_the_reason(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("413")
    page = open_configuration_page(pages, api, "?tab=try")
    api.fail_requests("configuration/check", 413, "at most 1 MiB")
    page.locator(".editor-field").fill("x")
    expect(page.get_by_text("The check failed: at most 1 MiB")).to_be_visible()


# Accessibility and hostile text


def test_hostile_text_is_not_interpreted(pages: Pages, api: CannedApi) -> None:
    api.answers["configuration"] = Configuration(
        path=HOSTILE,
        text=f"{HOSTILE}\n{LONG_TEXT}\n",
        findings=(Finding(message=HOSTILE, line=1, key=LONG_TEXT),),
        profiles=(ProfileDescription(name=HOSTILE, text=(HOSTILE, LONG_TEXT)),),
    )
    page = open_configuration_page(pages, api, width="phone")
    expect(page.locator("#line-1")).to_contain_text("<script>")
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("query", ["", "?line=7", "?tab=good", "?tab=try"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], query: str, theme: Theme
) -> None:
    api.answers["configuration"] = a_broken_configuration()
    page = open_configuration_page(pages, api, query, theme=theme)
    expect(page.get_by_text("cannot be used")).to_be_visible()
    accessible(page)


@pytest.mark.parametrize("query", ["", "?tab=try"])
def test_phone_page_does_not_scroll_sideways(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], query: str
) -> None:
    api.answers["configuration"] = a_broken_configuration()
    page = open_configuration_page(pages, api, query, width="phone")
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.get_by_text("cannot be used")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)
