"""All nodes at a glance."""

import re
from collections.abc import Callable

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Pages, Serve, Theme, Width
from haulout.dashboard.api.types import NodeList, NodeState
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import a_fleet, a_hostile_fleet, a_summary, a_tile, ago


def tiles(page: Page) -> list[str]:
    names: list[str] = page.locator(".map .tile").evaluate_all("all => all.map(each => each.dataset.name)")
    return names


def row(page: Page, index: int) -> Locator:
    return page.locator("table.nodes tbody .node-link").nth(index)


@pytest.mark.parametrize("width", ["phone", "desktop"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["map", "list"])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], *, width: Width, theme: Theme, view: str
) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?view={view}", width=width, theme=theme)
    expect(page.locator(".tile[href], tbody tr.is-blocked").first).to_be_visible()
    accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_map_shows_nodes_by_zone_with_accessible_states(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    zone = page.get_by_role("group", name="eu-west-1a: 20 nodes")
    expect(zone.get_by_role("link")).to_have_count(20)
    blocked = page.get_by_role(
        "link", name="general-02, blocked, 85 percent, cordoned, waiting for PodDisruptionBudget"
    )
    expect(blocked).to_have_attribute("href", "#/nodes/general-02")


def test_phone_shows_the_list_and_offers_the_map(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url, width="phone")
    expect(page.locator("table.nodes")).to_be_visible()
    expect(page.locator(".map")).to_be_hidden()
    page.get_by_role("button", name="Map", exact=True).tap()
    expect(page.locator(".map .tile").first).to_be_visible()


def test_filters_are_in_the_url_and_the_link_shows_the_same(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.get_by_role("button", name="Blocked").click()
    page.get_by_role("combobox", name="pool").select_option("general")
    expect(page.locator("h1")).to_contain_text("2 of 60 nodes")
    page.keyboard.press("/")
    page.keyboard.type("ledger")
    expect(page.locator("h1")).to_contain_text("1 of 60 nodes")
    assert tiles(page) == ["general-02"]
    other = pages.open(page.url)
    expect(other.locator("h1")).to_contain_text("1 of 60 nodes")
    assert tiles(other) == ["general-02"]
    expect(other.get_by_role("button", name="Blocked")).to_have_attribute("aria-pressed", "true")
    expect(other.get_by_role("searchbox")).to_have_value("ledger")
    other.get_by_role("button", name="Show all").click()
    expect(other.locator("h1")).to_contain_text("60 nodes")


def test_focused_search_box_follows_the_url(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    page.get_by_role("searchbox").press_sequentially("ledger")
    expect(page).to_have_url(re.compile("q=ledger$"))  # before that, letters that are being typed win
    expect(page.locator("h1")).to_contain_text("2 of 60 nodes")
    page.evaluate("location.hash = '#/fleet?q=gpu-16'")
    expect(page.get_by_role("searchbox")).to_have_value("gpu-16")
    page.evaluate("location.hash = '#/fleet'")
    expect(page.get_by_role("searchbox")).to_have_value("")
    expect(page.locator("h1")).to_contain_text("60 nodes")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("GPU-16", ["gpu-16"]),
        ("eu-west-1b memory draining", []),
        ("7 of 11", ["memory-09"]),
        ("kernel=6.12.1 spot-23", []),
        ("tax run", ["gpu-40"]),
        ("gpu-driver=in-maintenance", ["general-44"]),
        ("cordoned by a person", ["spot-11"]),
    ],
)
def test_search_matches_names_zones_labels_profiles_and_reasons(
    pages: Pages, api: CannedApi, query: str, found: list[str]
) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?q={query}")
    expect(page.locator("h1")).to_contain_text("of 60 nodes")
    assert tiles(page) == found


def test_search_without_results_offers_to_show_all_nodes(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?q=nowhere")
    expect(page.get_by_text("No matching nodes")).to_be_visible()
    page.get_by_role("button", name="Show all nodes").click()
    expect(page.locator("h1")).to_contain_text("60 nodes")


def test_nodes_are_grouped_by_the_selected_field(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.get_by_role("group", name="Group by").get_by_role("button", name="State").click()
    expect(page.locator(".group h2 .state")).to_have_text(
        ["Blocked", "Draining", "In maintenance", "Recovering", "Planned", "Idle"]
    )
    assert page.url.endswith("group=state")


def test_node_update_changes_only_its_tile(pages: Pages, api: CannedApi) -> None:
    """Relative times are ignored, because they change by themselves."""
    page = pages.open(api.dashboard_url)
    page.locator(".tile[data-name='general-00']").wait_for()
    page.evaluate(
        """() => {
            window.touched = new Set();
            const tile = (target) => target.closest(".tile")?.dataset.name;
            const note = ({target}) => target.closest("time") || window.touched.add(tile(target));
            new MutationObserver((all) => all.forEach(note))
                .observe(document.querySelector(".map"), {subtree: true, childList: true, attributes: true});
        }"""
    )
    reason = "waiting for bank/ledger"
    api.update_nodes(a_tile("general-00", NodeState.BLOCKED, message=reason, since=ago(minutes=1)))
    expect(page.locator(".tile[data-name='general-00']")).to_have_class("tile is-blocked")
    expect(page.locator(".attention")).to_contain_text(reason)
    expect(page.get_by_role("button", name="Blocked")).to_contain_text("4")
    assert page.evaluate("[...window.touched]") == ["general-00"]


def test_nodes_move_between_groups_without_redrawing_the_map(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?group=state&state=idle,planned")
    expect(page.locator("h1")).to_contain_text("53 of 60")
    api.update_nodes(a_tile("general-00", NodeState.PLANNED))
    expect(page.get_by_role("group", name="Planned: 3 nodes").get_by_role("link").first).to_have_attribute(
        "data-name", "general-00"
    )
    api.update_nodes(a_tile("general-00", NodeState.DRAINING), a_tile("general-01b"), gone=("general-06",))
    expect(page.locator("h1")).to_contain_text("52 of 60")
    assert tiles(page)[2:6] == ["general-01", "general-01b", "general-07", "general-08"]


def test_empty_group_is_removed(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?group=state")
    expect(page.get_by_role("group", name="Recovering: 1 node")).to_be_visible()
    api.update_nodes(a_tile("general-30"))
    expect(page.get_by_role("group", name="Recovering")).to_have_count(0)


def test_arrow_keys_move_between_tiles_and_enter_opens_a_node(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404", "Failed to fetch dynamically imported module")  # modules of other pages may be missing
    page = pages.open(api.dashboard_url)
    first = page.locator(".map .tile").first
    first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    focused = page.evaluate("document.activeElement.dataset.name")
    assert focused == "general-19"
    expect(page.get_by_role("tooltip")).to_contain_text("general-19")
    page.keyboard.press("Escape")
    expect(page.get_by_role("tooltip")).to_be_hidden()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.name") == "spot-59"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")  # there is nothing
    assert page.evaluate("document.activeElement.dataset.name") == "general-00"
    assert page.locator(".map .tile[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url("**/#/nodes/general-00")


def test_focused_tile_keeps_focus_when_its_node_changes(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?group=state")
    page.locator(".tile[data-name='general-00']").focus()
    api.update_nodes(a_tile("general-00", NodeState.DRAINING, progress=5))
    expect(page.get_by_role("group", name="Draining: 3 nodes")).to_be_visible()
    assert page.evaluate("document.activeElement.dataset.name") == "general-00"


def test_tooltip_shows_details_of_the_node(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    page.locator(".tile[data-name='general-02']").hover()
    card = page.get_by_role("tooltip")
    for text in ("Blocked", "85 %", "cordoned", "bank/ledger", "13:18 (47 min ago)", "eu-west-1b · general"):
        expect(card).to_contain_text(text)
    page.get_by_role("heading", name="Fleet").hover()
    expect(card).to_be_hidden()


def test_longest_blocked_node_is_listed_first(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention.locator(".node-link")).to_have_text(["general-44", "general-02", "gpu-58"])
    expect(attention.get_by_role("listitem").first).to_contain_text("for 3 h 12 min")


def test_budgets_show_usage_and_waiting_nodes(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    budgets = page.get_by_role("region", name="Budgets")
    expect(budgets).to_contain_text(re.compile("(?<!/)zone=eu-west-1b"))
    expect(
        budgets.get_by_role("meter", name="Budget topology.kubernetes.io/zone=eu-west-1b: 4 of 4 used")
    ).to_have_attribute("aria-valuenow", "4")
    expect(budgets).to_contain_text("2 waiting: spot-23, general-37")


def test_list_sort_order_is_in_the_url(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?view=list")
    for index, name in enumerate(["general-02", "general-44", "gpu-58", "memory-09"]):
        expect(row(page, index)).to_have_text(name)
    page.get_by_role("button", name="For").click()
    expect(page.get_by_role("columnheader", name="For")).to_have_attribute("aria-sort", "ascending")
    expect(row(page, 0)).to_have_text("general-44")
    expect(row(page, 1)).to_have_text("spot-23")
    page.get_by_role("button", name="Node").click()
    page.get_by_role("button", name="Node").click()
    expect(page.get_by_role("columnheader", name="Node")).to_have_attribute("aria-sort", "descending")
    expect(row(page, 0)).to_have_text("spot-59")
    assert page.url.endswith("sort=-name")


def test_changed_row_keeps_focus(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?view=list&sort=name")
    page.get_by_role("link", name="general-00").focus()
    api.update_nodes(a_tile("general-00", NodeState.BLOCKED, message="stuck"))
    expect(page.locator("tbody tr.is-blocked", has_text="general-00")).to_contain_text("stuck")
    expect(page.get_by_role("link", name="general-00")).to_be_focused()


def test_empty_cluster_has_an_explanation(pages: Pages, serve: Serve) -> None:
    nothing = NodeList(revision="1", total=0, nodes=())
    page = pages.open(serve(nothing, a_summary(nothing, budgets=(), banners=())).dashboard_url)
    expect(page.get_by_text("There are no nodes")).to_be_visible()


@pytest.mark.parametrize("query", ["", "?view=list", "?view=map&group=profile"])
def test_hostile_names_and_reasons_are_not_interpreted(pages: Pages, serve: Serve, query: str) -> None:
    page = pages.open(f"{serve(a_hostile_fleet()).dashboard_url}#/fleet{query}")
    expect(page.locator("h1")).to_contain_text("6 nodes")
    for tile in page.locator(".map .tile:visible").all():
        tile.focus()
        expect(page.get_by_role("tooltip")).to_be_visible()
        page.keyboard.press("Escape")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script").count() == 0
    links: list[str] = page.locator("main a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert all(link.startswith("#/") for link in links)
    for width in (1440, 820, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_node_name_is_escaped_in_the_url(pages: Pages, serve: Serve) -> None:
    pages.expect_problems("404", "Failed to fetch dynamically imported module")
    page = pages.open(f"{serve(a_hostile_fleet()).dashboard_url}#/fleet?q=spaces")
    page.locator(".map .tile").click()
    page.wait_for_url("**/#/nodes/a%20node%20with%20spaces%3F%26%3D%23%25")
    expect(page).to_have_title("a node with spaces?&=#% · prod-eu · Haulout")


def test_browser_counts_match_the_operator_counts(pages: Pages, api: CannedApi) -> None:
    page = pages.open(api.dashboard_url)
    expect(page.locator("h1")).to_contain_text("60 nodes")
    counts = {
        chip.locator(".state").inner_text(): int(chip.locator(".count").inner_text())
        for chip in page.locator(".chips .chip").all()
    }
    expected_counts = a_summary(a_fleet()).counts
    assert counts == {state.replace("-", " ").capitalize(): count for state, count in expected_counts.items()}


def test_relative_times_advance_without_updates(pages: Pages, api: CannedApi) -> None:
    first_summary = a_summary(a_fleet())
    without_time = msgspec.structs.replace(first_summary, time=None)
    once = iter([first_summary])
    api.answers["summary"] = lambda _: next(once, without_time)  # told again, the time would stand still
    page = pages.open("about:blank")
    page.clock.install()
    page.goto(api.dashboard_url)
    expect(page.locator(".attention li").first).to_contain_text("for 3 h 12 min")
    page.clock.run_for(61_000)
    expect(page.locator(".attention li").first).to_contain_text("for 3 h 13 min")


def test_common_suffix_is_omitted_in_tile_names(pages: Pages, serve: Serve) -> None:
    names = [f"ip-10-0-{index}-17.eu-west-1.compute.internal" for index in range(12)]
    fleet = NodeList(revision="1", total=12, nodes=tuple(a_tile(name) for name in names))
    page = pages.open(serve(fleet).dashboard_url)
    expect(page.locator(".tile-name").nth(1)).to_have_text("ip-10-0-1-17")
    expect(page.locator(".map .tile").nth(1)).to_have_attribute("aria-label", f"{names[1]}, idle")


def test_group_heading_filters_by_group(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/fleet?q=general")
    page.get_by_role("heading", name="eu-west-1b").get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("10 of 60 nodes")
    expect(page.get_by_role("combobox", name="zone")).to_have_value("eu-west-1b")
    assert page.url.endswith("#/fleet?q=general&zone=eu-west-1b")
