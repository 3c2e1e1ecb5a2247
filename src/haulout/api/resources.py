"""Resources: group, version and name of an API resource, and the type as which it is decoded.

`load_crd` loads a CustomResourceDefinition that a package contains as a YAML file.
"""

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from haulout.api.objects import Lease, Node, Object, Pod, RawObject, Secret

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T_co]):
    """An API resource, with its path and its model."""

    group: str  # empty for the core group
    version: str
    plural: str
    kind: str
    namespaced: bool
    model: type[T_co]

    def __str__(self) -> str:
        """Return the name that kubectl and RBAC messages use: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """`group/version`, or only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def with_model(self, model: type[U]) -> "Resource[U]":
        """Return the same resource, decoded as another type."""
        return Resource(self.group, self.version, self.plural, self.kind, self.namespaced, model)

    def path(self, name: str = "", *, namespace: str | None = None, subresource: str = "") -> str:
        """Return the path of the collection, of one object or of its subresource.

        Without a namespace, the path of a namespaced resource is that of the collection over all namespaces. Raise
        `ValueError` if `namespace` does not fit the scope of the resource.
        """
        if not self.namespaced and namespace:
            raise ValueError(f"{self} are cluster-scoped, but namespace {namespace!r} was given")
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self} are namespaced, but no namespace was given for {name!r}")
        path = _collection(self.group, self.version, self.plural, namespace or "")
        if name:
            path += f"/{_quoted(name)}"
        return f"{path}/{_quoted(subresource, safe='/')}" if subresource else path


@lru_cache(maxsize=4_096)  # one entry for each kind in each namespace
def _collection(group: str, version: str, plural: str, namespace: str) -> str:
    path = f"/apis/{_quoted(group)}" if group else "/api"
    path += f"/{_quoted(version)}"
    if namespace:
        path += f"/namespaces/{_quoted(namespace)}"
    return f"{path}/{_quoted(plural)}"


@lru_cache(maxsize=16_384)  # few distinct words, and names that are often requested several times in a row
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


def load_crd(package: str, file: str) -> RawObject:
    """Return the only CustomResourceDefinition in a file of a package."""
    (found,) = load_crds(package, file)
    return found


def load_crds(package: str, file: str) -> list[RawObject]:
    """Return the CustomResourceDefinitions in a file of a package.

    Each call returns new objects, which may be modified.
    """
    found: list[RawObject] = msgspec.json.decode(_json(package, file))
    return found


@cache
def _json(package: str, file: str) -> bytes:
    import yaml  # slow to import, and most processes load no definitions

    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return msgspec.json.encode(list(yaml.safe_load_all(text)))
