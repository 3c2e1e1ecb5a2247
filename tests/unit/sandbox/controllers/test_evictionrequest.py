"""EvictionRequests in the sandbox: what is refused, who has the turn, and what becomes of requests and Evictions."""

from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.evictionrequest import EVICTION_REQUESTS, EVICTIONS
from haulout.api.objects import EvictionResponder, RawObject
from haulout.api.resources import PODS
from haulout.core.clock import Clock
from haulout.errors import Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.kinds.evictionrequest import EVICTION_REQUEST_API, definitions
from haulout_sandbox.controllers.evictionrequest.decision import responders_in_order
from haulout_sandbox.controllers.objects import Pod, PodSpec
from support.clusters.drain_cluster import SHOP, DrainCluster, a_drain_cluster, a_pdb, a_pod
from support.fakes.eviction_responder import MOVER, Responder, an_eviction_request, responders

IMPERATIVE_EVICTOR = "imperative-eviction.k8s.io/evictor"


@pytest.fixture
async def town(clock: Clock) -> AsyncIterator[DrainCluster]:
    async with a_drain_cluster(clock, "n1", features=[EVICTION_REQUEST_API]) as town:
        yield town


async def one_pod(town: DrainCluster, **spec: Any) -> RawObject:
    await town.run_pods("web", 1, on="n1", **spec)
    return town.pods(app="web")[0]


async def create_request(town: DrainCluster, pod: RawObject, **fields: str) -> None:
    await town.client.create(EVICTION_REQUESTS, an_eviction_request(pod, **fields), namespace=SHOP)


def condition(obj: RawObject, condition_type: str) -> tuple[str, str]:
    condition_fields = next(
        condition
        for condition in obj.get("status", {}).get("conditions", [{"type": condition_type}])
        if condition["type"] == condition_type
    )
    return condition_fields.get("status", ""), condition_fields.get("reason", "")


def only_eviction(town: DrainCluster) -> RawObject:
    (eviction,) = town.api.objects("evictions")
    return eviction


def states(eviction: RawObject) -> dict[str, str]:
    return {
        target_responder["name"]: target_responder["state"]
        for target_responder in eviction.get("status", {}).get("targetResponders", [])
    }


# What is served


async def test_without_the_feature_nothing_is_served(clock: Clock) -> None:
    client = Client(ApiServer(clock).transport(), clock=clock, random=Random(0))
    assert not await serves(client, EVICTION_REQUESTS, EVICTIONS)
    with pytest.raises(NotFound):
        await client.list(EVICTION_REQUESTS)


async def test_with_the_feature_both_kinds_are_served_and_no_definition_shows(town: DrainCluster) -> None:
    assert await serves(town.client, EVICTION_REQUESTS, EVICTIONS)
    assert town.api.objects("customresourcedefinitions") == []


async def test_the_field_of_pods_is_there_only_with_the_feature(town: DrainCluster, clock: Clock) -> None:
    pod = a_pod("web-0", evictionResponders=responders(mover=10_000))
    for api, kept in ((town.api, True), (ApiServer(clock, namespaces=[SHOP]), False)):
        client = Client(api.transport("me"), clock=clock, random=Random(0))
        await client.create(PODS, pod, namespace=SHOP)
        await client.patch(PODS, "web-0", merge_patch({"metadata": {"labels": {"a": "b"}}}), namespace=SHOP)
        assert ("evictionResponders" in api.get("pods", "web-0", SHOP)["spec"]) is kept


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"requester": "boss"}, "spec.requester"),
        ({"requester": "scheduler.k8s.io/boss"}, "spec.requester"),
        ({"requester": "a.kubernetes.io/boss"}, "spec.requester"),
        ({"intent": "Perhaps"}, "spec.intent"),
        ({"target": {"pod": {"name": "web-0", "uid": "no-uid"}}}, "spec.target.pod.uid"),
        ({"target": {}}, "spec.target.pod"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(town: DrainCluster, change: RawObject, field: str) -> None:
    request = an_eviction_request(await one_pod(town))
    request["spec"] |= change
    with pytest.raises(Invalid) as refused:
        await town.client.create(EVICTION_REQUESTS, request, namespace=SHOP)
    assert refused.value.causes[0].field == field


async def test_only_the_intent_of_a_request_can_be_changed(town: DrainCluster) -> None:
    pod = await one_pod(town)
    await create_request(town, pod)
    for change in ({"requester": "acme.io/other"}, {"target": {"pod": {"name": "web-1"}}}):
        with pytest.raises(Invalid, match="field is immutable"):
            await town.client.patch(EVICTION_REQUESTS, "web-00-boss", merge_patch({"spec": change}), namespace=SHOP)
    withdrawn = merge_patch({"spec": {"intent": "Withdrawn"}})
    assert (
        await town.client.patch(EVICTION_REQUESTS, "web-00-boss", withdrawn, namespace=SHOP)
    ).metadata.generation == 2


async def test_the_definitions_can_be_installed_where_the_api_is_not_built_in(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=[SHOP])
    for crd in definitions(requester="requesterName"):
        api.put(crd)
    client = Client(api.transport("me"), clock=clock, random=Random(0))
    request = an_eviction_request(api.put(a_pod("web-0")))
    request["spec"]["requesterName"] = request["spec"].pop("requester")
    await client.create(EVICTION_REQUESTS, request, namespace=SHOP)


# Whose turn it is


@pytest.mark.parametrize(
    ("declared", "order"),
    [
        ([], [IMPERATIVE_EVICTOR]),
        ([("acme.io/a", 10_000)], ["acme.io/a", IMPERATIVE_EVICTOR]),
        ([("acme.io/a", 1_000), ("acme.io/b", 2_000)], ["acme.io/b", "acme.io/a", IMPERATIVE_EVICTOR]),
        ([("z.acme.io/a", 5_000), ("a.zoo.io/a", 5_000)], ["z.acme.io/a", "a.zoo.io/a", IMPERATIVE_EVICTOR]),
        ([("low.k8s.io/a", 50)], [IMPERATIVE_EVICTOR, "low.k8s.io/a"]),
    ],
)
def test_the_highest_priority_has_the_first_turn(declared: list[tuple[str, int]], order: list[str]) -> None:
    pod = Pod(
        spec=PodSpec(eviction_responders=tuple(EvictionResponder(name=item, priority=at) for item, at in declared))
    )
    assert [item.name for item in responders_in_order(pod)] == order


async def test_a_pod_without_responders_is_evicted_by_the_last(town: DrainCluster) -> None:
    pod = await one_pod(town, stop=3)
    await create_request(town, pod)
    await town.wait_until(lambda: not town.pods(app="web"))
    await town.wait_until(
        lambda: condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "TargetEvicted")[0] == "True"
    )
    eviction = only_eviction(town)
    assert condition(eviction, "TargetEvicted") == ("True", "PodDeleted")
    assert states(eviction) == {IMPERATIVE_EVICTOR: "Completed"}
    assert eviction["metadata"]["labels"] == {"acme.io/boss": "requester", IMPERATIVE_EVICTOR: "responder"}
    assert town.api.get("evictionrequests", "web-00-boss", SHOP)["status"]["observedGeneration"] == 1


async def test_a_responder_that_reports_has_all_the_time_it_needs(town: DrainCluster) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    town.cluster.start_program(Responder(town.cluster.client("mover"), duration=timedelta(hours=2)).run(), name="mover")
    await create_request(town, pod)
    took = await town.wait_until(lambda: not town.pods(app="web"), within=timedelta(hours=3))
    assert took > timedelta(hours=2).total_seconds()
    await town.wait_until(lambda: condition(only_eviction(town), "TargetEvicted")[0] == "True")
    assert states(only_eviction(town)) == {MOVER: "Completed", IMPERATIVE_EVICTOR: "Inactive"}


async def test_a_silent_responder_loses_its_turn_after_twenty_minutes(town: DrainCluster) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000, helper=5_000))
    town.cluster.start_program(Responder(town.cluster.client("helper"), "acme.io/helper").run(), name="helper")
    await create_request(town, pod)
    took = await town.wait_until(lambda: not town.pods(app="web"), within=timedelta(hours=1))
    assert 20 * 60 < took < 25 * 60
    await town.wait_until(lambda: condition(only_eviction(town), "TargetEvicted")[0] == "True")
    assert states(only_eviction(town)) == {
        MOVER: "Interrupted",
        "acme.io/helper": "Completed",
        IMPERATIVE_EVICTOR: "Inactive",
    }


async def test_the_last_responder_respects_budgets_and_says_what_stands_in_the_way(town: DrainCluster) -> None:
    town.put(a_pdb("web", app="web", minAvailable=1))
    pod = await one_pod(town)
    await create_request(town, pod)
    await town.clock.sleep(timedelta(seconds=2))
    assert "The disruption budget web needs 1 healthy pods" in only_eviction(town)["status"]["responders"][0]["message"]
    await town.clock.sleep(timedelta(hours=2))
    assert town.pods(app="web")
    assert states(only_eviction(town)) == {IMPERATIVE_EVICTOR: "Active"}
    town.api.remove("poddisruptionbudgets", "web", SHOP)
    await town.wait_until(lambda: not town.pods(app="web"), within=timedelta(minutes=17))


async def test_without_the_last_responder_a_request_fails_when_all_had_their_turn(town: DrainCluster) -> None:
    pod = await one_pod(town)
    town.cluster.pause("imperative-evictor")
    await create_request(town, pod)
    await town.wait_until(lambda: bool(town.api.objects("evictions")))
    await town.clock.sleep(timedelta(minutes=21))
    first, *_ = town.api.objects("evictions")
    assert condition(first, "Failed") == ("True", "NoFurtherResponder")
    assert town.pods(app="web")


# What becomes of requests


async def test_a_request_for_a_pod_that_is_not_there_is_invalid(town: DrainCluster) -> None:
    pod = await one_pod(town)
    pod["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    await create_request(town, pod)
    await town.wait_until(
        lambda: (
            condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "Failed") == ("True", "EvictionInvalid")
        )
    )
    assert town.api.objects("evictions") == []


async def test_a_pod_of_a_group_is_not_evicted(town: DrainCluster) -> None:
    pod = await one_pod(town, schedulingGroup={"podGroupName": "all"})
    await create_request(town, pod)
    await town.wait_until(
        lambda: (
            condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "Failed") == ("True", "EvictionInvalid")
        )
    )
    assert town.pods(app="web")


async def test_an_eviction_goes_on_until_the_last_requester_withdraws(town: DrainCluster) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await create_request(town, pod)
    await create_request(town, pod, requester="acme.io/clerk")
    await town.wait_until(lambda: bool(town.api.objects("evictions")) and MOVER in states(only_eviction(town)))
    withdrawn = merge_patch({"spec": {"intent": "Withdrawn"}})
    await town.client.patch(EVICTION_REQUESTS, "web-00-boss", withdrawn, namespace=SHOP)
    await town.clock.sleep(timedelta(seconds=5))
    assert states(only_eviction(town))[MOVER] == "Active"
    assert {requester["name"]: requester["intent"] for requester in only_eviction(town)["status"]["requesters"]} == {
        "acme.io/boss": "Withdrawn",
        "acme.io/clerk": "Eviction",
    }
    await town.client.delete(EVICTION_REQUESTS, "web-00-clerk", namespace=SHOP)
    await town.wait_until(lambda: condition(only_eviction(town), "Failed") == ("True", "CanceledDueToNoRequesters"))
    assert states(only_eviction(town)) == {MOVER: "Canceled", IMPERATIVE_EVICTOR: "Inactive"}
    assert town.pods(app="web")


async def test_an_intent_that_comes_back_begins_a_new_eviction(town: DrainCluster) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await create_request(town, pod, intent="Withdrawn")
    await town.clock.sleep(timedelta(seconds=5))
    assert town.api.objects("evictions") == []
    for intent, evictions in (("Eviction", 1), ("Withdrawn", 1), ("Eviction", 2)):
        patch = merge_patch({"spec": {"intent": intent}})
        await town.client.patch(EVICTION_REQUESTS, "web-00-boss", patch, namespace=SHOP)
        await town.clock.sleep(timedelta(seconds=5))
        assert len(town.api.objects("evictions")) == evictions


async def test_evictions_are_collected_when_their_requests_are_gone(town: DrainCluster) -> None:
    pod = await one_pod(town)
    await create_request(town, pod)
    await town.wait_until(lambda: not town.pods(app="web"))
    await town.clock.sleep(timedelta(minutes=1))
    assert town.api.objects("evictions")
    await town.client.delete(EVICTION_REQUESTS, "web-00-boss", namespace=SHOP)
    await town.wait_until(lambda: not town.api.objects("evictions"))


async def test_who_has_no_turn_cannot_change_an_eviction_and_what_is_final_stays(town: DrainCluster) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await create_request(town, pod)
    await town.wait_until(lambda: bool(town.api.objects("evictions")) and MOVER in states(only_eviction(town)))
    town.cluster.pause("evictionrequest")
    eviction = only_eviction(town)
    name, status = eviction["metadata"]["name"], eviction["status"]
    entries = [
        item | {"message": "me, too"} if item["name"] == IMPERATIVE_EVICTOR else item for item in status["responders"]
    ]
    both = [item | {"state": "Active"} for item in status["targetResponders"]]
    gone = [item | {"state": "Inactive"} for item in status["targetResponders"]]
    for change, words in (
        ({"responders": entries}, "only allowed by the active responder"),
        ({"targetResponders": both}, "only one responder can be active"),
        ({"targetResponders": gone}, "final state is immutable"),
        ({"targetResponders": status["targetResponders"][:1]}, "must preserve the same keys"),
        ({"observedGeneration": None}, "cannot decrement"),
    ):
        patch = merge_patch({"status": change})
        with pytest.raises(Invalid, match=words):
            await town.client.patch(EVICTIONS, name, patch, namespace=SHOP, subresource="status")
