"""Which NodeMaintenances are let in: the rules of the validating webhook, and their texts.

Pure: what must be known of the cluster comes as `Facts`, in which a look-up that failed is an `Unknown` with its
reason. The rules for creating, their order and their words are those of the Node Maintenance Operator, which people and
their scripts match on. One is ours and comes first, as it needs no look-up: a drain policy that makes no sense is
refused with all that is wrong with it.

A change that leaves `spec` as it is always passes, and no change needs a look-up: the operator's own finalizers and the
deletion of an object go through here as well, and nothing may keep them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haulout.drain import document
from haulout.drain.policy import Policy
from haulout.errors import PolicyError
from haulout.kube.objects import Node, RawObject
from haulout.maintenance import quorum
from haulout.maintenance.quorum import Judgement
from haulout.maintenance.resource import NODE_MAINTENANCES

KIND = NODE_MAINTENANCES.kind

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be looked up, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is answered: `refusal` is None if the object is let in. Warnings are shown to the user either way."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What must be known of the cluster; the last is None for a node that is not of the control plane."""

    node: Node | Unknown | None
    maintained: Mapping[str, str] | Unknown  # nodes with a NodeMaintenance other than this one, and its name
    quorum: Judgement | Unknown | None = None


LET_IN = Verdict()


def on_update(old: RawObject, new: RawObject) -> Verdict:
    """Judge a change."""
    before, after = _spec(old), _spec(new)
    if before == after:
        return LET_IN
    if before.get("nodeName") != after.get("nodeName"):
        return Verdict("updating spec.NodeName isn't allowed")
    # What was stored before it was checked, or by an older release, must not keep anybody from changing the rest.
    return LET_IN if before.get("drain") == after.get("drain") else Verdict(_drain_problem(after))


def on_create(new: RawObject, facts: Facts) -> Verdict:
    """Judge a new object."""
    name = node_name(new)
    refusal = before_looking(new) or _node_problem(name, facts.node) or _taken(name, facts.maintained)
    if refusal:
        return Verdict(refusal)
    return _quorum(name, facts.quorum)


def before_looking(new: RawObject) -> str | None:
    """Return why a new object is refused whatever there is in the cluster, or None."""
    name = node_name(new)
    return _drain_problem(_spec(new)) or (None if is_node_name(name) else _no_node(name))


def node_name(obj: RawObject) -> str:
    """Return which node an object is about."""
    name = _spec(obj).get("nodeName")
    return name if isinstance(name, str) else ""


def is_node_name(name: str) -> bool:
    """Tell whether there can be a node of this name."""
    return len(name) <= _LONGEST_NAME and _NODE_NAME.fullmatch(name) is not None


def wrong_type(obj: Any) -> str | None:
    """Return why `obj` is no NodeMaintenance, or None."""
    if not isinstance(obj, Mapping):
        return f"expected a {KIND} but got a {type(obj).__name__}"
    kind = obj.get("kind")
    return None if kind == KIND else f"expected a {KIND} but got a {kind}"


def _spec(obj: RawObject) -> Mapping[str, Any]:
    spec = obj.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _drain_problem(spec: Mapping[str, Any]) -> str | None:
    try:
        document.read(spec.get("drain"), base=Policy.like_nmo(), path="spec.drain")
    except PolicyError as error:
        return f"invalid drain policy, {'; '.join(error.problems)}"
    return None


def _no_node(name: str) -> str:
    return f"invalid nodeName, no node with name {name} found"


def _node_problem(name: str, node: Node | Unknown | None) -> str | None:
    if isinstance(node, Unknown):
        return f"could not get node for validating spec.NodeName, please try again: could not get node: {node.why}"
    return _no_node(name) if node is None else None


def _taken(name: str, maintained: Mapping[str, str] | Unknown) -> str | None:
    if isinstance(maintained, Unknown):
        return f"could not list NodeMaintenances for validating spec.NodeName, please try again: {maintained.why}"
    return f"invalid nodeName, a NodeMaintenance for node {name} already exists" if name in maintained else None


def _quorum(name: str, judged: Judgement | Unknown | None) -> Verdict:
    if judged is None:
        return LET_IN
    if isinstance(judged, Unknown):
        return Verdict(judged.why)
    if judged.allowed:
        return Verdict(None, (judged.why,) if judged.why else ())
    refusal = quorum.refusal(name)
    if judged.bare:
        return Verdict(refusal, (judged.why,))
    return Verdict(f"{refusal}: {judged.why}")
