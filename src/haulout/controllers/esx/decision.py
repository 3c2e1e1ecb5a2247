"""The decision for one node, from the observed node, host and virtual machine. Pure.

    host in maintenance, or with a configured alarm, and the restart is approved:
        annotate and cordon the node -> drain it -> shut the guest down -> power the machine off after a timeout
    host healthy again, and the node is annotated:
        wait for a guest that is shutting down -> power the machine on -> remove our cordon and annotations

Each action is executed before the next decision, and each can be repeated: after a crash the next leader reads from the
node how far it got. Each node is decided on its own: unapproved nodes on the same host do not block others. (The SAP
maintenance-controller does the same; its README has said otherwise since 2022.)

Only cordons of our own are removed. An annotated node without our cordon owner was annotated by the SAP
maintenance-controller, which records no owner: that cordon is removed with the annotation, as it would be there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from haulout.api.hold import HELD
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import EsxEventReason
from haulout.controllers.esx.labels import (
    CORDON_OWNER,
    INITIATED,
    SHUTDOWN_REQUESTED,
    STATE,
    TRUE,
    VERSION,
    HostState,
    is_approved,
    is_initiated,
)
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import Host, PowerState, VirtualMachine
from haulout.core.timestamps import micro_time
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest
from haulout.drain.policy import DrainPolicy
from haulout.runtime.freezes import Freezes

BEGIN_REASON, END_REASON = EsxEventReason.ESX_MAINTENANCE_STARTED, EsxEventReason.ESX_MAINTENANCE_ENDED  # event reasons


def host_state(host: Host, alarms: Iterable[str]) -> HostState:
    """Return the state of a host; an alarm takes precedence over maintenance."""
    if not host.alarms.isdisjoint(alarms):
        return HostState.ALARM
    return HostState.IN_MAINTENANCE if host.in_maintenance or host.is_entering_maintenance else HostState.HEALTHY


class PowerAction(StrEnum):
    """An action on a virtual machine."""

    POWER_ON = "powered on"
    SHUT_DOWN = "asked to shut down"
    POWER_OFF = "powered off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about a node."""

    node: Node
    host: Host
    state: HostState
    is_drained: bool = False
    drain_blocker: str = ""  # why its drain has been blocked for long
    drain_blocked_at: datetime | None = None  # when the drain will count as blocked for long
    machine: VirtualMachine | None = None  # None: not queried, or ambiguous
    shutdown_requested: bool = False  # this process asked the guest to shut down since the machine was last powered on
    cordon_copy: cordon.Cordon | None = None  # of the cordon annotation, stored outside the node
    freezes: Freezes = field(default_factory=Freezes)
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next action, and how the node is drained meanwhile."""

    change: RawObject | None = None  # a patch of the node
    power_action: PowerAction | None = None
    drain: DrainPolicy | None = None  # None: no drain
    requeue_at: datetime | None = None
    message: str = ""
    reason: str = ""  # of an event; empty: no event
    is_warning: bool = False  # a person should look into it


_NO_ACTION = Decision()
_IS_OFF = "its virtual machine is off"


def decide(observation: Observation, settings: EsxSettings) -> Decision:
    """Return the next action for a node."""
    labels = {VERSION: observation.host.version, STATE: str(observation.state)}
    if change := _label_change(observation.node, {key: value for key, value in labels.items() if value}):
        return Decision(
            change=change, message=f"ESX host {observation.host.name} is {_describe_host_state(observation)}"
        )
    if observation.cordon_copy is not None and (
        change := cordon.repair(observation.node, (CORDON_OWNER,), copy=observation.cordon_copy)
    ):
        message = (
            f"{cordon.describe_annotation_damage(observation.node)}, "
            "and is restored: the node stays cordoned for its ESX host"
        )
        return Decision(change=change, message=message, reason=EsxEventReason.CORDON_RESTORED, is_warning=True)
    if observation.state is HostState.HEALTHY:
        return _decide_power_on(observation, settings) if is_initiated(observation.node) else _NO_ACTION
    if not is_approved(observation.node):
        return _decide_unapproved(observation, settings)
    return _decide_shutdown(observation, settings)


def needs_machine(node: Node, state: HostState) -> bool:
    """Return whether the node's machine may need a power action."""
    return is_initiated(node) if state is HostState.HEALTHY else is_approved(node)


def _decide_power_on(observation: Observation, settings: EsxSettings) -> Decision:
    if observation.machine is None:
        return _NO_ACTION
    cause = f"ESX host {observation.host.name} is no longer in maintenance"
    if observation.machine.power is not PowerState.ON:
        if change := _annotation_change(
            observation.node, SHUTDOWN_REQUESTED, None
        ):  # first: from now on no shutdown is pending
            return Decision(change=change, message=_IS_OFF)
        return Decision(
            power_action=PowerAction.POWER_ON,
            message=f"{cause}: its virtual machine is powered on",
            reason=EsxEventReason.ESX_POWER_ON,
        )
    if (
        until := _shutdown_deadline(observation, settings)
    ) is not None:  # if the node were released now, the pending shutdown would leave the machine off for good
        return Decision(requeue_at=min(observation.now + settings.shutdown_poll_interval, until))
    message = f"{cause}, and its virtual machine is on: the cordon for the ESX host is removed"
    return Decision(change=_release_node(observation.node), message=message, reason=END_REASON)


def _decide_unapproved(observation: Observation, settings: EsxSettings) -> Decision:
    """Do nothing more to an unapproved node, except to remove an expired shutdown request.

    If the node is approved again, the guest is asked again.
    """
    if (until := _shutdown_deadline(observation, settings)) is not None:
        return Decision(requeue_at=until)
    return Decision(change=_annotation_change(observation.node, SHUTDOWN_REQUESTED, None))


def _shutdown_deadline(observation: Observation, settings: EsxSettings) -> datetime | None:
    """Return until when the guest may still shut down; None: it was not asked, or the timeout has passed."""
    requested_at = _parse_instant(observation.node.metadata.annotations.get(SHUTDOWN_REQUESTED))
    until = None if requested_at is None or requested_at > observation.now else requested_at + settings.shutdown_timeout
    return until if until is not None and observation.now < until else None


def _decide_shutdown(observation: Observation, settings: EsxSettings) -> Decision:
    node = observation.node
    if not is_initiated(node) and (hold := observation.freezes.hold_on(node, now=observation.now)) is not None:
        message = f"ESX host {observation.host.name} is {_describe_host_state(observation)}, but the node is {hold}"
        return Decision(requeue_at=hold.until, message=message, reason=HELD, is_warning=True)
    if change := _acquire_node(node, observation.now):
        cause = f"ESX host {observation.host.name} is {_describe_host_state(observation)}, and the restart is approved"
        message = f"{cause}: the node is cordoned and drained, and its virtual machine shut down"
        return Decision(change=change, message=message, reason="" if _has_own_cordon(node) else BEGIN_REASON)
    drain = settings.drain_policy(immediate=observation.state is HostState.ALARM)
    if observation.drain_blocker:
        message = (
            f"ESX host {observation.host.name} is {_describe_host_state(observation)}, "
            f"and the drain of the node is blocked: {observation.drain_blocker}"
        )
        return Decision(drain=drain, message=message, reason=EsxEventReason.ESX_DRAIN_BLOCKED, is_warning=True)
    if not observation.is_drained or observation.machine is None:
        return Decision(drain=drain, requeue_at=observation.drain_blocked_at)
    if observation.machine.power is not PowerState.ON:
        return Decision(drain=drain, change=_annotation_change(node, SHUTDOWN_REQUESTED, None), message=_IS_OFF)
    return _decide_power_off(observation, settings, drain)


def _decide_power_off(observation: Observation, settings: EsxSettings, drain: DrainPolicy) -> Decision:
    requested_at = _parse_instant(observation.node.metadata.annotations.get(SHUTDOWN_REQUESTED))
    if requested_at is None or requested_at > observation.now:  # in the future: written with another clock
        change = _annotation_change(observation.node, SHUTDOWN_REQUESTED, micro_time(observation.now))
        message = "the node is empty: its virtual machine is shut down"
        return Decision(drain=drain, change=change, message=message, reason=EsxEventReason.ESX_SHUT_DOWN)
    until = requested_at + settings.shutdown_timeout
    if observation.now >= until:
        message = "its virtual machine was asked to shut down and still runs: it is powered off"
        return Decision(
            drain=drain, power_action=PowerAction.POWER_OFF, message=message, reason=EsxEventReason.ESX_POWER_OFF
        )
    requeue_at = min(observation.now + settings.shutdown_poll_interval, until)
    power_action = None if observation.shutdown_requested else PowerAction.SHUT_DOWN
    return Decision(
        drain=drain, power_action=power_action, requeue_at=requeue_at, message="its virtual machine shuts down"
    )


# Patches of nodes, each with uid and resourceVersion


def _label_change(node: Node, labels: dict[str, str]) -> RawObject | None:
    changed = {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}
    return _node_change(node, labels=changed) if changed else None


def _annotation_change(node: Node, key: str, value: str | None) -> RawObject | None:
    is_unchanged = node.metadata.annotations.get(key) == value
    return None if is_unchanged else _node_change(node, annotations={key: value})


def _acquire_node(node: Node, now: datetime) -> RawObject | None:
    """Return the patch that annotates the node and cordons it with our owner.

    A cordon that came with the annotation is adopted.
    """
    cordon_change = cordon.acquire(node, CORDON_OWNER, CordonRequest(), now=now, adopting=is_initiated(node))
    if is_initiated(node):
        return cordon_change
    stale = (
        {SHUTDOWN_REQUESTED: None} if SHUTDOWN_REQUESTED in node.metadata.annotations else {}
    )  # from an earlier maintenance: the guest must be asked again
    return _with_annotations(cordon_change or _node_change(node), {INITIATED: TRUE, **stale})


def _release_node(node: Node) -> RawObject:
    change = cordon.release(node, CORDON_OWNER) if _has_own_cordon(node) else cordon.uncordon_by_hand(node)
    return _with_annotations(change or _node_change(node), {INITIATED: None, SHUTDOWN_REQUESTED: None})


def _has_own_cordon(node: Node) -> bool:
    """Return whether we are an owner of the node's cordon."""
    mark = cordon.cordon_of(node)
    return mark is not None and CORDON_OWNER in mark.owners


def _node_change(node: Node, **metadata: RawObject) -> RawObject:
    return {"metadata": {**metadata, "uid": node.uid, "resourceVersion": node.resource_version}}


def _with_annotations(change: RawObject, annotations: dict[str, str | None]) -> RawObject:
    metadata = change["metadata"]
    return change | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | annotations}}


def _parse_instant(text: str | None) -> datetime | None:
    """Parse an instant that we wrote; None if it is invalid or has no time zone, since then we did not write it."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None


def _describe_host_state(observation: Observation) -> str:
    match observation.state:
        case HostState.ALARM:
            return f"in state alarm ({', '.join(sorted(observation.host.alarms))})"
        case HostState.IN_MAINTENANCE:
            return "in maintenance" if observation.host.in_maintenance else "entering maintenance"
    return "healthy"
