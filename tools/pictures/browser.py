"""Chromium, and pictures of pages in it."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect, sync_playwright

Width = Literal["desktop", "phone"]
Theme = Literal["light", "dark"]

_TIMEOUT_MS = 120_000  # a busy machine is slow
_SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


@dataclass(frozen=True, slots=True)
class Camera:
    """Opens pages, and writes pictures of them into a folder."""

    browser: Browser
    folder: Path

    def open(self, url: str, *, width: Width = "desktop", theme: Theme = "light", height: int | None = None) -> Page:
        """Return a page, as for a person who was never here; `height` if it is not that of a screen."""
        size = _SIZES[width] | ({"height": height} if height else {})
        context = self.browser.new_context(
            viewport={"width": size["width"], "height": size["height"]},
            color_scheme=theme,
            reduced_motion="reduce",
            has_touch=width == "phone",
            is_mobile=width == "phone",
            locale="en-GB",
            timezone_id="UTC",
        )
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        _wait_for_server(url)
        page.goto(url)
        expect(page.locator(".connection")).to_have_attribute("data-state", "live")
        return page

    def take(self, page: Page, name: str) -> None:
        """Write a picture of what the page shows, and close the page."""
        self.keep(page, name)
        page.context.close()

    def keep(self, page: Page, name: str) -> None:
        """Write a picture of what the page shows."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.png"
        page.screenshot(path=path, animations="disabled", caret="hide")
        sys.stdout.write(f"{path}\n")


def _wait_for_server(url: str) -> None:
    """Wait until there is a dashboard: that of a hub is served a moment after its start."""
    parts = urlsplit(url)
    for _ in range(_TIMEOUT_MS // 100):
        try:
            socket.create_connection((str(parts.hostname), parts.port or 80)).close()
        except ConnectionRefusedError:
            Event().wait(0.1)
        else:
            return
    sys.exit(f"{url} does not answer")


@contextmanager
def camera(folder: Path) -> Iterator[Camera]:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        sys.exit("there is no chromium: apt install chromium, or name one by the variable CHROMIUM")
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield Camera(browser, folder)
        browser.close()
