"""The history of all nodes: entries, filters and download."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import HistoryList
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import NOW
from support.dashboard.history import a_history
from support.dashboard.node_detail import an_idle_node
from support.dashboard.notices_and_configuration import HOSTILE


@pytest.fixture(autouse=True)
def queries(api: CannedApi) -> list[Mapping[str, str]]:
    """Return the query parameters of the requests, in order."""
    found: list[Mapping[str, str]] = []

    def answer(request: web.Request) -> HistoryList:
        found.append(dict(request.query))
        return a_history(NOW)

    api.answers["history"] = answer
    api.answers["history.csv"] = a_history(NOW)
    return found


def open_history_page(
    pages: Pages, api: CannedApi, query: str = "", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{api.dashboard_url}#/history{query}", width=width, theme=theme)
    expect(page.get_by_role("heading", level=1)).to_contain_text("History")
    return page


def test_entries_are_newest_first_and_link_to_their_node(pages: Pages, api: CannedApi) -> None:
    api.answers["nodes/general-04"] = an_idle_node(NOW, "general-04")
    page = open_history_page(pages, api)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    for text in ("general-04", "NodeMaintenance patch", "by kubectl-create", "Running → Succeeded", "7 pods"):
        expect(rows.nth(1)).to_contain_text(text)
    expect(page.get_by_role("heading", level=1)).to_contain_text("5 entries")
    rows.nth(1).get_by_role("link", name="general-04").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/nodes/general-04")


def test_deleted_node_is_marked_and_not_linked(pages: Pages, api: CannedApi) -> None:
    api.answers["history"] = a_history(NOW, reason=HOSTILE)
    page = open_history_page(pages, api)
    expect(page.locator("tbody tr").last).to_contain_text(HOSTILE)
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("spot-07")
    expect(row.get_by_text("deleted", exact=True)).to_be_visible()
    expect(row.get_by_role("link")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


def test_filters_are_in_the_url_and_in_the_request(
    pages: Pages, api: CannedApi, queries: list[Mapping[str, str]]
) -> None:
    page = open_history_page(pages, api)
    kinds = page.get_by_label("Object", exact=True)
    expect(kinds.get_by_role("option")).to_have_text(
        ["All entries", "Profiles", "NodeMaintenances", "Nodes deleted or created", "Gaps", "Widgets"]
    )
    kinds.select_option("profile")
    expect(page).to_have_url(f"{api.dashboard_url}#/history?object=profile")
    page.get_by_role("searchbox").fill("disk")
    expect(page).to_have_url(f"{api.dashboard_url}#/history?object=profile&q=disk")
    with page.expect_response("**/api/v2/history?*from=*"):
        page.get_by_role("button", name="1d").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/history?object=profile&q=disk&since=1d")
    assert {name: query for name, query in queries[-1].items() if name != "from"} == {"object": "profile", "q": "disk"}
    first, last = (datetime.fromisoformat(queries[at]["from"]) for at in (0, -1))
    assert timedelta(days=5, hours=23) < last - first < timedelta(days=6, hours=1), "a week by default, then a day"


def test_csv_link_has_the_same_filters(pages: Pages, api: CannedApi, tmp_path: Path) -> None:
    page = open_history_page(pages, api, "?object=profile&node=n1&since=all")
    link = page.get_by_role("link", name="CSV")
    address = urlsplit(link.get_attribute("href") or "")
    assert address.path.endswith("/api/v2/history.csv")
    assert parse_qs(address.query) == {"object": ["profile"], "node": ["n1"]}
    with page.expect_download() as downloading:
        link.click()
    file = tmp_path / "file.csv"
    downloading.value.save_as(file)
    assert downloading.value.suggested_filename == "haulout-history.csv"


def test_truncated_result_shows_the_total(pages: Pages, api: CannedApi) -> None:
    api.answers["history"] = a_history(NOW, total=12_345)
    expect(open_history_page(pages, api).get_by_role("heading", level=1)).to_contain_text(
        "the newest 5 of 12345 entries"
    )


def test_refresh_button_reloads_the_entries(pages: Pages, api: CannedApi) -> None:
    page = open_history_page(pages, api)
    expect(page.locator("tbody tr")).to_have_count(5)
    api.answers["history"] = HistoryList(entries=a_history(NOW).entries[:2], total=2)
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_empty_history_and_empty_result_have_different_texts(pages: Pages, api: CannedApi) -> None:
    api.answers["history"] = HistoryList(entries=())
    expect(open_history_page(pages, api).get_by_text("No entries")).to_be_visible()
    expect(open_history_page(pages, api, "?q=disk").get_by_text("No matching entries")).to_be_visible()


def test_failed_request_is_shown_with_a_retry_button(pages: Pages, api: CannedApi) -> None:
    api.fail_requests("history", 503, "no permission to read the history: no")
    pages.expect_problems("503")
    page = open_history_page(pages, api)
    expect(page.get_by_text("no permission to read the history: no")).to_be_visible()
    api.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("tbody tr")).to_have_count(5)


@pytest.mark.parametrize(("width", "theme"), [("desktop", "light"), ("desktop", "dark"), ("phone", "light")])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], width: Width, theme: Theme
) -> None:
    page = open_history_page(pages, api, width=width, theme=theme)
    expect(page.locator("tbody tr")).to_have_count(5)
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
