"""What drains must be allowed to do. Whoever adds a request there adds its line here.

To follow something takes `list` beside `watch`: not every server has streaming lists, and when one stays without an
end the follower falls back to pages.
"""

from collections.abc import Iterator

from haulout.drain.policy import Policy
from haulout.kube.access import Permission

_FOLLOW = ("list", "watch")
DELETION = Permission(("delete",), "", "pods", None, "delete pods by policy")


def permissions(policy: Policy | None = None) -> tuple[Permission, ...]:
    """Return what drains by a policy need, or by any policy that deletes no pods; beside what cordons nodes.

    `DELETION` is granted to those who ask for it: it is the one right by which a drain passes over a budget.
    """
    return tuple(_needed(policy))


def _needed(policy: Policy | None) -> Iterator[Permission]:
    yield Permission(_FOLLOW, "", "pods", None, "see pods")
    if policy is None or not policy.disable_eviction:
        yield Permission(("create",), "", "pods/eviction", None, "evict pods")
        yield Permission(("watch",), "policy", "poddisruptionbudgets", None, "see when budgets allow more")
    if policy is not None and policy.may_delete:
        yield DELETION
    if policy is None or policy.eviction_requests:
        group = "lifecycle.k8s.io"
        verbs = (*_FOLLOW, "create", "patch", "delete")
        yield Permission(verbs, group, "evictionrequests", None, "ask for evictions")
        yield Permission(_FOLLOW, group, "evictions", None, "see how these go")
    if policy is None or policy.order.daemon_sets_last or not policy.filters.spare_daemonsets:
        yield Permission(("get",), "apps", "daemonsets", None, "tell pods of DaemonSets")
    if policy is None or policy.volume_detach_timeout is not None:
        yield Permission(_FOLLOW, "storage.k8s.io", "volumeattachments", None, "see attached volumes")
        yield Permission(("get",), "", "persistentvolumes", None, "tell whose volumes these are")
    if policy is None or policy.asks_for_namespaces:
        yield Permission(("get",), "", "namespaces", None, "see namespaces")
