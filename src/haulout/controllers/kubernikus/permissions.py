"""What seeing to nodes of Kubernikus must be allowed to do. Whoever adds a request there adds its line here.

Every account may ask for `/version`.
"""

from haulout.budget import cordon_copies
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import permissions as drain
from haulout.kube.rbac import Permission


def permissions(settings: KubernikusSettings, *, namespace: str) -> tuple[Permission, ...]:
    """Return what is needed by these settings; the operator lives in `namespace`."""
    return (
        Permission(("get", "list", "watch", "patch"), "", "nodes", None, "label and cordon nodes"),
        *drain.permissions(settings.policy),
        *cordon_copies.permissions(namespace),
        Permission(("create", "patch"), "events.k8s.io", "events", None, "tell of evicted pods"),
        *_secret(settings),
    )


def _secret(settings: KubernikusSettings) -> tuple[Permission, ...]:
    secret = settings.secret
    if secret is None:
        return ()
    return (Permission(("get",), "", "secrets", secret.namespace, "read credentials", names=(secret.name,)),)
