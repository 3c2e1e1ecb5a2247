"""Machines of the sandbox, and the Node objects and conditions with which their kubelets speak of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from haulout.kube.objects import RawObject, Taint
from haulout.kube.patches import Operation, add, pointer, replace, require
from haulout_sandbox.nodes.conditions import condition, timestamp
from haulout_sandbox.nodes.placement import ZONE
from haulout_sandbox.nodes.view import NodeView

BOOTED_AT = "sandbox.haulout.dev/booted-at"
NOT_YET_READY = "[container runtime status check may not have completed yet]"
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("True", "KubeletReady", "kubelet is posting ready status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a node is made of; quantities as Kubernetes writes them."""

    name: str
    zone: str = ""
    region: str = ""
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    more: Mapping[str, str] = field(default_factory=dict)  # further resources, such as example.com/gpu
    arch: str = "amd64"
    os: str = "linux"
    instance_type: str = ""
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    kubelet_version: str = "v1.36.3"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the machine with this number, and of its pods."""

    number: int

    @property
    def ip(self) -> str:
        """The machine's own."""
        return f"172.{16 + (self.number >> 16)}.{self.number >> 8 & 255}.{self.number & 255}"

    @property
    def pod_cidr(self) -> str:
        """The range of its pods."""
        return f"{self._network}.0/24"

    def pod_ip(self, taken: Iterable[str]) -> str:
        """Return an address that no pod of the machine has; empty if there is none."""
        used, network = set(taken), self._network
        free = (address for host in range(1, 255) if (address := f"{network}.{host}") not in used)
        return next(free, "")

    @property
    def _network(self) -> str:
        return f"10.{self.number >> 8 & 255}.{self.number & 255}"


def labels_of(machine: Machine) -> dict[str, str]:
    """Return the labels that a kubelet gives its node."""
    wanted = {
        "beta.kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/os": machine.os,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": machine.os,
        "kubernetes.io/hostname": machine.name,
        ZONE: machine.zone,
        "topology.kubernetes.io/region": machine.region,
        "node.kubernetes.io/instance-type": machine.instance_type,
    }
    return {key: value for key, value in wanted.items() if value} | dict(machine.labels)


def node_object(
    machine: Machine, *, addresses: Addresses, boot: str, booted_at: datetime, problem: str, now: datetime
) -> RawObject:
    """Return the Node that a kubelet registers."""
    spec: RawObject = {
        "podCIDR": addresses.pod_cidr,
        "podCIDRs": [addresses.pod_cidr],
        "providerID": machine.provider_id or f"sandbox://{machine.zone or 'here'}/{machine.name}",
    }
    if machine.taints:
        spec["taints"] = [
            {"key": it.key, "effect": it.effect} | ({"value": it.value} if it.value else {}) for it in machine.taints
        ]
    conditions = [it | {"lastTransitionTime": timestamp(now)} for it in conditions_of(problem=problem, now=now)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": labels_of(machine),
            "annotations": {**machine.annotations, BOOTED_AT: timestamp(booted_at)},
        },
        "spec": spec,
        "status": {**_status(machine, addresses=addresses, boot=boot), "conditions": conditions},
    }


def _status(machine: Machine, *, addresses: Addresses, boot: str) -> RawObject:
    capacity = {"cpu": machine.cpu, "memory": machine.memory, "pods": str(machine.pods), **machine.more}
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


def boot_id(name: str, boot: object) -> str:
    """Return the id of one boot of a machine."""
    return _uuid(f"boot {boot} of {name}")


def conditions_of(*, problem: str, now: datetime) -> list[RawObject]:
    """Return what a kubelet says of its node; `problem` is why it is not ready, if it is not."""
    heard = {"lastHeartbeatTime": timestamp(now)}
    return [it | heard for it in _told(problem)]


@lru_cache(maxsize=64)
def _told(problem: str) -> tuple[RawObject, ...]:
    """Return the conditions without their times; not to be changed."""
    ready = ("False", "KubeletNotReady", problem) if problem else _READY
    pressures = (condition(kind, "False", reason, message) for kind, reason, message in _PRESSURES)
    return (*pressures, condition("Ready", *ready))  # Ready comes last, as kubelets have it


def is_told(node: NodeView, *, problem: str, boot: str) -> bool:
    """Tell whether the Node already says what its kubelet has to say, whenever that was."""
    said = {it.type: (it.status, it.reason, it.message) for it in node.conditions}
    return node.boot_id == boot and _words(problem).items() <= said.items()


@lru_cache(maxsize=64)
def _words(problem: str) -> Mapping[str, tuple[str, str, str]]:
    """Return status, reason and message of each condition, by its type."""
    return {it["type"]: (it["status"], it["reason"], it["message"]) for it in _told(problem)}


def heartbeat(node: NodeView, *, problem: str, boot: str, booted_at: datetime, now: datetime) -> tuple[Operation, ...]:
    """Return the changes that make the Node say what its kubelet has to say now.

    Others keep conditions there too, so each of ours is changed at its place, which must still be its place.
    """
    operations: list[Operation] = []
    if not node.conditions:
        operations.append(add("/status/conditions", []))
    places = {it.type: number for number, it in enumerate(node.conditions)}
    for wanted in conditions_of(problem=problem, now=now):
        number = places.get(wanted["type"])
        known = None if number is None else node.conditions[number]
        changed = known is None or known.status != wanted["status"] or known.last_transition_time is None
        since = now if changed or known is None else known.last_transition_time
        full = wanted | {"lastTransitionTime": timestamp(since or now)}
        if known is None:
            operations.append(add("/status/conditions/-", full))
            continue
        path = f"/status/conditions/{number}"
        operations += (require(f"{path}/type", known.type), replace(path, full))
    if node.boot_id != boot:
        operations.append(add("/status/nodeInfo/bootID", boot))
        operations += _remember_boot(node, booted_at)
    return tuple(operations)


def _remember_boot(node: NodeView, booted_at: datetime) -> tuple[Operation, ...]:
    first = () if node.annotations else (add("/metadata/annotations", {}),)
    return (*first, add(pointer("metadata", "annotations", BOOTED_AT), timestamp(booted_at)))


def mirror_pod(manifest: RawObject, *, node: NodeView) -> RawObject:
    """Return the mirror of a static pod: how the cluster sees a pod that only its kubelet decides about."""
    meta = manifest.get("metadata", {})
    digest = _hex_id(f"static {node.key} {meta.get('name')}")
    annotations = {
        "kubernetes.io/config.hash": digest,
        "kubernetes.io/config.mirror": digest,
        "kubernetes.io/config.source": "file",
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.key, "uid": node.uid, "controller": True}
    spec = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}], **manifest["spec"], "nodeName": node.key}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta,
            "name": f"{meta['name']}-{node.key}",
            "namespace": meta.get("namespace", "kube-system"),
            "annotations": {**meta.get("annotations", {}), **annotations},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _hex_id(text: str) -> str:
    return UUID(_uuid(text)).hex


def _uuid(text: str) -> str:
    return str(UUID(bytes=blake2b(text.encode(), digest_size=16).digest(), version=4))
