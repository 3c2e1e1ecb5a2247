"""The eviction subresource of pods in the sandbox's API server.

Follows `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36, whose order can surprise: the budget is charged
before the uid precondition is looked at, and is not paid back when that fails. `disruptionsAllowed` is taken from the
budget's status as it stands: no disruption controller runs here.
"""

import copy
from datetime import timedelta

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds import DISRUPTION_BUDGET, JsonObject
from haulout_sandbox.apiserver.options import check_deletion
from haulout_sandbox.apiserver.selectors import structured
from haulout_sandbox.apiserver.status import NotYet, Refused
from haulout_sandbox.apiserver.writes import Target, Writer, check_preconditions

_REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
_ATTEMPTS = 20
_BETWEEN_ATTEMPTS = timedelta(milliseconds=500)
_MOST_UNCONFIRMED = 2000


def evict(writer: Writer, target: Target, body: JsonObject, *, attempt: int) -> JsonObject:
    """Evict the pod if its budget allows it; return the Status of success."""
    if body["metadata"].get("name") != target.name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    pinned = "resourceVersion" in (options.get("preconditions") or {})
    pod = writer.read(target)
    if _needs_no_budget(pod):
        try:
            _mark_and_delete(writer, target, options)
        except Refused as refused:
            if refused.status["reason"] == "Conflict" and not pinned and attempt + 1 < _ATTEMPTS:
                raise NotYet(_BETWEEN_ATTEMPTS) from None
            raise
        return status.success(code=201)
    budget = _budget_of(writer, pod)
    charges = budget is not None and not _is_unhealthy_and_free(pod, budget)
    if budget is not None and charges:
        _charge(writer, target, budget)
    try:
        _mark_and_delete(writer, target, options)
    except Refused as refused:
        if refused.status["reason"] == "Conflict" and budget is not None and not charges and not pinned:
            raise _still_processed(budget) from None
        raise
    return status.success(code=201)


def _needs_no_budget(pod: JsonObject) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _budget_of(writer: Writer, pod: JsonObject) -> JsonObject | None:
    meta = pod["metadata"]
    budgets = [
        budget
        for budget in writer.store.at(DISRUPTION_BUDGET, writer.store.revision).values()
        if budget["metadata"]["namespace"] == meta["namespace"]
        and structured(budget["spec"].get("selector"))(meta.get("labels", {}))
    ]
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Refused(status.failure(500, "", message))
    return budgets[0] if budgets else None


def _is_unhealthy_and_free(pod: JsonObject, budget: JsonObject) -> bool:
    """Tell whether the pod is not ready, and the budget lets such pods go without being charged."""
    conditions = pod["status"].get("conditions", [])
    if any(it["type"] == "Ready" and it["status"] == "True" for it in conditions):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy, desired = _counts(budget)
    return healthy >= desired > 0


def _counts(budget: JsonObject) -> tuple[int, int]:
    return budget["status"].get("currentHealthy", 0), budget["status"].get("desiredHealthy", 0)


def _charge(writer: Writer, target: Target, budget: JsonObject) -> None:
    """Take one of the disruptions allowed, or refuse."""
    meta, state = budget["metadata"], budget["status"]
    allowed = state.get("disruptionsAllowed", 0)
    if state.get("observedGeneration", 0) < meta.get("generation", 0):
        raise _still_processed(budget)
    if allowed < 0:
        raise _forbidden(budget, "pdb disruptions allowed is negative")
    if len(state.get("disruptedPods", {})) > _MOST_UNCONFIRMED:
        raise _forbidden(budget, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
    if allowed == 0:
        raise status.too_many_requests(_REFUSAL, cause=_why_none(budget), retry_after=0)
    if target.dry_run:
        return
    new = copy.deepcopy(budget)
    new["status"]["disruptionsAllowed"] = allowed - 1
    new["status"].setdefault("disruptedPods", {})[target.name] = writer.now()
    if allowed == 1:
        condition = {"status": "False", "reason": "InsufficientPods", "message": ""}
        condition["observedGeneration"] = state.get("observedGeneration", 0)
        _set_condition(new["status"], "DisruptionAllowed", condition, now=writer.now())
    writer.store.write(DISRUPTION_BUDGET, DISRUPTION_BUDGET.key_of(new), new, who=target.who, verb=target.verb)


def _why_none(budget: JsonObject) -> str:
    name = budget["metadata"]["name"]
    healthy, desired = _counts(budget)
    conditions = [it for it in budget["status"].get("conditions", []) if it["type"] == "DisruptionAllowed"]
    told = next((it for it in conditions if it["status"] == "False" and it.get("message")), None)
    nothing = f"The disruption budget {name} does not allow evicting pods currently"
    if told and told["reason"] == "SyncFailed":
        return f"{nothing} because it failed sync: {told['message']}"
    if healthy <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
    return f"{nothing} ({told['reason']}): {told['message']}" if told else nothing


def _still_processed(budget: JsonObject) -> Refused:
    cause = f"The disruption budget {budget['metadata']['name']} is still being processed by the server."
    return status.too_many_requests(_REFUSAL, cause=cause, retry_after=10)


def _forbidden(budget: JsonObject, why: str) -> Refused:
    return status.forbidden("policy", "poddisruptionbudget", budget["metadata"]["name"], why)


def _mark_and_delete(writer: Writer, target: Target, options: JsonObject) -> None:
    """Write the DisruptionTarget condition, then delete; preconditions hold for the pod as it was before."""
    pod = writer.read(target)
    check_preconditions(target.kind, pod, options)
    check_deletion(options)
    options = {name: value for name, value in options.items() if name != "preconditions"}
    if not target.dry_run:
        marked = copy.deepcopy(pod)
        condition = {"status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        _set_condition(marked["status"], "DisruptionTarget", condition, now=writer.now())
        writer.store.write(target.kind, target.key, marked, who=target.who, verb=target.verb)
    writer.delete(target, options)


def _set_condition(state: JsonObject, kind: str, condition: JsonObject, *, now: str) -> None:
    others = [it for it in state.get("conditions", []) if it["type"] != kind]
    state["conditions"] = [*others, {"type": kind, **condition, "lastTransitionTime": now}]
