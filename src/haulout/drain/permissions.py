"""What drains must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.kube.access import Permission

_READ = ("get", "list", "watch")


def permissions() -> tuple[Permission, ...]:
    """Return what drains need, beside what cordons them."""
    return (
        Permission(_READ, "", "pods", None, "see pods"),
        Permission(("create",), "", "pods/eviction", None, "evict pods"),
        Permission(("delete",), "", "pods", None, "delete pods by policy"),
        Permission(
            (*_READ, "create", "patch", "delete"), "lifecycle.k8s.io", "evictionrequests", None, "ask for evictions"
        ),
        Permission(_READ, "lifecycle.k8s.io", "evictions", None, "see how these go"),
        Permission(("get",), "apps", "daemonsets", None, "tell pods of DaemonSets"),
        Permission(_READ, "policy", "poddisruptionbudgets", None, "see disruption budgets"),
    )
