"""The permissions of drains. Add a line here for every new kind of request.

A watch also needs `list`: not every server has streaming lists, and if one does not complete, the reflector falls back
to paged lists.
"""

from collections.abc import Iterator

from haulout.drain.policy import DrainPolicy
from haulout.kube.rbac import Permission

_LIST_WATCH = ("list", "watch")
POD_DELETION = Permission(("delete",), "", "pods", None, "delete pods by policy")


def permissions(policy: DrainPolicy | None = None) -> tuple[Permission, ...]:
    """Return the permissions for drains by `policy`; without one, for any policy that deletes no pods.

    The permissions to cordon nodes are not included. `POD_DELETION` is opt-in: it is the one permission by which a
    drain bypasses PodDisruptionBudgets.
    """
    return tuple(_required(policy))


def _required(policy: DrainPolicy | None) -> Iterator[Permission]:
    yield Permission(_LIST_WATCH, "", "pods", None, "watch pods")
    if policy is None or not policy.disable_eviction:
        yield Permission(("create",), "", "pods/eviction", None, "evict pods")
        yield Permission(("watch",), "policy", "poddisruptionbudgets", None, "watch PodDisruptionBudgets")
    if policy is not None and policy.may_delete:
        yield POD_DELETION
    if policy is None or policy.eviction_requests:
        group = "lifecycle.k8s.io"
        verbs = (*_LIST_WATCH, "create", "patch", "delete")
        yield Permission(verbs, group, "evictionrequests", None, "write EvictionRequests")
        yield Permission(_LIST_WATCH, group, "evictions", None, "watch their progress")
    if policy is None or policy.order.daemon_sets_last or not policy.filters.keep_any_daemonset:
        yield Permission(("get",), "apps", "daemonsets", None, "recognize DaemonSet pods")
    if policy is None or policy.volume_detach_timeout is not None:
        yield Permission(_LIST_WATCH, "storage.k8s.io", "volumeattachments", None, "watch VolumeAttachments")
        yield Permission(("get",), "", "persistentvolumes", None, "find the claims of volumes")
    if policy is None or policy.needs_namespaces:
        yield Permission(("get",), "", "namespaces", None, "read namespace labels")
