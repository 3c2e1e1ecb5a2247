"""Waits for effects outside of a page, as Playwright's `expect` waits for effects in it."""

from collections.abc import Callable

from playwright.sync_api import Page

_POLL_INTERVAL_MS = 50  # milliseconds
_MAX_POLLS = 300


def wait_until(page: Page, condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds, or after a timeout; the page keeps running.

    The caller asserts the condition.
    """
    for _ in range(_MAX_POLLS):
        if condition():
            return
        page.wait_for_timeout(_POLL_INTERVAL_MS)
