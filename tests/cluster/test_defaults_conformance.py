"""What the sandbox adds to new objects, and how it takes updates and deletions of each kind, match the server."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controlplane import ControlPlane
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, JsonObject, Kind
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.builders import samples

SendRequest = Callable[[str, str, Any], tuple[int, Any]]
_SERVER_FIELDS = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "deletionTimestamp")
_IGNORED_FIELDS = {
    "finalizers",  # protection of what is in use: nobody in the sandbox would take them off
    "generation",  # which the sandbox does not give to PriorityClasses
}
# No controller of the sandbox works with these, so it sets none of their defaults.
_WITHOUT_DEFAULTS = {"CronJob", "MutatingWebhookConfiguration", "NetworkPolicy", "Service", "StorageClass"}
_DEPRECATED = "deprecated.daemonset.template.generation"


def _kind(obj: JsonObject) -> Kind:
    return next(
        kind
        for kind in (*CORE_KINDS, *BUILTIN_KINDS)
        if (kind.api_version, kind.kind) == (obj["apiVersion"], obj["kind"])
    )


@pytest.mark.parametrize(
    "group",
    [
        tuple(item for item in group if item["kind"] not in _WITHOUT_DEFAULTS)
        for group in (samples.PODS, samples.WORKLOADS, samples.CONFIGURATION, samples.NETWORK, samples.CLUSTER)
    ],
)
def test_new_objects_have_identical_defaults(
    control_plane: ControlPlane, namespace: str, group: tuple[JsonObject, ...]
) -> None:
    def real(method: str, path: str, body: Any) -> tuple[int, Any]:
        answer = control_plane.request(method, path, body)
        return answer.status, answer.json()

    expected = {_title(item): _run_scenario(real, item, namespace) for item in group}
    assert asyncio.run(_in_memory(group, namespace)) == expected


async def _in_memory(group: tuple[JsonObject, ...], namespace: str) -> dict[str, Any]:
    transport = ApiServer(VirtualClock(), namespaces=[namespace]).transport()

    def send_request(method: str, path: str, body: Any) -> tuple[int, Any]:
        content = None if body is None else msgspec.json.encode(body)
        answer = transport._server.handle(Request(method=method, path=path, body=content), user=transport.user)
        return answer.status, msgspec.json.decode(answer.body)  # type: ignore[union-attr]  # no watch

    return {_title(item): _run_scenario(send_request, item, namespace) for item in group}


def _title(obj: JsonObject) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _run_scenario(send_request: SendRequest, obj: JsonObject, namespace: str) -> list[Any]:
    """Create an object, relabel it without a version, put another that is not there, delete: return all answers."""
    kind = _kind(obj)
    path = kind.path(kind.key(namespace, obj["metadata"]["name"]))
    parent = path.rpartition("/")[0]
    code, made = send_request("POST", parent, obj)
    if code != 201:
        return [code, made]
    changed = copy.deepcopy(made)
    changed["metadata"] |= {"labels": {"new": "label"}, "resourceVersion": ""}
    updated, again = send_request("PUT", path, changed)
    absent = copy.deepcopy(obj)
    absent["metadata"]["name"] = "absent.example.com" if kind.plural == "csidrivers" else "absent"
    put, _ = send_request("PUT", f"{parent}/{absent['metadata']['name']}", absent)
    if put == 201:
        send_request("DELETE", f"{parent}/absent", None)
    # Jobs and ReplicationControllers orphan their pods unless told otherwise, which is somebody else's task here.
    deleted, last = send_request("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    return [_stable_fields(made), updated, _stable_fields(again), put, deleted, last["kind"]]


def _stable_fields(obj: JsonObject) -> JsonObject:
    """Return what does not differ from run to run; the uid also where it is part of something."""
    meta = obj.get("metadata", {})
    if obj["kind"] == "Status":
        return {name: obj.get(name) for name in ("reason", "code")}
    text = msgspec.json.encode(obj).decode().replace(meta["uid"], "UID")
    fields: JsonObject = _without_nulls(msgspec.json.decode(text))
    fields["metadata"] = {
        name: value for name, value in fields["metadata"].items() if name not in {*_SERVER_FIELDS, *_IGNORED_FIELDS}
    }
    if _DEPRECATED in fields["metadata"].get("annotations", {}):
        del fields["metadata"]["annotations"]
    spec = fields.get("spec", {})
    if spec.get("clusterIP") != "None":
        for name in ("clusterIP", "clusterIPs"):
            spec.pop(name, None)
    if obj["kind"] == "Pod" and spec.get("serviceAccountName") == "default":
        for name in ("serviceAccountName", "serviceAccount"):  # the control plane runs without the plugin that adds it
            spec.pop(name)
    for condition in fields.get("status", {}).get("conditions", []):
        condition.pop("lastTransitionTime", None)
    fields.get("status", {}).pop("lastPhaseTransitionTime", None)
    return fields


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
