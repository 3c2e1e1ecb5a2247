"""The sandbox's API server binds pods, and reads quantities, as the real one does."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from controlplane import ControlPlane
from haulout.core.quantity import Quantity, parse
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.event_loops.virtual_time import VirtualClock

SendRequest = Callable[[str, str, Any], tuple[int, Any]]
ZONE = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "label"}
VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "deletionTimestamp")


def test_pod_is_bound_once(control_plane: ControlPlane, namespace: str) -> None:
    def real(method: str, path: str, body: Any) -> tuple[int, Any]:
        answer = control_plane.request(method, path, body)
        return answer.status, answer.json()

    real_responses = _run_bindings(real, namespace=namespace, node=f"{namespace}-n1")
    assert real_responses == asyncio.run(_in_memory(namespace=namespace, node=f"{namespace}-n1"))


async def _in_memory(*, namespace: str, node: str) -> list[Any]:
    cluster = ApiServer(VirtualClock(), namespaces=[namespace])
    transport = cluster.transport()

    def send_request(method: str, path: str, body: Any) -> tuple[int, Any]:
        content = None if body is None else msgspec.json.encode(body)
        answer = transport._server.handle(Request(method=method, path=path, body=content), user=transport.user)
        return answer.status, msgspec.json.decode(answer.body)  # type: ignore[union-attr]  # no watch

    return _run_bindings(send_request, namespace=namespace, node=node)


def _run_bindings(send_request: SendRequest, *, namespace: str, node: str) -> list[Any]:
    """Bind pods in all valid and invalid ways; return all responses."""
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def pod(name: str, **spec: Any) -> str:
        containers = {"containers": [{"name": "main", "image": "main"}]}
        status, made = send_request("POST", pods, {"metadata": {"name": name}, "spec": containers | spec})
        assert status == 201, made
        uid: str = made["metadata"]["uid"]
        return uid

    def bind(name: str, to: Any = None, url: str = "", **meta: Any) -> Any:
        target = {"kind": "Node", "name": node} if to is None else to
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **meta}, "target": target}
        code, response = send_request("POST", f"{pods}/{url or name}/binding", body)
        return code, response.get("reason")

    def pod_fields(name: str) -> Any:
        _, found = send_request("GET", f"{pods}/{name}", None)
        meta, spec, status = found["metadata"], found["spec"], found["status"]
        conditions = [
            {k: v for k, v in condition.items() if "Time" not in k} for condition in status.get("conditions", [])
        ]
        kept = {key: value for key, value in meta.items() if key not in VOLATILE}
        return kept, spec.get("nodeName"), status["phase"], conditions

    send_request("POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": ZONE}})
    uid = pod("a")
    wrong = "00000000-0000-0000-0000-000000000000"
    responses = [
        ("no pod", bind("nobody")),
        ("another uid", bind("a", uid=wrong)),
        ("another name", bind("a", url="b")),
        ("bound", bind("a", uid=uid, annotations={"by": "us"}), pod_fields("a")),
        ("bound already", bind("a")),
    ]
    pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    responses.append(("gated", bind("gated")))
    pod("c")
    responses.append(("to a node that is not there", bind("c", to={"name": "nowhere"}), pod_fields("c")))
    send_request("DELETE", f"/api/v1/nodes/{node}", None)
    return responses


def test_quantities_are_formatted_like_the_server(control_plane: ControlPlane, namespace: str) -> None:
    plain = "0 100m 0.1 1.5Gi 1024Mi 0.5Ki 2000 1000m 129e6 0.0000000001 .5 1234567890123456789 3Ei 9Ei 1.0001Ki"
    texts = [*plain.split(), "1e-9", "12k", "7Pi", "0.25Ti", "1000Ki", "8Ki", "1024e3", "0e5", "123456789n", "1000000u"]
    containers = [
        {"name": f"c{number}", "image": "c", "resources": {"requests": {"memory": text}}}
        for number, text in enumerate(texts)
    ]
    pod = {"metadata": {"name": "quantities"}, "spec": {"containers": containers}}
    answer = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    assert answer.status == 201, answer.body
    formatted = [container["resources"]["requests"]["memory"] for container in answer.json()["spec"]["containers"]]
    # What a pod asks for is rounded up to thousandths when it is defaulted.
    wanted = [Quantity(parse(text).milli * 10**6, parse(text).format) for text in texts]
    assert formatted == [str(quantity) for quantity in wanted]
