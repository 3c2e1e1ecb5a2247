"""What a deletion is asked to do with what belongs to the object, and what that does to its finalizers.

The API server deletes nothing but the object itself. It only leaves word for the garbage collector: the finalizer
`foregroundDeletion` has the object wait until its dependents are gone, `orphan` until they have forgotten it; without
either it goes at once, and the collector finds the dependents afterwards.

Follows `apiserver/pkg/registry/generic/registry/store.go` and `…/endpoints/handlers/delete.go` of Kubernetes 1.36.
"""

from collections.abc import Sequence

from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def is_dry_run(options: JsonObject) -> bool:
    """Tell whether nothing is to be changed."""
    return bool(options.get("dryRun"))


def finalizers_after(kind: Kind, finalizers: Sequence[str], options: JsonObject) -> list[str]:
    """Return an object's finalizers once its deletion with these options has begun."""
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
