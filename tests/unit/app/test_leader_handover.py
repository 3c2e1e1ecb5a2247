"""A leader whose own node is drained by a profile hands over to a standby first; without a standby it continues."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugin import PROFILE_LABEL, State
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout_sandbox.apiserver import Write
from support.expectations.end_state import IGNORED_KINDS, end_state
from support.fakes.external_client import FakeExternalClient
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.invariants import PodDisruptionBudgetsRespected
from support.operators.replicas import (
    NAMESPACE,
    a_replica_cluster,
    all_leases_held_by,
    evicting_users,
    has_drained_condition,
    is_cordoned,
    lease_holders,
    node_state,
    set_labels,
    start_replica_with_profiles,
    writing_users,
)

OPERATIONAL, REQUIRED, MAINTAINED = State
FILE = """
intervals: {requeue: 30s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: maxMaintenance, name: room, config: {max: 1}}
  notify:
  - type: webhook
    name: told
    config: {url: "https://example.com/"}
    schedule: {type: oneshot, config: {delay: 0s}}
  trigger:
  - {type: eviction, name: act, config: {action: ACTION}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: room, trigger: act, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted", trigger: uncordon, next: operational}]
"""
WANTED = {PROFILE_LABEL: "os", "patch": "yes"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a configuration that drains."""
    return written(tmp_path, action="drain")


def written(folder: Path, *, action: str) -> Path:
    """Write a configuration."""
    path = folder / f"{action}.yaml"
    path.write_text(FILE.replace("ACTION", action))
    return path


async def test_leader_hands_over_before_a_profile_drains_its_own_node(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        one = start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        two = start_replica_with_profiles(town, "two", file, node="n2")
        await set_labels(town, "n1", **WANTED)
        await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED)
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("two"))
        assert town.pods(on="n1") == []
        assert evicting_users(town) == {"two"}
        assert "one" in writing_users(
            town, "/nodes/n1"
        )  # it cordoned the node, so that the second is not scheduled there
        assert (
            len(one.external_client.requests) + len(two.external_client.requests) == 1
        )  # the pending notification is sent once


async def test_leader_that_only_cordons_its_own_node_keeps_leading(clock: Clock, tmp_path: Path) -> None:
    file = written(tmp_path, action="cordon")
    async with a_replica_cluster(clock, "n1", "n2") as town:
        start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        start_replica_with_profiles(town, "two", file, node="n2")
        await set_labels(town, "n1", **WANTED)
        await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED and is_cordoned(town, "n1"))
        assert lease_holders(town) == all_leases_held_by("one")
        assert writing_users(town, "/nodes/n1") & {"one", "two"} == {"one"}


async def test_leader_without_a_standby_drains_its_own_node_and_a_successor_finishes(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=lambda number: 1 + 40 * number)
        one = start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        await set_labels(town, "n1", **WANTED)
        assert await town.wait_until(lambda: evicting_users(town) == {"one"}) < 60
        one.process.kill()  # its pod was among those evicted
        assert town.pods(on="n1") != []
        start_replica_with_profiles(town, "two", file, node="n2")
        await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED)
        assert town.pods(on="n1") == []
        await set_labels(town, "n1", patch=None)
        await town.wait_until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))


@pytest.mark.parametrize("has_standby", [True, False], ids=["with a standby", "alone"])
def test_handover_survives_a_crash_after_any_write(file: Path, *, has_standby: bool) -> None:
    async def scenario(crash_run: CrashRun) -> None:
        async with a_replica_cluster(crash_run.clock, "n1", "n2") as town:
            await town.run_pods("web", 2, on="n1", stop=2)
            crash_run.start_operator(town.cluster)
            await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("operator"))
            if has_standby:
                start_replica_with_profiles(town, "two", file, node="n2")
            await set_labels(town, "n1", **WANTED)
            await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED)
            assert town.pods(on="n1") == []
            await set_labels(town, "n1", patch=None)
            await town.wait_until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))
            await town.wait_until(lambda: not has_drained_condition(town, "n1"))  # a separate write, which comes next

    async def operator(client: Client) -> None:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), FakeExternalClient())
        await run_operator(
            client, OperatorSettings(namespace=NAMESPACE, identity="operator", node="n1"), profiles=profiles
        )

    writes = assert_survives_crashes(
        scenario,
        operator=operator,
        invariants=[PodDisruptionBudgetsRespected()],
        compare=_ends,
        writes_only_to_api=True,
    )
    assert writes >= 4


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return the final state of nodes; an unreleased slot is dropped by the next acquire that proves it free."""
    return end_state(history, ignored={*IGNORED_KINDS, "configmaps"})
