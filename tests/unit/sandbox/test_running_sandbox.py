"""A sandbox for people: it has lived before it is seen, and what is seen depends on the seed alone."""

import asyncio
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.core.clock import RealClock
from haulout_sandbox.event_loops.accelerated_loop import AcceleratedLoop
from haulout_sandbox.running_sandbox import RunningSandbox, SandboxPlan, open_sandbox
from haulout_sandbox.scenarios.expansion import resize
from haulout_sandbox.scenarios.loader import load, parse
from haulout_sandbox.startup_text import BlockedNode, overview

pytestmark = pytest.mark.real_time


def inspect_sandbox(inspect: Callable[[RunningSandbox], Any], **options: Any) -> Any:
    """Open a small sandbox, and return what a look at it finds."""
    loaded = load("default")
    plan = SandboxPlan(loaded=loaded.with_scenario(resize(loaded.scenario, nodes=3, pods_per_node=5)), **options)

    async def main() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            async with open_sandbox(plan, default_kubeconfig=Path(folder, "kubeconfig")) as sandbox:
                return inspect(sandbox)

    with asyncio.Runner(loop_factory=AcceleratedLoop) as runner:
        return runner.run(main())


def history(sandbox: RunningSandbox) -> list[tuple[object, ...]]:
    """Return who wrote what when, counted from the beginning."""
    writes = sandbox.cluster.api.history
    return [
        (
            write.written_at - writes[0].written_at,
            write.username,
            write.verb,
            write.path,
            write.after and write.after["metadata"].get("uid"),
        )
        for write in writes
    ]


def test_the_cluster_has_its_age_and_the_present_time_when_it_is_shown() -> None:
    def inspect(sandbox: RunningSandbox) -> None:
        now, pods = sandbox.cluster.clock.now(), sandbox.cluster.api.objects("pods")
        assert abs(now - RealClock().now()) < timedelta(seconds=5)
        assert {pod["status"]["phase"] for pod in pods} <= {"Running", "Succeeded"}
        ages = [now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods]
        assert max(ages) > timedelta(minutes=4)

    inspect_sandbox(inspect)


def test_the_same_seed_shows_the_same_whenever_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    for start in (datetime(2026, 5, 1, 8, 0, 3, 141, tzinfo=UTC), datetime(2026, 5, 2, 9, 30, 17, 999, tzinfo=UTC)):
        monkeypatch.setattr(RealClock, "now", lambda _, start=start: start)
        shown.append(inspect_sandbox(history, seed=4))
    assert len(shown[0]) > 500
    assert shown[0] == shown[1]


def test_another_seed_shows_something_else() -> None:
    assert inspect_sandbox(history, seed=1) != inspect_sandbox(history, seed=2)


def test_the_overview_names_a_node_that_a_budget_keeps_from_being_drained() -> None:
    def inspect(sandbox: RunningSandbox) -> None:
        found = overview(sandbox.cluster.api)
        assert (found.nodes, found.zones, found.running) == (3, 3, found.pods)
        assert isinstance(found.blocked, BlockedNode)
        assert found.blocked.budget == "bank/ledger"
        on_it = sandbox.cluster.api.objects("pods", namespace="bank")
        assert found.blocked.node in {pod["spec"]["nodeName"] for pod in on_it}

    inspect_sandbox(inspect)


def test_it_needs_a_loop_that_can_hurry(tmp_path: Path) -> None:
    plan = SandboxPlan(loaded=parse(b"pools: [{name: a}]", file="s.yaml", name="s"))

    async def main() -> None:
        async with open_sandbox(plan, default_kubeconfig=tmp_path / "kubeconfig"):
            pass

    with pytest.raises(TypeError, match="expected a AcceleratedLoop"):
        asyncio.run(main())
