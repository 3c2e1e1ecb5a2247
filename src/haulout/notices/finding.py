"""Which node a notice is about.

A notice names its node, or the machine of a cloud that the node runs on. A machine that no node runs on yet is waited
for. If several nodes claim to run on it, one of them is wrong, and nobody can tell which: then nothing is done.
"""

from dataclasses import dataclass

from haulout.kinds.machines import machine_key
from haulout.kinds.notice import Spec
from haulout.kube.objects import Node


@dataclass(frozen=True, slots=True)
class Finding:
    """The node, or why there is none."""

    node: Node | None
    why: str


class Nodes:
    """All nodes, by name and by machine."""

    def __init__(self) -> None:
        self._by_name: dict[str, Node] = {}
        self._by_machine: dict[str, dict[str, Node]] = {}

    def follow(self, old: Node | None, new: Node | None) -> None:
        """Take what a watch told."""
        if old is not None:
            self._by_name.pop(old.name, None)
            self._by_machine.get(_machine(old), {}).pop(old.name, None)
        if new is not None:
            self._by_name[new.name] = new
            self._by_machine.setdefault(_machine(new), {})[new.name] = new
        if old is not None and not self._by_machine.get(_machine(old), True):
            del self._by_machine[_machine(old)]

    def find(self, spec: Spec) -> Finding:
        """Return the node that is meant."""
        if spec.node_name:
            node = self._by_name.get(spec.node_name)
            return Finding(node, f"there is no node {spec.node_name} yet" if node is None else "it is named")
        machine = machine_key(spec.provider_id)
        found = self._by_machine.get(machine, {}) if machine else {}
        match list(found.values()):
            case [node]:
                return Finding(node, f"it runs on {machine}")
            case []:
                return Finding(None, f"no node runs on {machine} yet")
        return Finding(None, f"nodes {', '.join(sorted(found))} all claim to run on {machine}")


def _machine(node: Node) -> str:
    return machine_key(node.spec.provider_id)
