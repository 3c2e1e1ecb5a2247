"""What the sandbox's API server knows: one row for each kind.

A row says how the real server treats the kind where kinds differ: whether a PUT creates, whether it needs a
resourceVersion, what a delete answers, which fields can be selected. The facts are those of Kubernetes 1.36
(`pkg/registry/*/strategy.go`). A further kind is one more row: `ApiServer.know(Kind(…))`.

A version of a custom resource is a row, too, made from its definition, and has `rules`. All versions of a resource are
stored as one: what lies in the store has one identity, and each version shows it in its own way.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from haulout_sandbox.apiserver import event_versions

JsonObject = dict[str, Any]

_EVENTS_LAST = timedelta(hours=1)
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_META_FIELDS = ("metadata.name", "metadata.namespace")


class Rules(Protocol):
    """What the definition of a custom resource says about one of its versions, now: it follows the definition."""

    is_served: bool

    def shown(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this version."""
        ...

    def stored(self, obj: JsonObject) -> JsonObject:
        """Return an object of this version as it is stored."""
        ...

    def completed(self, obj: JsonObject) -> JsonObject:
        """Return the object with its defaults."""
        ...

    def check(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an object, or a change of it, that is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Storage:
    """How a built-in kind is stored that is shown otherwise, or that shares its objects with another kind."""

    name: str
    shown: Callable[[JsonObject], JsonObject] = field(kw_only=True)
    stored: Callable[[JsonObject], JsonObject] = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where the numbers lie that the scale subresource shows; the selector may be an object or a text."""

    replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ".spec.selector"  # "": there is none


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """One kind of object and how the server treats it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    singular: str = ""  # by default the kind in lower case
    list_kind: str = ""  # by default the kind with List
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()  # as discovery lists them; by default all
    custom: bool = False  # defined by a CRD: list items keep kind and apiVersion
    rules: Rules | None = None  # of a custom resource whose definition is in the store
    storage: Storage | None = None  # of a built-in kind that is not stored as it is shown
    has_status: bool = False
    scale: ScalePaths | None = None  # has the subresource
    initial_status: JsonObject | None = None  # replaces what a POST sends; None keeps that
    counts_generations: bool = False
    put_creates: bool = False
    put_needs_version: bool = False
    graceful: bool = False  # deletion leaves time to terminate
    delete_answers_object: bool = False  # rather than a Status
    orphans: bool = False  # what belongs to it stays when it goes, unless a deletion says otherwise
    collected: bool = True  # knows about what belongs to it at all
    lifetime: timedelta | None = None  # after its last change it goes by itself
    fields: tuple[str, ...] = _META_FIELDS
    field_defaults: JsonObject = field(default_factory=dict)
    sections: tuple[str, ...] = ()  # always present in an answer, if only as {}
    sparse: tuple[str, ...] = ()  # sections that never show an empty value ("": the object itself)
    stored_as: str = field(init=False)  # what the store knows it by, whatever the version

    def __post_init__(self) -> None:
        for name, value in (
            ("stored_as", sys.intern(self.storage.name if self.storage else self.resource)),
            ("singular", self.singular or self.kind.lower()),
            ("list_kind", self.list_kind or f"{self.kind}List"),
        ):
            object.__setattr__(self, name, value)

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the name as errors print it: `leases.coordination.k8s.io`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def key(self, namespace: str, name: str) -> str:
        """Return where an object lies among its kind; keys sort as in etcd."""
        return f"{namespace}/{name}" if self.namespaced else name

    def key_of(self, obj: JsonObject) -> str:
        """Return where `obj` lies among its kind."""
        meta = obj["metadata"]
        return self.key(meta.get("namespace", ""), meta["name"])

    def path(self, key: str) -> str:
        """Return the URL path of the object at `key`."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        if not self.namespaced:
            return f"{root}/{self.plural}/{key}"
        namespace, _, name = key.partition("/")
        return f"{root}/namespaces/{namespace}/{self.plural}/{name}"

    @property
    def is_converted(self) -> bool:
        """Tell whether objects of this kind are stored otherwise than they are shown."""
        return self.rules is not None or self.storage is not None

    def shown(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this kind."""
        view = self.rules or self.storage
        return stored if view is None else view.shown(stored)

    def stored(self, obj: JsonObject) -> JsonObject:
        """Return an object of this kind as it is stored."""
        view = self.rules or self.storage
        return obj if view is None else view.stored(obj)

    def normal(self, obj: JsonObject, *, known: JsonObject | None = None) -> JsonObject:
        """Return `obj` as the server shows it: without nulls and without the empty values its Go type omits.

        It matters to JSON patches: after the last taint is gone, `/spec/taints` is gone too. Of a custom resource only
        the metadata has a Go type. The parts that it shares with the object `known` are so already.
        """
        result = dict(obj) if self.rules is not None else _cleaned(obj, known or {})
        result |= {"apiVersion": self.api_version, "kind": self.kind, "metadata": _metadata(result["metadata"])}
        for section in self.sections:
            result.setdefault(section, {})
        for section in self.sparse:
            if section:
                result[section] = self.normal_section(section, result[section])
            else:
                result = self._without_empty(result)
        return result

    def normal_section(self, name: str, content: JsonObject) -> JsonObject:
        """Return a section, which holds no nulls, as the server shows it."""
        return self._without_empty(content) if name in self.sparse else content

    def _without_empty(self, part: JsonObject) -> JsonObject:
        return {name: value for name, value in part.items() if value or name in self.sections or not _is_empty(value)}


def _cleaned(obj: JsonObject, known: JsonObject) -> JsonObject:
    """Return a new object without nulls; most hold none, which is found out much faster than they are rebuilt."""
    new = {name: _news(part, known.get(name)) for name, part in obj.items() if part is not known.get(name)}
    if b"null" not in msgspec.json.encode(new):
        return dict(obj)
    return {name: without_nulls(part) if name in new else part for name, part in obj.items() if part is not None}


def _news(part: Any, known: Any) -> Any:
    """Return a part without what of it was there before."""
    if not isinstance(part, dict) or not isinstance(known, dict):
        return part
    return {name: value for name, value in part.items() if value is not known.get(name)}


def _metadata(meta: JsonObject) -> JsonObject:
    return {
        name: value
        for name, value in meta.items()
        if value or (name == "deletionGracePeriodSeconds" and value is not None)  # a pointer in Go: its zero is shown
    }


def _is_empty(value: Any) -> bool:
    return value is False or value in ("", [], {})


def without_nulls(value: Any) -> Any:
    """Return a copy of `value` in which nothing is null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


POD = Kind(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    has_status=True,
    initial_status={"phase": "Pending"},
    counts_generations=True,
    graceful=True,
    delete_answers_object=True,
    fields=(*_META_FIELDS, "spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    sections=("spec", "status"),
    sparse=("status",),
)
NODE = Kind(
    group="",
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    has_status=True,
    fields=("metadata.name", "spec.unschedulable"),
    field_defaults={"spec.unschedulable": False},
    sections=("spec", "status"),
    sparse=("spec", "status"),
)
NAMESPACE = Kind(
    group="",
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    has_status=True,
    initial_status={"phase": "Active"},
    delete_answers_object=True,
    fields=("metadata.name", "status.phase"),
    sections=("spec", "status"),
    sparse=("spec", "status"),
)
CONFIG_MAP = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap", short_names=("cm",), sparse=("",))
EVENT = Kind(
    group="",
    version="v1",
    plural="events",
    kind="Event",
    short_names=("ev",),
    put_creates=True,
    fields=(
        *_META_FIELDS,
        *(f"involvedObject.{name}" for name in _REFERENCE),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    collected=False,
    lifetime=_EVENTS_LAST,
    storage=Storage("events", shown=event_versions.old_shown, stored=event_versions.old_stored),
)
NEW_EVENT = Kind(
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    short_names=("ev",),
    put_creates=True,
    fields=(
        *_META_FIELDS,
        *(f"regarding.{name}" for name in _REFERENCE),
        "reason",
        "reportingController",
        "type",
    ),
    collected=False,
    lifetime=_EVENTS_LAST,
    storage=Storage("events", shown=event_versions.new_shown, stored=event_versions.new_stored),
)
LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    put_creates=True,
    put_needs_version=True,
    sections=("spec",),
)
DISRUPTION_BUDGET = Kind(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    has_status=True,
    initial_status={"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    counts_generations=True,
    put_needs_version=True,
    sections=("spec", "status"),
    sparse=("status",),
)
KINDS = (POD, NODE, NAMESPACE, CONFIG_MAP, EVENT, NEW_EVENT, LEASE, DISRUPTION_BUDGET)
