"""The binding subresource of pods in the sandbox's API server: how a scheduler puts a pod on a node.

A pod is bound once and for all; whether the node exists is not looked at. As in Kubernetes the pod gets the labels of
zone and region that its node has.
"""

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.creation import topology
from haulout_sandbox.apiserver.kinds import NODE, POD, JsonObject
from haulout_sandbox.apiserver.writes import Target, Writer, check_preconditions


def bind(writer: Writer, target: Target, body: JsonObject) -> JsonObject:
    """Put the pod on the node that the binding names; return the Status of success."""
    meta, node = body["metadata"], str((body.get("target") or {}).get("name", ""))
    if not node or meta.get("name") != target.name:
        raise status.bad_request("a binding needs a node as its target, and the name of the pod")
    pod = writer.read(target)
    check_preconditions(POD, pod, {"preconditions": meta})
    if problem := _why_not(pod):
        raise status.conflict(POD, target.name, f"pod {target.name} {problem}")
    state = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    bound = pod | {
        "metadata": _marked(pod["metadata"], meta, place=topology(writer.store.get(NODE, node))),
        "spec": pod["spec"] | {"nodeName": node},
        "status": state | {"conditions": _scheduled(state.get("conditions", []), now=writer.now())},
    }
    if not target.dry_run:
        writer.store.write(POD, target.key, POD.normal(bound, known=pod), who=target.who, verb=target.verb)
    return status.success(code=201)


def _why_not(pod: JsonObject) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


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
