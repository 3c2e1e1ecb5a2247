"""The life of namespaces: some are there from the start, none is made by the way, and they go after all they hold.

Follows the admission plugin NamespaceLifecycle (`apiserver/pkg/admission/plugin/namespace/lifecycle`) and
`pkg/registry/core/namespace` of Kubernetes 1.36. A namespace has two lists of finalizers: that of its metadata, as
everything has, and that of its spec, which only the finalize subresource changes. Its deletion only marks it, whatever
the options; who empties it (`controllers.namespaces`) then takes its name off the list of the spec, and it is gone.
"""

from collections.abc import Callable

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.deletion import finalizers_after
from haulout_sandbox.apiserver.kinds import NAMESPACE, JsonObject, Kind

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FINALIZE = "finalize"

_IMMORTAL = ("default", "kube-public", "kube-system")

Find = Callable[[Kind, str], JsonObject | None]


def check_open(find: Find, kind: Kind, namespace: str, name: str) -> None:
    """Refuse to create anything in a namespace that is not there, or is going."""
    found = find(NAMESPACE, namespace)
    if found is None:
        raise status.not_found(NAMESPACE, namespace)
    if found["status"].get("phase") != "Terminating":
        return
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [cause]}
    said = f'{kind.resource} "{name}" is forbidden: {why}'
    raise status.Refused(status.failure(403, "Forbidden", said, details))


def check_deletion(namespace: JsonObject) -> None:
    """Refuse to delete the namespaces that must stay."""
    name = namespace["metadata"]["name"]
    if name in _IMMORTAL:
        said = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        raise status.Refused(status.failure(403, "Forbidden", said, {"name": name, "kind": NAMESPACE.plural}))


def terminating(namespace: JsonObject, options: JsonObject, *, now: str) -> JsonObject | None:
    """Return a namespace whose deletion begins or waits; None once nothing of the spec holds it any more."""
    meta = namespace["metadata"]
    if "deletionTimestamp" in meta:
        return namespace if namespace["spec"].get("finalizers") else None
    finalizers = finalizers_after(NAMESPACE, meta.get("finalizers", []), _as_namespaces_read(options))
    marked = meta | {"deletionTimestamp": now, "finalizers": finalizers}
    status_now = namespace["status"] | {"phase": "Terminating"}
    return NAMESPACE.normal(namespace | {"metadata": marked, "status": status_now})


def is_held(namespace: JsonObject) -> bool:
    """Tell whether a namespace has to stay although nothing of its metadata holds it."""
    return bool(namespace.get("spec", {}).get("finalizers"))


def _as_namespaces_read(options: JsonObject) -> JsonObject:
    """Return the options with the one that means something else for namespaces: not to orphan is to wait."""
    if options.get("orphanDependents") is not False:
        return options
    return {"propagationPolicy": "Foreground"}
