"""Permissions of the ESX controller. Add a line here with each new kind of request."""

from haulout.budget import cordon_copies
from haulout.drain import permissions as drain
from haulout.drain.policy import DrainPolicy
from haulout.kube.rbac import Permission


def permissions(policy: DrainPolicy | None = None, *, namespace: str) -> tuple[Permission, ...]:
    """Return the permissions for drains by this policy, or by one that deletes no pods.

    The operator runs in `namespace`.
    """
    return (
        Permission(
            ("get", "list", "watch", "patch"),
            "",
            "nodes",
            None,
            "label nodes with the state of ESX hosts, and cordon them",
        ),
        *drain.permissions(policy or DrainPolicy.like_smc()),
        *cordon_copies.permissions(namespace),
        Permission(("create", "patch"), "events.k8s.io", "events", None, "record events of nodes and pods"),
    )
