"""What is announced, how soon it is, and whether nodes will be empty in time."""

from collections.abc import Callable

import msgspec
import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import ActionResponse, ActionType, AuthMode, NoticeList, NoticesChanged, Session
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import NOW
from support.dashboard.notices_and_configuration import a_moved_notice, some_notices


@pytest.fixture(autouse=True)
def _notices(api: CannedApi) -> None:
    api.answers["notices"] = some_notices(NOW)


def open_notices_page(
    pages: Pages, api: CannedApi, query: str = "", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{api.dashboard_url}#/notices{query}", width=width, theme=theme)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Notices")
    return page


def test_notices_are_grouped_by_phase_with_ended_ones_collapsed(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    expect(page.locator(".notice-group:visible h2")).to_have_text(
        ["Active", "Due", "Planned", "Missed", "Completed", "Cancelled"]
    )
    expect(page.get_by_text("rack-7-swap")).to_be_visible()
    expect(page.get_by_text("oci-e0")).to_be_hidden()
    page.locator("summary", has_text="Missed").click()
    expect(page.get_by_text("oci-e0")).to_be_visible()


def test_notice_shows_time_node_kind_source_and_on_time_state(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    due = page.locator(".notice").filter(has_text="oci-e1")
    for text in ("in 1", "14:17 UTC for 1 h", "large-01", "Reboot", "EVACUATION", "oci", "Too late", "3 pods left"):
        expect(due).to_contain_text(text)
    expect(page.locator(".notice").filter(has_text="rack-7-swap")).to_contain_text("ends in 1 h 3")
    expect(page.locator(".notice").filter(has_text="people-chg-17")).to_contain_text("In time")


def test_row_expands_to_all_details_including_reschedules(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    toggle = page.get_by_role("button", name="Details of aws-event-9c1d")
    toggle.focus()
    page.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    moved = page.locator(".notice").filter(has_text="aws-event-9c1d")
    for text in ("host update", "about 53 min", "aws agreed to another time", "RescheduleRequested", "by haulout"):
        expect(moved).to_contain_text(text)
    toggle.click()
    expect(page.get_by_text("RescheduleRequested")).to_be_hidden()


def test_filters_are_in_the_url(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    page.get_by_label("Source").select_option("people")
    expect(page).to_have_url(f"{api.dashboard_url}#/notices?source=people")
    expect(page.locator(".total")).to_have_text("2 of 8 notices")
    page.get_by_role("button", name="Clear").click()
    page.keyboard.press("/")
    page.keyboard.type("second FEED")
    expect(page.locator(".notice:visible")).to_have_count(1)
    page.get_by_label("Search notices").fill("nothing like it")
    expect(page.get_by_text("No matching notices")).to_be_visible()


def test_late_link_shows_late_notices(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api, "?late=1")
    expect(page.locator(".notice:visible")).to_have_count(2)
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator(".notice:visible")).to_have_count(5)


def test_live_changes_keep_rows_expanded(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    page.get_by_role("button", name="Details of people-chg-17-4f2a").click()
    changed = msgspec.structs.replace(a_moved_notice(NOW), phase="Due")
    api.update_notices(NoticesChanged(revision="8", changed=(changed,), deleted=("evil",)))
    expect(page.get_by_role("region", name="Due notices")).to_contain_text("aws-event-9c1d")
    expect(page.locator(".notice").filter(has_text="evil")).to_have_count(0)
    expect(page.get_by_text("haulout notice cancel people-chg-17-4f2a")).to_be_visible()


def test_only_notices_of_users_can_be_cancelled(pages: Pages, api: CannedApi) -> None:
    api.answers["session"] = Session(mode=AuthMode.PROXY, user="ann", actions=(ActionType.CANCEL,), csrf="x")
    api.answers["actions"] = ActionResponse(message="people-chg-17-4f2a is called off")
    page = open_notices_page(pages, api)
    page.get_by_role("button", name="Details of aws-event-9c1d").click()
    expect(page.get_by_text("Only its cloud can cancel it")).to_be_visible()
    page.get_by_role("button", name="Details of people-chg-17-4f2a").click()
    page.get_by_role("button", name="Cancel notice …").click()
    with page.expect_request("**/api/v2/actions") as request_info:
        page.get_by_role("dialog").get_by_role("button", name="Cancel notice").click()
    assert request_info.value.post_data_json == {"action": "cancel", "notice": "people-chg-17-4f2a", "node": "large-02"}
    expect(page.get_by_role("dialog")).to_contain_text("is called off")


def test_empty_page_explains_how_to_create_a_notice(pages: Pages, api: CannedApi) -> None:
    api.answers["notices"] = NoticeList(revision="1", notices=())
    page = open_notices_page(pages, api)
    expect(page.get_by_text("No maintenance is announced")).to_be_visible()
    expect(page.locator(".command")).to_contain_text("haulout")


def test_failed_request_is_shown_with_a_retry_button(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    api.fail_requests("notices", 503, "nobody leads")
    page = open_notices_page(pages, api)
    expect(page.get_by_text("nobody leads")).to_be_visible()
    api.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("rack-7-swap")).to_be_visible()


@pytest.mark.parametrize("width", ["phone", "desktop"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_is_accessible_with_hostile_text(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], width: Width, theme: Theme
) -> None:
    page = open_notices_page(pages, api, width=width, theme=theme)
    if width == "phone":
        page.set_viewport_size({"width": 360, "height": 740})
    for toggle in page.locator(".notice-toggle:visible").all():
        toggle.click()
    expect(page.locator(".notice").get_by_text("<script>").first).to_be_visible()
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)
