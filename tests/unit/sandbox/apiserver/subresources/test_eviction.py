"""What the sandbox's API server promises: to guard pods by their disruption budgets as Kubernetes 1.36 does."""

from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Transport
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.apiserver.requests import PODS, a_pdb, a_pod, an_eviction, request_json, send


async def evict(api: Transport, **options: Any) -> tuple[int, Any]:
    return await request_json(api, "POST", f"{PODS}/cart-0/eviction", an_eviction(**options))


async def test_a_pod_without_a_budget_is_evicted(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(selector={"matchLabels": {"app": "other"}}))
    elsewhere = a_pdb()
    elsewhere["metadata"]["namespace"] = "other"
    cluster.put(elsewhere)
    assert await evict(api) == (
        201,
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
    )
    pod = cluster.get("pods", "cart-0", "shop")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20
    assert pod["status"]["conditions"][-1] == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": "2026-01-05T09:00:00Z",
    }


async def test_an_eviction_takes_one_of_the_disruptions_allowed(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(disruptionsAllowed=1))
    assert (await evict(api))[0] == 201
    status = cluster.get("poddisruptionbudgets", "cart", "shop")["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {"cart-0": "2026-01-05T09:00:00Z"}
    assert (status["conditions"][0]["type"], status["conditions"][0]["status"]) == ("DisruptionAllowed", "False")
    assert [(write.verb, write.kind.plural) for write in cluster.history[2:]] == [
        ("evict", "poddisruptionbudgets"),
        ("evict", "pods"),
        ("evict", "pods"),
    ]


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({}, "The disruption budget cart needs 1 healthy pods and has 1 currently"),
        ({"currentHealthy": 3}, "The disruption budget cart does not allow evicting pods currently"),
        (
            {"conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "oh"}]},
            "The disruption budget cart does not allow evicting pods currently because it failed sync: oh",
        ),
        (
            {
                "currentHealthy": 3,
                "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "Other", "message": "oh"}],
            },
            "The disruption budget cart does not allow evicting pods currently (Other): oh",
        ),
    ],
)
async def test_a_budget_without_allowed_disruptions_refuses_with_its_reason(
    cluster: ApiServer, api: InProcessTransport, status: JsonObject, cause: str
) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(**status))
    answer = await send(api, "POST", f"{PODS}/cart-0/eviction", an_eviction())
    refusal = msgspec.json.decode(answer.body)
    assert (answer.status, refusal["reason"]) == (429, "TooManyRequests")
    assert refusal["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refusal["details"] == {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    assert "retry-after" not in answer.headers
    assert "deletionTimestamp" not in cluster.get("pods", "cart-0", "shop")["metadata"]


async def test_a_budget_not_yet_looked_at_asks_to_come_back(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    budget = a_pdb(disruptionsAllowed=1, observedGeneration=1)
    budget["metadata"]["generation"] = 2
    cluster.put(budget)
    answer = await send(api, "POST", f"{PODS}/cart-0/eviction", an_eviction())
    assert (answer.status, answer.headers["retry-after"]) == (429, "10")
    assert b"The disruption budget cart is still being processed by the server." in answer.body


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"disruptionsAllowed": -1}, "pdb disruptions allowed is negative"),
        (
            {"disruptionsAllowed": 1, "disruptedPods": {f"p{n}": "t" for n in range(2001)}},
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ),
    ],
)
async def test_a_budget_out_of_order_forbids(
    cluster: ApiServer, api: InProcessTransport, status: JsonObject, why: str
) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(**status))
    code, refusal = await evict(api)
    assert (code, refusal["message"]) == (403, f'poddisruptionbudget.policy "cart" is forbidden: {why}')


async def test_two_budgets_for_one_pod_are_an_error_of_the_server(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb("one", disruptionsAllowed=1))
    cluster.put(a_pdb("all", disruptionsAllowed=1, selector={}))
    code, refusal = await evict(api)
    assert code == 500
    assert refusal["message"].startswith("This pod has more than one PodDisruptionBudget")
    assert "reason" not in refusal


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        ({}, 429),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["cart", "till"]}]}, 429),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["cart"]}]}, 201),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, 429),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, 201),
    ],
)
async def test_a_budget_selects_by_labels_and_expressions(
    cluster: ApiServer, api: InProcessTransport, selector: JsonObject, code: int
) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(selector=selector))
    assert (await evict(api))[0] == code


async def test_a_budget_without_a_selector_selects_nothing(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    budget = a_pdb()
    del budget["spec"]["selector"]
    cluster.put(budget)
    assert (await evict(api))[0] == 201


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "code"),
    [
        ("AlwaysAllow", 0, 1, 201),
        ("", 1, 1, 201),
        ("IfHealthyBudget", 0, 1, 429),
        ("", 0, 0, 429),
    ],
)
async def test_a_pod_that_is_not_ready_may_go_uncharged(
    cluster: ApiServer, api: InProcessTransport, policy: str, healthy: int, desired: int, code: int
) -> None:
    cluster.put(a_pod(ready=False))
    cluster.put(a_pdb(policy=policy, currentHealthy=healthy, desiredHealthy=desired))
    assert (await evict(api))[0] == code
    assert "disruptedPods" not in cluster.get("poddisruptionbudgets", "cart", "shop")["status"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_no_budget_protects_a_pod_that_does_not_run(
    cluster: ApiServer, api: InProcessTransport, phase: str
) -> None:
    cluster.put(a_pod(phase=phase))
    cluster.put(a_pdb())
    assert (await evict(api))[0] == 201


async def test_an_eviction_of_another_pod_of_that_name_conflicts_but_the_budget_is_charged(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_pod())
    cluster.put(a_pdb(disruptionsAllowed=2))
    code, refusal = await evict(api, preconditions={"uid": "old"})
    assert (code, refusal["reason"]) == (409, "Conflict")
    assert refusal["message"].startswith(
        'Operation cannot be fulfilled on pods "cart-0": the UID in the precondition (old)'
    )
    assert cluster.get("poddisruptionbudgets", "cart", "shop")["status"]["disruptionsAllowed"] == 1


async def test_a_conflict_about_a_pending_pod_is_retried_for_ten_seconds(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    cluster.put(a_pod(phase="Pending"))
    assert (await evict(api, preconditions={"uid": "old"}))[0] == 409
    assert clock.monotonic() == pytest.approx(9.5, abs=0.1)
    assert (await evict(api, preconditions={"resourceVersion": "1"}))[0] == 409
    assert clock.monotonic() == pytest.approx(9.5, abs=0.1)


async def test_a_conflict_about_a_pod_that_is_not_ready_asks_to_come_back(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_pod(ready=False))
    cluster.put(a_pdb())
    code, refusal = await evict(api, preconditions={"uid": "old"})
    assert (code, refusal["details"]["retryAfterSeconds"]) == (429, 10)


async def test_an_eviction_names_the_pod_of_its_path(cluster: ApiServer, api: InProcessTransport) -> None:
    assert (await evict(api))[0] == 404
    cluster.put(a_pod())
    assert (await request_json(api, "POST", f"{PODS}/cart-0/eviction", an_eviction("cart-1")))[0] == 400
    assert (await request_json(api, "GET", f"{PODS}/cart-0/eviction"))[0] == 405
