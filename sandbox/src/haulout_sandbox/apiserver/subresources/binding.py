"""The binding subresource of pods, with which a scheduler assigns a pod to a node.

A pod is bound once; whether the node exists is not checked. As in Kubernetes, the pod gets the zone and region labels
of its node.
"""

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds.kind import NODE, POD, JsonObject
from haulout_sandbox.apiserver.registry.strategy import topology_labels
from haulout_sandbox.apiserver.registry.writer import Target, Writer, check_preconditions


def bind(writer: Writer, target: Target, body: JsonObject) -> JsonObject:
    """Bind the pod to the node that the binding names; return the Status of success."""
    meta, node = body["metadata"], str((body.get("target") or {}).get("name", ""))
    if not node or meta.get("name") != target.name:
        raise status.bad_request("a binding needs a node as its target, and the name of the pod")
    pod = writer.read(target)
    check_preconditions(POD, pod, {"preconditions": meta})
    if problem := _refusal(pod):
        raise status.conflict(POD, target.name, f"pod {target.name} {problem}")
    state = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    bound = pod | {
        "metadata": _bound_metadata(pod["metadata"], meta, topology=topology_labels(writer.store.get(NODE, node))),
        "spec": pod["spec"] | {"nodeName": node},
        "status": state | {"conditions": _scheduled_conditions(state.get("conditions", []), now=writer.now())},
    }
    if not target.dry_run:
        writer.store.write(
            POD, target.key, POD.normalize(bound, previous=pod), username=target.username, verb=target.verb
        )
    return status.success_status(code=201)


def _refusal(pod: JsonObject) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'is already assigned to node "{node}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _bound_metadata(pod: JsonObject, binding: JsonObject, *, topology: JsonObject) -> JsonObject:
    """Return the pod's metadata with those of the binding and the topology labels of the node."""
    metadata = pod | {"generation": pod.get("generation", 0)}
    labels = (binding.get("labels") or {}) | topology
    for name, values in (("labels", labels), ("annotations", binding.get("annotations") or {})):
        if values:
            metadata[name] = pod.get(name, {}) | values
    return metadata


def _scheduled_conditions(conditions: list[JsonObject], *, now: str) -> list[JsonObject]:
    others = [condition for condition in conditions if condition["type"] != "PodScheduled"]
    return [*others, {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]
