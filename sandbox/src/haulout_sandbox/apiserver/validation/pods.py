"""Pods: what is wrong with new ones, what may change in one that is there, and what its status may say.

Follows `ValidatePodCreate`, `ValidatePodUpdate` and `ValidatePodStatusUpdate` in `pkg/apis/core/validation` of
Kubernetes 1.36.
"""

from haulout_sandbox.apiserver.fields import forbidden, invalid, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, placement, podspecs, rules
from haulout_sandbox.apiserver.validation.common import IMMUTABLE, Causes, by_rule, enumerated, same
from haulout_sandbox.apiserver.validation.containers import only_for_pod
from haulout_sandbox.apiserver.validation.internal import difference, shown

_MOST_SECONDS = 2**31 - 1
_KINDS = ("containers", "initContainers")
_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_MIRROR = "kubernetes.io/config.mirror"
_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_ADDED_ONLY = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"


def of_new(pod: JsonObject) -> Causes:
    """Return what is wrong with a new pod."""
    spec = pod["spec"]
    causes = _metadata_and_spec(pod)
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        causes.append(forbidden("spec.nodeName", detail))
    return causes


def of_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a pod that is there, or may not be changed in it."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    causes += _metadata_and_spec(new)
    causes += _annotations(new, old)
    spec, before = new["spec"], old["spec"]
    for kind in _KINDS:
        found, stop = _containers(spec.get(kind) or [], before.get(kind) or [], f"spec.{kind}")
        causes += found
        if stop:
            return causes
    found, stop = _deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    causes += found
    if stop:
        return causes
    causes += _tolerations(spec.get("tolerations") or [], before.get("tolerations") or [])
    causes += _gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [])
    return causes + (_elsewhere(spec, before) if spec != before else [])


def of_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a new status."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) + _annotations(new, old)
    status, before = new["status"], old["status"]
    for where, condition in enumerated(status.get("conditions"), "status.conditions"):
        if condition.get("observedGeneration", 0) < 0:
            generation = condition["observedGeneration"]
            causes.append(invalid(f"{where}.observedGeneration", generation, "must be a non-negative integer"))
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            causes += by_rule(f"{where}.Type", kind, rules.qualified_name)
    causes += _nominated(status.get("nominatedNodeName", ""), before.get("nominatedNodeName", ""), old)
    if status.get("observedGeneration", 0) < 0:
        generation = status["observedGeneration"]
        causes.append(invalid("status.observedGeneration", generation, "must be a non-negative integer"))
    quality = status.get("qosClass", "")
    if quality != before.get("qosClass", ""):
        causes.append(invalid("status.qosClass", quality, IMMUTABLE))
    for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        causes += _revived(status.get(name) or [], before.get(name) or [], old["spec"], name)
    return causes + _addresses(status, before)


def _metadata_and_spec(pod: JsonObject) -> Causes:
    meta, spec = pod["metadata"], pod["spec"]
    causes = metadata.of_new(meta, namespaced=True, name_rule=rules.subdomain)
    if "annotations" in meta:
        causes += podspecs.annotations(meta["annotations"], spec, "metadata.annotations")
    causes += podspecs.spec(spec, "spec", pod_name=meta.get("name", ""), of_pod=True)
    if not spec.get("serviceAccountName"):
        causes += _tokens(spec)
    for kind in _KINDS:
        for at, each in enumerate(spec.get(kind) or ()):
            causes += only_for_pod(each, f"spec.{kind}[{at}]")
    return causes


def _tokens(spec: JsonObject) -> Causes:
    detail = "must not be specified when serviceAccountName is not set"
    return [
        forbidden(f"{at}.serviceAccountToken", detail)
        for where, volume in enumerated(spec.get("volumes"), "spec.volumes")
        for at, source in enumerated((volume.get("projected") or {}).get("sources"), f"{where}.projected.sources")
        if "serviceAccountToken" in source
    ]


def _annotations(new: JsonObject, old: JsonObject) -> Causes:
    after, before = (it["metadata"].get("annotations", {}).get(_MIRROR) for it in (new, old))
    causes: Causes = []
    if after != before:
        verb = "add" if before is None else "remove or update"
        causes.append(forbidden(f"metadata.annotations[{_MIRROR}]", f"may not {verb} mirror pod annotation"))
    return causes + podspecs.annotations(new["metadata"].get("annotations") or {}, new["spec"], "metadata.annotations")


def _containers(new: list[JsonObject], old: list[JsonObject], path: str) -> tuple[Causes, bool]:
    if len(new) != len(old):
        return [forbidden(path, "pod updates may not add or remove containers")], True
    causes: Causes = []
    for where, each in enumerated(new, path):
        causes += [] if each.get("image") else [required(f"{where}.image")]
        causes += only_for_pod(each, where)
    return causes, False


def _deadline(new: int | None, old: int | None) -> tuple[Causes, bool]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        detail = "must not update from a positive integer to nil value"
        return ([] if old is None else [invalid(path, None, detail)]), False
    if not 0 <= new <= _MOST_SECONDS:
        return [invalid(path, new, rules.between(0, _MOST_SECONDS))], True
    if old is not None and old < new:
        return [invalid(path, new, "must be less than or equal to previous value")], True
    return [], False


def _tolerations(new: list[JsonObject], old: list[JsonObject]) -> Causes:
    def bare(each: JsonObject) -> JsonObject:
        return {name: value for name, value in each.items() if value and name != "tolerationSeconds"}

    have = [bare(it) for it in new]
    if any(bare(it) not in have for it in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden("spec.tolerations", detail)]
    return placement.tolerations(new, "spec.tolerations")


def _gates(new: list[JsonObject], old: list[JsonObject]) -> Causes:
    known = [it.get("name", "") for it in old]
    return [
        forbidden(f"{where}.name", f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'")
        for where, gate in enumerated(new, "spec.schedulingGates")
        if gate.get("name", "") not in known
    ]


def _elsewhere(spec: JsonObject, before: JsonObject) -> Causes:
    """Return what is changed that nobody may change, once everything that may be is as it was."""
    causes: Causes = []
    munged = _with(spec, before, "activeDeadlineSeconds", "schedulingGates", "tolerations")
    for kind in _KINDS:
        if spec.get(kind):
            pairs = zip(spec[kind], before[kind], strict=True)
            munged[kind] = [each | {"image": was.get("image", "")} for each, was in pairs]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        munged = _with(munged, before, "terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        causes += _gated(munged, before)
        munged = _with(munged, before, "nodeSelector")
        munged = _with_node_affinity(munged, before)
    if not same(munged, before) and shown(munged, "core.PodSpec") != shown(before, "core.PodSpec"):
        change = difference(before, munged, "core.PodSpec")
        detail = f"pod updates may not change fields other than {_CHANGEABLE}\n{change}"
        causes.append(forbidden("spec", detail))
    return causes


def _with(part: JsonObject, before: JsonObject, *names: str) -> JsonObject:
    kept = {name: value for name, value in part.items() if name not in names}
    return kept | {name: before[name] for name in names if name in before}


def _with_node_affinity(munged: JsonObject, before: JsonObject) -> JsonObject:
    affinity = _with(munged.get("affinity") or {}, before.get("affinity") or {}, "nodeAffinity")
    bare = {name: value for name, value in munged.items() if name != "affinity"}
    return bare | ({"affinity": affinity} if affinity or "affinity" in before else {})


def _gated(spec: JsonObject, before: JsonObject) -> Causes:
    """Return what is wrong with narrowing down the nodes of a pod that is not to be scheduled yet."""
    causes: Causes = []
    chosen, had = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    causes += [invalid("spec.nodeSelector", chosen, _ADDED_ONLY) for key in had if chosen.get(key) != had[key]]
    path = "requiredDuringSchedulingIgnoredDuringExecution"
    old = ((before.get("affinity") or {}).get("nodeAffinity") or {}).get(path)
    if old is None:
        return causes
    new = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(path) or {}
    terms, old_terms = new.get("nodeSelectorTerms") or [], old.get("nodeSelectorTerms") or []
    where = f"spec.affinity.nodeAffinity.{path}.nodeSelectorTerms"
    if old_terms and len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [*causes, invalid(where, shown(terms, "[]core.NodeSelectorTerm"), detail)]
    for at, (term, was) in enumerate(zip(terms, old_terms, strict=False)):
        if not _narrows(term, was):
            detail = "only additions are allowed (no mutations or deletions)"
            causes.append(invalid(f"{where}[{at}]", shown(term, "core.NodeSelectorTerm"), detail))
    return causes


def _narrows(term: JsonObject, was: JsonObject) -> bool:
    kinds = ("matchExpressions", "matchFields")
    if not any(was.get(kind) for kind in kinds):
        return not any(term.get(kind) for kind in kinds)
    return all((term.get(kind) or [])[: len(was.get(kind) or [])] == (was.get(kind) or []) for kind in kinds)


# Status


def _nominated(new: str, old: str, pod: JsonObject) -> Causes:
    if not new or new == old:
        return []
    causes = by_rule("status.nominatedNodeName", new, rules.subdomain)
    if pod["spec"].get("nodeName"):
        detail = "may not be set on pods that are already bound to a node"
        causes.append(forbidden("status.nominatedNodeName", detail))
    return causes


def _revived(new: list[JsonObject], old: list[JsonObject], spec: JsonObject, name: str) -> Causes:
    causes: Causes = []
    if name == "ephemeralContainerStatuses":
        found: list[JsonObject] = []
    else:
        found = spec.get("initContainers" if name == "initContainerStatuses" else "containers") or []
    for at, was in enumerate(old):
        end = (was.get("state") or {}).get("terminated")
        if end is None:
            continue
        now = next((it for it in new if it.get("name") == was.get("name")), None)
        if now is None or (now.get("state") or {}).get("terminated") is not None:
            continue
        own = next((it for it in found if it.get("name") == was.get("name")), None)
        if own is None or not _may_restart(own, spec, end.get("exitCode", 0)):
            detail = "may not be transitioned to non-terminated state"
            causes.append(forbidden(f"status.{name}[{at}].state", detail))
    return causes


def _may_restart(container: JsonObject, spec: JsonObject, exit_code: int) -> bool:
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if (exit_code in (codes.get("values") or ())) is (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _addresses(status: JsonObject, before: JsonObject) -> Causes:
    causes: Causes = []
    for name, kind in (("podIPs", "core.PodIP"), ("hostIPs", "core.HostIP")):
        found, path = status.get(name) or [], f"status.{name}"
        if found == before.get(name) and status.get("hostIP") == before.get("hostIP"):
            continue  # what was right is right
        if name == "hostIPs" and found and found[0].get("ip", "") != status.get("hostIP", ""):
            causes.append(invalid(f"{path}[0].ip", found[0].get("ip", ""), "must be equal to `hostIP`"))
        known = [it.get("ip") for it in before.get(name) or ()]
        for where, each in enumerated(found, path):
            causes += [] if each.get("ip") in known else podspecs.address(each.get("ip", ""), where)
        parsed = [address for it in found if (address := rules.address(it.get("ip", "")))]
        if len(found) > 1 and len(parsed) == len(found) and not rules.is_dual([it.version for it in parsed]):
            detail = "may specify no more than one IP for each IP family"
            causes.append(invalid(path, shown(found, f"[]{kind}"), detail))
    return causes
