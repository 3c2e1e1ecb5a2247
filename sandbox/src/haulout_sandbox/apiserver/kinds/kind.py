"""What the sandbox's API server knows: one row for each kind.

A row says how the real server treats the kind where kinds differ: whether a PUT creates, whether it needs a
resourceVersion, what a delete answers, which fields can be selected. The facts are those of Kubernetes 1.36
(`pkg/registry/*/strategy.go`). A further kind is one more row: `ApiServer.know(Kind(…))`.

A version of a custom resource is a row, too, made from its definition, and has `custom_resource`. All versions of a
resource are stored as one: what lies in the store has one identity, and each version shows it in its own way.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from haulout_sandbox.apiserver.kinds import event_conversion

JsonObject = dict[str, Any]

_EVENT_TTL = timedelta(hours=1)
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_META_FIELDS = ("metadata.name", "metadata.namespace")


class CustomResource(Protocol):
    """What the definition of a custom resource says about one of its versions, now: it follows the definition."""

    is_served: bool

    def from_storage(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this version."""
        ...

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Return an object of this version as it is stored."""
        ...

    def with_defaults(self, obj: JsonObject) -> JsonObject:
        """Return the object with its defaults."""
        ...

    def validate(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an object, or a change of it, that is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class StorageConversion:
    """How a built-in kind is stored that is shown otherwise, or that shares its objects with another kind."""

    name: str
    from_storage: Callable[[JsonObject], JsonObject] = field(kw_only=True)
    to_storage: Callable[[JsonObject], JsonObject] = field(kw_only=True)


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
    is_custom: bool = False  # defined by a CRD: list items keep kind and apiVersion
    custom_resource: CustomResource | None = None  # of a custom resource whose definition is in the store
    storage_conversion: StorageConversion | None = None  # of a built-in kind that is not stored as it is shown
    has_status: bool = False
    scale_paths: ScalePaths | None = None  # has the subresource
    initial_status: JsonObject | None = None  # replaces what a POST sends; None keeps that
    has_generation: bool = False
    allows_create_on_update: bool = False
    requires_version_on_update: bool = False
    has_graceful_deletion: bool = False  # deletion leaves time to terminate
    delete_returns_object: bool = False  # rather than a Status
    orphans_by_default: bool = False  # what belongs to it stays when it goes, unless a deletion says otherwise
    is_garbage_collected: bool = True  # knows about what belongs to it at all
    ttl: timedelta | None = None  # after its last change it goes by itself
    selectable_fields: tuple[str, ...] = _META_FIELDS
    field_defaults: JsonObject = field(default_factory=dict)
    always_present: tuple[str, ...] = ()  # always present in an answer, if only as {}
    omit_empty: tuple[str, ...] = ()  # sections that never show an empty value ("": the object itself)
    stored_as: str = field(init=False)  # what the store knows it by, whatever the version

    def __post_init__(self) -> None:
        for name, value in (
            ("stored_as", sys.intern(self.storage_conversion.name if self.storage_conversion else self.resource)),
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
        return self.custom_resource is not None or self.storage_conversion is not None

    def from_storage(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this kind."""
        conversion = self.custom_resource or self.storage_conversion
        return stored if conversion is None else conversion.from_storage(stored)

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Return an object of this kind as it is stored."""
        conversion = self.custom_resource or self.storage_conversion
        return obj if conversion is None else conversion.to_storage(obj)

    def normalize(self, obj: JsonObject, *, previous: JsonObject | None = None) -> JsonObject:
        """Return `obj` as the server shows it: without nulls and without the empty values its Go type omits.

        It matters to JSON patches: after the last taint is gone, `/spec/taints` is gone too. Of a custom resource only
        the metadata has a Go type. The parts that it shares with the object `previous` are so already.
        """
        result = dict(obj) if self.custom_resource is not None else _without_new_nulls(obj, previous or {})
        result |= {"apiVersion": self.api_version, "kind": self.kind, "metadata": _metadata(result["metadata"])}
        for section in self.always_present:
            result.setdefault(section, {})
        for section in self.omit_empty:
            if section:
                result[section] = self.normalize_section(section, result[section])
            else:
                result = self._without_empty(result)
        return result

    def normalize_section(self, name: str, content: JsonObject) -> JsonObject:
        """Return a section, which holds no nulls, as the server shows it."""
        return self._without_empty(content) if name in self.omit_empty else content

    def _without_empty(self, section: JsonObject) -> JsonObject:
        return {
            name: value
            for name, value in section.items()
            if value or name in self.always_present or not _is_empty(value)
        }


def _without_new_nulls(obj: JsonObject, previous: JsonObject) -> JsonObject:
    """Return a new object without nulls; most hold none, which is found out much faster than they are rebuilt."""
    changed = {
        name: _changed_part(part, previous.get(name)) for name, part in obj.items() if part is not previous.get(name)
    }
    if b"null" not in msgspec.json.encode(changed):
        return dict(obj)
    return {name: without_nulls(part) if name in changed else part for name, part in obj.items() if part is not None}


def _changed_part(part: Any, previous: Any) -> Any:
    """Return a part without what of it was there before."""
    if not isinstance(part, dict) or not isinstance(previous, dict):
        return part
    return {name: value for name, value in part.items() if value is not previous.get(name)}


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
    has_generation=True,
    has_graceful_deletion=True,
    delete_returns_object=True,
    selectable_fields=(*_META_FIELDS, "spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    always_present=("spec", "status"),
    omit_empty=("status",),
)
NODE = Kind(
    group="",
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    has_status=True,
    selectable_fields=("metadata.name", "spec.unschedulable"),
    field_defaults={"spec.unschedulable": False},
    always_present=("spec", "status"),
    omit_empty=("spec", "status"),
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
    delete_returns_object=True,
    selectable_fields=("metadata.name", "status.phase"),
    always_present=("spec", "status"),
    omit_empty=("spec", "status"),
)
CONFIG_MAP = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap", short_names=("cm",), omit_empty=("",))
EVENT = Kind(
    group="",
    version="v1",
    plural="events",
    kind="Event",
    short_names=("ev",),
    allows_create_on_update=True,
    selectable_fields=(
        *_META_FIELDS,
        *(f"involvedObject.{name}" for name in _REFERENCE_FIELDS),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    is_garbage_collected=False,
    ttl=_EVENT_TTL,
    storage_conversion=StorageConversion(
        "events", from_storage=event_conversion.v1_from_storage, to_storage=event_conversion.v1_to_storage
    ),
)
EVENTS_V1_EVENT = Kind(
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    short_names=("ev",),
    allows_create_on_update=True,
    selectable_fields=(
        *_META_FIELDS,
        *(f"regarding.{name}" for name in _REFERENCE_FIELDS),
        "reason",
        "reportingController",
        "type",
    ),
    is_garbage_collected=False,
    ttl=_EVENT_TTL,
    storage_conversion=StorageConversion(
        "events", from_storage=event_conversion.events_v1_from_storage, to_storage=event_conversion.events_v1_to_storage
    ),
)
LEASE = Kind(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    allows_create_on_update=True,
    requires_version_on_update=True,
    always_present=("spec",),
)
POD_DISRUPTION_BUDGET = Kind(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    has_status=True,
    initial_status={"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    has_generation=True,
    requires_version_on_update=True,
    always_present=("spec", "status"),
    omit_empty=("status",),
)
CORE_KINDS = (POD, NODE, NAMESPACE, CONFIG_MAP, EVENT, EVENTS_V1_EVENT, LEASE, POD_DISRUPTION_BUDGET)
