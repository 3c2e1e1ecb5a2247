"""What makes no sense is said, in the status and by an event; nothing is stuck once it is repaired, and nothing is hot.

`tests/unit/maintenance/test_bad_input.py` has more of it, for what only the sandbox can do, and with more patience.
"""

from datetime import timedelta
from typing import Any

import pytest

from haulout.kube.resources import DEFINITIONS
from haulout.maintenance import controller
from haulout.maintenance import status as told
from support.builders import a_pod
from support.clusters import ClusterPlan, Plans
from support.interposed import Interposed
from support.live import LiveCluster
from support.maintaining import (
    DEFINITION,
    NAME,
    PLURAL,
    RIGHTS,
    blocked_on,
    entitled,
    events,
    has_lease,
    invariants,
    is_blocked,
    is_given_back,
    is_taken,
    last_error,
    operate,
    order,
    over,
    phase,
    says,
    status,
    succeeded,
)

ROLE = next(it for it in RIGHTS if it["kind"] == "ClusterRole" and it["metadata"]["name"] == "haulout")


@pytest.fixture
def seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return for how long trouble lasts: minutes, where time can be skipped; elsewhere blockers are told soon, too."""
    if request.config.getoption("--backend") == "sandbox":
        return 600.0
    for module in (controller, told):
        monkeypatch.setattr(module, "BLOCKED_AFTER", timedelta(seconds=1))
    return 8.0


def a_plan(a_cluster: Plans, *, held: bool = False) -> ClusterPlan:
    plan = entitled(a_cluster()).with_nodes(2).with_objects(a_pod("shop/free", on="n1")).upholding(*invariants())
    return blocked_on(plan, "n1") if held else plan


def operating(cluster: LiveCluster) -> Interposed:
    """Run the operator; return what it asks for."""
    asked = Interposed()
    cluster.run(asked.before(operate))
    return asked


async def trouble(cluster: LiveCluster, operator: Interposed, seconds: float) -> None:
    """Let time pass in which the operator asks for something less than once in a second."""
    await cluster.pass_time(seconds=3)
    before = len(operator.asked)
    await cluster.pass_time(seconds=seconds)
    asked = [f"{it.method} {it.path}" for it in operator.asked[before:]]
    assert len(asked) < seconds, asked


async def has_failed(cluster: LiveCluster, reason: str) -> None:
    await cluster.eventually(lambda: phase(cluster), becomes="Failed")
    assert says(cluster, "Failed") == ("True", reason)
    await cluster.eventually(lambda: "FailedMaintenance" in events(cluster))


async def test_an_empty_name_is_told(a_cluster: Plans, seconds: float) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = operating(cluster)
        await order(cluster, "")
        await has_failed(cluster, "NodeUnnamed")
        assert last_error(cluster) == "spec.nodeName is empty, expected the name of a node"
        await trouble(cluster, operator, seconds)
        await cluster.change(PLURAL, NAME, spec={"nodeName": "n1"})
        await succeeded(cluster)
        await over(cluster)


async def test_a_node_that_is_not_there_is_told_and_taken_when_it_comes(a_cluster: Plans, seconds: float) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = operating(cluster)
        await order(cluster, "n3")
        await has_failed(cluster, "NodeMissing")
        await trouble(cluster, operator, seconds)
        await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n3"}})
        await cluster.eventually(lambda: is_taken(cluster, "n3"))
        await succeeded(cluster)
        assert "lastError" not in status(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n3")


async def test_a_node_deleted_in_the_middle_is_told_and_its_successor_is_taken(
    a_cluster: Plans, seconds: float
) -> None:
    async with a_plan(a_cluster, held=True).running() as cluster:
        operator = operating(cluster)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.kubelets.remove("n1")
        await has_failed(cluster, "NodeMissing")
        assert last_error(cluster) == 'nodes "n1" not found'
        await trouble(cluster, operator, seconds)
        await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await cluster.eventually(lambda: is_taken(cluster, "n1"))
        await cluster.eventually(lambda: phase(cluster) != "Failed")
        await over(cluster)
        assert is_given_back(cluster, "n1")


async def test_another_node_takes_the_place_of_the_one_that_was_named_before(a_cluster: Plans) -> None:
    """The webhook refuses that; without it the first node is given back."""
    async with a_plan(a_cluster, held=True).running() as cluster:
        operating(cluster)
        await order(cluster, "n1")
        await is_blocked(cluster)
        await cluster.change(PLURAL, NAME, spec={"nodeName": "n2"})
        await cluster.eventually(lambda: is_taken(cluster, "n2"))
        await succeeded(cluster)
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))
        assert (has_lease(cluster, "n1"), has_lease(cluster, "n2")) == (False, True)
        assert cluster.ready("shop/on-n1") == 1
        await over(cluster)


@pytest.mark.parametrize(
    ("drain", "problem"),
    [
        ({"deletionTimeout": "1m"}, "spec.drain.deletionTimeout: found without forceDelete"),
        ({"rules": [{"name": "a"}, {"name": "a"}]}, "spec.drain.rules[1].name: found 'a' again"),
    ],
    ids=["escalation", "rules"],
)
async def test_a_policy_that_makes_no_sense_is_told_before_anything_is_touched(
    a_cluster: Plans, seconds: float, drain: dict[str, Any], problem: str
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = operating(cluster)
        await order(cluster, "n1", drain=drain)
        await has_failed(cluster, "PolicyInvalid")
        assert problem in last_error(cluster)
        await trouble(cluster, operator, seconds)
        assert is_given_back(cluster, "n1")
        assert not has_lease(cluster, "n1")
        await cluster.change(PLURAL, NAME, spec={"drain": None})
        await succeeded(cluster)
        assert says(cluster, "Failed") == ("False", "Resumed")
        await over(cluster)


@pytest.mark.parametrize(
    ("resource", "verb"),
    [("pods/eviction", "create"), ("nodes", "patch"), ("pods", "list")],
    ids=["to evict pods", "to cordon nodes", "to see pods"],
)
async def test_a_permission_that_is_missing_is_told_and_noticed_when_it_is_there(
    a_cluster: Plans, seconds: float, resource: str, verb: str
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = operating(cluster)
        await cluster.change("clusterroles", "haulout", rules=_without(resource, verb))
        try:
            await order(cluster, "n1")
            await cluster.eventually(lambda: "forbidden" in last_error(cluster).lower())
            await cluster.eventually(lambda: bool({"MaintenanceError", "DrainBlocked"} & set(events(cluster))))
            assert status(cluster)["nextLook"]
            await trouble(cluster, operator, seconds)
            assert phase(cluster) == "Running"
        finally:
            await cluster.change("clusterroles", "haulout", rules=ROLE["rules"])
        await succeeded(cluster)
        assert "lastError" not in status(cluster)
        await over(cluster)
        assert is_given_back(cluster, "n1")


def _without(resource: str, verb: str) -> list[dict[str, Any]]:
    """Return the rules of our role, but one."""
    less = [
        {**rule, "verbs": [it for it in rule["verbs"] if it != verb]} if resource in rule["resources"] else rule
        for rule in ROLE["rules"]
    ]
    return [rule for rule in less if rule["verbs"]]


async def test_maintenances_end_with_their_definition_and_go_on_when_it_is_back(
    a_cluster: Plans, seconds: float
) -> None:
    async with a_plan(a_cluster).running() as cluster:
        operator = operating(cluster)
        await order(cluster, "n1")
        await succeeded(cluster)
        await cluster.delete("customresourcedefinitions", DEFINITION["metadata"]["name"])
        await cluster.eventually(lambda: is_given_back(cluster, "n1"))
        await cluster.eventually(lambda: not cluster.has("customresourcedefinitions", DEFINITION["metadata"]["name"]))
        await trouble(cluster, operator, seconds)
        await cluster.create(DEFINITION)
        cluster.created.pop()  # it stays when the test is over
        await _served(cluster)
        await order(cluster, "n2", name="anew")
        await succeeded(cluster, "anew")
        assert is_taken(cluster, "n2")
        await over(cluster, "anew")


async def _served(cluster: LiveCluster) -> None:
    name = DEFINITION["metadata"]["name"]

    async def is_established() -> bool:
        found = await cluster.me.get(DEFINITIONS, name)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(it["type"] == "Established" and it["status"] == "True" for it in conditions)

    await cluster.eventually(is_established)
