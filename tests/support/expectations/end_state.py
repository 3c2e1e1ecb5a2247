"""The end state of a history: its objects, without values that differ between runs.

Two runs of a test have the same result if they leave the same objects, apart from uids, resource versions, timestamps
and, optionally, generated names. Leases and Events are left out, because they describe the way and not the result.
Names of pods are random.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.storage.store import Write

IGNORED_KINDS = frozenset({"events", "leases", "pods"})

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_COUNTERS = frozenset({"resourceVersion", "generation", "observedGeneration", "managedFields", "uid"})


def end_state(
    history: Sequence[Write],
    *,
    ignored: Collection[str] = IGNORED_KINDS,
    normalize_name: Callable[[str], str] = lambda name: name,
) -> dict[str, Any]:
    """Return the objects that are left, by kind and name; `normalize_name` takes chance out of any text in them."""
    last: dict[tuple[str, str], JsonObject | None] = {}
    for write in history:
        if write.kind.plural not in ignored:
            last[write.kind.plural, write.key] = write.after
    return {
        normalize_name(f"{plural} {key}"): _normalized(obj, normalize_name)
        for (plural, key), obj in sorted(last.items())
        if obj is not None
    }


def _normalized(value: Any, normalize_name: Callable[[str], str]) -> Any:
    match value:
        case dict():
            kept = {name: item for name, item in value.items() if name not in _COUNTERS}
            return {normalize_name(name): _normalized(item, normalize_name) for name, item in kept.items()}
        case list():
            return sorted((_normalized(item, normalize_name) for item in value), key=repr)
        case str():
            return normalize_name(_UID.sub("(uid)", _TIME.sub("(time)", value)))
        case _:
            return value
