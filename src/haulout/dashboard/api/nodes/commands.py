"""Commands that a user can paste into a shell to let a node continue. Pure.

Names, labels and values come from a cluster and may contain anything: everything that a shell could interpret is
quoted.
"""

import shlex
from collections.abc import Iterator

import msgspec

from haulout.api import hold
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.controllers.notices.cancellation import is_from_event_source
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.explain import approval
from haulout.controllers.profiles.explain.approval import Offer
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.nodes.state import orphaned_owners
from haulout.dashboard.api.types import Action, ActionType, Blocker, Command, DrainSummary, NodeState
from haulout.drain.blockers import BlockerKind
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION, InvalidCordonAnnotation, cordon_of

_MAX_COMMANDS = 12


def commands_for(
    observation: NodeSnapshot,
    *,
    state: NodeState,
    drains: tuple[DrainSummary, ...],
    configuration: Configuration | None,
) -> tuple[Command, ...]:
    """Return the commands for a node, the most useful first."""
    found = (
        *_data_commands(observation),
        *_cordon_commands(observation),
        *_release_commands(observation),
        *_unfreeze_commands(observation),
        *(command for drain in drains for item in drain.blockers for command in _blocker_commands(item)),
        *_profile_commands(observation, configuration),
        *_maintenance_commands(observation),
        *_notice_commands(observation),
        *(_start_or_hold_commands(observation) if state in (NodeState.IDLE, NodeState.PLANNED) else ()),
    )
    return tuple({item.command: item for item in reversed(found)}.values())[::-1][:_MAX_COMMANDS]


def _data_commands(observation: NodeSnapshot) -> Iterator[Command]:
    if observation.data_problem:
        yield Command(
            title="Reset the state of its profiles",
            command=f"kubectl annotate node {_quote(observation.node.name)} {DATA_ANNOTATION}-",
            reason="the annotation cannot be parsed; without it all profiles start as operational",
        )


def _cordon_commands(observation: NodeSnapshot) -> Iterator[Command]:
    node, name = observation.node, _quote(observation.node.name)
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        yield Command(
            title="Remove the unreadable cordon annotation and uncordon",
            command=(
                f"kubectl annotate node {name} {CORDON_ANNOTATION}- "
                f"{CORDON_BACKUP_ANNOTATION}- && kubectl uncordon {name}"
            ),
            reason="only after its maintenance: it is no longer known who cordoned it",
        )
        return
    if mark is None and node.spec.unschedulable:
        yield Command(
            title="Uncordon it", command=f"kubectl uncordon {name}", reason="it was cordoned by hand, not by Haulout"
        )
    elif mark is not None and (orphaned := orphaned_owners(mark, observation)):
        yield Command(
            title="Remove what is left of its maintenance",
            command=f"haulout uncordon {name}",
            reason=(
                "it is kept cordoned for "
                f"{', '.join(owner.replace('/', ' ', 1) for owner in orphaned)}, which no longer exists"
            ),
        )


# Blocked pods


def _blocker_commands(blocker: Blocker) -> Iterator[Command]:
    namespace, _, pod = blocker.pod.rpartition("/")
    kubectl = f"kubectl -n {_quote(namespace)}"
    match blocker.kind:
        case BlockerKind.DISRUPTION_BUDGET if blocker.object:
            budget = blocker.object.rpartition("/")[2]
            yield Command(
                title=f"Show {blocker.object}",
                command=f"{kubectl} describe pdb {_quote(budget)}",
                reason="; ".join(filter(None, (blocker.reason, blocker.remedy))),
            )
            if blocker.workload:
                yield Command(title=f"List the pods of {blocker.workload}", command=f"{kubectl} get pods -o wide")
        case BlockerKind.POLICY:
            yield Command(
                title=f"Delete {blocker.pod}", command=f"{kubectl} delete pod {_quote(pod)}", reason=blocker.reason
            )
        case BlockerKind.KUBELET:
            yield Command(
                title=f"Force delete {blocker.pod}",
                command=f"{kubectl} delete pod {_quote(pod)} --force --grace-period=0",
                reason=f"{blocker.reason}; only if the container is known to have stopped",
            )
        case BlockerKind.VOLUME:
            yield Command(
                title=f"Show {blocker.object}",
                command="kubectl get volumeattachments",
                reason="; ".join(filter(None, (blocker.reason, blocker.remedy))),
            )
        case BlockerKind.PERMISSION:
            yield Command(
                title="Show the permissions that Haulout lacks", command="haulout cluster-info", reason=blocker.reason
            )
        case (
            BlockerKind.FINALIZER
            | BlockerKind.WEBHOOK
            | BlockerKind.API
            | BlockerKind.SEVERAL_DISRUPTION_BUDGETS
            | BlockerKind.RULE
        ):
            yield Command(
                title=f"Show {blocker.pod}",
                command=f"{kubectl} get pod {_quote(pod)} -o yaml",
                reason="; ".join(filter(None, (blocker.reason, blocker.remedy))),
            )


# Profiles


def _profile_commands(observation: NodeSnapshot, configuration: Configuration | None) -> Iterator[Command]:
    """Yield commands for transitions that labels or annotations alone can unblock."""
    reports = () if observation.info is None else observation.info.reports
    offered = () if configuration is None else approval.offers(reports, configuration)
    for offer in offered:
        if not offer.waits_for or offer.is_approval:
            yield _approval_command(offer, observation)


def _approval_command(offer: Offer, observation: NodeSnapshot) -> Command:
    only = offer.checks[0]
    is_one = len(offer.checks) == 1 and offer.changes[0].value is not None
    return Command(
        title=f"Approve for profile {offer.profile}"
        if offer.waits_for
        else f"Let profile {offer.profile} change to {offer.target}",
        command=approval.command(observation.node, offer.changes),
        reason=f"it changes to {offer.target} when {' and '.join(filter(None, (offer.remedy_text, offer.waits_for)))}",
        action=Action(action=ActionType.APPROVE, node=observation.node.name, profile=offer.profile, check=only)
        if is_one
        else None,
    )


# NodeMaintenances and notices


def _maintenance_commands(observation: NodeSnapshot) -> Iterator[Command]:
    for maintenance in observation.orders:
        if not maintenance.is_being_deleted:
            yield Command(
                title="End the maintenance and uncordon the node",
                command=f"kubectl delete nodemaintenance {_quote(maintenance.name)}",
                action=Action(action=ActionType.CANCEL, node=observation.node.name, maintenance=maintenance.name),
            )


def _notice_commands(observation: NodeSnapshot) -> Iterator[Command]:
    for notice in observation.notices:
        if not is_from_event_source(notice.spec):
            yield Command(
                title="Cancel the announced maintenance",
                command=f"haulout notice cancel {_quote(notice.name)}",
                action=Action(action=ActionType.CANCEL, node=observation.node.name, notice=notice.name),
            )


def _release_commands(observation: NodeSnapshot) -> Iterator[Command]:
    if hold_text := hold.describe_hold(observation.node, now=observation.now):
        name = observation.node.name
        yield Command(
            title="Release the hold",
            command=f"haulout release {_quote(name)}",
            reason=f"it is {hold_text}",
            action=Action(action=ActionType.RELEASE, node=name),
        )


def _unfreeze_commands(observation: NodeSnapshot) -> Iterator[Command]:
    held = observation.hold
    if held is not None and held.freeze:
        yield Command(
            title="End the freeze",
            command=f"haulout unfreeze {_quote(held.freeze)}",
            reason=f"the node is {held}; then maintenance begins again on all its nodes",
        )


def _start_or_hold_commands(observation: NodeSnapshot) -> Iterator[Command]:
    if not observation.orders:
        yield from _start_commands(observation)
    if hold.hold_of(observation.node) is None:
        name = observation.node.name
        yield Command(
            title="Hold the node",
            command=f"haulout hold {_quote(name)} --for 4h --reason 'by hand'",
            reason="Haulout starts no maintenance on it until then; maintenance that a cloud announces still happens",
            action=Action(action=ActionType.HOLD, node=name),
        )


def _start_commands(observation: NodeSnapshot) -> Iterator[Command]:
    name = observation.node.name
    yield Command(
        title="Start maintenance now",
        command=start_maintenance_command(name, reason="by hand"),
        reason="cordons and drains it within the budget; deleting the NodeMaintenance uncordons it",
        action=Action(action=ActionType.START, node=name),
    )


def start_maintenance_command(node: str, *, reason: str) -> str:
    """Return the command that starts a maintenance."""
    return (
        f"echo {_quote(msgspec.json.encode(node_maintenance_manifest(node, reason=reason)).decode())} "
        "| kubectl apply -f -"
    )


def node_maintenance_manifest(node: str, *, reason: str) -> RawObject:
    """Return the NodeMaintenance of a node; deterministic, so that repeated requests create only one."""
    return {
        "apiVersion": NODE_MAINTENANCES.api_version,
        "kind": NODE_MAINTENANCES.kind,
        "metadata": {"name": node},
        "spec": {"nodeName": node, "reason": reason},
    }


_quote = shlex.quote
