"""Decodes the specs of pods from JSON; each distinct part is decoded once and looked up by its bytes.

An invalid value (a quantity that is not a number, an affinity that is a string) counts as absent: an API server with
validation admits none, and one without must not be able to break the scheduler.
"""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from haulout.api.objects import Base, RawObject
from haulout.core import quantity
from haulout_sandbox.nodes.pod_spec import Affinity, Container, Toleration, TopologySpreadConstraint

T = TypeVar("T")

CPU = "cpu"
MEMORY = "memory"
EMPTY_RAW = msgspec.Raw(b"")
_MAX_SHARED = 50_000
_MAX_RECENT = 1_000

ResourceAmounts = Mapping[str, int]  # cpu in millicores, everything else in whole units


class InterningDecoder(Generic[T]):
    """Decodes each distinct piece of JSON once."""

    def __init__(self, kind: Any, default: T) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._decoded: dict[bytes, T] = {b"": default, b"null": default}
        self._default = default

    def __call__(self, raw: bytes) -> T:
        """Return the decoded value, or the default if it is invalid."""
        value = self._decoded.get(raw)
        if value is None:
            if len(self._decoded) >= _MAX_SHARED:
                self._decoded = {b"": self._default, b"null": self._default}
            value = self._decoded[raw] = self._decode_or_default(raw)
        return value

    def _decode_or_default(self, raw: bytes) -> T:
        try:
            decoded: T = self._decode(raw)
        except msgspec.ValidationError:
            return self._default
        return decoded


class _PodSpec(Base, frozen=True):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[msgspec.Raw, ...] = ()
    priority: int | None = None
    restart_policy: str = "Always"
    host_network: bool = False
    containers: msgspec.Raw = EMPTY_RAW
    init_containers: msgspec.Raw = EMPTY_RAW
    overhead: msgspec.Raw = EMPTY_RAW
    node_selector: msgspec.Raw = EMPTY_RAW
    affinity: msgspec.Raw = EMPTY_RAW
    tolerations: msgspec.Raw = EMPTY_RAW
    topology_spread_constraints: msgspec.Raw = EMPTY_RAW


class PodSpecDecoder:
    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_PodSpec).decode
        self._containers: InterningDecoder[tuple[Container, ...]] = InterningDecoder(tuple[Container, ...], ())
        self._overheads: InterningDecoder[dict[str, str | int | float]] = InterningDecoder(
            dict[str, str | int | float], {}
        )
        self._selectors: InterningDecoder[dict[str, str]] = InterningDecoder(dict[str, str], {})
        self._affinities: InterningDecoder[Affinity] = InterningDecoder(Affinity, Affinity())
        self._tolerations: InterningDecoder[tuple[Toleration, ...]] = InterningDecoder(tuple[Toleration, ...], ())
        self._spreads: InterningDecoder[tuple[TopologySpreadConstraint, ...]] = InterningDecoder(
            tuple[TopologySpreadConstraint, ...], ()
        )
        self._requirement_keys: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._resource_needs: dict[tuple[bytes, bytes, bytes], _ResourceNeed] = {}
        # by the id of the spec, which is kept alive here
        self._recent: dict[int, tuple[RawObject, dict[str, Any]]] = {}

    def decode(self, raw_spec: RawObject) -> dict[str, Any]:
        """Return the fields of a `PodView` that come from its spec; do not change them.

        In the server's own process new replicas share one identical spec object, not only equal ones.
        """
        entry = self._recent.get(id(raw_spec))
        if entry is None:
            if len(self._recent) >= _MAX_RECENT:
                self._recent.clear()
            entry = self._recent[id(raw_spec)] = raw_spec, self._decode_spec(raw_spec)
        return entry[1]

    def _decode_spec(self, raw_spec: RawObject) -> dict[str, Any]:
        spec = self._decode(msgspec.json.encode(raw_spec))
        containers, init_containers = bytes(spec.containers), bytes(spec.init_containers)
        need = self._resource_need(containers, init_containers, bytes(spec.overhead))
        requirement_key = self._intern_key(
            (
                need.key,
                bytes(spec.node_selector),
                bytes(spec.affinity),
                bytes(spec.tolerations),
                bytes(spec.topology_spread_constraints),
            )
        )
        _, selector, affinity, tolerations, spreads = requirement_key
        return {
            "node": spec.node_name,
            "scheduler": spec.scheduler_name,
            "is_gated": bool(spec.scheduling_gates),
            "priority": spec.priority or 0,
            "restart_policy": spec.restart_policy,
            "host_network": spec.host_network,
            "containers": self._containers(containers),
            "init_containers": self._containers(init_containers),
            "requests": need.requests,
            "host_ports": need.host_ports,
            "node_selector": self._selectors(selector),
            "affinity": self._affinities(affinity),
            "tolerations": self._tolerations(tolerations),
            "spreads": self._spreads(spreads),
            "scheduling_key": requirement_key,
        }

    def _intern_key(self, key: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return an equal key that was decoded before: twenty thousand pods share those of a hundred workloads."""
        if len(self._requirement_keys) >= _MAX_SHARED:
            self._requirement_keys.clear()
        return self._requirement_keys.setdefault(key, key)

    def _resource_need(self, containers: bytes, init_containers: bytes, overhead: bytes) -> "_ResourceNeed":
        key = (containers, init_containers, overhead)
        if key not in self._resource_needs:
            if len(self._resource_needs) >= _MAX_SHARED:
                self._resource_needs.clear()
            all_containers = self._containers(containers), self._containers(init_containers)
            requests = _effective_requests(*all_containers, self._overheads(overhead))
            ports = _host_ports(*all_containers)
            self._resource_needs[key] = _ResourceNeed(
                requests, ports, msgspec.json.encode((requests, ports), order="sorted")
            )
        return self._resource_needs[key]


class _ResourceNeed(NamedTuple):
    """The resources that a pod's containers use of a node; equal for equal needs."""

    requests: ResourceAmounts
    host_ports: tuple[tuple[str, int], ...]
    key: bytes


def parse_quantities(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for name, quantity_text in quantities.items():
        try:
            parsed = quantity.parse(str(quantity_text))
        except ValueError:
            continue
        numbers[name] = parsed.milli if name == CPU else parsed.value
    return numbers


def _effective_requests(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...], overhead: Mapping[str, str | int | float]
) -> ResourceAmounts:
    """Return the effective requests: containers and sidecars together, or an init container if that needs more."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        requested = parse_quantities(container.resources.requests)
        if container.is_sidecar:
            _add(running, requested)
        else:
            _raise_to_max(peak, _add_copy(running, requested))
    for container in containers:
        _add(running, parse_quantities(container.resources.requests))
    _raise_to_max(peak, running)
    _add(peak, parse_quantities(overhead))
    return {name: amount for name, amount in peak.items() if amount}


def _host_ports(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> tuple[tuple[str, int], ...]:
    long_running = (*containers, *(container for container in init_containers if container.is_sidecar))
    return tuple(
        (port.protocol, port.host_port) for container in long_running for port in container.ports if port.host_port
    )


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _add_copy(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    total = dict(a)
    _add(total, b)
    return total


def _raise_to_max(peak: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        peak[name] = max(peak.get(name, 0), amount)
