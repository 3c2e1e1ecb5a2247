"""Find the node that a notice is about.

A notice names its node, or the cloud machine that the node runs on. If no node runs on the machine yet, the notice
waits. If several nodes claim the same machine, the lookup returns none of them, since it cannot tell which is right.

Some nodes have no provider ID. If the notice has the display name of the machine, such a node is found by labels that
installers set, by its name, or by its DNS name. If the notice has the private address of the machine
(`MACHINE_ADDRESS`), the node is found by its InternalIP. If several such nodes match, none is chosen. A node whose
provider ID names another machine never matches, even if it has the name of a deleted node.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from haulout.api import annotations
from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec
from haulout.api.objects import Node, machine_key

MACHINE_ADDRESS = annotations.MACHINE_ADDRESS  # an annotation of notices
NAME_LABELS = ("hostname", "displayName", "name")
_NAME, _INTERNAL_IP = "metadata.name", "InternalIP"
_DNS_NAMES = ("InternalDNS", "Hostname")
_NAME_KEYS = (*NAME_LABELS, "kubernetes.io/hostname", _NAME, *_DNS_NAMES)  # the first key that matches any node decides

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class NodeLookupResult:
    """The node, or the reason why there is none."""

    node: Node | None
    reason: str
    gone_node: str = ""  # name of the node that the notice was about before


class NodeLookup:
    """An index of all nodes: by name, by machine, and by alias for nodes without a provider ID."""

    def __init__(self) -> None:
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[str, dict[str, Node]] = {}
        self._by_alias: dict[tuple[str, str], dict[str, Node]] = {}

    def update(self, old: Node | None, new: Node | None) -> None:
        """Apply a watch event to the index."""
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
        """Return the node that a notice is about; a node under the same name on another machine does not match."""
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
        """Return the node that a spec describes, regardless of the notice's status."""
        if spec.node_name:
            node = self._by_name.get(spec.node_name)
            return NodeLookupResult(
                node, f"node {spec.node_name} does not exist" if node is None else "spec.nodeName names it"
            )
        machine = machine_key(spec.provider_id)
        found = self._by_machine.get(machine, {}) if machine else {}
        match list(found.values()):
            case [node]:
                return NodeLookupResult(node, f"it runs on {machine}")
            case []:
                return self._resolve_by_alias(spec, machine, address)
        return NodeLookupResult(None, f"nodes {', '.join(sorted(found))} all claim to run on {machine}")

    def find_by_alias(self, name: str, address: str) -> tuple[str, str, Collection[Node]]:
        """Return the key and value that matched, and the nodes without a provider ID that they match.

        The name is tried first, then the address.
        """
        aliases = [(key, name) for key in _NAME_KEYS if name] + ([(_INTERNAL_IP, address)] if address else [])
        for key, value in aliases:
            if found := self._by_alias.get((key, value)):
                return key, value, found.values()
        return "", "", ()

    def _resolve_by_alias(self, spec: MaintenanceNoticeSpec, machine: str, address: str) -> NodeLookupResult:
        key, value, found = self.find_by_alias(spec.machine_name, address)
        what = "name" if value == spec.machine_name else "address"
        match [*found]:
            case [node]:
                by = f"its label {key}" if key in NAME_LABELS else f"its {key}"
                return NodeLookupResult(node, f"{by} is {value}, the {what} of {machine}")
            case [_, *_]:
                names = ", ".join(sorted(candidate.name for candidate in found))
                return NodeLookupResult(None, f"nodes {names} all have {key} {value}, the {what} of {machine}")
        alias_text = f", which is called {spec.machine_name}," if spec.machine_name else ""
        return NodeLookupResult(None, f"no node runs on {machine}{alias_text} yet")


def _other_machine_message(notice: MaintenanceNotice, node: Node) -> str:
    return f"node {node.name} runs on {_machine(node)} now, but the notice is for {notice.machine_key}"


def has_same_identity(old: Node, new: Node) -> bool:
    """Return whether the same notices match both versions of a node."""
    return (old.uid, _machine(old), {*_aliases(old)}) == (new.uid, _machine(new), {*_aliases(new)})


def _drop(index: dict[_Key, dict[str, Node]], key: _Key, node: Node) -> None:
    nodes = index.get(key, {})
    nodes.pop(node.name, None)
    if not nodes:
        index.pop(key, None)


def _machine(node: Node) -> str:
    return machine_key(node.spec.provider_id)


def _aliases(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the keys and values by which a node without a provider ID is found."""
    if _machine(node):
        return
    yield _NAME, node.name
    labels = node.metadata.labels
    yield from ((entry, labels[entry]) for entry in _NAME_KEYS if labels.get(entry))
    addresses = {(entry.type, entry.address) for entry in node.status.addresses if entry.address}
    yield from ((kind, address) for kind, address in addresses if kind in (*_DNS_NAMES, _INTERNAL_IP))


def alias_values(node: Node) -> set[str]:
    """Return all names and addresses by which a node without a provider ID is found."""
    return {value for _, value in _aliases(node)}
