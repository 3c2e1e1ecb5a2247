"""A browser, and pages in it that must not complain.

Errors on the console, script errors, failed requests and violations of the content security policy fail the test,
unless it expects them (`expect_problems`).

`--show` shows the browser. Pictures for the documentation are no test: `make pictures` takes them.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect, sync_playwright

from haulout.dashboard.api.types import ApiType, NodeList, Summary
from support.dashboard.canned_api import CannedApi, serving_canned_api
from support.dashboard.fleet import a_fleet, a_health, a_summary

Width = Literal["phone", "desktop"]
Theme = Literal["light", "dark"]
# The same engine without windows, tabs and extensions is first: it needs less than half the CPU time.
_CHROMIUM_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
_TIMEOUT_MS = 15_000  # milliseconds: a machine that does much else is slow, not wrong
_SIZES = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1440, "height": 900}}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--show", action="store_true", help="show the browser")


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as item:
        yield item


@pytest.fixture(scope="session")
def browser(playwright: Playwright, pytestconfig: pytest.Config) -> Iterator[Browser]:
    is_shown = pytestconfig.getoption("--show")
    path = _find_chromium(["chromium", "chromium-browser"] if is_shown else _CHROMIUM_PROGRAMS)
    if path is None:
        pytest.skip("there is no chromium: apt install chromium-headless-shell, or name one by the variable CHROMIUM")
    found = playwright.chromium.launch(
        executable_path=path, headless=not is_shown, args=["--no-sandbox", "--disable-gpu"]
    )
    yield found
    found.close()


def _find_chromium(programs: Sequence[str]) -> str | None:
    """Return the path of the program that CHROMIUM names, or of the first of `programs` that is installed."""
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else programs)), None)


@dataclass
class Pages:
    """Opens pages, and collects their errors and warnings."""

    browser: Browser
    problems: list[str] = field(default_factory=list)
    expected_problems: list[str] = field(default_factory=list)

    def open(
        self, url: str, *, width: Width = "desktop", theme: Theme = "light", frozen_at: datetime | None = None
    ) -> Page:
        """Return a page in a new browser context; with `frozen_at` its clock is stopped at that instant."""
        context = self.browser.new_context(
            viewport=_SIZES[width],
            color_scheme=theme,
            reduced_motion="reduce",
            has_touch=width == "phone",
            is_mobile=width == "phone",
            locale="en-GB",
            timezone_id="UTC",
        )
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        page.on("console", self._on_console_message)
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        if frozen_at is not None:
            page.clock.install(time=frozen_at)
            page.clock.pause_at(frozen_at + timedelta(seconds=1))
        page.goto(url)
        return page

    def expect_problems(self, *parts: str) -> None:
        """Ignore errors and warnings that contain one of these texts."""
        self.expected_problems += parts

    def _on_console_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.problems.append(f"console: {message.text}")

    def assert_no_problems(self) -> None:
        """Fail if there were unexpected errors or warnings."""
        assert [
            complaint for complaint in self.problems if not any(part in complaint for part in self.expected_problems)
        ] == []


Serve = Callable[..., CannedApi]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves these nodes by an API until the test ends: `serve(fleet, summary=…, **answers)`."""
    with ExitStack() as stack:

        def enter(fleet: NodeList, summary: Summary | None = None, **answers: ApiType) -> CannedApi:
            return stack.enter_context(serving_canned_api(CannedApi.of(fleet, summary or a_summary(fleet), **answers)))

        yield enter


@pytest.fixture
def pages(browser: Browser, serve: Serve) -> Iterator[Pages]:  # noqa: ARG001 - pages are closed before what serves them
    """Yield an object that opens pages; fail if a page reported problems."""
    found = Pages(browser)
    yield found
    for context in browser.contexts:
        context.close()
    found.assert_no_problems()


@pytest.fixture
def api(serve: Serve) -> CannedApi:
    """Return an API with 60 nodes in all states."""
    return serve(a_fleet(), health=a_health())


@pytest.fixture
def accessible() -> Callable[[Page], None]:
    """Return a function that fails on accessibility violations of a page."""

    def check(page: Page) -> None:
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        # Without details of passed rules it takes a third less time.
        results = Axe().run(page, options={"runOnly": tags, "resultTypes": ["violations"]})
        assert results.violations_count == 0, results.generate_report()

    return check
