"""A Node with the Go fields and types of core/v1, backed by the raw object of the API server.

A template for the Go controller uses `.Node.Spec.ProviderID` and `.Node.Status.NodeInfo.OSImage`; the raw object has
`spec.providerID` and `status.nodeInfo.osImage`. The JSON name is the Go name with a lower-case first letter, with a few
exceptions. Values are converted when a template reads them, and a missing value is Go's zero value.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from haulout.compat.gotemplate.times import TIME, ZERO, Moment, format_time_string
from haulout.compat.gotemplate.types import (
    BOOL,
    FLOAT,
    INT,
    INT32,
    INT64,
    STRING,
    Field,
    Kind,
    Method,
    Type,
    list_of,
    map_of,
    pointer_to,
    string_type,
)
from haulout.core import quantity
from haulout.core.quantity import Quantity

# From the JSON tags in staging/src/k8s.io/api/core/v1/types.go and apimachinery/pkg/apis/meta/v1/types.go.
_IRREGULAR_JSON_NAMES = {
    "UID": "uid",
    "OSImage": "osImage",
    "APIVersion": "apiVersion",
    "DoNotUseExternalID": "externalID",
    "Port": "Port",
}
_NO_FIELDS: Mapping[str, Any] = {}


def _getter_of(name: str) -> Callable[[Any], Any]:
    return lambda raw: raw.get(name)


def _struct_type(name: str, **fields: Type) -> Type:
    shape = Type(f"v1.{name}", Kind.STRUCT)
    for go_name, type_ in fields.items():
        json_name = _IRREGULAR_JSON_NAMES.get(go_name) or go_name[0].lower() + go_name[1:]
        shape.fields[go_name] = Field(type_, _getter_of(json_name))
    return shape


def _time(raw: object) -> Moment:
    if isinstance(raw, Moment):
        return raw
    try:
        return Moment.from_datetime(datetime.fromisoformat(str(raw)).astimezone(UTC))
    except (ValueError, OverflowError):
        return ZERO


def _quantity(raw: object) -> Quantity:
    if isinstance(raw, Quantity):
        return raw
    try:
        return quantity.parse(str(raw))
    except ValueError:
        return Quantity.of(0)


META_TIME = Type(
    "v1.Time",
    Kind.STRUCT,
    fields={"Time": Field(TIME, lambda moment: moment, promoted=True)},
    methods={**TIME.methods, "IsZero": replace(TIME.methods["IsZero"], on_nil=True)},
    read=_time,
    text=format_time_string,
    source_text=TIME.source_text,
)
QUANTITY = Type(
    "resource.Quantity",
    Kind.STRUCT,
    methods={
        "String": Method(STRING, str),
        "Value": Method(INT64, lambda amount: amount.value),
        "MilliValue": Method(INT64, lambda amount: amount.milli),
        "AsApproximateFloat64": Method(FLOAT, lambda amount: amount.nano / 10**9),
        "IsZero": Method(BOOL, lambda amount: amount.nano == 0),
        "Sign": Method(INT, lambda amount: (amount.nano > 0) - (amount.nano < 0)),
    },
    read=_quantity,
    text=str,
)
RESOURCE_LIST = map_of(QUANTITY, "v1.ResourceList")
for _method, _resource in {
    "Cpu": "cpu",
    "Memory": "memory",
    "Pods": "pods",
    "Storage": "storage",
    "StorageEphemeral": "ephemeral-storage",
}.items():
    RESOURCE_LIST.methods[_method] = Method(
        QUANTITY, lambda amounts, name=_resource: (amounts or _NO_FIELDS).get(name, "0")
    )

_UID = string_type("types.UID")
_STRINGS = list_of(STRING)
_STRING_MAP = map_of(STRING)

OWNER_REFERENCE = _struct_type(
    "OwnerReference",
    APIVersion=STRING,
    Kind=STRING,
    Name=STRING,
    UID=_UID,
    Controller=pointer_to(BOOL),
    BlockOwnerDeletion=pointer_to(BOOL),
)
MANAGED_FIELDS = _struct_type(
    "ManagedFieldsEntry",
    Manager=STRING,
    Operation=string_type("v1.ManagedFieldsOperationType"),
    APIVersion=STRING,
    Time=pointer_to(META_TIME),
    FieldsType=STRING,
    FieldsV1=pointer_to(Type("v1.FieldsV1", Kind.STRUCT)),
    Subresource=STRING,
)
OBJECT_META = _struct_type(
    "ObjectMeta",
    Name=STRING,
    GenerateName=STRING,
    Namespace=STRING,
    SelfLink=STRING,
    UID=_UID,
    ResourceVersion=STRING,
    Generation=INT64,
    CreationTimestamp=META_TIME,
    DeletionTimestamp=pointer_to(META_TIME),
    DeletionGracePeriodSeconds=pointer_to(INT64),
    Labels=_STRING_MAP,
    Annotations=_STRING_MAP,
    OwnerReferences=list_of(OWNER_REFERENCE),
    Finalizers=_STRINGS,
    ManagedFields=list_of(MANAGED_FIELDS),
)
TYPE_META = _struct_type("TypeMeta", Kind=STRING, APIVersion=STRING)

TAINT = _struct_type(
    "Taint", Key=STRING, Value=STRING, Effect=string_type("v1.TaintEffect"), TimeAdded=pointer_to(META_TIME)
)
_CONFIG_MAP_SOURCE = _struct_type(
    "ConfigMapNodeConfigSource",
    Namespace=STRING,
    Name=STRING,
    UID=_UID,
    ResourceVersion=STRING,
    KubeletConfigKey=STRING,
)
_CONFIG_SOURCE = pointer_to(_struct_type("NodeConfigSource", ConfigMap=pointer_to(_CONFIG_MAP_SOURCE)))
NODE_SPEC = _struct_type(
    "NodeSpec",
    PodCIDR=STRING,
    PodCIDRs=_STRINGS,
    ProviderID=STRING,
    Unschedulable=BOOL,
    Taints=list_of(TAINT),
    ConfigSource=_CONFIG_SOURCE,
    DoNotUseExternalID=STRING,
)

NODE_CONDITION = _struct_type(
    "NodeCondition",
    Type=string_type("v1.NodeConditionType"),
    Status=string_type("v1.ConditionStatus"),
    LastHeartbeatTime=META_TIME,
    LastTransitionTime=META_TIME,
    Reason=STRING,
    Message=STRING,
)
NODE_ADDRESS = _struct_type("NodeAddress", Type=string_type("v1.NodeAddressType"), Address=STRING)
NODE_INFO = _struct_type(
    "NodeSystemInfo",
    MachineID=STRING,
    SystemUUID=STRING,
    BootID=STRING,
    KernelVersion=STRING,
    OSImage=STRING,
    ContainerRuntimeVersion=STRING,
    KubeletVersion=STRING,
    KubeProxyVersion=STRING,
    OperatingSystem=STRING,
    Architecture=STRING,
    Swap=pointer_to(_struct_type("NodeSwapStatus", Capacity=pointer_to(INT64))),
)
_VOLUME_NAME = string_type("v1.UniqueVolumeName")
_HANDLER_FEATURES = _struct_type(
    "NodeRuntimeHandlerFeatures", RecursiveReadOnlyMounts=pointer_to(BOOL), UserNamespaces=pointer_to(BOOL)
)
NODE_STATUS = _struct_type(
    "NodeStatus",
    Capacity=RESOURCE_LIST,
    Allocatable=RESOURCE_LIST,
    Phase=string_type("v1.NodePhase"),
    Conditions=list_of(NODE_CONDITION),
    Addresses=list_of(NODE_ADDRESS),
    DaemonEndpoints=_struct_type("NodeDaemonEndpoints", KubeletEndpoint=_struct_type("DaemonEndpoint", Port=INT32)),
    NodeInfo=NODE_INFO,
    Images=list_of(_struct_type("ContainerImage", Names=_STRINGS, SizeBytes=INT64)),
    VolumesInUse=list_of(_VOLUME_NAME),
    VolumesAttached=list_of(_struct_type("AttachedVolume", Name=_VOLUME_NAME, DevicePath=STRING)),
    Config=pointer_to(
        _struct_type(
            "NodeConfigStatus",
            Assigned=_CONFIG_SOURCE,
            Active=_CONFIG_SOURCE,
            LastKnownGood=_CONFIG_SOURCE,
            Error=STRING,
        )
    ),
    RuntimeHandlers=list_of(_struct_type("NodeRuntimeHandler", Name=STRING, Features=pointer_to(_HANDLER_FEATURES))),
    Features=pointer_to(_struct_type("NodeFeatures", SupplementalGroupsPolicy=pointer_to(BOOL))),
    DeclaredFeatures=_STRINGS,
)


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = raw.get("metadata")
    return metadata if isinstance(metadata, Mapping) else _NO_FIELDS


def _promoted(field: Field, owner: Callable[[Any], Any]) -> Field:
    return Field(field.type, lambda raw: field.get(owner(raw)), promoted=True)


def _getter(field: Field) -> Method:
    return Method(field.type, lambda raw: field.get(_metadata(raw)))


NODE = Type(
    "v1.Node",
    Kind.STRUCT,
    refused_names={"metadata": "there is no .metadata in v1.Node: use .Node.Name and the like"},
)
NODE.fields.update(
    {
        "TypeMeta": Field(TYPE_META, lambda raw: raw),
        "ObjectMeta": Field(OBJECT_META, _metadata),
        "Spec": Field(NODE_SPEC, _getter_of("spec")),
        "Status": Field(NODE_STATUS, _getter_of("status")),
        **{name: _promoted(field, lambda raw: raw) for name, field in TYPE_META.fields.items()},
        **{name: _promoted(field, _metadata) for name, field in OBJECT_META.fields.items()},
    }
)
NODE.methods.update({f"Get{name}": _getter(field) for name, field in OBJECT_META.fields.items()})
