"""What should be on a Machine and on its node, given what is on both: pure.

    Machine: the pre-drain hook      while its node is managed and nobody has approved its deletion
    Node:    machine-deleted         while the Machine is being deleted
    Node:    machine-maintenance     while the Machine asks for maintenance
    Machine: maintenance=approved    once it has asked, and the node's profile has approved

So far as the runtime-extension-maintenance-controller. Beyond that an approval counts only for what it was given for.
Labels do not tell that by themselves, so the hub asks for something new only while no approval is on the node, and
notes down there, in the same patch, what it asked for (`haulout.controllers.clusterapi.node_request`): an approval
that comes afterwards is meant for that. An old one that stays is told to people, or taken off (`OldApprovals`).

The two protocols are `haulout.controllers.clusterapi.machine_deletion` and
`haulout.controllers.clusterapi.machine_maintenance`; here is what they have in common.
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
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.machine_deletion import decide_deletion, decide_unmanaged, decide_without_node
from haulout.controllers.clusterapi.machine_maintenance import decide_maintenance
from haulout.controllers.clusterapi.node_request import (
    APPROVED_REQUEST,
    DELETION_REQUEST,
    MAINTENANCE_REQUEST,
    NodeRequest,
    read_request,
)
from haulout.controllers.clusterapi.observation import (
    Decision,
    DesiredValues,
    MetadataChange,
    Observation,
    PartialDecision,
    PendingEvent,
    metadata_change,
)
from haulout.controllers.clusterapi.pending_request import request_status
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType

_REQUESTS = {MACHINE_DELETED: DELETION_REQUEST, MACHINE_MAINTENANCE: MAINTENANCE_REQUEST}
_ANNOTATIONS = (DELETION_REQUEST, MAINTENANCE_REQUEST, DRAIN_RULES)
_RELEASED: DesiredValues = {PRE_DRAIN_HOOK: None, APPROVED_REQUEST: None}


def decide(observation: Observation) -> Decision:
    """Return what to write about a Machine and its node."""
    if observation.is_cluster_paused or observation.machine.is_paused or observation.machine.is_moved:
        return _paused(observation)
    if not observation.machine.is_enabled:
        return _opted_out(observation)
    if observation.node is None:
        return _without_node(observation)
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
        # What is asked for rests on there being no approval yet.
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
    """Write nothing: controllers of Cluster API do not act on what is paused, and a moved Machine's node stays.

    What was requested before stays requested.
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


def withdraw_requests(node: Node, *, is_gone: Callable[[NodeRequest | None], bool], is_claimed: bool) -> MetadataChange:
    """Return what takes requests off a node whose Machine is gone.

    `is_gone` tells of each request whether its Machine is gone; None stands for one that does not name its Machine.
    `is_claimed`: another Machine became this node, as after a move.
    """
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {} if is_claimed else {DRAIN_RULES: None}
    for label, annotation in _REQUESTS.items():
        if is_gone(read_request(node, annotation)):
            labels[label] = annotations[annotation] = None
    return metadata_change(node, labels=labels, annotations=annotations, checks_resource_version=True)


def requests_on(node: Node) -> tuple[NodeRequest, ...]:
    """Return the requests on a node that name their Machine."""
    return tuple(
        request for annotation in _REQUESTS.values() if (request := read_request(node, annotation)) is not None
    )


def _opted_out(observation: Observation) -> Decision:
    """Take all of ours off, from the node first: the hook is what reminds a successor of it."""
    machine = observation.machine
    if machine.node and not observation.is_node_known and observation.unreachable_since is None:
        return Decision(is_settled=False)
    change = metadata_change(machine, annotations=_RELEASED, checks_resource_version=True)
    events = (PendingEvent(reason="OptedOut", note=messages.OPTED_OUT),) if PRE_DRAIN_HOOK in change.annotations else ()
    is_settled = observation.is_node_known or not machine.node
    return Decision(node=_remove_all(observation.node), machine=change, events=events, is_settled=is_settled)


def _without_node(observation: Observation) -> Decision:
    """Have a Machine go whose node never was, is gone or cannot be asked for any longer; all else waits."""
    is_settled = observation.is_node_known or not observation.machine.node
    if not observation.machine.is_being_deleted:
        return Decision(is_settled=is_settled)
    return replace(_machine_decision(observation, decide_without_node(observation)), is_settled=is_settled)


def _unmanaged(observation: Observation, node: Node) -> Decision:
    """Take all of ours off: nobody would react to it."""
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
