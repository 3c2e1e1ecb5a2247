"""The binding subresource of pods in the sandbox's API server: how a scheduler puts a pod on a node.

Follows `pkg/registry/core/pod/storage/storage.go` of Kubernetes 1.36, and the admission plugin that copies a node's
zone and region to the labels of its pods. A pod is bound once and for all; whether the node exists is not looked at.
"""

import copy

from haulout.sandbox.apiserver import status
from haulout.sandbox.apiserver.kinds import NODE, POD, JsonObject
from haulout.sandbox.apiserver.status import Refused
from haulout.sandbox.apiserver.writes import Target, Writer

_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def bind(writer: Writer, target: Target, body: JsonObject) -> JsonObject:
    """Put the pod on the node that the binding names; return the Status of success."""
    meta, node = body["metadata"], _node_of(body)
    if meta.get("name") != target.name:
        raise status.bad_request("name in URL does not match name in Binding object")
    pod = writer.read(target)
    _check_preconditions(target, pod, meta)
    if problem := _why_not(pod):
        raise _conflict(target, f"pod {target.name} {problem}")
    bound = copy.deepcopy(pod)
    bound["spec"]["nodeName"] = node
    bound["status"].pop("nominatedNodeName", None)
    labels = (meta.get("labels") or {}) | _topology(writer, node)
    for name, values in (("labels", labels), ("annotations", meta.get("annotations") or {})):
        if values:
            bound["metadata"][name] = bound["metadata"].get(name, {}) | values
    bound["metadata"]["generation"] = pod["metadata"].get("generation", 0)
    _mark_scheduled(bound["status"], now=writer.now())
    if not target.dry_run:
        writer.store.write(POD, target.key, POD.normal(bound), who=target.who, verb=target.verb)
    return status.success(code=201)


def _node_of(body: JsonObject) -> str:
    wanted = body.get("target") or {}
    problems = []
    if wanted.get("kind") and wanted["kind"] != "Node":
        problems.append(f'target.kind: Unsupported value: "{wanted["kind"]}": supported values: "Node", "<empty>"')
    if not wanted.get("name"):
        problems.append("target.name: Required value")
    if problems:
        # The server does not make a proper answer of these: they come out as an internal error.
        raise Refused(status.failure(500, "", problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"))
    name: str = wanted["name"]
    return name


def _check_preconditions(target: Target, pod: JsonObject, meta: JsonObject) -> None:
    found = pod["metadata"]
    if meta.get("uid") and meta["uid"] != found["uid"]:
        raise status.uid_conflict(POD, target.key, wanted=meta["uid"], found=found["uid"])
    wanted = meta.get("resourceVersion")
    if wanted and wanted != found["resourceVersion"]:
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{target.key}, ResourceVersion: 0, "
            f"AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: {wanted}, "
            f"ResourceVersion in object meta: {found['resourceVersion']}"
        )
        raise status.conflict(POD, target.name, why)


def _why_not(pod: JsonObject) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _conflict(target: Target, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on pods/binding "{target.name}": {why}'
    return Refused(status.failure(409, "Conflict", message, {"name": target.name, "kind": "pods/binding"}))


def _topology(writer: Writer, node: str) -> JsonObject:
    found = writer.store.get(NODE, node) or {"metadata": {}}
    labels = found["metadata"].get("labels", {})
    return {name: labels[name] for name in _TOPOLOGY if name in labels}


def _mark_scheduled(state: JsonObject, *, now: str) -> None:
    others = [it for it in state.get("conditions", []) if it["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    state["conditions"] = [*others, scheduled]
