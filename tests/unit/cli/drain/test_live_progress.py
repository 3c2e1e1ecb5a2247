"""The live progress of drains."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from haulout.cli.cordon.node_changes import ChangeResult, ChangeVerb
from haulout.cli.drain.drain_runner import NodeDrain, NodeDrainState
from haulout.cli.drain.live_progress import LiveReporter, LiveView
from haulout.core.clock import Clock
from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.progress import ActiveBlocker, DrainOutcome, DrainProgress, OutcomeResult, PodDrainState, PodProgress

NOW = datetime(2026, 1, 5, 9, 0, 30, tzinfo=UTC)
BEGAN = NOW - timedelta(seconds=25)


def a_blocker(pod: str, **fields: Any) -> Blocker:
    defaults = {
        "kind": BlockerKind.DISRUPTION_BUDGET,
        "object": "PodDisruptionBudget shop/cart",
        "reason": "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2",
        "remedy": "run more replicas",
    }
    return Blocker(pod=pod, uid=pod, **{**defaults, **fields})


def a_row(pod: str, *, blocker: Blocker | None = None, state: PodDrainState = PodDrainState.LEAVING) -> PodProgress:
    active_blocker = None if blocker is None else ActiveBlocker(blocker, BEGAN)
    return PodProgress(pod=pod, uid=pod, state=state, message="", turn_since=BEGAN, active_blocker=active_blocker)


def a_record(node: str, *rows: PodProgress, **progress: Any) -> NodeDrain:
    leaving = sum(row.state is PodDrainState.LEAVING for row in rows)
    drain_progress = DrainProgress(
        node=node, started=BEGAN, pods=rows, leaving=leaving, **{"total": len(rows), **progress}
    )
    return NodeDrain(node, NodeDrainState.DRAINING, is_cordoned=True, progress=drain_progress, started=BEGAN)


def render_lines(*records: NodeDrain, width: int = 100, height: int = 30, **view: Any) -> list[str]:
    """Return the lines of a frame."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(LiveView(records, NOW, **view))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_each_node_has_a_progress_bar() -> None:
    node = a_record("n1", a_row("shop/a"), a_row("shop/b", state=PodDrainState.EVICTING), total=5, gone=3, percent=60)
    lines = render_lines(node, NodeDrain("n2"), NodeDrain("n3", NodeDrainState.DRAINED))
    assert lines == [
        "n1  ━━━━━━━━━━━━           60%  3 of 5 pods gone, 1 ending, 1 to go, 25s",
        "1 waiting, 1 of 3 nodes drained",
        "Ctrl-C stops, and prints what is left",
    ]


def test_blocker_is_shown_with_pods_duration_and_advice() -> None:
    rows = [a_row(f"shop/cart-{n}", blocker=a_blocker(f"shop/cart-{n}"), state=PodDrainState.BLOCKED) for n in range(5)]
    lines = render_lines(a_record("n1", *rows), width=200)
    assert lines[1] == (
        "  blocked 25s shop/cart-0, shop/cart-1, shop/cart-2 and 2 more: "
        "PodDisruptionBudget shop/cart needs 2 healthy pods and has 2; run more replicas"
    )


def test_migration_in_progress_is_shown_as_waiting() -> None:
    moving = a_blocker(
        "kv/vm", kind=BlockerKind.MIGRATION, object="webhook x", reason="Evacuation in progress", remedy=""
    )
    lines = render_lines(a_record("n1", a_row("kv/vm", blocker=moving, state=PodDrainState.BLOCKED)))
    assert lines[1] == "  waiting 25s kv/vm: Evacuation in progress"


def test_only_the_oldest_blockers_are_shown() -> None:
    rows = [
        a_row(
            f"shop/{n}", blocker=a_blocker(f"shop/{n}", object=f"PodDisruptionBudget {n}"), state=PodDrainState.BLOCKED
        )
        for n in range(5)
    ]
    lines = render_lines(a_record("n1", *rows), width=200)
    assert len([line for line in lines if line.startswith("  blocked")]) == 3
    assert "  and 2 more blockers" in lines


def test_view_fits_the_terminal_and_keeps_blocked_nodes() -> None:
    blocked = a_record("n30", a_row("shop/a", blocker=a_blocker("shop/a"), state=PodDrainState.BLOCKED))
    nodes = [a_record(f"n{number:02}", a_row("shop/a")) for number in range(30)]
    lines = render_lines(*nodes, blocked, height=12)
    assert len(lines) <= 12
    assert any(line.startswith("n30 ") for line in lines)
    assert any(line.startswith("n00 ") for line in lines)
    assert lines[-2] == "24 more being drained, 0 of 31 nodes drained"


def test_stale_data_and_failed_nodes_are_shown() -> None:
    lines = render_lines(
        a_record("n1", stale_reason="no answer\x1b[2J"), NodeDrain("n2", NodeDrainState.TIMED_OUT), is_stopping=True
    )
    assert lines[0].endswith("  0%  listing its pods, 25s")
    assert lines[1:] == [
        r"  may be outdated: no answer\x1b[2J",
        "0 of 2 nodes drained, 1 failed",
        "Stopping: waiting for requests in progress; Ctrl-C again exits at once",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_view_is_printed_in_any_terminal_encoding(encoding: str) -> None:
    raw = io.BytesIO()
    console = Console(
        file=io.TextIOWrapper(raw, encoding=encoding, write_through=True), width=60, height=20, force_terminal=True
    )
    console.print(LiveView((a_record("n1", a_row("shop/a"), percent=50),), NOW))
    assert "0 of 1 pod gone, 1 ending, 25s" in raw.getvalue().decode(encoding)


async def test_final_lines_are_printed_above_the_view(clock: Clock) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, height=20, color_system=None)
    record = a_record("n1", a_row("shop/a"), warning="deleting Pods with local storage: shop/a")
    show = LiveReporter(lambda: [record], console=console, clock=clock)
    show.on_cordoned(record, ChangeResult("n1", ChangeVerb.CORDONED, notes=("held by somebody",)))
    show.on_progress(record)
    show.on_progress(record)
    over = DrainProgress(node="n1", started=BEGAN, total=4, gone=4, percent=100, returning=("shop/b",))
    record.end(DrainOutcome(OutcomeResult.DRAINED, "", over), at=NOW)
    show.on_ended(record)
    refused = NodeDrain("n2", NodeDrainState.DRAINING)
    refused.end(
        DrainOutcome(OutcomeResult.REFUSED, "cannot delete Pods", DrainProgress(node="n2", started=BEGAN)), at=NOW
    )
    show.on_ended(refused)
    assert out.getvalue().splitlines() == [
        "node/n1 cordoned",
        "node/n1: held by somebody",
        "Warning: deleting Pods with local storage: shop/a",
        "node/n1 drained: 4 pods removed in 25s",
        "Warning: pod shop/b was created again and stays: its replacements would be created again, too",
        'error: unable to drain node "n2" due to error: cannot delete Pods, continuing command...',
    ]
