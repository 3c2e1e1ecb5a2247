"""Accessors for the fields of objects that invariants read."""

from collections.abc import Callable
from datetime import UTC, datetime

from haulout_sandbox.apiserver.kinds.kind import NODE, JsonObject
from haulout_sandbox.apiserver.selectors import selection

Predicate = Callable[[JsonObject], bool]

_ENDED = ("Succeeded", "Failed")
_EVICTED = "EvictionByEvictionAPI"


def selector_predicate(labels: str) -> Predicate:
    """Return whether a label selector selects an object; an empty one selects all."""
    return selection(NODE, "", labels=labels).matches


def is_cordoned(node: JsonObject) -> bool:
    """Tell whether a node takes no more pods."""
    return bool(node.get("spec", {}).get("unschedulable"))


def is_down(node: JsonObject) -> bool:
    """Tell whether a node is not ready, or does not say so."""
    return condition(node, "Ready").get("status") != "True"


def condition(obj: JsonObject, kind: str) -> JsonObject:
    """Return a condition of an object; empty if it has none."""
    for candidate in obj.get("status", {}).get("conditions", ()):
        if candidate.get("type") == kind:
            found: JsonObject = candidate
            return found
    return {}


def is_terminating(obj: JsonObject | None) -> bool:
    """Tell whether the deletion of an object has begun."""
    return obj is not None and "deletionTimestamp" in obj["metadata"]


def is_healthy(pod: JsonObject) -> bool:
    """Tell whether a pod counts for a disruption budget."""
    return condition(pod, "Ready").get("status") == "True" and not is_terminating(pod)


def has_ended(pod: JsonObject) -> bool:
    """Tell whether nothing of a pod runs any more."""
    status = pod.get("status", {})
    containers = status.get("containerStatuses", ())
    return status.get("phase") in _ENDED or (
        bool(containers) and all("terminated" in container.get("state", {}) for container in containers)
    )


def was_evicted(pod: JsonObject) -> bool:
    """Tell whether a pod was asked to leave by the eviction API."""
    return condition(pod, "DisruptionTarget").get("reason") == _EVICTED


def controller_of(obj: JsonObject) -> JsonObject | None:
    """Return the reference to the one owner that manages an object."""
    for owner in obj["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            found: JsonObject = owner
            return found
    return None


def parse_instant(text: str) -> datetime:
    """Return the instant that a timestamp of Kubernetes names."""
    return datetime.fromisoformat(text).astimezone(UTC)
