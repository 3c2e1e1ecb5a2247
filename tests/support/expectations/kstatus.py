"""The status of an object for tools that use kstatus: Flux, `helm install --wait`, and others.

    assert kstatus(obj) == "InProgress"

The rules are those that the README of pkg/kstatus (sigs.k8s.io/cli-utils) documents for kinds without special rules. An
object without any status counts as `Current`.
"""

from haulout.api.objects import RawObject

CURRENT, IN_PROGRESS, FAILED, TERMINATING = "Current", "InProgress", "Failed", "Terminating"


def kstatus(obj: RawObject) -> str:
    """Return the status of an object."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return TERMINATING
    observed = status.get("observedGeneration")
    if observed is not None and "generation" in metadata and observed != metadata["generation"]:
        return IN_PROGRESS
    conditions = [(condition["type"], condition["status"]) for condition in status.get("conditions", ())]
    for each in conditions:  # the first of them decides
        if each == ("Reconciling", "True"):
            return IN_PROGRESS
        if each == ("Stalled", "True"):
            return FAILED
    ready = dict(conditions).get("Ready")
    return IN_PROGRESS if ready in ("False", "Unknown") else CURRENT
