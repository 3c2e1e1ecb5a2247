"""What there is in a cluster and where: a resource's group, version and name, and the type we read it as."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar
from urllib.parse import quote

from haulout.api.objects import Lease, Node, Object, Pod, RawObject, Secret

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of object, by where it is served and as what it is decoded."""

    group: str  # empty for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    model: type[T]

    def __str__(self) -> str:
        """Return `leases.coordination.k8s.io`, as kubectl names it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`group/version`, or only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def with_model(self, model: type[U]) -> "Resource[U]":
        """Return the same resource, decoded as something else."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, model)

    def path(self, name: str = "", *, namespace: str | None = None, subresource: str = "") -> str:
        """Return the path of the collection, of one object or of its subresource.

        A namespaced resource without a namespace is the collection over all of them.
        """
        if not self.namespaced and namespace:
            raise ValueError(f"{self} are not in a namespace, but {namespace!r} was given")
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self} are in a namespace, and none was given for {name!r}")
        path = _collection(self.group, self.version, self.plural, namespace or "")
        if name:
            path += f"/{_quoted(name)}"
        return f"{path}/{_quoted(subresource, safe='/')}" if subresource else path


@lru_cache(maxsize=4_096)  # there are as many as kinds in namespaces
def _collection(group: str, version: str, plural: str, namespace: str) -> str:
    path = f"/apis/{_quoted(group)}" if group else "/api"
    path += f"/{_quoted(version)}"
    if namespace:
        path += f"/namespaces/{_quoted(namespace)}"
    return f"{path}/{_quoted(plural)}"


@lru_cache(maxsize=16_384)  # the same few words again and again, and names that are asked for several times in a row
def _quoted(part: str, safe: str = "") -> str:
    return quote(part, safe=safe)


NODES = Resource("", "v1", "nodes", "Node", namespaced=False, model=Node)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, model=Pod)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False, model=Object)
SECRETS = Resource("", "v1", "secrets", "Secret", namespaced=True, model=Secret)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, model=Lease)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, model=RawObject)
SELF_SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
    model=RawObject,
)
SELF_SUBJECT_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, model=RawObject
)
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False, model=RawObject
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, model=RawObject
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    model=RawObject,
)
