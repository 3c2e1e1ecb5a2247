"""Namespace objects, labelled for Pod Security admission.

Every Namespace that Haulout creates or prints comes from here, with the Pod Security Standard of its pods
(https://kubernetes.io/docs/concepts/security/pod-security-admission/). A namespace that may hold pods of others gets no
labels: they could keep these from starting again.

To create namespaces is no right of an installed operator: it cannot be limited to names, and the installation brings
the namespaces. Whoever runs the operator with rights of their own has them created.
"""

from collections.abc import Mapping
from enum import StrEnum

from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES
from haulout.errors import AlreadyExists, Forbidden, NamespaceMissing
from haulout.kube.client import Client

_PREFIX = "pod-security.kubernetes.io"


class PodSecurity(StrEnum):
    """A Pod Security Standard."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    PRIVILEGED = "privileged"  # what pods with hostNetwork need, as agents have it


def pod_security_labels(level: PodSecurity = PodSecurity.RESTRICTED) -> Mapping[str, str]:
    """Return the labels that enforce a standard, and have clients warned and audit logs annotated by the same."""
    return {f"{_PREFIX}/{mode}": str(level) for mode in ("enforce", "audit", "warn")}


def namespace(name: str, level: PodSecurity | None = PodSecurity.RESTRICTED) -> RawObject:
    """Return a Namespace object; without a level it has no labels."""
    labels = {"labels": dict(pod_security_labels(level))} if level else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}}


async def create_missing(client: Client, name: str) -> None:
    """Create a namespace; raises `NamespaceMissing` where that is not permitted."""
    try:
        await client.create(NAMESPACES, namespace(name))
    except AlreadyExists:
        return
    except Forbidden as error:
        raise NamespaceMissing(name) from error
