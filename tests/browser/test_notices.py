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


def test_notices_stand_by_phase_what_runs_first_and_what_is_over_folded(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    expect(page.locator(".notice-group:visible h2")).to_have_text(
        ["Active", "Due", "Planned", "Missed", "Completed", "Cancelled"]
    )
    expect(page.get_by_text("rack-7-swap")).to_be_visible()
    expect(page.get_by_text("oci-e0")).to_be_hidden()
    page.locator("summary", has_text="Missed").click()
    expect(page.get_by_text("oci-e0")).to_be_visible()


def test_a_notice_tells_how_soon_where_what_from_whom_and_whether_in_time(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    due = page.locator(".notice").filter(has_text="oci-e1")
    for text in ("in 1", "14:17 UTC for 1 h", "large-01", "Reboot", "EVACUATION", "oci", "Too late", "3 pods left"):
        expect(due).to_contain_text(text)
    expect(page.locator(".notice").filter(has_text="rack-7-swap")).to_contain_text("ends in 1 h 3")
    expect(page.locator(".notice").filter(has_text="people-chg-17")).to_contain_text("In time")


def test_a_row_unfolds_to_all_that_is_known_with_what_was_moved(pages: Pages, api: CannedApi) -> None:
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


def test_what_narrows_them_is_in_the_address(pages: Pages, api: CannedApi) -> None:
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


def test_a_link_shows_those_that_are_too_late(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api, "?late=1")
    expect(page.locator(".notice:visible")).to_have_count(2)
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator(".notice:visible")).to_have_count(5)


def test_changes_are_shown_as_they_happen_and_what_is_unfolded_stays_so(pages: Pages, api: CannedApi) -> None:
    page = open_notices_page(pages, api)
    page.get_by_role("button", name="Details of people-chg-17-4f2a").click()
    changed = msgspec.structs.replace(a_moved_notice(NOW), phase="Due")
    api.update_notices(NoticesChanged(revision="8", changed=(changed,), deleted=("evil",)))
    expect(page.get_by_role("region", name="Due notices")).to_contain_text("aws-event-9c1d")
    expect(page.locator(".notice").filter(has_text="evil")).to_have_count(0)
    expect(page.get_by_text("haulout notice cancel people-chg-17-4f2a")).to_be_visible()


def test_only_what_people_made_can_be_called_off(pages: Pages, api: CannedApi) -> None:
    api.answers["session"] = Session(mode=AuthMode.PROXY, user="ann", actions=(ActionType.CANCEL,), csrf="x")
    api.answers["actions"] = ActionResponse(message="people-chg-17-4f2a is called off")
    page = open_notices_page(pages, api)
    page.get_by_role("button", name="Details of aws-event-9c1d").click()
    expect(page.get_by_text("Only its cloud can cancel it")).to_be_visible()
    page.get_by_role("button", name="Details of people-chg-17-4f2a").click()
    page.get_by_role("button", name="Cancel notice …").click()
    with page.expect_request("**/api/v2/actions") as asked:
        page.get_by_role("dialog").get_by_role("button", name="Cancel notice").click()
    assert asked.value.post_data_json == {"action": "cancel", "notice": "people-chg-17-4f2a", "node": "large-02"}
    expect(page.get_by_role("dialog")).to_contain_text("is called off")


def test_without_notices_it_says_how_to_make_one(pages: Pages, api: CannedApi) -> None:
    api.answers["notices"] = NoticeList(revision="1", notices=())
    page = open_notices_page(pages, api)
    expect(page.get_by_text("No maintenance is announced")).to_be_visible()
    expect(page.locator(".command")).to_contain_text("haulout")


def test_an_api_that_fails_is_told_and_can_be_asked_again(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    api.fail_requests("notices", 503, "nobody leads")
    page = open_notices_page(pages, api)
    expect(page.get_by_text("nobody leads")).to_be_visible()
    api.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("rack-7-swap")).to_be_visible()


@pytest.mark.parametrize("width", ["phone", "desktop"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nobody_is_kept_out_and_hostile_text_stays_text(
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
