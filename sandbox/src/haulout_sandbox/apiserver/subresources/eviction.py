"""The eviction subresource of pods.

Follows `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36, whose order can surprise: it charges the
PodDisruptionBudget before it checks the uid precondition, and does not refund it when that check fails.
`disruptionsAllowed` is read from the status of the PodDisruptionBudget, which the disruption controller maintains
elsewhere.
"""

import copy
from datetime import timedelta

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.handlers.request_options import check_delete_options
from haulout_sandbox.apiserver.kinds.kind import POD_DISRUPTION_BUDGET, JsonObject
from haulout_sandbox.apiserver.registry.writer import Target, Writer, check_preconditions
from haulout_sandbox.apiserver.selectors import from_label_selector
from haulout_sandbox.apiserver.status import RetryLater, StatusError

_DENIAL = "Cannot evict pod as it would violate the pod's disruption budget."
_MAX_ATTEMPTS = 20
_RETRY_INTERVAL = timedelta(milliseconds=500)
_MAX_DISRUPTED_PODS = 2000


def evict(writer: Writer, target: Target, body: JsonObject, *, attempt: int) -> JsonObject:
    """Evict the pod if its PodDisruptionBudget allows it; return the Status of success."""
    if body["metadata"].get("name") != target.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    is_version_pinned = "resourceVersion" in (options.get("preconditions") or {})
    pod = writer.read(target)
    if _can_ignore_pdb(pod):
        try:
            _add_condition_and_delete(writer, target, options)
        except StatusError as error:
            if error.status["reason"] == "Conflict" and not is_version_pinned and attempt + 1 < _MAX_ATTEMPTS:
                raise RetryLater(_RETRY_INTERVAL) from None
            raise
        return status.success_status(code=201)
    pdb = _pdb_of(writer, pod)
    is_charged = pdb is not None and not _is_unhealthy_and_exempt(pod, pdb)
    if pdb is not None and is_charged:
        _check_and_decrement(writer, target, pdb)
    try:
        _add_condition_and_delete(writer, target, options)
    except StatusError as error:
        if error.status["reason"] == "Conflict" and pdb is not None and not is_charged and not is_version_pinned:
            raise _still_being_processed(pdb) from None
        raise
    return status.success_status(code=201)


def _can_ignore_pdb(pod: JsonObject) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _pdb_of(writer: Writer, pod: JsonObject) -> JsonObject | None:
    meta = pod["metadata"]
    pdbs = [
        pdb
        for pdb in writer.store.objects_at(POD_DISRUPTION_BUDGET, writer.store.revision).values()
        if pdb["metadata"]["namespace"] == meta["namespace"]
        and from_label_selector(pdb["spec"].get("selector"))(meta.get("labels", {}))
    ]
    if len(pdbs) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(status.failure_status(500, "", message))
    return pdbs[0] if pdbs else None


def _is_unhealthy_and_exempt(pod: JsonObject, pdb: JsonObject) -> bool:
    """Return whether the pod is not ready and the budget lets such pods be evicted without being charged."""
    conditions = pod["status"].get("conditions", [])
    if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
        return False
    if pdb["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = _healthy_counts(pdb)
    return healthy >= desired > 0


def _healthy_counts(pdb: JsonObject) -> tuple[int, int]:
    return pdb["status"].get("currentHealthy", 0), pdb["status"].get("desiredHealthy", 0)


def _check_and_decrement(writer: Writer, target: Target, pdb: JsonObject) -> None:
    """Decrement `disruptionsAllowed`, or refuse."""
    meta, pdb_status = pdb["metadata"], pdb["status"]
    allowed = pdb_status.get("disruptionsAllowed", 0)
    if pdb_status.get("observedGeneration", 0) < meta.get("generation", 0):
        raise _still_being_processed(pdb)
    if allowed < 0:
        raise _forbidden(pdb, "pdb disruptions allowed is negative")
    if len(pdb_status.get("disruptedPods", {})) > _MAX_DISRUPTED_PODS:
        raise _forbidden(pdb, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
    if allowed == 0:
        raise status.too_many_requests(_DENIAL, cause=_denial_cause(pdb), retry_after=0)
    if target.dry_run:
        return
    updated = copy.deepcopy(pdb)
    updated["status"]["disruptionsAllowed"] = allowed - 1
    updated["status"].setdefault("disruptedPods", {})[target.name] = writer.now()
    if allowed == 1:
        condition = {"status": "False", "reason": "InsufficientPods", "message": ""}
        condition["observedGeneration"] = pdb_status.get("observedGeneration", 0)
        _set_condition(updated["status"], "DisruptionAllowed", condition, now=writer.now())
    writer.store.write(
        POD_DISRUPTION_BUDGET,
        POD_DISRUPTION_BUDGET.key_of(updated),
        updated,
        username=target.username,
        verb=target.verb,
    )


def _denial_cause(pdb: JsonObject) -> str:
    name = pdb["metadata"]["name"]
    healthy, desired = _healthy_counts(pdb)
    conditions = [
        candidate for candidate in pdb["status"].get("conditions", []) if candidate["type"] == "DisruptionAllowed"
    ]
    condition = next(
        (candidate for candidate in conditions if candidate["status"] == "False" and candidate.get("message")), None
    )
    denial = f"The disruption budget {name} does not allow evicting pods currently"
    if condition and condition["reason"] == "SyncFailed":
        return f"{denial} because it failed sync: {condition['message']}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{denial} ({condition['reason']}): {condition['message']}" if condition else denial


def _still_being_processed(pdb: JsonObject) -> StatusError:
    cause = f"The disruption budget {pdb['metadata']['name']} is still being processed by the server."
    return status.too_many_requests(_DENIAL, cause=cause, retry_after=10)


def _forbidden(pdb: JsonObject, detail: str) -> StatusError:
    return status.forbidden("policy", "poddisruptionbudget", pdb["metadata"]["name"], detail)


def _add_condition_and_delete(writer: Writer, target: Target, options: JsonObject) -> None:
    """Set the DisruptionTarget condition, then delete; preconditions apply to the pod before the condition."""
    pod = writer.read(target)
    check_preconditions(target.kind, pod, options)
    check_delete_options(options)
    options = {name: value for name, value in options.items() if name != "preconditions"}
    if not target.dry_run:
        updated = copy.deepcopy(pod)
        condition = {"status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        _set_condition(updated["status"], "DisruptionTarget", condition, now=writer.now())
        writer.store.write(target.kind, target.key, updated, username=target.username, verb=target.verb)
    writer.delete(target, options)


def _set_condition(target_status: JsonObject, condition_type: str, condition: JsonObject, *, now: str) -> None:
    other_conditions = [other for other in target_status.get("conditions", []) if other["type"] != condition_type]
    target_status["conditions"] = [*other_conditions, {"type": condition_type, **condition, "lastTransitionTime": now}]
