"""Namespace objects with Pod Security admission labels.

Every Namespace that Haulout creates or prints is built here, with the Pod Security Standard of its pods
(https://kubernetes.io/docs/concepts/security/pod-security-admission/). A namespace that may hold pods of others gets no
labels, because they could prevent those pods from starting.

An installed operator may not create namespaces: RBAC cannot restrict that to names, and the installation creates the
namespaces. `create_missing` is for operators that run with a user's own rights.
"""

from collections.abc import Mapping
from enum import StrEnum

from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES
from haulout.errors import AlreadyExists, Forbidden, NamespaceMissing
from haulout.kube.client import Client

_PREFIX = "pod-security.kubernetes.io"


class PodSecurity(StrEnum):
    """A Pod Security Standard, as the value of a namespace label."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    PRIVILEGED = "privileged"  # required by pods with hostNetwork, such as the agents


def pod_security_labels(level: PodSecurity = PodSecurity.RESTRICTED) -> Mapping[str, str]:
    """Return the labels that enforce a standard, and that set the same standard for audit and warn."""
    return {f"{_PREFIX}/{mode}": str(level) for mode in ("enforce", "audit", "warn")}


def namespace(name: str, level: PodSecurity | None = PodSecurity.RESTRICTED) -> RawObject:
    """Return a Namespace object, labelled with the standard. Without a level it has no labels."""
    labels = {"labels": dict(pod_security_labels(level))} if level else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **labels}}


async def create_missing(client: Client, name: str) -> None:
    """Create a namespace if it does not exist. Raise `NamespaceMissing` if that is forbidden."""
    try:
        await client.create(NAMESPACES, namespace(name))
    except AlreadyExists:
        return
    except Forbidden as error:
        raise NamespaceMissing(name) from error
