"""The documentation as a site, from files: no server, no network."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from tools.docsite.diagrams import find_drawing
from tools.docsite.site import build

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the site."""
    folder = tmp_path_factory.mktemp("made") / "site"
    draw = find_drawing()
    if draw is None:
        pytest.skip("mermaidx cannot be installed here, so there are no diagrams to look at")
    assert build(ROOT, folder, draw).problems == []
    return folder.as_uri()


@pytest.mark.parametrize("width", get_args(Width))
@pytest.mark.parametrize("theme", get_args(Theme))
@pytest.mark.parametrize(
    "name", ["index", "tutorials/quickstart", "concepts/overview", "reference/plugins", "operations/troubleshooting"]
)
def test_page_is_accessible(
    pages: Pages, site: str, accessible: Callable[[Page], None], name: str, theme: Theme, width: Width
) -> None:
    page = pages.open(f"{site}/{name}.html", theme=theme, width=width)
    pages.assert_no_problems()
    pages.expect_problems(
        "XMLHttpRequest", "preload assets", "ERR_FAILED"
    )  # the checker requests the style, which is a file
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_search_finds_pages_by_several_words_and_opens_them_by_keyboard(pages: Pages, site: str) -> None:
    page = pages.open(f"{site}/how-to/drain-a-node.html")
    page.keyboard.press("/")
    page.keyboard.type("drain policy")
    expect(page.locator("#found a").first).to_contain_text("Drain policies")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Drain policies")


def test_search_without_results_shows_a_message(pages: Pages, site: str) -> None:
    page = pages.open(f"{site}/index.html")
    page.locator("#search").fill("xyzzy")
    expect(page.locator("#found")).to_contain_text("Nothing has all of these words.")
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()


def test_theme_is_kept_across_pages(pages: Pages, site: str) -> None:
    page = pages.open(f"{site}/index.html")
    page.locator("#theme").click()
    page.goto(f"{site}/tutorials/quickstart.html")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_diagrams_are_drawn(pages: Pages, site: str) -> None:
    page = pages.open(f"{site}/concepts/profiles.html")
    diagram = page.get_by_role("img", name="The three states of a profile")
    expect(diagram.locator("svg")).to_be_visible()
    expect(diagram).to_contain_text("maintenance-required")
    assert diagram.locator(".transition").count() == 3


def test_phone_navigation_is_behind_a_button(pages: Pages, site: str) -> None:
    page = pages.open(f"{site}/tutorials/quickstart.html", width="phone")
    expect(page.locator("#pages")).to_be_hidden()
    page.locator("#menu").click()
    page.locator("#pages summary", has_text="Reference").click()
    page.locator("#pages a", has_text="metrics").first.click()
    expect(page.locator("h1")).to_have_text("Metrics")
