"""Machines of the sandbox, and the Node objects and conditions that their kubelets write."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from haulout.api.objects import RawObject, Taint
from haulout.kube.patches import Operation, add, pointer, replace, require
from haulout_sandbox.nodes.conditions import format_time, new_condition
from haulout_sandbox.nodes.informers import NodeView
from haulout_sandbox.nodes.scheduler.framework import ZONE_LABEL

BOOTED_AT_ANNOTATION = "sandbox.haulout.dev/booted-at"
STARTING_PROBLEM = "[container runtime status check may not have completed yet]"
_PRESSURE_CONDITIONS = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY_CONDITION = ("True", "KubeletReady", "kubelet is posting ready status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of a machine; quantities as Kubernetes writes them."""

    name: str
    zone: str = ""
    region: str = ""
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    extra_resources: Mapping[str, str] = field(default_factory=dict)  # extended resources, such as example.com/gpu
    arch: str = "amd64"
    os: str = "linux"
    instance_type: str = ""
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    kubelet_version: str = "v1.36.3"


@dataclass(frozen=True, slots=True)
class MachineAddresses:
    """The IP addresses of the machine with this number, and of its pods."""

    number: int

    @property
    def ip(self) -> str:
        return f"172.{16 + (self.number >> 16)}.{self.number >> 8 & 255}.{self.number & 255}"

    @property
    def pod_cidr(self) -> str:
        return f"{self._pod_network}.0/24"

    def pod_ip(self, used_ips: Iterable[str]) -> str:
        """Return an unused address for a pod; empty if there is none."""
        used, network = set(used_ips), self._pod_network
        free = (address for host in range(1, 255) if (address := f"{network}.{host}") not in used)
        return next(free, "")

    @property
    def _pod_network(self) -> str:
        return f"10.{self.number >> 8 & 255}.{self.number & 255}"


def node_labels(machine: Machine) -> dict[str, str]:
    labels = {
        "beta.kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/os": machine.os,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": machine.os,
        "kubernetes.io/hostname": machine.name,
        ZONE_LABEL: machine.zone,
        "topology.kubernetes.io/region": machine.region,
        "node.kubernetes.io/instance-type": machine.instance_type,
    }
    return {key: value for key, value in labels.items() if value} | dict(machine.labels)


def node_object(
    machine: Machine, *, addresses: MachineAddresses, boot: str, booted_at: datetime, problem: str, now: datetime
) -> RawObject:
    spec: RawObject = {
        "podCIDR": addresses.pod_cidr,
        "podCIDRs": [addresses.pod_cidr],
        "providerID": machine.provider_id or f"sandbox://{machine.zone or 'here'}/{machine.name}",
    }
    if machine.taints:
        spec["taints"] = [
            {"key": element.key, "effect": element.effect} | ({"value": element.value} if element.value else {})
            for element in machine.taints
        ]
    conditions = [
        element | {"lastTransitionTime": format_time(now)} for element in node_conditions(problem=problem, now=now)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": node_labels(machine),
            "annotations": {**machine.annotations, BOOTED_AT_ANNOTATION: format_time(booted_at)},
        },
        "spec": spec,
        "status": {**_node_status(machine, addresses=addresses, boot=boot), "conditions": conditions},
    }


def _node_status(machine: Machine, *, addresses: MachineAddresses, boot: str) -> RawObject:
    capacity = {"cpu": machine.cpu, "memory": machine.memory, "pods": str(machine.pods), **machine.extra_resources}
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            {"type": "InternalIP", "address": addresses.ip},
            {"type": "Hostname", "address": machine.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": _hex_id(f"machine {machine.name}"),
            "systemUUID": _uuid(f"system {machine.name}"),
            "bootID": boot,
            "kernelVersion": "6.12.0-sandbox",
            "osImage": "Haulout Sandbox",
            "containerRuntimeVersion": "containerd://2.1.0",
            "kubeletVersion": machine.kubelet_version,
            "kubeProxyVersion": "",
            "operatingSystem": machine.os,
            "architecture": machine.arch,
        },
    }


def new_boot_id(name: str, boot: object) -> str:
    return _uuid(f"boot {boot} of {name}")


def node_conditions(*, problem: str, now: datetime) -> list[RawObject]:
    """Return the node conditions; `problem` is the reason for NotReady, empty if ready."""
    heartbeat_time = {"lastHeartbeatTime": format_time(now)}
    return [condition_body | heartbeat_time for condition_body in _conditions_without_times(problem)]


@lru_cache(maxsize=64)
def _conditions_without_times(problem: str) -> tuple[RawObject, ...]:
    """Return the conditions without times; do not change them."""
    ready = ("False", "KubeletNotReady", problem) if problem else _READY_CONDITION
    pressures = (new_condition(kind, "False", reason, message) for kind, reason, message in _PRESSURE_CONDITIONS)
    return (*pressures, new_condition("Ready", *ready))  # Ready comes last, as from a kubelet


def is_reported(node: NodeView, *, problem: str, boot: str) -> bool:
    """Return whether the Node already has the kubelet's current status, apart from times."""
    reported = {
        node_condition.type: (node_condition.status, node_condition.reason, node_condition.message)
        for node_condition in node.conditions
    }
    return node.boot_id == boot and _condition_texts(problem).items() <= reported.items()


@lru_cache(maxsize=64)
def _condition_texts(problem: str) -> Mapping[str, tuple[str, str, str]]:
    """Return status, reason and message of each condition, by type."""
    return {
        condition_body["type"]: (condition_body["status"], condition_body["reason"], condition_body["message"])
        for condition_body in _conditions_without_times(problem)
    }


def heartbeat_patch(
    node: NodeView, *, problem: str, boot: str, booted_at: datetime, now: datetime
) -> tuple[Operation, ...]:
    """Return the JSON patch that writes the kubelet's current status into the Node.

    Other writers keep conditions there too, so each condition is replaced by index, and the patch tests that index
    first.
    """
    operations: list[Operation] = []
    if not node.conditions:
        operations.append(add("/status/conditions", []))
    index_by_type = {node_condition.type: index for index, node_condition in enumerate(node.conditions)}
    for new in node_conditions(problem=problem, now=now):
        index = index_by_type.get(new["type"])
        existing = None if index is None else node.conditions[index]
        is_transition = existing is None or existing.status != new["status"] or existing.last_transition_time is None
        transition_time = now if is_transition or existing is None else existing.last_transition_time
        condition_body = new | {"lastTransitionTime": format_time(transition_time or now)}
        if existing is None:
            operations.append(add("/status/conditions/-", condition_body))
            continue
        path = f"/status/conditions/{index}"
        operations += (require(f"{path}/type", existing.type), replace(path, condition_body))
    if node.boot_id != boot:
        operations.append(add("/status/nodeInfo/bootID", boot))
        operations += _boot_annotation_patch(node, booted_at)
    return tuple(operations)


def _boot_annotation_patch(node: NodeView, booted_at: datetime) -> tuple[Operation, ...]:
    create_annotations = () if node.annotations else (add("/metadata/annotations", {}),)
    return (*create_annotations, add(pointer("metadata", "annotations", BOOTED_AT_ANNOTATION), format_time(booted_at)))


def _hex_id(text: str) -> str:
    return UUID(_uuid(text)).hex


def _uuid(text: str) -> str:
    return str(UUID(bytes=blake2b(text.encode(), digest_size=16).digest(), version=4))
