"""What drains must be allowed to do. Whoever adds a request there adds its line here.

To follow something takes `list` beside `watch`: not every server has streaming lists, and when one stays without an
end the follower falls back to pages.
"""

from collections.abc import Iterator

from haulout.drain.policy import DrainPolicy
from haulout.kube.rbac import Permission

_LIST_WATCH = ("list", "watch")
POD_DELETION = Permission(("delete",), "", "pods", None, "delete pods by policy")


def permissions(policy: DrainPolicy | None = None) -> tuple[Permission, ...]:
    """Return what drains by a policy need, or by any policy that deletes no pods; beside what cordons nodes.

    `POD_DELETION` is granted to those who ask for it: it is the one right by which a drain passes over a budget.
    """
    return tuple(_required(policy))


def _required(policy: DrainPolicy | None) -> Iterator[Permission]:
    yield Permission(_LIST_WATCH, "", "pods", None, "see pods")
    if policy is None or not policy.disable_eviction:
        yield Permission(("create",), "", "pods/eviction", None, "evict pods")
        yield Permission(("watch",), "policy", "poddisruptionbudgets", None, "see when budgets allow more")
    if policy is not None and policy.may_delete:
        yield POD_DELETION
    if policy is None or policy.eviction_requests:
        group = "lifecycle.k8s.io"
        verbs = (*_LIST_WATCH, "create", "patch", "delete")
        yield Permission(verbs, group, "evictionrequests", None, "ask for evictions")
        yield Permission(_LIST_WATCH, group, "evictions", None, "see how these go")
    if policy is None or policy.order.daemon_sets_last or not policy.filters.keep_any_daemonset:
        yield Permission(("get",), "apps", "daemonsets", None, "tell pods of DaemonSets")
    if policy is None or policy.volume_detach_timeout is not None:
        yield Permission(_LIST_WATCH, "storage.k8s.io", "volumeattachments", None, "see attached volumes")
        yield Permission(("get",), "", "persistentvolumes", None, "tell whose volumes these are")
    if policy is None or policy.needs_namespaces:
        yield Permission(("get",), "", "namespaces", None, "see namespaces")
