"""Which node a notice is about.

A notice names its node, or the machine of a cloud that the node runs on. A machine that no node runs on yet is waited
for. If several nodes claim to run on it, one of them is wrong, and nobody can tell which: then nothing is done.

Some nodes do not say which machine they run on. If the notice has what people call the machine, such a node is found by
the labels that installers put it into, by its name, or by its DNS name; if the notice has the address of the machine in
its own network (`MACHINE_ADDRESS`), by its InternalIP. Of several such nodes none is chosen. A node that says that it
runs on another machine is never meant, even if it has the name of one that was, and is gone.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec
from haulout.api.objects import Node
from haulout.api.provider_id import machine_key

MACHINE_ADDRESS = "haulout.dev/machine-address"  # an annotation of notices
NAME_LABELS = ("hostname", "displayName", "name")
_NAME, _INTERNAL_IP = "metadata.name", "InternalIP"
_DNS_NAMES = ("InternalDNS", "Hostname")
_NAME_KEYS = (*NAME_LABELS, "kubernetes.io/hostname", _NAME, *_DNS_NAMES)  # the first that some node has decides

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class NodeLookupResult:
    """The node, or why there is none."""

    node: Node | None
    reason: str
    gone_node: str = ""  # the name of the node that it was


class NodeLookup:
    """All nodes, by name, by machine and, those without a machine, by label."""

    def __init__(self) -> None:
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[str, dict[str, Node]] = {}
        self._by_alias: dict[tuple[str, str], dict[str, Node]] = {}

    def update(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        if old is not None:
            self._by_name.pop(old.name, None)
            _drop(self._by_machine, _machine(old), old)
            for alias in _aliases(old):
                _drop(self._by_alias, alias, old)
        if new is not None:
            self._by_name[new.name] = new
            self._by_machine.setdefault(_machine(new), {})[new.name] = new
            for alias in _aliases(new):
                self._by_alias.setdefault(alias, {})[new.name] = new

    def resolve(self, notice: MaintenanceNotice) -> NodeLookupResult:
        """Return the node that a notice is about, in the light of which it was before."""
        spec, previous_node = notice.spec, notice.status.node_name
        found = self.find(spec, address=notice.metadata.annotations.get(MACHINE_ADDRESS, ""))
        if found.node is not None:
            return (
                found
                if notice.matches_node(found.node)
                else NodeLookupResult(None, _other_machine_message(notice, found.node), found.node.name)
            )
        current_node = self._by_name.get(previous_node)
        is_gone = (current_node is None or not notice.matches_node(current_node)) and spec.node_name in (
            "",
            previous_node,
        )
        return NodeLookupResult(None, found.reason, previous_node) if is_gone else found

    def find(self, spec: MaintenanceNoticeSpec, *, address: str = "") -> NodeLookupResult:
        """Return the node that is meant."""
        if spec.node_name:
            node = self._by_name.get(spec.node_name)
            return NodeLookupResult(node, f"there is no node {spec.node_name} yet" if node is None else "it is named")
        machine = machine_key(spec.provider_id)
        found = self._by_machine.get(machine, {}) if machine else {}
        match list(found.values()):
            case [node]:
                return NodeLookupResult(node, f"it runs on {machine}")
            case []:
                return self._resolve_by_alias(spec, machine, address)
        return NodeLookupResult(None, f"nodes {', '.join(sorted(found))} all claim to run on {machine}")

    def find_by_alias(self, name: str, address: str) -> tuple[str, str, Collection[Node]]:
        """Return the nodes without a machine that have a name, or else an address, and by what they have it."""
        aliases = [(key, name) for key in _NAME_KEYS if name] + ([(_INTERNAL_IP, address)] if address else [])
        for key, value in aliases:
            if found := self._by_alias.get((key, value)):
                return key, value, found.values()
        return "", "", ()

    def _resolve_by_alias(self, spec: MaintenanceNoticeSpec, machine: str, address: str) -> NodeLookupResult:
        key, value, found = self.find_by_alias(spec.machine_name, address)
        what = "called" if value == spec.machine_name else "at"
        match [*found]:
            case [node]:
                by = f"its label {key}" if key in NAME_LABELS else f"its {key}"
                return NodeLookupResult(node, f"{by} is {value}, what {machine} is {what}")
            case [_, *_]:
                names = ", ".join(sorted(candidate.name for candidate in found))
                return NodeLookupResult(None, f"nodes {names} all have {value}, what {machine} is {what}, as {key}")
        alias_text = f", which is called {spec.machine_name}," if spec.machine_name else ""
        return NodeLookupResult(None, f"no node runs on {machine}{alias_text} yet")


def _other_machine_message(notice: MaintenanceNotice, node: Node) -> str:
    return f"node {node.name} runs on {_machine(node)} now, and this is about {notice.machine_key}"


def has_same_identity(old: Node, new: Node) -> bool:
    """Tell whether the same notices find both."""
    return (old.uid, _machine(old), {*_aliases(old)}) == (new.uid, _machine(new), {*_aliases(new)})


def _drop(index: dict[_Key, dict[str, Node]], key: _Key, node: Node) -> None:
    nodes = index.get(key, {})
    nodes.pop(node.name, None)
    if not nodes:
        index.pop(key, None)


def _machine(node: Node) -> str:
    return machine_key(node.spec.provider_id)


def _aliases(node: Node) -> Iterator[tuple[str, str]]:
    """Return by what a node is found that does not say which machine it runs on."""
    if _machine(node):
        return
    yield _NAME, node.name
    labels = node.metadata.labels
    yield from ((entry, labels[entry]) for entry in _NAME_KEYS if labels.get(entry))
    addresses = {(entry.type, entry.address) for entry in node.status.addresses if entry.address}
    yield from ((kind, address) for kind, address in addresses if kind in (*_DNS_NAMES, _INTERNAL_IP))


def alias_values(node: Node) -> set[str]:
    """Return all names and addresses by which a node is found that does not say which machine it runs on."""
    return {value for _, value in _aliases(node)}
