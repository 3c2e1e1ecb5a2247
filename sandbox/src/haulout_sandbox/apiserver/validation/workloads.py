"""Deployments, ReplicaSets, StatefulSets, DaemonSets and what else has a template of pods; jobs are in `jobs`.

Follows `pkg/apis/apps/validation` of Kubernetes 1.36.
"""

from haulout_sandbox.apiserver.fields import forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.patches import same_json
from haulout_sandbox.apiserver.validation import metadata, podspecs, rules
from haulout_sandbox.apiserver.validation.claims import claim_spec
from haulout_sandbox.apiserver.validation.common import (
    IMMUTABLE,
    Causes,
    amount,
    at_most,
    at_most_all,
    by_rule,
    enumerated,
    int_or_percent,
    is_empty,
    is_selector,
    label_selector,
    not_negative,
    one_of,
    same,
    selects,
    unchanged,
)
from haulout_sandbox.apiserver.validation.internal import shown

_SELECTOR = "meta.v1.LabelSelector"
_NO_MATCH = "`selector` does not match template `labels`"
_CHANGEABLE_SET = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)
_SET_FORBIDDEN = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def deployment(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Deployment."""
    spec = new["spec"]
    causes = _metadata(new, old)
    causes += not_negative(spec, "spec", "replicas")
    causes += _selected(spec, "deployment")
    causes += _strategy(spec.get("strategy") or {})
    causes += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes + _kept_selector(new, old)


def replica_set(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ReplicaSet."""
    causes = _metadata(new, old)
    causes += not_negative(new["spec"], "spec", "replicas", "minReadySeconds")
    causes += _selected(new["spec"], "deployment")  # that is what the real server calls it
    return causes + _kept_selector(new, old)


def stateful_set(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a StatefulSet."""
    causes = _metadata(new, old, name_rule=rules.dns_label)
    causes += _stateful_spec(new["spec"], is_new=old is None)
    if old is not None:
        kept = {name: value for name, value in new["spec"].items() if name not in _CHANGEABLE_SET}
        before = {name: value for name, value in old["spec"].items() if name not in _CHANGEABLE_SET}
        if not same(_untyped(kept), _untyped(before)):
            causes.append(forbidden("spec", _SET_FORBIDDEN))
    return causes


def _untyped(spec: JsonObject) -> JsonObject:
    """Return the spec with claims that do not say what they are: nobody reads it."""
    claims = spec.get("volumeClaimTemplates") or ()
    bare = [{name: value for name, value in it.items() if name not in ("apiVersion", "kind")} for it in claims]
    return spec | {"volumeClaimTemplates": bare}


def daemon_set(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a DaemonSet."""
    spec = new["spec"]
    selector, template = spec.get("selector"), spec.get("template") or {}
    causes = _metadata(new, old) + _kept_selector(new, old)
    causes += label_selector(selector, "spec.selector")
    own = (template.get("metadata") or {}).get("labels")
    if is_selector(selector) and not selects(selector, own):
        causes.append(invalid("spec.template.metadata.labels", own, _NO_MATCH))
    if selector is not None and is_empty(selector):
        causes.append(_empty_selector(selector, "daemonset"))
    causes += podspecs.template(template, "spec.template") + _lasting(template, "DaemonSet")
    causes += not_negative(spec, "spec", "minReadySeconds")
    causes += _daemon_strategy(spec.get("updateStrategy") or {})
    return causes + not_negative(spec, "spec", "revisionHistoryLimit")


def replication_controller(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ReplicationController."""
    spec = new["spec"]
    selector, template = spec.get("selector") or {}, spec.get("template")
    causes = _metadata(new, old, name_rule=rules.long_name) + not_negative(spec, "spec", "minReadySeconds")
    if not selector:
        causes.append(required("spec.selector"))
    causes += not_negative(spec, "spec", "replicas")
    if template is None:
        causes.append(required("spec.template"))
    else:
        own = (template.get("metadata") or {}).get("labels")
        if selector and not selects({"matchLabels": selector}, own):
            causes.append(invalid("spec.template.metadata.labels", own, _NO_MATCH))
        causes += podspecs.template(template, "spec.template") + _lasting(template, "ReplicationController")
    return causes


def pod_template(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a PodTemplate."""
    return _metadata(new, old) + podspecs.template(new.get("template"), "template")


def revision(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ControllerRevision."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) if old else []
    causes += metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    causes += not_negative(new, "", "revision")
    data = new.get("data")
    if old is not None:
        return causes if same_json(data, old.get("data")) else [*causes, invalid("data", data, IMMUTABLE)]
    if data is None:
        causes.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        causes.append(required("data", "data must be a valid JSON object"))
    return causes


# Status


def deployment_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a Deployment."""
    status, counts = new["status"], ("updatedReplicas", "readyReplicas", "availableReplicas")
    causes = metadata.of_update(new["metadata"], old["metadata"])
    causes += not_negative(status, "status", "observedGeneration", "replicas", *counts, "unavailableReplicas")
    causes += not_negative(status, "status", "terminatingReplicas", "collisionCount")
    causes += at_most(status, "status", "replicas", *counts)
    causes += at_most(status, "status", "readyReplicas", "availableReplicas", said="readyReplicas")
    return causes + _collisions(status, old["status"])


def replica_set_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a ReplicaSet, or of a ReplicationController."""
    status, counts = new["status"], ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
    causes = metadata.of_update(new["metadata"], old["metadata"])
    causes += not_negative(status, "status", "replicas", *counts, "observedGeneration", "terminatingReplicas")
    causes += at_most(status, "status", "replicas", *counts)
    return causes + at_most(status, "status", "readyReplicas", "availableReplicas", said="readyReplicas")


def stateful_set_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a StatefulSet."""
    status = new["status"]
    counts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    causes = not_negative(status, "status", "replicas", *counts, "observedGeneration", "collisionCount")
    causes += at_most(status, "status", "replicas", *counts)
    causes += at_most(status, "status", "readyReplicas", "availableReplicas")
    causes += metadata.of_update(new["metadata"], old["metadata"])
    return causes + _collisions(status, old["status"])


def daemon_set_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a DaemonSet."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    causes += not_negative(
        new["status"],
        "status",
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    )
    return causes + _collisions(new["status"], old["status"])


def _collisions(status: JsonObject, before: JsonObject) -> Causes:
    count = status.get("collisionCount", 0)
    if count >= before.get("collisionCount", count):
        return []
    return [invalid("status.collisionCount", count, "cannot be decremented")]


# Parts


def _metadata(new: JsonObject, old: JsonObject | None, *, name_rule: rules.Rule = rules.subdomain) -> Causes:
    if old is None:
        return metadata.of_new(new["metadata"], namespaced=True, name_rule=name_rule)
    return metadata.of_update(new["metadata"], old["metadata"])


def _kept_selector(new: JsonObject, old: JsonObject | None) -> Causes:
    if old is None:
        return []
    selector = new["spec"].get("selector")
    printed = None if selector is None else shown(selector, _SELECTOR)
    return unchanged("spec.selector", selector, old["spec"].get("selector"), shown=printed)


def _selected(spec: JsonObject, what: str) -> Causes:
    selector, template = spec.get("selector"), spec.get("template") or {}
    causes = _selector(selector, what)
    if not is_selector(selector):
        return [*causes, invalid("spec.selector", shown(selector, _SELECTOR), "invalid label selector")]
    own = (template.get("metadata") or {}).get("labels")
    # No selector at all selects nothing, and an empty one has no labels to match.
    if not (selector is not None and is_empty(selector)) and not selects(selector, own):
        causes.append(invalid("spec.template.metadata.labels", own, _NO_MATCH))
    return causes + podspecs.template(template, "spec.template") + _lasting(template, "ReplicaSet")


def _selector(selector: JsonObject | None, what: str) -> Causes:
    if selector is None:
        return [required("spec.selector")]
    causes = label_selector(selector, "spec.selector")
    return [*causes, _empty_selector(selector, what)] if is_empty(selector) else causes


def _empty_selector(selector: JsonObject, what: str) -> JsonObject:
    return invalid("spec.selector", shown(selector, _SELECTOR), f"empty selector is invalid for {what}")


def _lasting(template: JsonObject, what: str) -> Causes:
    """Return what is wrong with pods that shall run for ever."""
    spec = template.get("spec") or {}
    policy, path = spec.get("restartPolicy", ""), "spec.template.spec"
    causes = [] if policy == "Always" else [not_supported(f"{path}.restartPolicy", policy, ("Always",))]
    if "activeDeadlineSeconds" in spec:
        detail = f"activeDeadlineSeconds in {what} is not Supported"
        causes.append(forbidden(f"{path}.activeDeadlineSeconds", detail))
    return causes


def _strategy(strategy: JsonObject) -> Causes:
    path, rolling = "spec.strategy.rollingUpdate", strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate":
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [] if rolling is None else [forbidden(path, detail)]
    if strategy.get("type") != "RollingUpdate":
        printed = shown(strategy, "apps.DeploymentStrategy")
        return [not_supported("spec.strategy", printed, ("Recreate", "RollingUpdate"))]
    unavailable, surge = (rolling or {}).get("maxUnavailable", 0), (rolling or {}).get("maxSurge", 0)
    causes = int_or_percent(f"{path}.maxUnavailable", unavailable) + int_or_percent(f"{path}.maxSurge", surge)
    if amount(unavailable) == 0 and amount(surge) == 0:
        causes.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes + at_most_all(f"{path}.maxUnavailable", unavailable)


def _daemon_strategy(strategy: JsonObject) -> Causes:
    path = "spec.updateStrategy"
    if strategy.get("type") == "OnDelete":
        return []
    if strategy.get("type") != "RollingUpdate":
        printed = shown(strategy, "apps.DaemonSetUpdateStrategy")
        return [not_supported(path, printed, ("RollingUpdate", "OnDelete"))]
    rolling, where = strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    causes = int_or_percent(f"{where}.maxUnavailable", unavailable) + int_or_percent(f"{where}.maxSurge", surge)
    causes += at_most_all(f"{where}.maxUnavailable", unavailable) + at_most_all(f"{where}.maxSurge", surge)
    if amount(unavailable) and amount(surge):
        causes.append(invalid(f"{where}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not amount(unavailable) and not amount(surge):
        causes.append(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


def _stateful_spec(spec: JsonObject, *, is_new: bool) -> Causes:
    causes = _pod_management(spec.get("podManagementPolicy", ""))
    causes += _stateful_strategy(spec.get("updateStrategy") or {})
    for name, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        causes += one_of(f"spec.persistentVolumeClaimRetentionPolicy.{name}", value, ("Retain", "Delete"))
    for where, claim in enumerated(spec.get("volumeClaimTemplates") if is_new else (), "spec.volumeClaimTemplates"):
        causes += claim_spec(claim.get("spec") or {}, f"{where}.spec")
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    if is_new and spec.get("serviceName"):
        causes += by_rule("spec.serviceName", spec["serviceName"], rules.dns_label)
    selector, template = spec.get("selector"), spec.get("template") or {}
    causes += _selector(selector, "statefulset")
    if not is_selector(selector):
        causes.append(invalid("spec.selector", shown(selector, _SELECTOR), ""))
    else:
        causes += _stateful_template(_with_claims(template, spec), selector)
    return causes + _lasting(template, "StatefulSet")


def _pod_management(policy: str) -> Causes:
    if policy in ("OrderedReady", "Parallel"):
        return []
    return [invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")]


def _stateful_strategy(strategy: JsonObject) -> Causes:
    path, rolling = "spec.updateStrategy", strategy.get("rollingUpdate")
    if strategy.get("type") == "OnDelete":
        if rolling is None:
            return []
        printed = shown(rolling, "apps.RollingUpdateStatefulSetStrategy")
        return [invalid(f"{path}.rollingUpdate", printed, "only allowed for updateStrategy 'RollingUpdate'")]
    if strategy.get("type") != "RollingUpdate":
        printed = shown(strategy, "apps.StatefulSetUpdateStrategy")
        return [invalid(path, printed, "must be 'RollingUpdate' or 'OnDelete'")]
    causes = not_negative(rolling or {}, f"{path}.rollingUpdate", "partition")
    unavailable, where = (rolling or {}).get("maxUnavailable"), f"{path}.rollingUpdate.maxUnavailable"
    if unavailable is None:
        return causes
    causes += int_or_percent(where, unavailable)
    if amount(unavailable) == 0:
        causes.append(invalid(where, unavailable, "cannot be 0"))
    return causes + at_most_all(where, unavailable)


def _with_claims(template: JsonObject, spec: JsonObject) -> JsonObject:
    """Return the template as its pods will be: with volumes for the claims, and without names of hosts."""
    claims = [(it.get("metadata") or {}).get("name", "") for it in spec.get("volumeClaimTemplates") or ()]
    inner = {key: value for key, value in (template.get("spec") or {}).items() if key not in ("subdomain", "hostname")}
    if claims:
        own = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
        inner["volumes"] = own + [it for it in inner.get("volumes") or () if it.get("name") not in claims]
    return template | {"spec": inner}


def _stateful_template(template: JsonObject, selector: JsonObject | None) -> Causes:
    causes: Causes = []
    meta = template.get("metadata") or {}
    if not (selector is not None and is_empty(selector)) and not selects(selector, meta.get("labels")):
        causes.append(invalid("spec.template.metadata.labels", meta.get("labels"), _NO_MATCH))
    causes += podspecs.template(template, "spec.template")
    return causes + podspecs.template_metadata(meta, template["spec"], "spec.template")
