"""`Kind`: how the API server treats each kind of object, and the kinds that it treats specially.

A `Kind` says where kinds differ: whether a PUT creates, whether it needs a resourceVersion, what a delete returns,
which fields can be selected. The facts are those of Kubernetes 1.36 (`pkg/registry/*/strategy.go`). Tests add kinds
with `ApiServer.add_kind(Kind(…))`.

A version of a custom resource is a `Kind` too, created from its definition, with `custom_resource`. All versions of a
resource share their stored objects: an object has one identity, and each version shows it in its own form.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import msgspec

JsonObject = dict[str, Any]

_EVENT_TTL = timedelta(hours=1)
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_META_FIELDS = ("metadata.name", "metadata.namespace")


class CustomResource(Protocol):
    """One version of a custom resource, as its current definition has it; it follows changes of the definition."""

    is_served: bool

    def from_storage(self, stored: JsonObject) -> JsonObject: ...

    def to_storage(self, obj: JsonObject) -> JsonObject: ...

    def with_defaults(self, obj: JsonObject) -> JsonObject: ...

    def validate(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an invalid object or an invalid change."""
        ...


@dataclass(frozen=True, slots=True)
class StorageConversion:
    """How a built-in kind is stored if that differs from how it is served, or if two kinds share objects."""

    name: str
    from_storage: Callable[[JsonObject], JsonObject] = field(kw_only=True)
    to_storage: Callable[[JsonObject], JsonObject] = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """The paths of the fields that the scale subresource shows; the selector may be an object or text."""

    replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str = ".spec.selector"  # "": no selector


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    """A kind of object and how the server treats it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    singular: str = ""  # default: the kind in lower case
    list_kind: str = ""  # default: the kind with List
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()  # as discovery lists them; default: all
    is_custom: bool = False  # defined by a CRD: list items keep kind and apiVersion
    custom_resource: CustomResource | None = None  # of a custom resource whose definition is in the store
    storage_conversion: StorageConversion | None = None  # of a built-in kind whose stored form differs
    has_status: bool = False
    scale_paths: ScalePaths | None = None  # set if the kind has the scale subresource
    initial_status: JsonObject | None = None  # replaces the status of a POST; None keeps it
    has_generation: bool = False
    allows_create_on_update: bool = False
    requires_version_on_update: bool = False
    has_graceful_deletion: bool = False  # deletion waits for the grace period
    delete_returns_object: bool = False  # rather than a Status
    orphans_by_default: bool = False  # dependents are orphaned unless the DeleteOptions say otherwise
    is_garbage_collected: bool = True  # supports propagation policies
    ttl: timedelta | None = None  # objects expire this long after their last change
    selectable_fields: tuple[str, ...] = _META_FIELDS
    field_defaults: JsonObject = field(default_factory=dict)
    always_present: tuple[str, ...] = ()  # sections that a response always has, if only as {}
    omit_empty: tuple[str, ...] = ()  # sections that omit empty values ("": the object itself)
    stored_as: str = field(init=False)  # the storage name, shared by all versions

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
        """Return the storage key of an object; keys sort as in etcd."""
        return f"{namespace}/{name}" if self.namespaced else name

    def key_of(self, obj: JsonObject) -> str:
        meta = obj["metadata"]
        return self.key(meta.get("namespace", ""), meta["name"])

    def path(self, key: str) -> str:
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        if not self.namespaced:
            return f"{root}/{self.plural}/{key}"
        namespace, _, name = key.partition("/")
        return f"{root}/namespaces/{namespace}/{self.plural}/{name}"

    @property
    def is_converted(self) -> bool:
        """Return whether the stored form of this kind differs from the served one."""
        return self.custom_resource is not None or self.storage_conversion is not None

    def from_storage(self, stored: JsonObject) -> JsonObject:
        conversion = self.custom_resource or self.storage_conversion
        return stored if conversion is None else conversion.from_storage(stored)

    def to_storage(self, obj: JsonObject) -> JsonObject:
        conversion = self.custom_resource or self.storage_conversion
        return obj if conversion is None else conversion.to_storage(obj)

    def normalize(self, obj: JsonObject, *, previous: JsonObject | None = None) -> JsonObject:
        """Return `obj` as the server shows it: without nulls and without the empty values that its Go type omits.

        JSON patches depend on this: when the last taint is removed, `/spec/taints` is removed too. Of a custom resource
        only the metadata has a Go type. Parts shared with the object `previous` are already normalized.
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
        """Return a section without nulls as the server shows it."""
        return self._without_empty(content) if name in self.omit_empty else content

    def _without_empty(self, section: JsonObject) -> JsonObject:
        return {
            name: value
            for name, value in section.items()
            if value or name in self.always_present or not _is_empty(value)
        }


def _without_new_nulls(obj: JsonObject, previous: JsonObject) -> JsonObject:
    """Return a new object without nulls. Most have none, and finding that out is much faster than a rebuild."""
    changed = {
        name: _changed_part(part, previous.get(name)) for name, part in obj.items() if part is not previous.get(name)
    }
    if b"null" not in msgspec.json.encode(changed):
        return dict(obj)
    return {name: without_nulls(part) if name in changed else part for name, part in obj.items() if part is not None}


def _changed_part(part: Any, previous: Any) -> Any:
    """Return the part without what is identical in `previous`."""
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
    """Return a copy of `value` without nulls."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def new_kind(api_version: str, kind: str, *, plural: str = "", short: str = "", **kwargs: Any) -> Kind:
    """Return a kind; its plural is that of most English nouns unless given."""
    group, _, version = api_version.rpartition("/")
    plural = plural or f"{kind.lower()}s"
    return Kind(group=group, version=version, plural=plural, kind=kind, short_names=tuple(short.split()), **kwargs)


def kind_with_status(
    api_version: str,
    kind: str,
    *,
    status: JsonObject | None = None,
    omit_empty: tuple[str, ...] = ("status",),
    **kwargs: Any,
) -> Kind:
    """Return a kind with spec and status; `status` is the initial status of a new object."""
    fields: JsonObject = {
        "initial_status": status or {},
        "always_present": ("spec", "status"),
        "omit_empty": omit_empty,
    } | kwargs
    return new_kind(api_version, kind, has_status=True, **fields)


POD = kind_with_status(
    "v1",
    "Pod",
    short="po",
    categories=("all",),
    status={"phase": "Pending"},
    has_generation=True,
    has_graceful_deletion=True,
    delete_returns_object=True,
    selectable_fields=(*_META_FIELDS, "spec.nodeName", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
)
NODE = kind_with_status(
    "v1",
    "Node",
    short="no",
    namespaced=False,
    initial_status=None,
    selectable_fields=("metadata.name", "spec.unschedulable"),
    field_defaults={"spec.unschedulable": False},
    omit_empty=("spec", "status"),
)
NAMESPACE = kind_with_status(
    "v1",
    "Namespace",
    short="ns",
    namespaced=False,
    status={"phase": "Active"},
    delete_returns_object=True,
    selectable_fields=("metadata.name", "status.phase"),
    omit_empty=("spec", "status"),
)
CONFIG_MAP = new_kind("v1", "ConfigMap", short="cm", omit_empty=("",))


# Events are stored as `v1`, without empty fields. Each API version then shows all fields that its Go type always has.
# Follows `pkg/apis/events/v1/conversion.go` of Kubernetes 1.36.

_V1_EMPTY: JsonObject = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_EVENTS_V1_EMPTY: JsonObject = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}

_V1_TYPE = {"apiVersion": "v1", "kind": "Event"}
_EVENTS_V1_TYPE = {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
_V1_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENTS_V1_NAMES = {old: new for new, old in _V1_NAMES.items()}


def _v1_to_storage(event: JsonObject) -> JsonObject:
    return {name: value for name, value in event.items() if value not in (None, "", {}, 0)} | _V1_TYPE


def _v1_from_storage(stored: JsonObject) -> JsonObject:
    return _V1_EMPTY | stored


def _events_v1_to_storage(event: JsonObject) -> JsonObject:
    return _v1_to_storage({_V1_NAMES.get(name, name): value for name, value in event.items()})


def _events_v1_from_storage(stored: JsonObject) -> JsonObject:
    return (
        _EVENTS_V1_EMPTY | {_EVENTS_V1_NAMES.get(name, name): value for name, value in stored.items()} | _EVENTS_V1_TYPE
    )


def _event_kind(api_version: str, reference: str, *fields: str, conversion: StorageConversion) -> Kind:
    return new_kind(
        api_version,
        "Event",
        short="ev",
        allows_create_on_update=True,
        selectable_fields=(*_META_FIELDS, *(f"{reference}.{name}" for name in _REFERENCE_FIELDS), *fields),
        is_garbage_collected=False,
        ttl=_EVENT_TTL,
        storage_conversion=conversion,
    )


EVENT = _event_kind(
    "v1",
    "involvedObject",
    *("reason", "reportingComponent", "source", "type"),
    conversion=StorageConversion("events", from_storage=_v1_from_storage, to_storage=_v1_to_storage),
)
EVENTS_V1_EVENT = _event_kind(
    "events.k8s.io/v1",
    "regarding",
    *("reason", "reportingController", "type"),
    conversion=StorageConversion("events", from_storage=_events_v1_from_storage, to_storage=_events_v1_to_storage),
)
LEASE = new_kind(
    "coordination.k8s.io/v1",
    "Lease",
    allows_create_on_update=True,
    requires_version_on_update=True,
    always_present=("spec",),
)
POD_DISRUPTION_BUDGET = kind_with_status(
    "policy/v1",
    "PodDisruptionBudget",
    short="pdb",
    status={"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    has_generation=True,
    requires_version_on_update=True,
)
CORE_KINDS = (POD, NODE, NAMESPACE, CONFIG_MAP, EVENT, EVENTS_V1_EVENT, LEASE, POD_DISRUPTION_BUDGET)
