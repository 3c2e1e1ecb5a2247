"""What `kubectl get` shows of the built-in kinds that are no workloads.

The facts are those of `pkg/printers/internalversion/printers.go` in Kubernetes 1.36. A kind that is neither here nor in
`workloadprinters` nor `podprinter` gets the real server's default, name and creation time.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from haulout_sandbox.apiserver.ages import since
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.printing import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Cells,
    Header,
    Printers,
    age,
    equalities,
    name_of,
    numbers,
    part,
    selector_text,
    terminating,
    texts,
    wide,
)

PRINTERS = Printers()

_SHOWN = 3  # of a list of addresses or ports; the others are counted


# Nodes and namespaces

_ROLE_PREFIX = "node-role.kubernetes.io/"


@PRINTERS.of(
    "",
    "Node",
    columns=(
        NAME,
        *texts("Status", "Roles", "Age", "Version"),
        *wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
)
def _node(node: JsonObject, now: datetime) -> Cells:
    info, unknown = part(node, "status", "nodeInfo"), "<unknown>"
    kernel = info.get("kernelVersion") or unknown
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name_of(node),
        _node_status(node),
        ",".join(_node_roles(part(node, "metadata", "labels"))) or NONE,
        age(node, now),
        info.get("kubeletVersion", ""),
        _node_address(node, "InternalIP"),
        _node_address(node, "ExternalIP"),
        info.get("osImage") or unknown,
        kernel,
        info.get("containerRuntimeVersion") or unknown,
    ]


def _node_status(node: JsonObject) -> str:
    conditions = {it.get("type"): it.get("status", "") for it in part(node, "status").get("conditions") or ()}
    said = {None: "Unknown", "True": "Ready"}.get(conditions.get("Ready"), "NotReady")
    return f"{said},SchedulingDisabled" if part(node, "spec").get("unschedulable") else said


def _node_roles(labels: Mapping[str, str]) -> list[str]:
    by_key = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return sorted(filter(None, by_key | {labels.get("kubernetes.io/role", "")}))


def _node_address(node: JsonObject, kind: str) -> str:
    addresses = part(node, "status").get("addresses") or ()
    return next((str(it.get("address", "")) for it in addresses if it.get("type") == kind), NONE)


@PRINTERS.of("", "Namespace", columns=(NAME, *texts("Status"), AGE))
def _namespace(namespace: JsonObject, now: datetime) -> Cells:
    return [name_of(namespace), part(namespace, "status").get("phase", ""), age(namespace, now)]


# Networking


@PRINTERS.of(
    "", "Service", columns=(NAME, *texts("Type", "Cluster-IP", "External-IP", "Port(s)"), AGE, *wide("Selector"))
)
def _service(service: JsonObject, now: datetime) -> Cells:
    spec = part(service, "spec")
    address = (spec.get("clusterIPs") or [spec.get("clusterIP") or NONE])[0]
    return [
        name_of(service),
        spec.get("type", ""),
        address,
        _external_address(service),
        ",".join(_service_port(port) for port in spec.get("ports") or ()) or NONE,
        age(service, now),
        equalities(spec.get("selector")),
    ]


def _external_address(service: JsonObject) -> str:
    spec = part(service, "spec")
    external = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or NONE
        case "LoadBalancer":
            ingress = part(service, "status", "loadBalancer").get("ingress") or ()
            balanced = sorted({it.get("ip") or it.get("hostname") or "" for it in ingress} - {""})
            return ",".join(balanced + external) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return "<unknown>"


def _service_port(port: JsonObject) -> str:
    on_nodes = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{on_nodes}/{port.get('protocol', 'TCP')}"


@PRINTERS.of("", "Endpoints", columns=(NAME, *texts("Endpoints"), AGE))
def _endpoints(endpoints: JsonObject, now: datetime) -> Cells:
    subsets = endpoints.get("subsets") or ()
    listed = [address for subset in subsets for address in _subset_addresses(subset)]
    return [name_of(endpoints), _and_more(listed, none="" if subsets else NONE), age(endpoints, now)]


def _subset_addresses(subset: JsonObject) -> Iterable[str]:
    addresses = [it.get("ip", "") for it in subset.get("addresses") or ()]
    if not subset.get("ports"):
        return addresses
    quoted = [f"[{address}]" if ":" in address else address for address in addresses]
    return [f"{address}:{port.get('port', 0)}" for port in subset["ports"] for address in quoted]


def _and_more(listed: Sequence[str], *, none: str) -> str:
    shown = ",".join(listed[:_SHOWN]) or none
    return f"{shown} + {len(listed) - _SHOWN} more..." if len(listed) > _SHOWN else shown


@PRINTERS.of("discovery.k8s.io", "EndpointSlice", columns=(NAME, *texts("AddressType", "Ports", "Endpoints"), AGE))
def _endpoint_slice(sliced: JsonObject, now: datetime) -> Cells:
    ports = [str(it.get("port", it.get("name", "*"))) for it in sliced.get("ports") or ()]
    addresses = [address for it in sliced.get("endpoints") or () for address in it.get("addresses") or ()]
    return [
        name_of(sliced),
        sliced.get("addressType", ""),
        _and_more(ports, none=UNSET),
        _and_more(addresses, none=UNSET),
        age(sliced, now),
    ]


@PRINTERS.of("networking.k8s.io", "NetworkPolicy", columns=(NAME, *texts("Pod-Selector"), AGE))
def _network_policy(policy: JsonObject, now: datetime) -> Cells:
    return [name_of(policy), selector_text(part(policy, "spec").get("podSelector")) or NONE, age(policy, now)]


# Configuration and access


@PRINTERS.of("", "ConfigMap", columns=(NAME, *texts("Data"), AGE))
def _config_map(config: JsonObject, now: datetime) -> Cells:
    return [name_of(config), len(config.get("data") or ()) + len(config.get("binaryData") or ()), age(config, now)]


@PRINTERS.of("", "Secret", columns=(NAME, *texts("Type", "Data"), AGE))
def _secret(secret: JsonObject, now: datetime) -> Cells:
    return [name_of(secret), secret.get("type", ""), len(secret.get("data") or ()), age(secret, now)]


@PRINTERS.of("", "ServiceAccount", columns=(NAME, AGE))
def _service_account(account: JsonObject, now: datetime) -> Cells:
    return [name_of(account), age(account, now)]


@PRINTERS.of("coordination.k8s.io", "Lease", columns=(NAME, *texts("Holder"), AGE))
def _lease(lease: JsonObject, now: datetime) -> Cells:
    return [name_of(lease), part(lease, "spec").get("holderIdentity") or "", age(lease, now)]


@PRINTERS.of(
    "rbac.authorization.k8s.io",
    "RoleBinding",
    "ClusterRoleBinding",
    columns=(NAME, *texts("Role"), AGE, *wide("Users", "Groups", "ServiceAccounts")),
)
def _binding(binding: JsonObject, now: datetime) -> Cells:
    role, subjects = part(binding, "roleRef"), binding.get("subjects") or ()
    named = [(it.get("kind"), it.get("namespace", ""), it.get("name", "")) for it in subjects]
    accounts = [f"{namespace}/{name}" for kind, namespace, name in named if kind == "ServiceAccount"]
    people = [[name for kind, _, name in named if kind == wanted] for wanted in ("User", "Group")]
    return [
        name_of(binding),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(binding, now),
        *(", ".join(names) for names in (*people, accounts)),
    ]


@PRINTERS.of(
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    columns=(NAME, *numbers("Webhooks"), AGE),
)
def _webhook_configuration(configuration: JsonObject, now: datetime) -> Cells:
    return [name_of(configuration), len(configuration.get("webhooks") or ()), age(configuration, now)]


# Events

_EVENT = (
    *texts("Last Seen", "Type", "Reason", "Object"),
    *wide("Subobject", "Source"),
    *texts("Message"),
    *wide("First Seen", "Count"),
    Header("Name", format="name", priority=1),
)


@PRINTERS.of("", "Event", columns=_EVENT)
def _event(event: JsonObject, now: datetime) -> Cells:
    about, source, series = part(event, "involvedObject"), part(event, "source"), event.get("series")
    first = since(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    count, kind = event.get("count") or 1, about.get("kind", "").lower()
    if series is not None:
        last, count = since(series.get("lastObservedTime"), now), series.get("count", 0)
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        event.get("message", "").strip(),
        first,
        count,
        name_of(event),
    ]


_OLD_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


@PRINTERS.of("events.k8s.io", "Event", columns=_EVENT)
def _new_event(event: JsonObject, now: datetime) -> Cells:
    return _event({_OLD_NAMES.get(name, name): value for name, value in event.items()}, now)


# Storage

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


@PRINTERS.of(
    "",
    "PersistentVolume",
    columns=(
        NAME,
        *texts("Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass"),
        *texts("VolumeAttributesClass", "Reason", "Age"),
        *wide("VolumeMode"),
    ),
)
def _volume(volume: JsonObject, now: datetime) -> Cells:
    spec, status = part(volume, "spec"), part(volume, "status")
    claim = spec.get("claimRef")
    return [
        name_of(volume),
        part(spec, "capacity").get("storage", "0"),
        _access_modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _volume_status(volume),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class(volume),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age(volume, now),
        spec.get("volumeMode", UNSET),
    ]


@PRINTERS.of(
    "",
    "PersistentVolumeClaim",
    columns=(
        NAME,
        *texts("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age"),
        *wide("VolumeMode"),
    ),
)
def _volume_claim(claim: JsonObject, now: datetime) -> Cells:
    spec, status = part(claim, "spec"), part(claim, "status")
    volume = spec.get("volumeName", "")
    return [
        name_of(claim),
        _volume_status(claim),
        volume,
        part(status, "capacity").get("storage", "0") if volume else "",
        _access_modes(status) if volume else "",
        _storage_class(claim),
        spec.get("volumeAttributesClassName", UNSET),
        age(claim, now),
        spec.get("volumeMode", UNSET),
    ]


def _access_modes(holder: Mapping[str, Any]) -> str:
    modes = holder.get("accessModes") or ()
    return ",".join(short for mode, short in _MODES.items() if mode in modes)


def _storage_class(obj: JsonObject) -> str:
    annotated = part(obj, "metadata", "annotations").get(_CLASS_ANNOTATION)
    return str(part(obj, "spec").get("storageClassName", "") if annotated is None else annotated)


def _volume_status(obj: JsonObject) -> str:
    return "Terminating" if terminating(obj) else str(part(obj, "status").get("phase", ""))


@PRINTERS.of(
    "storage.k8s.io",
    "StorageClass",
    columns=(NAME, *texts("Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion"), AGE),
)
def _volume_class(storage: JsonObject, now: datetime) -> Cells:
    annotations = part(storage, "metadata", "annotations")
    default = any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)
    return [
        f"{name_of(storage)} (default)" if default else name_of(storage),
        storage.get("provisioner", ""),
        storage.get("reclaimPolicy", "Delete"),
        storage.get("volumeBindingMode", "Immediate"),
        storage.get("allowVolumeExpansion", False),
        age(storage, now),
    ]
