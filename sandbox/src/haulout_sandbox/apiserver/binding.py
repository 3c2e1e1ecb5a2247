"""The binding subresource of pods in the sandbox's API server: how a scheduler puts a pod on a node.

Follows `pkg/registry/core/pod/storage/storage.go` of Kubernetes 1.36, and the admission plugin that copies a node's
zone and region to the labels of its pods. A pod is bound once and for all; whether the node exists is not looked at.
"""

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.creation import topology
from haulout_sandbox.apiserver.kinds import NODE, POD, JsonObject
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.writes import Target, Writer


def bind(writer: Writer, target: Target, body: JsonObject) -> JsonObject:
    """Put the pod on the node that the binding names; return the Status of success."""
    meta, node = body["metadata"], _node_of(body)
    if meta.get("name") != target.name:
        raise status.bad_request("name in URL does not match name in Binding object")
    pod = writer.read(target)
    _check_preconditions(target, pod, meta)
    if problem := _why_not(pod):
        raise _conflict(target, f"pod {target.name} {problem}")
    state = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    bound = pod | {
        "metadata": _marked(pod["metadata"], meta, place=topology(writer.store.get(NODE, node))),
        "spec": pod["spec"] | {"nodeName": node},
        "status": state | {"conditions": _scheduled(state.get("conditions", []), now=writer.now())},
    }
    if not target.dry_run:
        writer.store.write(POD, target.key, POD.normal(bound, known=pod), who=target.who, verb=target.verb)
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
        raise status.uid_conflict(POD, target.name, wanted=meta["uid"], found=found["uid"])
    wanted = meta.get("resourceVersion")
    if wanted and wanted != found["resourceVersion"]:
        raise status.conflict(POD, target.name, status.MODIFIED_MEANWHILE)


def _why_not(pod: JsonObject) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _conflict(target: Target, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on pods/binding "{target.name}": {why}'
    return Refused(status.failure(409, "Conflict", message, {"name": target.name, "kind": "pods/binding"}))


def _marked(pod: JsonObject, binding: JsonObject, *, place: JsonObject) -> JsonObject:
    """Return the metadata of a pod with what its binding says, and with the place of its node."""
    marked = pod | {"generation": pod.get("generation", 0)}
    labels = (binding.get("labels") or {}) | place
    for name, values in (("labels", labels), ("annotations", binding.get("annotations") or {})):
        if values:
            marked[name] = pod.get(name, {}) | values
    return marked


def _scheduled(conditions: list[JsonObject], *, now: str) -> list[JsonObject]:
    others = [it for it in conditions if it["type"] != "PodScheduled"]
    return [*others, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
