"""Validation of NodeMaintenances: the rules of the validating webhook and their messages.

Pure: the state of the cluster comes as `AdmissionObservation`, in which a failed lookup is a `LookupFailure` with its
reason. The rules for create, their order and their messages are those of the Node Maintenance Operator, on which users
and scripts match. One rule is ours and comes first, because it needs no lookup: an invalid drain policy is refused with
all its errors.

An update that does not change `spec` always passes, and no update needs a lookup: the operator's own finalizers and the
deletion of an object go through here as well, and must never be blocked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import Node, RawObject
from haulout.controllers.nodemaintenance import etcd_quorum
from haulout.controllers.nodemaintenance.etcd_quorum import QuorumResult
from haulout.drain import policy_parser
from haulout.drain.policy import DrainPolicy
from haulout.errors import PolicyError

KIND = NODE_MAINTENANCES.kind

# A DNS subdomain (RFC 1123), as the API server requires it of Node names. A name that does not match cannot exist,
# and would become part of a request path: it is refused without a lookup.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class LookupFailure:
    """A failed lookup, with the reason: the request is refused, since the rule cannot be checked."""

    reason: str


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The response: `refusal` is None if the object is admitted. The user sees warnings in both cases."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionObservation:
    """The state of the cluster. `quorum` is None for a node outside the control plane."""

    node: Node | LookupFailure | None
    nodes_in_maintenance: Mapping[str, str] | LookupFailure  # by node: the name of another NodeMaintenance of the node
    quorum: QuorumResult | LookupFailure | None = None


ALLOWED = AdmissionResult()


def validate_update(old: RawObject, new: RawObject) -> AdmissionResult:
    before, after = _spec(old), _spec(new)
    # Writes of finalizers, labels and annotations pass through the webhook, too. Were they refused, an object whose
    # node is gone could never be deleted.
    if before == after:
        return ALLOWED
    if before.get("nodeName") != after.get("nodeName"):
        # The spelling `spec.NodeName` is that of the predecessor's message: users' scripts match on it.
        return AdmissionResult("updating spec.NodeName isn't allowed")
    # A policy stored before validation existed, or by an older release, must not block other changes.
    return ALLOWED if before.get("drain") == after.get("drain") else AdmissionResult(_drain_problem(after))


def validate_create(new: RawObject, observation: AdmissionObservation) -> AdmissionResult:
    name = node_name(new)
    refusal = (
        problem_without_lookup(new)
        or _node_problem(name, observation.node)
        or _duplicate_problem(name, observation.nodes_in_maintenance)
    )
    if refusal:
        return AdmissionResult(refusal)
    return _quorum_result(name, observation.quorum)


def problem_without_lookup(new: RawObject) -> str | None:
    """Return why a new object is refused regardless of the cluster; None if it is not."""
    name = node_name(new)
    return _drain_problem(_spec(new)) or (None if is_node_name(name) else _node_not_found(name))


def node_name(obj: RawObject) -> str:
    """Return `spec.nodeName`; empty if it is missing or no string."""
    name = _spec(obj).get("nodeName")
    return name if isinstance(name, str) else ""


def is_node_name(name: str) -> bool:
    """Return whether the name is a valid node name.

    Others are never requested: in a URL path they could mean something else.
    """
    return len(name) <= _MAX_NAME_LENGTH and _NODE_NAME.fullmatch(name) is not None


def type_problem(obj: Any) -> str | None:
    """Return why `obj` is not a NodeMaintenance; None if it is one."""
    if not isinstance(obj, Mapping):
        return f"expected a {KIND} but got a {type(obj).__name__}"
    kind = obj.get("kind")
    return None if kind == KIND else f"expected a {KIND} but got a {kind}"


def _spec(obj: RawObject) -> Mapping[str, Any]:
    spec = obj.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _drain_problem(spec: Mapping[str, Any]) -> str | None:
    try:
        # Parsed as the controller does, with the same base: what is admitted here can never fail there.
        policy_parser.parse_policy(spec.get("drain"), base=DrainPolicy.like_nmo(), path="spec.drain")
    except PolicyError as error:
        return f"invalid drain policy, {'; '.join(error.problems)}"
    return None


def _node_not_found(name: str) -> str:
    return f"invalid nodeName, no node with name {name} found"


def _node_problem(name: str, node: Node | LookupFailure | None) -> str | None:
    if isinstance(node, LookupFailure):
        return f"could not get node for validating spec.NodeName, please try again: could not get node: {node.reason}"
    return _node_not_found(name) if node is None else None


def _duplicate_problem(name: str, nodes_in_maintenance: Mapping[str, str] | LookupFailure) -> str | None:
    if isinstance(nodes_in_maintenance, LookupFailure):
        return (
            "could not list NodeMaintenances for validating spec.NodeName, "
            f"please try again: {nodes_in_maintenance.reason}"
        )
    return (
        f"invalid nodeName, a NodeMaintenance for node {name} already exists" if name in nodes_in_maintenance else None
    )


def _quorum_result(name: str, result: QuorumResult | LookupFailure | None) -> AdmissionResult:
    if result is None:
        return ALLOWED
    if isinstance(result, LookupFailure):
        return AdmissionResult(result.reason)
    if result.allowed:
        return AdmissionResult(None, (result.reason,) if result.reason else ())
    refusal = etcd_quorum.refusal_message(name)
    # Users' scripts match on the whole refusal of the predecessor, so the reason goes into a warning.
    if result.is_fixed_text:
        return AdmissionResult(refusal, (result.reason,))
    return AdmissionResult(f"{refusal}: {result.reason}")
