"""Logs of pods that run nothing, and why nobody gets into them."""

from typing import Any

import pytest

from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.apiserver.requests import PODS, a_pod, request_json, send

STARTED = "2026-01-05T09:00:00Z"
ENDED = "2026-01-05T09:10:00Z"
RUNNING = {"running": {"startedAt": STARTED}}
TERMINATED = {"terminated": {"startedAt": STARTED, "finishedAt": ENDED, "exitCode": 3, "reason": "Error"}}


def a_started_pod(state: JsonObject, **more: Any) -> JsonObject:
    pod = a_pod()
    pod["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state, **more}]
    return pod


async def log(api: InProcessTransport, **query: str) -> str:
    answer = await send(api, "GET", f"{PODS}/cart-0/log", **query)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/plain"
    return answer.body.decode()


async def test_a_log_shows_when_the_container_started(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_started_pod(RUNNING))
    assert await log(api) == f"container main started at {STARTED}; in the sandbox it runs nothing\n"
    assert (await log(api, timestamps="true")).startswith(f"{STARTED} container main")
    assert await log(api, tailLines="0") == ""


async def test_a_log_shows_how_the_container_ended(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_started_pod(TERMINATED))
    assert (await log(api)).splitlines()[1] == "container main ended: Error, exit code 3"


async def test_a_container_that_was_started_again_has_two_logs(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_started_pod({"running": {"startedAt": ENDED}}, lastState=TERMINATED, restartCount=1))
    assert f"container main started again, restart 1 at {ENDED}" in await log(api)
    assert (await log(api, previous="true")).startswith(f"container main started at {STARTED}")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, 'container "main" in pod "cart-0" is waiting to start: ContainerCreating'),
        ({"previous": "true"}, 'previous terminated container "main" in pod "cart-0" not found'),
        ({"container": "none"}, "container none is not valid for pod cart-0"),
    ],
)
async def test_a_log_that_is_not_there_is_refused(
    cluster: ApiServer, api: InProcessTransport, query: dict[str, str], message: str
) -> None:
    cluster.put(a_started_pod({"waiting": {"reason": "ContainerCreating"}}))
    status, refused = await request_json(api, "GET", f"{PODS}/cart-0/log", **query)
    assert (status, refused["message"]) == (400, message)


async def test_a_pod_without_a_node_has_an_empty_log(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod(node=""))
    assert (await send(api, "GET", f"{PODS}/cart-0/log")).status == 204


@pytest.mark.parametrize("way", ["exec", "attach", "portforward"])
async def test_exec_attach_and_portforward_are_refused_with_the_reason(
    cluster: ApiServer, api: InProcessTransport, way: str
) -> None:
    cluster.put(a_started_pod(RUNNING))
    status, refused = await request_json(api, "POST", f"{PODS}/cart-0/{way}")
    assert status == 400
    assert refused["message"].endswith("pod cart-0: the pods of the sandbox run nothing")
