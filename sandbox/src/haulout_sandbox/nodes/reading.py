"""What the specs of pods ask for, read from JSON: each distinct piece is decoded once, its bytes are the key.

What makes no sense (a quantity that is no number, an affinity that is a string) counts as not there: an API server that
validates lets none of it in, and one that does not must not be able to blind us.
"""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from haulout.core import quantity
from haulout.kube.objects import Base, RawObject
from haulout_sandbox.nodes.specs import Affinity, Container, Spread, Toleration

T = TypeVar("T")

CPU = "cpu"
MEMORY = "memory"
NOTHING = msgspec.Raw(b"")
_SHARED_LIMIT = 50_000
_LATEST_LIMIT = 1_000

Amounts = Mapping[str, int]  # cpu in thousandths, everything else in whole units


class Shared(Generic[T]):
    """Decodes each distinct piece of JSON once."""

    def __init__(self, kind: Any, default: T) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._known: dict[bytes, T] = {b"": default, b"null": default}
        self._default = default

    def __call__(self, raw: bytes) -> T:
        """Return what the JSON says, or the default if it makes no sense."""
        found = self._known.get(raw)
        if found is None:
            if len(self._known) >= _SHARED_LIMIT:
                self._known = {b"": self._default, b"null": self._default}
            found = self._known[raw] = self._read(raw)
        return found

    def _read(self, raw: bytes) -> T:
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
    containers: msgspec.Raw = NOTHING
    init_containers: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    node_selector: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    tolerations: msgspec.Raw = NOTHING
    topology_spread_constraints: msgspec.Raw = NOTHING


class PodSpecs:
    """Reads the specs of pods."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_PodSpec).decode
        self._containers: Shared[tuple[Container, ...]] = Shared(tuple[Container, ...], ())
        self._overheads: Shared[dict[str, str | int | float]] = Shared(dict[str, str | int | float], {})
        self._selectors: Shared[dict[str, str]] = Shared(dict[str, str], {})
        self._affinities: Shared[Affinity] = Shared(Affinity, Affinity())
        self._tolerations: Shared[tuple[Toleration, ...]] = Shared(tuple[Toleration, ...], ())
        self._spreads: Shared[tuple[Spread, ...]] = Shared(tuple[Spread, ...], ())
        self._wishes: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._needs: dict[tuple[bytes, bytes, bytes], _Need] = {}
        self._latest: dict[int, tuple[RawObject, dict[str, Any]]] = {}  # by the id of the spec, which is kept with it

    def read(self, whole: RawObject) -> dict[str, Any]:
        """Return what a view of a pod has from its spec, not to be changed.

        In one process with the server new replicas have one and the same spec, not only equal ones.
        """
        found = self._latest.get(id(whole))
        if found is None:
            if len(self._latest) >= _LATEST_LIMIT:
                self._latest.clear()
            found = self._latest[id(whole)] = whole, self._read(whole)
        return found[1]

    def _read(self, whole: RawObject) -> dict[str, Any]:
        spec = self._decode(msgspec.json.encode(whole))
        main, init = bytes(spec.containers), bytes(spec.init_containers)
        need = self._need(main, init, bytes(spec.overhead))
        wishes = self._same(
            (
                need.key,
                bytes(spec.node_selector),
                bytes(spec.affinity),
                bytes(spec.tolerations),
                bytes(spec.topology_spread_constraints),
            )
        )
        _, selector, affinity, tolerations, spreads = wishes
        return {
            "node": spec.node_name,
            "scheduler": spec.scheduler_name,
            "is_gated": bool(spec.scheduling_gates),
            "priority": spec.priority or 0,
            "restart_policy": spec.restart_policy,
            "host_network": spec.host_network,
            "containers": self._containers(main),
            "init_containers": self._containers(init),
            "requests": need.requests,
            "host_ports": need.host_ports,
            "node_selector": self._selectors(selector),
            "affinity": self._affinities(affinity),
            "tolerations": self._tolerations(tolerations),
            "spreads": self._spreads(spreads),
            "wishes": wishes,
        }

    def _same(self, wishes: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return equal wishes that were read before: twenty thousand pods keep those of a hundred workloads."""
        if len(self._wishes) >= _SHARED_LIMIT:
            self._wishes.clear()
        return self._wishes.setdefault(wishes, wishes)

    def _need(self, main: bytes, init: bytes, overhead: bytes) -> "_Need":
        key = (main, init, overhead)
        if key not in self._needs:
            if len(self._needs) >= _SHARED_LIMIT:
                self._needs.clear()
            all_containers = self._containers(main), self._containers(init)
            requests = _requests(*all_containers, self._overheads(overhead))
            ports = _host_ports(*all_containers)
            self._needs[key] = _Need(requests, ports, msgspec.json.encode((requests, ports), order="sorted"))
        return self._needs[key]


class _Need(NamedTuple):
    """What the containers of a pod take of a node; the key is equal where that is the same."""

    requests: Amounts
    host_ports: tuple[tuple[str, int], ...]
    key: bytes


def amounts(written: Mapping[str, str | int | float]) -> dict[str, int]:
    """Return quantities as numbers."""
    numbers: dict[str, int] = {}
    for name, text in written.items():
        try:
            read = quantity.parse(str(text))
        except ValueError:
            continue
        numbers[name] = read.milli if name == CPU else read.value
    return numbers


def _requests(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...], overhead: Mapping[str, str | int | float]
) -> Amounts:
    """Return what a pod needs: its containers and sidecars at once, or an init container if that needs more."""
    running: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in init_containers:
        wanted = amounts(container.resources.requests)
        if container.is_sidecar:
            _add(running, wanted)
        else:
            _raise_to(most, _sum(running, wanted))
    for container in containers:
        _add(running, amounts(container.resources.requests))
    _raise_to(most, running)
    _add(most, amounts(overhead))
    return {name: amount for name, amount in most.items() if amount}


def _host_ports(
    containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> tuple[tuple[str, int], ...]:
    lasting = (*containers, *(it for it in init_containers if it.is_sidecar))
    return tuple((port.protocol, port.host_port) for it in lasting for port in it.ports if port.host_port)


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = dict(one)
    _add(total, other)
    return total


def _raise_to(most: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        most[name] = max(most.get(name, 0), amount)
