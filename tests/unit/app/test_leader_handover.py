"""A leader whose own node is drained by a profile gives way first, to whoever there is; alone it goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import ProfilesComponent
from haulout.app.profiles_file import ProfilesFile
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


async def test_the_leader_on_the_node_that_a_profile_drains_gives_way_first(clock: Clock, file: Path) -> None:
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
        assert "one" in writing_users(town, "/nodes/n1")  # it took the node, so that the second is not placed there
        assert len(one.external_client.requests) + len(two.external_client.requests) == 1  # what was being sent is sent


async def test_who_only_cordons_its_own_node_goes_on(clock: Clock, tmp_path: Path) -> None:
    file = written(tmp_path, action="cordon")
    async with a_replica_cluster(clock, "n1", "n2") as town:
        start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        start_replica_with_profiles(town, "two", file, node="n2")
        await set_labels(town, "n1", **WANTED)
        await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED and is_cordoned(town, "n1"))
        assert lease_holders(town) == all_leases_held_by("one")
        assert writing_users(town, "/nodes/n1") & {"one", "two"} == {"one"}


async def test_a_leader_that_nobody_replaces_drains_its_own_node_and_its_successor_ends_that(
    clock: Clock, file: Path
) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=lambda number: 1 + 40 * number)
        one = start_replica_with_profiles(town, "one", file, node="n1")
        await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("one"))
        await set_labels(town, "n1", **WANTED)
        assert await town.wait_until(lambda: evicting_users(town) == {"one"}) < 60
        one.process.kill()  # it was one of the pods
        assert town.pods(on="n1") != []
        start_replica_with_profiles(town, "two", file, node="n2")
        await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED)
        assert town.pods(on="n1") == []
        await set_labels(town, "n1", patch=None)
        await town.wait_until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))


@pytest.mark.parametrize("accompanied", [True, False], ids=["with another", "alone"])
def test_whichever_write_is_the_last_before_or_after_giving_way_the_end_is_the_same(
    file: Path, *, accompanied: bool
) -> None:
    async def story(stage: CrashRun) -> None:
        async with a_replica_cluster(stage.clock, "n1", "n2") as town:
            await town.run_pods("web", 2, on="n1", stop=2)
            stage.start_operator(town.cluster)
            await town.wait_until(lambda: lease_holders(town) == all_leases_held_by("operator"))
            if accompanied:
                start_replica_with_profiles(town, "two", file, node="n2")
            await set_labels(town, "n1", **WANTED)
            await town.wait_until(lambda: node_state(town, "n1") == MAINTAINED)
            assert town.pods(on="n1") == []
            await set_labels(town, "n1", patch=None)
            await town.wait_until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))
            await town.wait_until(lambda: not has_drained_condition(town, "n1"))  # a write of its own, which comes next

    async def operator(client: Client) -> None:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), FakeExternalClient())
        await run_operator(
            client, OperatorSettings(namespace=NAMESPACE, identity="operator", node="n1"), profiles=profiles
        )

    writes = assert_survives_crashes(
        story, operator=operator, invariants=[PodDisruptionBudgetsRespected()], compare=_ends, writes_only_to_api=True
    )
    assert writes >= 4


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return how nodes end; a slot that nobody could give back is proved to be free by the next who needs it."""
    return end_state(history, ignored={*IGNORED_KINDS, "configmaps"})
