"""Namespace lifecycle: no object is created in a missing or terminating namespace, and some namespaces are permanent.

Follows the admission plugin NamespaceLifecycle (`apiserver/pkg/admission/plugin/namespace/lifecycle`) and
`pkg/registry/core/namespace` of Kubernetes 1.36. A namespace has two lists of finalizers: that of its metadata, as
every object, and that of its spec, which only the finalize subresource changes. A delete only marks the namespace,
whatever the options. The namespace controller (`controllers.namespace`) empties it and removes its finalizer from the
spec, which deletes the namespace.
"""

from collections.abc import Callable

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds.kind import NAMESPACE, JsonObject, Kind
from haulout_sandbox.apiserver.registry.deletion import finalizers_after

BOOTSTRAP_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FINALIZE = "finalize"

_UNDELETABLE = ("default", "kube-public", "kube-system")

GetObject = Callable[[Kind, str], JsonObject | None]


def check_active(get: GetObject, kind: Kind, namespace: str, name: str) -> None:
    """Refuse to create an object in a namespace that does not exist or is terminating."""
    obj = get(NAMESPACE, namespace)
    if obj is None:
        raise status.not_found(NAMESPACE, namespace)
    if obj["status"].get("phase") != "Terminating":
        return
    detail = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [cause]}
    message = f'{kind.resource} "{name}" is forbidden: {detail}'
    raise status.StatusError(status.failure_status(403, "Forbidden", message, details))


def check_deletion(namespace: JsonObject) -> None:
    name = namespace["metadata"]["name"]
    if name in _UNDELETABLE:
        message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        raise status.StatusError(
            status.failure_status(403, "Forbidden", message, {"name": name, "kind": NAMESPACE.plural})
        )


def begin_deletion(namespace: JsonObject, options: JsonObject, *, now: str) -> JsonObject | None:
    """Return the terminating namespace, or None if no finalizer of the spec is left."""
    meta = namespace["metadata"]
    if "deletionTimestamp" in meta:
        return namespace if namespace["spec"].get("finalizers") else None
    finalizers = finalizers_after(NAMESPACE, meta.get("finalizers", []), _namespace_delete_options(options))
    metadata = meta | {"deletionTimestamp": now, "finalizers": finalizers}
    new_status = namespace["status"] | {"phase": "Terminating"}
    return NAMESPACE.normalize(namespace | {"metadata": metadata, "status": new_status})


def has_spec_finalizers(namespace: JsonObject) -> bool:
    return bool(namespace.get("spec", {}).get("finalizers"))


def _namespace_delete_options(options: JsonObject) -> JsonObject:
    """Return the options as namespaces read them: `orphanDependents: false` means foreground deletion."""
    if options.get("orphanDependents") is not False:
        return options
    return {"propagationPolicy": "Foreground"}
