"""Login, an action and logout in the dashboard of an operator on the sandbox."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Serve, Theme, Width
from haulout.dashboard.api.types import AuthMode, Session
from support.dashboard.fleet import a_fleet


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Run an operator on the sandbox; yield the address of its dashboard, and a token."""
    command = [sys.executable, "-m", "haulout", "run", "--sandbox", "--nodes", "6", "--dashboard-auth", "token"]
    command += ["--write-kubeconfig", str(tmp_path / "kubeconfig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "Ready after" in line:
                break
        found = re.search(r"Dashboard +(\S+)\n", output), re.search(r"Token +(\S+) ", output)
        assert all(found), output
        yield tuple(item[1] for item in found if item)  # type: ignore[misc] # both are there
        process.terminate()


def test_user_logs_in_holds_a_node_and_logs_out(pages: Pages, operator: tuple[str, str]) -> None:
    url, token = operator
    pages.expected_problems += ["401 (Unauthorized)"]  # before they log in
    page = pages.open(f"{url}static/")
    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog).to_contain_text("This dashboard requires a login.")
    field = dialog.get_by_label("Kubernetes token")
    field.fill("wrong")
    dialog.get_by_role("button", name="Log in").click()
    expect(dialog.get_by_role("alert")).to_have_text("the API server does not accept this token")
    field.fill(token)
    field.press("Enter")
    expect(page.locator("h1")).to_contain_text("6 nodes")
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{url}static/#/nodes/general-01")
    page.get_by_role("button", name=re.compile("Hold the node|Hold")).first.click()
    page.get_by_role("dialog").get_by_label("Reason").fill("a migration")
    page.get_by_role("dialog").locator("button[type=submit]").click()
    expect(page.get_by_role("dialog")).to_contain_text("general-01 is held: no new maintenance starts on it.")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("dialog", name="Log in")).to_be_visible()
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", ["phone", "desktop"])
def test_login_dialog_is_accessible(
    pages: Pages, serve: Serve, accessible: Callable[[Page], None], width: Width, theme: Theme
) -> None:
    api = serve(a_fleet(), session=Session(mode=AuthMode.TOKEN))
    for path in ("summary", "nodes", "notices", "events"):
        api.fail_requests(path, 401, "log in first")
    pages.expected_problems += ["401 (Unauthorized)"]

    page = pages.open(api.dashboard_url, width=width, theme=theme)

    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog.get_by_label("Kubernetes token")).to_be_focused()
    accessible(page)
    viewport, box = page.viewport_size, dialog.bounding_box()
    assert viewport is not None
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= viewport["width"]
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Log in").click()
    expect(dialog).to_be_visible()


def test_page_behind_the_login_dialog_does_not_poll(pages: Pages, serve: Serve) -> None:
    """The page behind the dialog waits for the login, and does not repeat its requests."""
    api = serve(a_fleet(), session=Session(mode=AuthMode.TOKEN))
    for path in ("summary", "nodes", "notices", "events"):
        api.fail_requests(path, 401, "log in first")
    pages.expected_problems += ["401 (Unauthorized)"]
    page = pages.open(api.dashboard_url, frozen_at=datetime(2026, 1, 1, tzinfo=UTC))
    expect(page.get_by_role("dialog", name="Log in")).to_be_visible()

    for _ in range(10):
        page.clock.run_for(6_000)
        page.evaluate("fetch('../api/v2/session').then((it) => it.text())")  # what was asked before has arrived by then

    assert api.requested_paths.count("events") <= 3
