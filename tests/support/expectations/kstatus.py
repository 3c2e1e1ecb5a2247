"""How tools that go by kstatus see an object: Flux, `helm install --wait`, and whoever else has the library.

    assert kstatus(obj) == "InProgress"

The rules are those that the README of pkg/kstatus (sigs.k8s.io/cli-utils) documents, for kinds that the library does
not know. An object that says nothing at all counts as `Current`.
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
