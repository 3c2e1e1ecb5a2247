"""Propagation policy: how DeleteOptions change the finalizers of an object.

The API server deletes only the object itself and leaves the dependents to the garbage collector. With the finalizer
`foregroundDeletion` the object waits until its dependents are deleted, with `orphan` until they no longer refer to it.
Without either it is deleted at once, and the collector finds the dependents afterwards.

Follows `apiserver/pkg/registry/generic/registry/store.go` and `…/endpoints/handlers/delete.go` of Kubernetes 1.36.
"""

from collections.abc import Sequence

from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def is_dry_run(options: JsonObject) -> bool:
    return bool(options.get("dryRun"))


def finalizers_after(kind: Kind, finalizers: Sequence[str], options: JsonObject) -> list[str]:
    """Return an object's finalizers after the start of its deletion with these options."""
    if not kind.is_garbage_collected:
        added = None
    elif (orphan := options.get("orphanDependents")) is not None:
        added = ORPHAN if orphan else None
    elif policy := options.get("propagationPolicy"):
        added = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(policy)
    else:
        existing = next((name for name in finalizers if name in (ORPHAN, FOREGROUND)), None)
        added = existing or (ORPHAN if kind.orphans_by_default else None)
    if added in finalizers and len({ORPHAN, FOREGROUND} & set(finalizers)) == 1:
        return list(finalizers)
    others = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    return [*others, added] if added else others
