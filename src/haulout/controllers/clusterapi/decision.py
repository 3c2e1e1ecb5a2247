"""The decision for one Machine and its node: what to write to each. Pure.

    Machine: the pre-drain hook      while its node is managed and its deletion is not approved
    Node:    machine-deleted         while the Machine is being deleted
    Node:    machine-maintenance     while maintenance of the Machine is requested
    Machine: maintenance=approved    after the request, once the node's profile has approved it

This is the protocol of the runtime-extension-maintenance-controller. In addition, an approval counts only for the
request that it was given for. Labels alone cannot show that. So the controller writes a new request only while the node
has no approval, and records the request on the node in the same patch
(`haulout.controllers.clusterapi.observation`): any later approval belongs to that request. An old approval is reported
to users or removed (`OldApprovals`).

The two requests are in `haulout.controllers.clusterapi.machine_deletion` and
`haulout.controllers.clusterapi.machine_maintenance`; this module has what they share.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from haulout.api.clusterapi import (
    DRAIN_RULES,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK,
    REQUESTED,
    TRUE,
)
from haulout.api.objects import Node
from haulout.api.reasons import HubEventReason
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.machine_deletion import decide_deletion, decide_unmanaged, decide_without_node
from haulout.controllers.clusterapi.machine_maintenance import decide_maintenance
from haulout.controllers.clusterapi.messages import request_status
from haulout.controllers.clusterapi.observation import (
    APPROVED_REQUEST,
    DELETION_REQUEST,
    MAINTENANCE_REQUEST,
    Decision,
    DesiredValues,
    MetadataChange,
    NodeRequest,
    Observation,
    PartialDecision,
    PendingEvent,
    metadata_change,
    read_request,
)
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType

_REQUESTS = {MACHINE_DELETED: DELETION_REQUEST, MACHINE_MAINTENANCE: MAINTENANCE_REQUEST}
_ANNOTATIONS = (DELETION_REQUEST, MAINTENANCE_REQUEST, DRAIN_RULES)
_RELEASED: DesiredValues = {PRE_DRAIN_HOOK: None, APPROVED_REQUEST: None}


def decide(observation: Observation) -> Decision:
    """Return what to write to a Machine and its node: to the node first, and then decide again."""
    if observation.is_gone:
        return _gone(observation)
    if observation.is_cluster_paused or observation.machine.is_paused or observation.machine.is_moved:
        return _paused(observation)
    if not observation.machine.is_enabled:
        return _opted_out(observation)
    if observation.node is None:
        return _without_node(observation)
    # The label of the SAP maintenance-controller says that profiles manage the node. Without it nobody would approve.
    if MAINTENANCE_STATE not in observation.node.metadata.labels:
        return _unmanaged(observation, observation.node)
    parts = decide_deletion(observation, observation.node), decide_maintenance(observation, observation.node)
    return _merge_parts(observation, observation.node, parts)


def _merge_parts(observation: Observation, node: Node, parts: tuple[PartialDecision, ...]) -> Decision:
    rules: DesiredValues = {} if observation.drain_rules is None else {DRAIN_RULES: observation.drain_rules or None}
    node_change = metadata_change(
        node,
        labels=_merge_values(*(part.node_labels for part in parts)),
        annotations=_merge_values(rules, *(part.node_annotations for part in parts)),
        # A new request must not overwrite an approval that the cache does not show yet.
        checks_resource_version=any(part.is_new_request for part in parts),
    )
    machine_change = metadata_change(
        observation.machine,
        labels=_merge_values(*(part.machine_labels for part in parts)),
        annotations=_merge_values(*(part.machine_annotations for part in parts)),
        checks_resource_version=True,
    )
    return Decision(
        node=node_change,
        machine=machine_change,
        is_new_request=any(part.is_new_request for part in parts),
        is_active=any(part.is_active for part in parts),
        statuses=tuple(part.status for part in parts if part.status is not None),
        events=tuple(chain.from_iterable(part.events for part in parts)),
        status_events=tuple(chain.from_iterable(part.status_events for part in parts)),
        requeue_at=min((part.requeue_at for part in parts if part.requeue_at is not None), default=None),
    )


def _merge_values(*mappings: DesiredValues) -> DesiredValues:
    return dict(chain.from_iterable(values.items() for values in mappings))


def _paused(observation: Observation) -> Decision:
    """Write nothing: Cluster API controllers ignore paused objects, and the node of a moved Machine stays.

    Existing requests stay.
    """
    machine, labels = observation.machine, {} if observation.node is None else observation.node.metadata.labels
    return Decision(
        is_active=any(labels.get(label) == TRUE for label in _REQUESTS),
        is_settled=observation.is_node_known or not machine.node,
        statuses=() if machine.is_moved or not machine.is_enabled else tuple(_paused_requests(observation)),
    )


def _paused_requests(observation: Observation) -> Iterator[MachineRequestStatus]:
    machine, reason = observation.machine, messages.paused(observation)
    if machine.is_being_deleted:
        yield request_status(observation, RequestType.DELETION, reason, since=machine.metadata.deletion_timestamp)
    if machine.metadata.labels.get(MAINTENANCE) == REQUESTED:
        yield request_status(observation, RequestType.MAINTENANCE, reason, since=None)


def decide_withdrawal(node: Node, *, is_gone: Callable[[NodeRequest | None], bool], is_claimed: bool) -> Decision:
    """Return the decision that removes requests from a node whose Machine was deleted.

    `is_gone` returns whether the Machine of a request was deleted; None stands for a request that names no Machine.
    `is_claimed`: another Machine has this node now, as after a move.
    """
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {} if is_claimed else {DRAIN_RULES: None}
    for label, annotation in _REQUESTS.items():
        if is_gone(read_request(node, annotation)):
            labels[label] = annotations[annotation] = None
    change = metadata_change(node, labels=labels, annotations=annotations, checks_resource_version=True)
    event = PendingEvent(reason=HubEventReason.REQUEST_WITHDRAWN, note=messages.machine_gone(node), on_node=True)
    return Decision(node=change, events=(event,) if change else ())


def _gone(observation: Observation) -> Decision:
    """Withdraw the requests of a deleted Machine from its node, before the Machine is forgotten."""
    node, machine, is_claimed = observation.node, observation.machine, observation.is_node_claimed
    if node is None:  # without a Cluster there will never be a connection
        return Decision(is_settled=observation.is_node_known or not machine.node or not observation.has_cluster)

    def is_gone(request: NodeRequest | None) -> bool:
        return not is_claimed if request is None else request.machine == machine.uid

    return decide_withdrawal(node, is_gone=is_gone, is_claimed=is_claimed)


def requests_on(node: Node) -> tuple[NodeRequest, ...]:
    """Return the requests on a node that name their Machine."""
    return tuple(
        request for annotation in _REQUESTS.values() if (request := read_request(node, annotation)) is not None
    )


def _opted_out(observation: Observation) -> Decision:
    """Remove everything that the controller wrote, from the node first: the hook tells a new leader to clean up."""
    machine = observation.machine
    if machine.node and not observation.is_node_known and observation.unreachable_since is None:
        return Decision(is_settled=False)
    change = metadata_change(machine, annotations=_RELEASED, checks_resource_version=True)
    events = (
        (PendingEvent(reason=HubEventReason.OPTED_OUT, note=messages.OPTED_OUT),)
        if PRE_DRAIN_HOOK in change.annotations
        else ()
    )
    is_settled = observation.is_node_known or not machine.node
    return Decision(node=_remove_all(observation.node), machine=change, events=events, is_settled=is_settled)


def _without_node(observation: Observation) -> Decision:
    """Release a deletion if the node does not exist or was unreachable for too long; otherwise wait."""
    is_settled = observation.is_node_known or not observation.machine.node
    if not observation.machine.is_being_deleted:
        return Decision(is_settled=is_settled)
    return replace(_machine_decision(observation, decide_without_node(observation)), is_settled=is_settled)


def _unmanaged(observation: Observation, node: Node) -> Decision:
    """Remove everything that the controller wrote: no profile would react to it."""
    if not observation.machine.is_being_deleted:
        return Decision(
            node=_remove_all(node),
            machine=metadata_change(observation.machine, annotations=_RELEASED, checks_resource_version=True),
        )
    return _machine_decision(observation, decide_unmanaged(observation), node=_remove_all(node))


def _machine_decision(
    observation: Observation, part: PartialDecision, *, node: MetadataChange | None = None
) -> Decision:
    return Decision(
        node=node or MetadataChange(),
        machine=metadata_change(
            observation.machine, annotations=part.machine_annotations, checks_resource_version=True
        ),
        statuses=() if part.status is None else (part.status,),
        events=part.events,
        status_events=part.status_events,
        requeue_at=part.requeue_at,
    )


def _remove_all(node: Node | None) -> MetadataChange:
    if node is None:
        return MetadataChange()
    return metadata_change(node, labels=dict.fromkeys(_REQUESTS), annotations=dict.fromkeys(_ANNOTATIONS))
