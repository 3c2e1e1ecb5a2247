"""The dashboard of an operator that runs: a sandbox, as `make run` starts it, only faster."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Pages

_TIMEOUT_MS = 60_000  # milliseconds: a machine that does much else is slow to start a cluster
_MAX_POLLS = 15
_SPEED = 30


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a sandbox whose clouds announce and carry out maintenance; yield the address of its dashboard."""
    kubeconfig: Path = tmp_path_factory.mktemp("live") / "kubeconfig"
    command = [sys.executable, "-m", "haulout", "run", "--sandbox", "--nodes", "12", "--speed", str(_SPEED)]
    with subprocess.Popen([*command, "--write-kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        output = ""
        for line in run.stdout:
            output += line
            if line.startswith("Ready after"):
                break
        found = re.search(r"^Dashboard +(\S+)$", output, re.MULTILINE)
        assert found, output
        yield found[1]
        run.terminate()
        run.communicate()


def test_announced_maintenance_is_shown_from_plan_to_drain_without_a_reload(
    pages: Pages, dashboard: str, accessible: Callable[[Page], None]
) -> None:
    page = pages.open(dashboard)
    expect(page.locator("h1")).to_contain_text("12 nodes", timeout=_TIMEOUT_MS)
    expect(page.locator(".connection")).to_have_attribute("data-state", "live")
    expect(page.locator(".map .tile.is-planned").first).to_be_visible(timeout=_TIMEOUT_MS)
    accessible(page)
    active_tiles = ".map .tile:is(.is-draining, .is-blocked, .is-in-maintenance, .is-recovering)"
    expect(page.locator(active_tiles).first).to_be_visible(timeout=_TIMEOUT_MS)


def test_clock_runs_at_the_speed_of_the_operator(pages: Pages, dashboard: str) -> None:
    page = pages.open(dashboard)
    expect(page.locator(".clock")).to_contain_text("UTC")
    script = "() => [Date.parse(document.querySelector('.clock').dateTime), performance.now()]"
    speeds: list[float] = []
    while not speeds or not _SPEED / 2 < speeds[-1] < _SPEED * 2:  # the page needs two timestamps before
        assert len(speeds) < _MAX_POLLS, speeds
        server_time, local_time = page.evaluate(script)
        page.wait_for_timeout(4000)
        later_server_time, later_local_time = page.evaluate(script)
        speeds.append((later_server_time - server_time) / (later_local_time - local_time))
