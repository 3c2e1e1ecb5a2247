"""Looking at objects as plain JSON, and at a cluster's history as a row of moments."""

import json
from collections.abc import Callable, Iterator, Sequence

from haulout.drain.cordon import MARK
from haulout.kube.objects import RawObject
from haulout_sandbox.apiserver import Write

Pods = Sequence[RawObject]


def condition(obj: RawObject, kind: str) -> tuple[str, str]:
    """Return the status and the reason of a condition of an object, or of its status; empty if there is none."""
    for it in obj.get("status", obj).get("conditions") or ():
        if it["type"] == kind:
            return it["status"], it.get("reason", "")
    return "", ""


def is_leaving(obj: RawObject) -> bool:
    """Tell whether its deletion has begun."""
    return "deletionTimestamp" in obj["metadata"]


def is_ready(pod: RawObject) -> bool:
    """Tell whether a pod serves and was not asked to stop."""
    return condition(pod, "Ready")[0] == "True" and not is_leaving(pod)


def ready_pods(pods: Pods) -> int:
    """Count the pods that serve."""
    return sum(is_ready(pod) for pod in pods)


def staying_pods(pods: Pods) -> int:
    """Count the pods that nobody asked to stop."""
    return sum(not is_leaving(pod) for pod in pods)


def moments(
    history: Sequence[Write],
    plural: str,
    *,
    since: int = 0,
    where: Callable[[RawObject], bool] = lambda _: True,
) -> Iterator[list[RawObject]]:
    """Yield all objects of a kind for which `where` holds, as they were after each write to one of them."""
    there: dict[str, RawObject] = {}
    for write in history:
        if write.kind.plural != plural:
            continue
        if write.after is not None and where(write.after):
            there[write.key] = write.after
        else:
            there.pop(write.key, None)
        if write.revision > since:
            yield list(there.values())


def cordon_owners(node: RawObject) -> list[str]:
    """Return who keeps a node cordoned, by our mark on it; nobody, if somebody has written over that."""
    try:
        mark = json.loads(node["metadata"].get("annotations", {}).get(MARK, "{}"))
    except ValueError:
        return []
    return sorted(mark.get("owners", ())) if isinstance(mark, dict) else []
