"""The pictures of docs/pictures.

`pytest tests/browser/test_screenshots.py --pictures` makes them, the same each time.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Serve, Theme, Width
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import NOW, a_fleet


@pytest.mark.parametrize(
    ("name", "where", "width", "theme"),
    [
        ("fleet", "#/fleet", "desktop", "light"),
        ("fleet-dark", "#/fleet", "desktop", "dark"),
        ("fleet-list", "#/fleet?view=list", "desktop", "light"),
        ("fleet-phone", "#/fleet", "phone", "dark"),
        ("health", "#/health", "desktop", "light"),
    ],
)
def test_of_pages(
    pages: Pages,
    api: CannedApi,
    screenshot: Callable[[Page, str], None],
    *,
    name: str,
    where: str,
    width: Width,
    theme: Theme,
) -> None:
    page = pages.open(f"{api.dashboard_url}{where}", width=width, theme=theme, frozen_at=NOW)
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    expect(page.locator(".tile[href], tbody tr").first).to_be_attached()
    screenshot(page, name)


def test_of_a_node_under_the_pointer(pages: Pages, api: CannedApi, screenshot: Callable[[Page, str], None]) -> None:
    page = pages.open(api.dashboard_url, frozen_at=NOW)
    page.locator(".tile[data-name='memory-09']").hover()
    page.clock.run_for(100)
    expect(page.get_by_role("tooltip")).to_be_visible()
    screenshot(page, "fleet-card")


def test_of_many_nodes(pages: Pages, serve: Serve, screenshot: Callable[[Page, str], None]) -> None:
    page = pages.open(serve(a_fleet(5000)).dashboard_url, theme="dark", frozen_at=NOW)
    expect(page.locator("h1")).to_contain_text("5,000 nodes")
    screenshot(page, "fleet-5000")
