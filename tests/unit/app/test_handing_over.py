"""A leader whose own node is drained by a profile gives way first, to whoever there is; alone it goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haulout.app.configured import Configured
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.profiles.plugin import PROFILE_LABEL, State
from haulout_sandbox.apiserver import Write
from support.crashes import Stage, survives_crashes
from support.endings import USUALLY_LEFT_OUT, end_state
from support.invariants import PodBudgetsKept
from support.outside import FakeOutside
from support.replicas import (
    HOME,
    a_site,
    both,
    evicters,
    holders,
    is_cordoned,
    label,
    node_state,
    replica_with_profiles,
    says_drained,
    writers,
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
    async with a_site(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=1)
        one = replica_with_profiles(town, "one", file, node="n1")
        await town.until(lambda: holders(town) == both("one"))
        two = replica_with_profiles(town, "two", file, node="n2")
        await label(town, "n1", **WANTED)
        await town.until(lambda: node_state(town, "n1") == MAINTAINED)
        await town.until(lambda: holders(town) == both("two"))
        assert town.pods(on="n1") == []
        assert evicters(town) == {"two"}
        assert "one" in writers(town, "/nodes/n1")  # it took the node, so that the second is not placed there
        assert len(one.outside.requests) + len(two.outside.requests) == 1  # what was being sent is sent


async def test_who_only_cordons_its_own_node_goes_on(clock: Clock, tmp_path: Path) -> None:
    file = written(tmp_path, action="cordon")
    async with a_site(clock, "n1", "n2") as town:
        replica_with_profiles(town, "one", file, node="n1")
        await town.until(lambda: holders(town) == both("one"))
        replica_with_profiles(town, "two", file, node="n2")
        await label(town, "n1", **WANTED)
        await town.until(lambda: node_state(town, "n1") == MAINTAINED and is_cordoned(town, "n1"))
        assert holders(town) == both("one")
        assert writers(town, "/nodes/n1") & {"one", "two"} == {"one"}


async def test_a_leader_that_nobody_replaces_drains_its_own_node_and_its_successor_ends_that(
    clock: Clock, file: Path
) -> None:
    async with a_site(clock, "n1", "n2") as town:
        await town.run_pods("web", 3, on="n1", stop=lambda number: 1 + 40 * number)
        one = replica_with_profiles(town, "one", file, node="n1")
        await town.until(lambda: holders(town) == both("one"))
        await label(town, "n1", **WANTED)
        assert await town.until(lambda: evicters(town) == {"one"}) < 60
        one.process.kill()  # it was one of the pods
        assert town.pods(on="n1") != []
        replica_with_profiles(town, "two", file, node="n2")
        await town.until(lambda: node_state(town, "n1") == MAINTAINED)
        assert town.pods(on="n1") == []
        await label(town, "n1", patch=None)
        await town.until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))


@pytest.mark.parametrize("accompanied", [True, False], ids=["with another", "alone"])
def test_whichever_write_is_the_last_before_or_after_giving_way_the_end_is_the_same(
    file: Path, *, accompanied: bool
) -> None:
    async def story(stage: Stage) -> None:
        async with a_site(stage.clock, "n1", "n2") as town:
            await town.run_pods("web", 2, on="n1", stop=2)
            stage.begin(town.cluster)
            await town.until(lambda: holders(town) == both("operator"))
            if accompanied:
                replica_with_profiles(town, "two", file, node="n2")
            await label(town, "n1", **WANTED)
            await town.until(lambda: node_state(town, "n1") == MAINTAINED)
            assert town.pods(on="n1") == []
            await label(town, "n1", patch=None)
            await town.until(lambda: node_state(town, "n1") == OPERATIONAL and not is_cordoned(town, "n1"))
            await town.until(lambda: not says_drained(town, "n1"))  # a write of its own, which comes next

    async def operator(client: Client) -> None:
        profiles = Profiles(Configured(file, environ={}, clock=client.clock), FakeOutside())
        await run_operator(client, OperatorSettings(namespace=HOME, identity="operator", node="n1"), profiles=profiles)

    writes = survives_crashes(story, operator=operator, invariants=[PodBudgetsKept()], compare=_ends, inward=True)
    assert writes >= 4


def _ends(history: Sequence[Write]) -> dict[str, Any]:
    """Return how nodes end; a slot that nobody could give back is proved to be free by the next who needs it."""
    return end_state(history, without={*USUALLY_LEFT_OUT, "configmaps"})
