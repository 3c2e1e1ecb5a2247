"""The clusters of a hub: tiles, details and commands."""

from collections.abc import Callable

import pytest
from msgspec import structs
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Pages, Serve, Theme, Width
from haulout.controllers.clusterapi.status import ConnectionState, MachineRequestStatus
from haulout.dashboard.api.types import ClusterConnection, ClusterList, NodeList
from support.dashboard.canned_api import CannedApi
from support.dashboard.clusters import a_cluster_tile, a_hub_summary, some_clusters
from support.dashboard.fleet import a_health

_NO_NODES = NodeList(revision="1", total=0, nodes=())
_HOSTILE = '<img src=x onerror="document.title=1">"\'><script>alert(1)</script>'


def served(serve: Serve, clusters: ClusterList) -> CannedApi:
    return serve(_NO_NODES, a_hub_summary(clusters), clusters=clusters, health=a_health())


@pytest.fixture
def hub(serve: Serve) -> CannedApi:
    """Return an API of a hub with eleven clusters."""
    return served(serve, some_clusters())


def open_clusters_page(
    pages: Pages, hub: CannedApi, query: str = "", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{hub.dashboard_url}#/clusters{query}", width=width, theme=theme)
    expect(page.locator(".cluster-tile").first).to_be_visible()
    return page


def tile(page: Page, key: str) -> Locator:
    return page.locator(f".cluster-tile[data-key='{key}']")


def test_hub_dashboard_starts_with_clusters_and_has_no_node_pages(pages: Pages, hub: CannedApi) -> None:
    page = pages.open(hub.dashboard_url)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Clusters")
    expect(page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link")).to_have_text(
        ["Clusters", "Health"]
    )
    expect(page).to_have_url(f"{hub.dashboard_url}#/clusters")
    assert "nodes" not in hub.requested_paths
    page.goto(f"{hub.dashboard_url}#/timeline")
    expect(page).to_have_url(f"{hub.dashboard_url}#/clusters")
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("heading", level=1)).to_have_text("Health")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1)).to_contain_text("11 clusters")


def test_operator_dashboard_has_no_clusters_page(pages: Pages, api: CannedApi) -> None:
    page = pages.open(f"{api.dashboard_url}#/clusters")
    expect(page).to_have_url(f"{api.dashboard_url}#/fleet")
    expect(page.get_by_role("link", name="Clusters")).to_have_count(0)
    assert "clusters" not in api.requested_paths


def test_tile_shows_connection_maintenance_and_waiting_state(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub)
    for key, *expected_texts in (
        ("bank/prod", "Waiting", "2 of 2 clusters are in maintenance: shop/prod-eu, shop/prod-us"),
        ("bank/stage", "Unreachable", "In maintenance", "connection refused (for 17 min)"),
        ("shop/prod-eu", "In maintenance", "2 in progress", "waits for approve-deletion"),
        ("edge/store-07", "Connecting"),
        ("edge/store-04", "Being deleted"),
        ("edge/store-01", "Idle", "9 of 11 Machines enabled", "v1.36.3"),
    ):
        for expected_text in expected_texts:
            expect(tile(page, key)).to_contain_text(expected_text)
    expect(page.locator(".clusters-group h2")).to_have_text(["bank2", "edge5", "shop4"])
    budgets = page.get_by_role("region", name="Clusters in maintenance at once")
    expect(budgets.get_by_role("meter").first).to_have_accessible_name("Budget all clusters: 2 of 2 used")
    expect(budgets).to_contain_text("Waiting: bank/prod")


def test_tile_expands_by_keyboard_to_machines_and_commands(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub)
    toggle = page.get_by_role("button", name="shop/prod-eu: in maintenance")
    toggle.focus()
    page.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    expect(toggle).to_be_focused()
    expect(page).to_have_url(f"{hub.dashboard_url}#/clusters?open=shop/prod-eu")
    machine = page.locator(".machine").filter(has_text="prod-eu-md-0-4qhzn").first
    for text in (
        "Deletion",
        "Not approved yet",
        "requested 12 min ago",
        "time limit: in 4",
        "maintenance-state",
    ):
        expect(machine).to_contain_text(text)
    expect(machine.get_by_label("Approve it by hand")).to_have_text(
        "kubectl --kubeconfig shop-prod-eu.kubeconfig label node prod-eu-md-0-4qhzn "
        "runtime-extension-maintenance-controller.cloud.sap/approve-deletion=true"
    )
    page.get_by_text("Commands for the cluster").click()
    expect(page.get_by_label("Get its kubeconfig and test it")).to_contain_text("get secret prod-eu-kubeconfig")
    toggle.click()
    expect(page.locator(".machine")).to_have_count(0)


def test_arrow_keys_move_between_clusters(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub)
    page.get_by_role("button", name="edge/store-01").focus()
    for key, name in (("ArrowRight", "edge/store-02"), ("ArrowDown", "edge/store-11"), ("ArrowUp", "edge/store-02")):
        page.keyboard.press(key)
        expect(page.get_by_role("button", name=name)).to_be_focused()
    page.keyboard.press("Home")
    expect(page.get_by_role("button", name="bank/prod")).to_be_focused()


def test_filters_are_in_the_url(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub)
    page.get_by_role("button", name="In maintenance 3").click()
    expect(page).to_have_url(f"{hub.dashboard_url}#/clusters?state=in-maintenance")
    expect(page.locator(".cluster-tile")).to_have_count(3)
    page.get_by_label("Namespace").select_option("shop")
    expect(page.locator(".total")).to_have_text("2 of 11 clusters")
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="In maintenance").first.click()
    page.keyboard.press("/")
    page.keyboard.type("md-1-BB41x approve")
    expect(page.locator(".cluster-tile")).to_have_count(1)
    page.get_by_label("Search clusters").fill("nothing like it")
    expect(page.get_by_text("No matching clusters")).to_be_visible()
    page.get_by_role("button", name="Show all clusters").click()
    expect(page.locator(".cluster-tile")).to_have_count(11)


def test_link_of_the_budget_selects_its_cluster(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub)
    page.get_by_role("link", name="bank/prod").first.click()
    expect(page.locator(".cluster-tile")).to_have_count(1)
    expect(page.locator(".machine")).to_contain_text("waits for the budget across clusters")


def test_live_changes_keep_tiles_expanded(pages: Pages, hub: CannedApi) -> None:
    page = open_clusters_page(pages, hub, "?open=shop/prod-us")
    page.get_by_role("button", name="shop/prod-us").focus()
    machine = MachineRequestStatus(name="prod-us-md-1-bb41x", is_approved=True, reason="approved a moment ago")
    hub.update_clusters(
        a_cluster_tile("shop/prod-us", requests=(machine,)),
        a_cluster_tile("bank/stage", connection_state=ConnectionState.CONNECTED, reason="", requests=()),
        a_cluster_tile("bank/new"),
        gone=("edge/store-04",),
    )
    expect(page.locator(".machine")).to_contain_text("approved a moment ago")
    expect(page.get_by_role("button", name="shop/prod-us")).to_be_focused()
    expect(tile(page, "bank/stage")).to_contain_text("Idle")
    expect(page.locator(".clusters-group").first.locator(".cluster-name")).to_have_text(["new", "prod", "stage"])
    expect(page.locator(".clusters-group h2")).to_have_text(["bank3", "edge4", "shop4"])
    expect(page.get_by_text("Needs attention")).to_have_count(0)


def test_namespaces_with_one_cluster_each_form_one_group(pages: Pages, serve: Serve) -> None:
    tiles = tuple(a_cluster_tile(f"team-{item}/prod") for item in "abc")
    page = open_clusters_page(pages, served(serve, ClusterList(revision="1", total=3, clusters=tiles)))
    expect(page.locator(".clusters-group h2")).to_have_count(0)
    expect(page.locator(".cluster-name")).to_have_text(["team-a/prod", "team-b/prod", "team-c/prod"])


def test_hostile_text_is_not_interpreted(pages: Pages, serve: Serve) -> None:
    machine = MachineRequestStatus(name=_HOSTILE, node=_HOSTILE, reason=_HOSTILE)
    evil = a_cluster_tile(
        f"a/{_HOSTILE}",
        requests=(machine,),
        waiting_reason=_HOSTILE,
        server=_HOSTILE,
        version=_HOSTILE,
        reason=_HOSTILE,
    )
    unreachable = structs.replace(evil, key=f"b/{_HOSTILE}", connection=ClusterConnection.UNREACHABLE)
    page = open_clusters_page(pages, served(serve, ClusterList(revision="1", total=2, clusters=(evil, unreachable))))
    for toggle in page.locator(".cluster-toggle").all():
        toggle.click()
    expect(page.locator(".machine")).to_have_count(2)
    expect(page.locator(".machine").first).to_contain_text("<script>alert(1)</script>")
    assert page.locator("main img, main script").count() == 0


def test_empty_page_explains_how_to_add_a_cluster(pages: Pages, serve: Serve) -> None:
    page = pages.open(served(serve, ClusterList(revision="1", total=0, clusters=())).dashboard_url)
    expect(page.get_by_text("There are no clusters")).to_be_visible()
    expect(page.locator(".command")).to_contain_text("runtime-extension-maintenance-controller.cloud.sap/enabled=true")


def test_failed_request_is_shown_with_a_retry_button(pages: Pages, hub: CannedApi) -> None:
    pages.expect_problems("503")
    hub.fail_requests("clusters", 503, "nobody leads")
    page = pages.open(f"{hub.dashboard_url}#/clusters")
    expect(page.get_by_text("nobody leads").first).to_be_visible()
    hub.clear_failures()
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".cluster-tile")).to_have_count(11)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_page_is_accessible(
    pages: Pages, hub: CannedApi, accessible: Callable[[Page], None], *, width: Width, theme: Theme
) -> None:
    page = open_clusters_page(pages, hub, "?open=shop/prod-eu,bank/stage", width=width, theme=theme)
    accessible(page)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, "nothing is wider than the page"


def test_two_hundred_clusters_are_updated_quickly(pages: Pages, serve: Serve) -> None:
    """Measures the CPU time of the page's main thread, which does not depend on the load of the machine."""
    clusters = some_clusters(200)
    hub = served(serve, clusters)
    page = open_clusters_page(pages, hub)
    expect(page.locator(".cluster-tile")).to_have_count(200)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    for number in range(10):
        hub.update_clusters(*(structs.replace(cluster, nodes=500 + number) for cluster in clusters.clusters[:50]))
        expect(tile(page, clusters.clusters[49].key)).to_contain_text(f"{500 + number} nodes")
    metrics = session.send("Performance.getMetrics")["metrics"]
    worked = float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))
    assert worked / 10 < 0.15
    page.keyboard.press("/")
    page.keyboard.type("cluster-123")
    expect(page.locator("h1")).to_contain_text("1 of 200 clusters")
