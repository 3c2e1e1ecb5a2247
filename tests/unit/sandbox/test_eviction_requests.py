"""EvictionRequests in the sandbox: what is refused, who has the turn, and what becomes of requests and Evictions."""

from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.lifecycle import EVICTION_REQUESTS, EVICTIONS
from haulout.kube.objects import EvictionResponder, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import PODS
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.lifecycle_kinds import EVICTION_REQUEST_API, definitions
from haulout_sandbox.controllers.evictions import responders_of
from haulout_sandbox.controllers.objects import Pod, PodSpec
from support.draining import SHOP, Town, a_budget, a_pod, a_town
from support.responders import MOVER, Responder, a_request, responders

EVICTOR = "imperative-eviction.k8s.io/evictor"


@pytest.fixture
async def town(clock: Clock) -> AsyncIterator[Town]:
    async with a_town(clock, "n1", features=[EVICTION_REQUEST_API]) as town:
        yield town


async def one_pod(town: Town, **spec: Any) -> RawObject:
    await town.run_pods("web", 1, on="n1", **spec)
    return town.pods(app="web")[0]


async def ask(town: Town, pod: RawObject, **more: str) -> None:
    await town.client.create(EVICTION_REQUESTS, a_request(pod, **more), namespace=SHOP)


def condition(thing: RawObject, kind: str) -> tuple[str, str]:
    found = next(it for it in thing.get("status", {}).get("conditions", [{"type": kind}]) if it["type"] == kind)
    return found.get("status", ""), found.get("reason", "")


def only_eviction(town: Town) -> RawObject:
    (found,) = town.api.objects("evictions")
    return found


def states(eviction: RawObject) -> dict[str, str]:
    return {it["name"]: it["state"] for it in eviction.get("status", {}).get("targetResponders", [])}


# What is served


async def test_without_the_feature_nothing_is_served(clock: Clock) -> None:
    client = Client(ApiServer(clock).transport(), clock=clock, random=Random(0))
    assert not await serves(client, EVICTION_REQUESTS, EVICTIONS)
    with pytest.raises(NotFound):
        await client.list(EVICTION_REQUESTS)


async def test_with_the_feature_both_kinds_are_served_and_no_definition_shows(town: Town) -> None:
    assert await serves(town.client, EVICTION_REQUESTS, EVICTIONS)
    assert town.api.objects("customresourcedefinitions") == []


async def test_the_field_of_pods_is_there_only_with_the_feature(town: Town, clock: Clock) -> None:
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
async def test_a_request_that_makes_no_sense_is_refused(town: Town, change: RawObject, field: str) -> None:
    request = a_request(await one_pod(town))
    request["spec"] |= change
    with pytest.raises(Invalid) as refused:
        await town.client.create(EVICTION_REQUESTS, request, namespace=SHOP)
    assert refused.value.causes[0].field == field


async def test_only_the_intent_of_a_request_can_be_changed(town: Town) -> None:
    pod = await one_pod(town)
    await ask(town, pod)
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
    request = a_request(api.put(a_pod("web-0")))
    request["spec"]["requesterName"] = request["spec"].pop("requester")
    await client.create(EVICTION_REQUESTS, request, namespace=SHOP)


# Whose turn it is


@pytest.mark.parametrize(
    ("declared", "order"),
    [
        ([], [EVICTOR]),
        ([("acme.io/a", 10_000)], ["acme.io/a", EVICTOR]),
        ([("acme.io/a", 1_000), ("acme.io/b", 2_000)], ["acme.io/b", "acme.io/a", EVICTOR]),
        ([("z.acme.io/a", 5_000), ("a.zoo.io/a", 5_000)], ["z.acme.io/a", "a.zoo.io/a", EVICTOR]),
        ([("low.k8s.io/a", 50)], [EVICTOR, "low.k8s.io/a"]),
    ],
)
def test_the_highest_priority_has_the_first_turn(declared: list[tuple[str, int]], order: list[str]) -> None:
    pod = Pod(spec=PodSpec(eviction_responders=tuple(EvictionResponder(name=it, priority=at) for it, at in declared)))
    assert [it.name for it in responders_of(pod)] == order


async def test_a_pod_without_responders_is_evicted_by_the_last(town: Town) -> None:
    pod = await one_pod(town, stop=3)
    await ask(town, pod)
    await town.until(lambda: not town.pods(app="web"))
    await town.until(
        lambda: condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "TargetEvicted")[0] == "True"
    )
    eviction = only_eviction(town)
    assert condition(eviction, "TargetEvicted") == ("True", "PodDeleted")
    assert states(eviction) == {EVICTOR: "Completed"}
    assert eviction["metadata"]["labels"] == {"acme.io/boss": "requester", EVICTOR: "responder"}
    assert town.api.get("evictionrequests", "web-00-boss", SHOP)["status"]["observedGeneration"] == 1


async def test_a_responder_that_reports_has_all_the_time_it_needs(town: Town) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    town.cluster.host(Responder(town.cluster.client("mover"), takes=timedelta(hours=2)).run(), name="mover")
    await ask(town, pod)
    took = await town.until(lambda: not town.pods(app="web"), within=timedelta(hours=3))
    assert took > timedelta(hours=2).total_seconds()
    await town.until(lambda: condition(only_eviction(town), "TargetEvicted")[0] == "True")
    assert states(only_eviction(town)) == {MOVER: "Completed", EVICTOR: "Inactive"}


async def test_a_silent_responder_loses_its_turn_after_twenty_minutes(town: Town) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000, helper=5_000))
    town.cluster.host(Responder(town.cluster.client("helper"), "acme.io/helper").run(), name="helper")
    await ask(town, pod)
    took = await town.until(lambda: not town.pods(app="web"), within=timedelta(hours=1))
    assert 20 * 60 < took < 25 * 60
    await town.until(lambda: condition(only_eviction(town), "TargetEvicted")[0] == "True")
    assert states(only_eviction(town)) == {MOVER: "Interrupted", "acme.io/helper": "Completed", EVICTOR: "Inactive"}


async def test_the_last_responder_respects_budgets_and_says_what_stands_in_the_way(town: Town) -> None:
    town.put(a_budget("web", app="web", minAvailable=1))
    pod = await one_pod(town)
    await ask(town, pod)
    await town.clock.sleep(timedelta(seconds=2))
    assert "The disruption budget web needs 1 healthy pods" in only_eviction(town)["status"]["responders"][0]["message"]
    await town.clock.sleep(timedelta(hours=2))
    assert town.pods(app="web")
    assert states(only_eviction(town)) == {EVICTOR: "Active"}
    town.api.remove("poddisruptionbudgets", "web", SHOP)
    await town.until(lambda: not town.pods(app="web"), within=timedelta(minutes=17))


async def test_without_the_last_responder_a_request_fails_when_all_had_their_turn(town: Town) -> None:
    pod = await one_pod(town)
    town.cluster.pause("imperative-evictor")
    await ask(town, pod)
    await town.until(lambda: bool(town.api.objects("evictions")))
    await town.clock.sleep(timedelta(minutes=21))
    first, *_ = town.api.objects("evictions")
    assert condition(first, "Failed") == ("True", "NoFurtherResponder")
    assert town.pods(app="web")


# What becomes of requests


async def test_a_request_for_a_pod_that_is_not_there_is_invalid(town: Town) -> None:
    pod = await one_pod(town)
    pod["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    await ask(town, pod)
    await town.until(
        lambda: (
            condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "Failed") == ("True", "EvictionInvalid")
        )
    )
    assert town.api.objects("evictions") == []


async def test_a_pod_of_a_group_is_not_evicted(town: Town) -> None:
    pod = await one_pod(town, schedulingGroup={"podGroupName": "all"})
    await ask(town, pod)
    await town.until(
        lambda: (
            condition(town.api.get("evictionrequests", "web-00-boss", SHOP), "Failed") == ("True", "EvictionInvalid")
        )
    )
    assert town.pods(app="web")


async def test_an_eviction_goes_on_until_the_last_requester_withdraws(town: Town) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await ask(town, pod)
    await ask(town, pod, requester="acme.io/clerk")
    await town.until(lambda: bool(town.api.objects("evictions")) and MOVER in states(only_eviction(town)))
    withdrawn = merge_patch({"spec": {"intent": "Withdrawn"}})
    await town.client.patch(EVICTION_REQUESTS, "web-00-boss", withdrawn, namespace=SHOP)
    await town.clock.sleep(timedelta(seconds=5))
    assert states(only_eviction(town))[MOVER] == "Active"
    assert {it["name"]: it["intent"] for it in only_eviction(town)["status"]["requesters"]} == {
        "acme.io/boss": "Withdrawn",
        "acme.io/clerk": "Eviction",
    }
    await town.client.delete(EVICTION_REQUESTS, "web-00-clerk", namespace=SHOP)
    await town.until(lambda: condition(only_eviction(town), "Failed") == ("True", "CanceledDueToNoRequesters"))
    assert states(only_eviction(town)) == {MOVER: "Canceled", EVICTOR: "Inactive"}
    assert town.pods(app="web")


async def test_an_intent_that_comes_back_begins_a_new_eviction(town: Town) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await ask(town, pod, intent="Withdrawn")
    await town.clock.sleep(timedelta(seconds=5))
    assert town.api.objects("evictions") == []
    for intent, evictions in (("Eviction", 1), ("Withdrawn", 1), ("Eviction", 2)):
        patch = merge_patch({"spec": {"intent": intent}})
        await town.client.patch(EVICTION_REQUESTS, "web-00-boss", patch, namespace=SHOP)
        await town.clock.sleep(timedelta(seconds=5))
        assert len(town.api.objects("evictions")) == evictions


async def test_evictions_are_collected_when_their_requests_are_gone(town: Town) -> None:
    pod = await one_pod(town)
    await ask(town, pod)
    await town.until(lambda: not town.pods(app="web"))
    await town.clock.sleep(timedelta(minutes=1))
    assert town.api.objects("evictions")
    await town.client.delete(EVICTION_REQUESTS, "web-00-boss", namespace=SHOP)
    await town.until(lambda: not town.api.objects("evictions"))


async def test_who_has_no_turn_cannot_change_an_eviction_and_what_is_final_stays(town: Town) -> None:
    pod = await one_pod(town, evictionResponders=responders(mover=10_000))
    await ask(town, pod)
    await town.until(lambda: bool(town.api.objects("evictions")) and MOVER in states(only_eviction(town)))
    town.cluster.pause("evictionrequest")
    eviction = only_eviction(town)
    name, status = eviction["metadata"]["name"], eviction["status"]
    entries = [it | {"message": "me, too"} if it["name"] == EVICTOR else it for it in status["responders"]]
    both = [it | {"state": "Active"} for it in status["targetResponders"]]
    gone = [it | {"state": "Inactive"} for it in status["targetResponders"]]
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
