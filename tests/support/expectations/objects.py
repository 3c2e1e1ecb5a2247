"""Reads objects as plain JSON, and the history of a cluster as a sequence of states."""

import json
from collections.abc import Callable, Iterator, Sequence

from haulout.api.objects import RawObject
from haulout.drain.cordon import CORDON_ANNOTATION
from haulout_sandbox.apiserver import Write

Pods = Sequence[RawObject]


def condition_status(obj: RawObject, kind: str) -> tuple[str, str]:
    """Return the status and the reason of a condition of an object, or of its status; empty if there is none."""
    for candidate in obj.get("status", obj).get("conditions") or ():
        if candidate["type"] == kind:
            return candidate["status"], candidate.get("reason", "")
    return "", ""


def is_terminating(obj: RawObject) -> bool:
    """Tell whether its deletion has begun."""
    return "deletionTimestamp" in obj["metadata"]


def is_ready(pod: RawObject) -> bool:
    """Return whether a pod is ready and not terminating."""
    return condition_status(pod, "Ready")[0] == "True" and not is_terminating(pod)


def count_ready_pods(pods: Pods) -> int:
    """Count the ready pods."""
    return sum(is_ready(pod) for pod in pods)


def count_staying_pods(pods: Pods) -> int:
    """Count the pods that are not terminating."""
    return sum(not is_terminating(pod) for pod in pods)


def object_snapshots(
    history: Sequence[Write],
    plural: str,
    *,
    since: int = 0,
    predicate: Callable[[RawObject], bool] = lambda _: True,
) -> Iterator[list[RawObject]]:
    """Yield all objects of a kind for which `where` holds, as they were after each write to one of them."""
    current: dict[str, RawObject] = {}
    for write in history:
        if write.kind.plural != plural:
            continue
        if write.after is not None and predicate(write.after):
            current[write.key] = write.after
        else:
            current.pop(write.key, None)
        if write.revision > since:
            yield list(current.values())


def cordon_owners(node: RawObject) -> list[str]:
    """Return the cordon owners of a node by its cordon annotation; none if the annotation is invalid."""
    try:
        cordon_annotation = json.loads(node["metadata"].get("annotations", {}).get(CORDON_ANNOTATION, "{}"))
    except ValueError:
        return []
    return sorted(cordon_annotation.get("owners", ())) if isinstance(cordon_annotation, dict) else []
