"""A failure of one component, or for one node, is reported to users and stops nothing else."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from haulout.controllers.nodemaintenance import decision
from haulout.controllers.nodemaintenance import reconciler as maintenance_reconciler
from haulout.controllers.profiles import decision as machine
from haulout.controllers.profiles import reconciler
from haulout.controllers.profiles.plugin import State
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.core.clock import Clock
from haulout.httpserver import healthz
from haulout.runtime.supervisor import Supervisor
from support.operators.replicas import (
    NAMESPACE,
    a_replica_cluster,
    create_maintenance,
    event_notes,
    is_done,
    maintenance,
    node_state,
    set_labels,
    start_replica_with_profiles,
)

OPERATIONAL, REQUIRED, _ = State
FILE = """
intervals: {requeue: 30s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
profiles:
- name: default
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a configuration."""
    path = tmp_path / "maintenance.yaml"
    path.write_text(FILE)
    return path


async def test_failed_profiles_component_restarts_and_maintenances_continue(
    clock: Clock, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lives = []
    run = ProfileInformers.run

    async def breaking(self: ProfileInformers) -> None:
        lives.append(clock.now())
        if len(lives) <= 3:
            await clock.sleep(timedelta(seconds=1))
            raise RuntimeError("boom")
        await run(self)

    monkeypatch.setattr(ProfileInformers, "run", breaking)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n2", stop=5)
        one = start_replica_with_profiles(town, "one", file)
        await town.wait_until(lambda: len(lives) == 2)
        create_maintenance(town, "n2")
        assert await town.wait_until(lambda: is_done(town)) < 12
        assert list(one.profiles.problems()) == [
            "profiles failed and restarts, other components continue: RuntimeError('boom'); see the log",
        ]
        await town.wait_until(lambda: "ProfilesFailed" in event_notes(town, NAMESPACE))
        assert "RuntimeError('boom')" in event_notes(town, NAMESPACE)["ProfilesFailed"]
        await town.wait_until(lambda: len(lives) == 4)
        await set_labels(town, "n1", patch="yes")
        await town.wait_until(lambda: node_state(town, "n1") == REQUIRED)
        gaps = [later - earlier for earlier, later in pairwise(lives)]
        assert gaps[0] < gaps[1] < gaps[2] < timedelta(seconds=30)
        await clock.sleep(timedelta(minutes=11))
        assert list(one.profiles.problems()) == []
    broken = [it for it in caplog.records if it.name == "haulout.runtime.supervisor"]
    assert len(broken) == 3
    assert all(it.exc_info for it in broken)


async def test_reconcile_failure_of_one_node_is_reported_and_others_continue(
    clock: Clock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = machine.decide
    is_broken = True

    def breaking(subject: Any, *rest: Any) -> Any:
        if subject.node.name == "n1" and is_broken and "patch" in subject.node.metadata.labels:
            raise ZeroDivisionError("division by zero")
        return step(subject, *rest)

    monkeypatch.setattr(reconciler, "decide", breaking)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        await town.wait_until(lambda: node_state(town, "n1") == OPERATIONAL)
        for name in ("n1", "n2"):
            await set_labels(town, name, patch="yes")
        assert await town.wait_until(lambda: node_state(town, "n2") == REQUIRED) < 1
        await town.wait_until(lambda: "MaintenanceStepFailed" in event_notes(town, "n1"))
        why = "reconcile failed and will be retried: a defect in the operator: ZeroDivisionError('division by zero')"
        assert event_notes(town, "n1")["MaintenanceStepFailed"] == why
        infos = {it["node"]: it for it in one.profiles.infos() or ()}
        assert [it["applied"]["error"] for it in infos["n1"]["profiles"]] == [why]
        assert [it["applied"]["error"] for it in infos["n2"]["profiles"]] == [""]
        is_broken = False
        await town.wait_until(lambda: node_state(town, "n1") == REQUIRED)
        infos = {it["node"]: it for it in one.profiles.infos() or ()}
        assert [it["applied"]["error"] for it in infos["n1"]["profiles"]] == [""]


async def test_reconcile_failure_of_a_node_maintenance_is_in_its_status(
    clock: Clock, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = decision.decide

    def breaking(observation: Any) -> Any:
        if observation.maintenance.name == "broken" and observation.node is not None:
            raise ZeroDivisionError("division by zero")
        return decide(observation)

    monkeypatch.setattr(maintenance_reconciler, "decide", breaking)
    async with a_replica_cluster(clock, "n1", "n2") as town:
        start_replica_with_profiles(town, "one", file)
        create_maintenance(town, "n1", "broken")
        create_maintenance(town, "n2", "sound")
        assert await town.wait_until(lambda: is_done(town, "sound")) < 10
        error = maintenance(town, "broken")["status"]["lastError"]
        assert error == "a defect in the operator: ZeroDivisionError('division by zero')"


@pytest.mark.real_time
async def test_readiness_check_reports_a_failed_component_and_stays_ready() -> None:
    troubles = ["profiles broke"]
    async with (
        healthz.serve(tuple, warnings=lambda: tuple(troubles), host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\nprofiles broke\n")
        troubles.clear()
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")


def test_supervisor_that_never_ran_has_no_problem() -> None:
    assert Supervisor("profiles").problem == ""
