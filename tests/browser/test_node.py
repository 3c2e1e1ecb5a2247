"""One node: status, checks, blockers and actions."""

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from aiohttp import web
from playwright.sync_api import Page, expect

from browser.conftest import Pages, Theme, Width
from haulout.dashboard.api.types import (
    ActionResponse,
    ActionType,
    AuthMode,
    HistoryEntry,
    NodeDetail,
    NodeState,
    Problem,
    Session,
)
from support.dashboard.canned_api import CannedApi
from support.dashboard.fleet import NOW
from support.dashboard.node_detail import a_blocked_node, a_hostile_node, an_idle_node, an_ordered_node

ALL_ACTS = tuple(ActionType)


@pytest.fixture(autouse=True)
def _nodes(api: CannedApi) -> None:
    for detail in (a_blocked_node(NOW), an_ordered_node(NOW), an_idle_node(NOW), a_hostile_node(NOW)):
        put(api, detail)


def put(api: CannedApi, detail: NodeDetail) -> None:
    api.answers[f"nodes/{detail.summary.name}"] = detail


def open_node_page(
    pages: Pages, api: CannedApi, node: str = "general-05", *, width: Width = "desktop", theme: Theme = "light"
) -> Page:
    page = pages.open(f"{api.dashboard_url}#/nodes/{node}", width=width, theme=theme)
    expect(page.get_by_role("heading", level=1)).to_contain_text(node)
    expect(page.locator(".connection")).to_have_attribute("aria-label", "Connection: Live")
    return page


def open_details(page: Page) -> None:
    expect(page.locator("details").first).to_be_visible()
    page.locator("details").evaluate_all("all => all.forEach(it => (it.open = true))")


def set_allowed_actions(api: CannedApi, *acts: ActionType) -> None:
    api.answers["session"] = Session(mode=AuthMode.TOKEN, user="ann", may_read=True, actions=acts, csrf="a-secret")


def test_status_region_shows_state_since_reason_and_next_reconcile(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    lead = page.get_by_role("region", name="Status")
    for text in ("Blocked", "since 13:23 (42 min ago)", "PodDisruptionBudget bank/ledger", "Next: in 2", "Cordoned"):
        expect(lead).to_contain_text(text)
    expect(lead).to_contain_text("or earlier when the node itself changes, a pod of the node goes or a node leaves")
    expect(page).to_have_title("general-05 · prod-eu · Haulout")


def test_each_profile_has_a_state_diagram_with_the_current_state(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    diagram = page.get_by_role("img", name="Profile os is maintenance-required")
    expect(diagram.locator(".machine-state")).to_have_count(3)
    expect(diagram.locator(".machine-state.is-current")).to_have_text("maintenance-required")
    expect(diagram.locator(".machine-way.is-closed")).to_have_count(2)
    expect(diagram.locator(".machine-way.is-elsewhere")).to_have_count(2)


def test_transitions_show_each_check_with_result_reason_and_next_reconcile(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    transition = page.locator(".way").filter(has_text="to in-maintenance")
    night = transition.get_by_role("listitem").filter(has_text="timeWindow")
    expect(night).to_contain_text("passes")
    # 100 minutes ahead of the answer: 1 h 39 min as soon as the page's clock goes on.
    expect(night).to_contain_text(re.compile(r"May change in 1 h (39|40) min"))
    expect(transition.get_by_role("listitem").filter(has_text="maxMaintenance")).to_contain_text("does not pass")
    expect(transition).to_contain_text("Passes if one_at_a_time passed, or if approved passed.")
    expect(page.locator(".check").filter(has_text="hasLabel").first).to_contain_text("connection refused")


def test_transition_held_back_by_another_profile_names_it(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    profile = page.get_by_role("region", name="Profile gpu-driver")
    expect(profile).to_contain_text("Not allowed yet: profile os is in maintenance")
    expect(profile.locator(".machine-way.is-open")).to_have_count(0)


def test_check_details_stay_expanded_during_updates(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    page.get_by_text("Check details").click()
    expect(page.get_by_text("Europe/Berlin", exact=True)).to_be_visible()
    detail = a_blocked_node(NOW)
    drain = msgspec.structs.replace(detail.drains[0], removed=7)
    api.send_event("node", msgspec.structs.replace(detail, drains=(drain,)))
    expect(page.locator(".drain-figures")).to_contain_text("7 of 8 pods have left")
    expect(page.get_by_text("Europe/Berlin", exact=True)).to_be_visible()


def test_drain_shows_progress_and_blockers_with_advice(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    drain = page.get_by_role("region", name="Drain by profile os")
    expect(drain.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "62")
    expect(drain).to_contain_text("deadline 14:53")
    blockers = drain.locator(".blockers > li")
    expect(blockers).to_have_count(2)  # two pods wait for the same
    for text in (
        "PodDisruptionBudget bank/ledger",
        "since 13:25",
        "Deployment bank/ledger",
        "Remedy: add a replica",
    ):
        expect(blockers.first).to_contain_text(text)


def test_commands_are_copied(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("listitem").filter(has_text="Give bank/ledger").get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == "kubectl -n bank scale deployment/ledger --replicas=3"


def test_nodemaintenances_show_phase_error_and_queue_position(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api, "general-08")
    orders = page.get_by_role("region", name="2 NodeMaintenances")
    expect(orders).to_contain_text("Failed")
    expect(orders).to_contain_text("shop/cart-0 is still there")
    expect(orders).to_contain_text("Position 2 in the queue")
    expect(page.get_by_role("region", name="Status")).to_contain_text("On hold: alice: disk is being replaced")


def test_history_is_newest_first_with_durations_and_drain_facts(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    rows = page.get_by_role("region", name="History of the node").locator("tbody tr")
    expect(rows.first).to_contain_text("operational → maintenance-required")
    expect(rows.first).to_contain_text("1 d 16 h")
    expect(rows.nth(2)).to_contain_text("5 min, 7 pods")
    expect(rows.last).to_contain_text("by kubectl-create")


def test_long_history_is_truncated_until_expanded(pages: Pages, api: CannedApi) -> None:
    many = tuple(
        HistoryEntry(time=NOW - timedelta(hours=number), object="profile/os", to=f"s{number}") for number in range(40)
    )
    put(api, msgspec.structs.replace(a_blocked_node(NOW), history=many))
    page = open_node_page(pages, api)
    rows = page.get_by_role("region", name="History of the node").locator("tbody tr")
    expect(rows).to_have_count(15)
    page.get_by_role("button", name="Show 25 more").click()
    expect(rows).to_have_count(40)


def test_labels_taints_and_conditions_expand(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    label = page.get_by_text("example.com/patches=pending")
    expect(label).to_be_hidden()
    page.locator("summary", has_text="Labels").click()
    expect(label).to_be_visible()
    page.locator("summary", has_text="Conditions").click()
    expect(page.get_by_text("5 of 8 pods have left", exact=True)).to_be_visible()


def test_live_change_of_the_node_is_shown(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    expect(page.locator(".lead")).to_contain_text("Blocked")
    detail = a_blocked_node(NOW)
    api.send_event(
        "node",
        msgspec.structs.replace(detail, summary=msgspec.structs.replace(detail.summary, state=NodeState.DRAINING)),
    )
    expect(page.locator(".lead")).to_contain_text("Draining")
    assert "events?node=general-05" in api.requested_paths


def test_unknown_node_is_reported(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("404")
    page = open_node_page(pages, api, "nowhere")
    expect(page.get_by_text("Node not found")).to_be_visible()
    page.get_by_role("link", name="Search the fleet").click()
    expect(page).to_have_url(f"{api.dashboard_url}#/fleet?q=nowhere")


def test_idle_node_has_an_explanation(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api, "general-020")
    expect(page.locator(".lead")).to_contain_text("No maintenance is in progress, and none is announced.")
    expect(page.get_by_text("This profile has no transitions")).to_be_visible()


# Actions


def test_actions_without_permission_are_not_offered(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api)
    expect(page.get_by_role("region", name="Next steps")).to_be_visible()
    for name in ("Hold …", "Start maintenance …", "Approve it …"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)


def test_action_is_confirmed_sent_with_its_reason_and_acknowledged(pages: Pages, api: CannedApi) -> None:
    sent: list[str] = []

    def answer(request: web.Request) -> ActionResponse:
        sent.append(request.headers["X-Haulout-Csrf"])
        return ActionResponse(
            message="general-05 is held", command="kubectl annotate node general-05 haulout.dev/hold=x"
        )

    api.answers["actions"] = answer
    set_allowed_actions(api, ActionType.HOLD)
    page = open_node_page(pages, api)
    with page.expect_request("**/api/v2/actions") as request_info:
        page.get_by_role("button", name="Hold …").click()
        dialog = page.get_by_role("dialog", name="Hold")
        expect(dialog.get_by_label("Reason")).to_be_focused()
        expect(dialog).to_contain_text("No new maintenance starts on general-05")
        dialog.get_by_label("Reason").fill("disk is being replaced")
        dialog.get_by_label("How long").select_option("for 4 hours")
        dialog.get_by_role("button", name="Hold", exact=True).click()
    body = request_info.value.post_data_json
    assert body["action"] == "hold"
    assert body["node"] == "general-05"
    assert body["reason"] == "disk is being replaced"
    assert body["until"].startswith("2026-11-16T18:05")
    expect(dialog).to_contain_text("general-05 is held")
    assert sent == ["a-secret"]
    expect(dialog).to_contain_text("kubectl annotate node general-05")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_refused_action_shows_the_reason_and_can_be_retried(pages: Pages, api: CannedApi) -> None:
    pages.expect_problems("403")
    api.answers["actions"] = Problem(error="ann may not delete nodemaintenances", status=403)
    set_allowed_actions(api, *ALL_ACTS)
    page = open_node_page(pages, api, "general-08")
    page.get_by_role("button", name="End maintenance …").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="End maintenance").click()
    expect(dialog.get_by_role("alert")).to_have_text("ann may not delete nodemaintenances")
    expect(dialog.get_by_role("button", name="End maintenance")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_pending_approval_is_given(pages: Pages, api: CannedApi) -> None:
    api.answers["actions"] = ActionResponse(message="approved")
    set_allowed_actions(api, *ALL_ACTS)
    page = open_node_page(pages, api)
    page.get_by_role("button", name="Approve it …").click()
    with page.expect_request("**/api/v2/actions") as request_info:
        page.get_by_role("dialog").get_by_role("button", name="Approve it").click()
    assert request_info.value.post_data_json == {
        "action": "approve",
        "node": "general-05",
        "profile": "os",
        "check": "approved",
    }


def test_dialog_is_accessible(pages: Pages, api: CannedApi, accessible: Callable[[Page], None]) -> None:
    set_allowed_actions(api, *ALL_ACTS)
    page = open_node_page(pages, api)
    page.get_by_role("button", name="Start maintenance …").click()
    accessible(page)


# Accessibility and hostile text


def test_hostile_text_is_not_interpreted(pages: Pages, api: CannedApi) -> None:
    page = open_node_page(pages, api, "evil", width="phone")
    expect(page.locator(".lead")).to_contain_text("<script>")
    open_details(page)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("node", ["general-05", "general-08"])
def test_page_is_accessible(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None], node: str, theme: Theme
) -> None:
    set_allowed_actions(api, *ALL_ACTS)
    page = open_node_page(pages, api, node, theme=theme)
    open_details(page)
    accessible(page)


def test_phone_page_does_not_scroll_sideways_and_draws_the_diagram_vertically(
    pages: Pages, api: CannedApi, accessible: Callable[[Page], None]
) -> None:
    page = open_node_page(pages, api, width="phone")
    page.set_viewport_size({"width": 360, "height": 740})
    # The picture is drawn anew once its room is known to be another: all boxes are to be of the same one.
    page.wait_for_function(
        """() => {
          const boxes = [...document.querySelector(".machine").querySelectorAll(".machine-state rect")];
          return new Set(boxes.map((it) => Math.round(it.getBoundingClientRect().top))).size === 3;
        }"""
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    accessible(page)
