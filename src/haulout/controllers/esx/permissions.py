"""What the integration must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.budget import cordon_copies
from haulout.drain import permissions as drain
from haulout.drain.policy import DrainPolicy
from haulout.kube.rbac import Permission


def permissions(policy: DrainPolicy | None = None, *, namespace: str) -> tuple[Permission, ...]:
    """Return what is needed where nodes are drained by this policy, or by any that deletes no pods.

    The operator lives in `namespace`.
    """
    return (
        Permission(("get", "list", "watch", "patch"), "", "nodes", None, "tell of ESX hosts, and take nodes"),
        *drain.permissions(policy or DrainPolicy.like_smc()),
        *cordon_copies.permissions(namespace),
        Permission(("create", "patch"), "events.k8s.io", "events", None, "tell of nodes and of evicted pods"),
    )
