"""Permissions of the Kubernikus controller. Add a line here with each new kind of request.

Every account may get `/version`.
"""

from haulout.budget import cordon_copies
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import permissions as drain
from haulout.kube.rbac import Permission


def permissions(settings: KubernikusSettings, *, namespace: str) -> tuple[Permission, ...]:
    """Return the permissions for these settings; the operator runs in `namespace`."""
    return (
        Permission(("get", "list", "watch", "patch"), "", "nodes", None, "label and cordon nodes"),
        *drain.permissions(settings.policy),
        *cordon_copies.permissions(namespace),
        Permission(("create", "patch"), "events.k8s.io", "events", None, "record events of pods"),
        *_secret(settings),
    )


def _secret(settings: KubernikusSettings) -> tuple[Permission, ...]:
    secret = settings.secret
    if secret is None:
        return ()
    return (Permission(("get",), "", "secrets", secret.namespace, "read credentials", names=(secret.name,)),)
