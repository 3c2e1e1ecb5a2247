"""How the operator is doing."""

from collections.abc import Callable

import msgspec
import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import RequestHealth
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import LEADER, a_health


@pytest.mark.parametrize("width", ["phone", "desktop"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], *, width: Width, theme: Theme
) -> None:
    page = pages.open(f"{api.dashboard_url}#/health", width=width, theme=theme)
    expect(page.get_by_role("heading", name="Watches")).to_be_visible()
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_page_shows_the_leader_and_unhealthy_components_first(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/health")
    expect(page.locator(".figures")).to_contain_text(f"{LEADER} for 2 d 3 h")
    parts = page.locator(".card", has=page.get_by_role("heading", name="Components"))
    expect(parts).to_contain_text("1 of 4 unhealthy")
    expect(parts.locator("tbody tr").first).to_contain_text("source awsAccessDenied: sqs:ReceiveMessage6 min ago")
    watches = page.locator(".card", has=page.get_by_role("heading", name="Watches"))
    expect(watches.locator("tbody tr").nth(0)).to_contain_text("403: the service account may not watch them")
    expect(watches.locator("tbody tr").nth(1)).to_contain_text("shop/cart: spec.maxUnavailable")


def test_page_is_polled_while_it_is_open(pages: Pages, api: CannedApi) -> None:
    page = pages.open("about:blank")
    page.clock.install()
    page.goto(f"{api.dashboard_url}#/health")
    expect(page.locator(".figures")).to_contain_text("Viewers3")
    api.answers["health"] = msgspec.structs.replace(a_health(), viewers=4)
    page.clock.run_for(5_500)
    expect(page.locator(".figures")).to_contain_text("Viewers4")
    page.get_by_role("link", name="Fleet", exact=True).first.click()
    expect(page.locator("h1")).to_contain_text("Fleet")
    request_count = api.requested_paths.count("health")
    page.clock.run_for(20_000)
    assert api.requested_paths.count("health") == request_count


def test_failed_request_is_shown_with_a_retry_button(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("503")
    api.fail_requests("health", 503, "nobody leads")
    page = pages.open(f"{api.dashboard_url}#/health")
    expect(page.get_by_text("Loading failed")).to_be_visible()
    expect(page.locator(".failure")).to_contain_text("nobody leads")
    api.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Watches")).to_be_visible()


def test_absence_of_errors_is_shown(pages: Pages, api: CannedApi) -> None:
    api.answers["health"] = msgspec.structs.replace(a_health(), warnings=())
    page = pages.open(f"{api.dashboard_url}#/health")
    expect(page.get_by_text("No warnings")).to_be_visible()


def test_long_table_is_truncated_and_stays_expanded_after_a_refresh(pages: Pages, api: CannedApi) -> None:
    calls = tuple(RequestHealth(verb="get", resource=f"things{index}", count=index) for index in range(25))
    api.answers["health"] = msgspec.structs.replace(a_health(), requests=calls)
    page = pages.open(f"{api.dashboard_url}#/health")
    rows = page.locator(".card", has=page.get_by_role("heading", name="Requests to the API server")).locator("tbody tr")
    expect(rows).to_have_count(10)
    page.get_by_role("button", name="All 25").click()
    expect(rows).to_have_count(25)
    api.answers["health"] = msgspec.structs.replace(a_health(), requests=calls, viewers=9)
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator(".figures")).to_contain_text("Viewers9")
    expect(rows).to_have_count(25)


def test_refresh_keeps_selection_and_focus(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/health")
    page.get_by_role("region", name="Watches").last.focus()
    api.answers["health"] = msgspec.structs.replace(a_health(), viewers=9)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.figures'))")
    with page.expect_response("**/health"):
        page.get_by_role("button", name="Refresh").evaluate("it => it.click()")
    assert "Viewers3" in page.locator(".figures").inner_text().replace("\n", "")
    page.evaluate("getSelection().removeAllRanges()")
    page.get_by_role("button", name="Refresh").evaluate("it => it.click()")
    expect(page.locator(".figures")).to_contain_text("Viewers9")
    expect(page.get_by_role("region", name="Watches").last).to_be_focused()
