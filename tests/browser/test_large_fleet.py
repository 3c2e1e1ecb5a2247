"""Performance of the pages with five thousand nodes.

The limits are far above what a machine needs that does nothing else, so that only a change for the worse by a lot is
found.
"""

import random

import pytest
from msgspec import structs
from playwright.sync_api import CDPSession, expect

from browser.conftest import Pages, Serve
from haulout.dashboard.api.types import NodeList, NodeState
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import a_fleet

_NODE_COUNT = 5000
_CHANGES_AT_ONCE = 100
_TIMES = 10


@pytest.fixture(scope="module")
def fleet() -> NodeList:
    return a_fleet(_NODE_COUNT)


@pytest.fixture
def large_api(serve: Serve, fleet: NodeList) -> CannedApi:
    return serve(fleet)


def test_node_updates_take_little_main_thread_time(
    pages: Pages, large_api: CannedApi, fleet: NodeList, rng: random.Random
) -> None:
    """Measures the CPU time of the page's main thread, which does not depend on the load of the machine."""
    page = pages.open(large_api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("5,000 nodes")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    for progress in range(_TIMES):
        changed = rng.sample(fleet.nodes, _CHANGES_AT_ONCE)
        large_api.update_nodes(
            *(structs.replace(tile, state=NodeState.DRAINING, progress=progress) for tile in changed)
        )
        expect(page.locator(f".tile[data-name='{changed[-1].name}']")).to_have_attribute(
            "style", f"--progress: {progress}%;"
        )
    assert _main_thread_seconds(session) / _TIMES < 0.15


def _main_thread_seconds(session: CDPSession) -> float:
    """Return the CPU seconds of the page's main thread since the start of the measurement, painting included."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def test_map_has_one_element_per_node(pages: Pages, large_api: CannedApi) -> None:
    page = pages.open(large_api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("5,000 nodes")
    assert page.evaluate("document.querySelectorAll('.map *').length") < _NODE_COUNT + 50


def test_list_renders_only_visible_rows(pages: Pages, large_api: CannedApi) -> None:
    page = pages.open(f"{large_api.dashboard_url}#/fleet?view=list&sort=name")
    expect(page.locator("table.nodes")).to_have_attribute("aria-rowcount", "5001")
    assert page.locator("tbody tr").count() < 80
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.get_by_role("link", name="spot-4997")).to_be_in_viewport()
    page.evaluate("scrollTo(0, 36 * 2500)")
    expect(page.locator("tbody tr:not(.spacer)").nth(20)).to_be_in_viewport()
    assert page.evaluate("scrollY") == 36 * 2500


def test_search_is_fast(pages: Pages, large_api: CannedApi) -> None:
    page = pages.open(large_api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("5,000 nodes")
    page.keyboard.press("/")
    page.keyboard.type("gpu-0268")
    expect(page.locator("h1")).to_contain_text("1 of 5,000 nodes")
    expect(page.locator(".tile[data-name='gpu-0268'] .tile-name")).to_be_visible()
