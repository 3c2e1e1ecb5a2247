"""Waiting for what a page makes happen elsewhere, as `expect` waits for what it shows."""

from collections.abc import Callable

from playwright.sync_api import Page

_LOOK_EVERY = 50  # milliseconds
_LOOKS = 300


def until(page: Page, happened: Callable[[], bool]) -> None:
    """Return as soon as it has happened; the page goes on meanwhile. Whoever cares asserts it then."""
    for _ in range(_LOOKS):
        if happened():
            return
        page.wait_for_timeout(_LOOK_EVERY)
