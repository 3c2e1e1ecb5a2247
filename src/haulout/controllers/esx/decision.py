"""What is done about one node, and why: a pure function of what is seen of it, its host and its machine.

    host in maintenance, or with an alarm of ours, and the restart is approved:
        mark the node and cordon it -> drain it -> ask the guest to shut down -> turn the machine off in the end
    host well again, and the node is marked:
        wait for a guest that was asked to shut down -> turn the machine on -> take our cordon and our marks off

Each step is performed before the next one is decided, and each can be repeated: whoever dies in between is followed by
somebody who reads on the node how far it went. Nodes are decided about one by one: that others on the same host are not
approved holds up nobody. (So it is in the SAP maintenance-controller; its README has said otherwise since 2022.)

What was not cordoned by us is not uncordoned. A marked node without our part in its cordon was marked by the SAP
maintenance-controller, which cordons without a word: that cordon goes with the mark, as it would there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from haulout.api.hold import HELD, active_hold
from haulout.api.objects import Node, RawObject
from haulout.controllers.esx.labels import APPROVED, CORDON_OWNER, INITIATED, SHUTDOWN_REQUESTED, STATE, TRUE, VERSION
from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.vcenter import Host, PowerState, VirtualMachine
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest
from haulout.drain.policy import DrainPolicy
from haulout.kube.timestamps import micro_time

BEGIN_REASON, END_REASON = "EsxMaintenanceBegins", "EsxMaintenanceEnds"  # reasons: a node is taken, and given back


class HostState(StrEnum):
    """How it stands with a host, as the label says it."""

    IN_MAINTENANCE = "true"
    HEALTHY = "false"
    ALARM = "alarm"


def host_state(host: Host, alarms: Iterable[str]) -> HostState:
    """Return the state of a host; an alarm is worse than maintenance."""
    if not host.alarms.isdisjoint(alarms):
        return HostState.ALARM
    return HostState.IN_MAINTENANCE if host.in_maintenance or host.is_entering_maintenance else HostState.HEALTHY


class PowerAction(StrEnum):
    """What is done to a machine."""

    POWER_ON = "turned on"
    SHUT_DOWN = "asked to shut down"
    POWER_OFF = "turned off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of a node."""

    node: Node
    host: Host
    state: HostState
    is_drained: bool = False
    drain_blocker: str = ""  # what has kept it from that for long
    drain_blocked_at: datetime | None = None  # when something will have
    machine: VirtualMachine | None = None  # None: nobody has looked, or it cannot be told which it is
    shutdown_requested: bool = False  # the guest to shut down, by this process and since the machine was last on
    cordon_copy: cordon.Cordon | None = None  # of the mark on the node, kept outside the node
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done next, and how the node is to be drained meanwhile."""

    change: RawObject | None = None  # a patch of the node
    power_action: PowerAction | None = None
    drain: DrainPolicy | None = None  # None: it is not
    requeue_at: datetime | None = None
    message: str = ""
    reason: str = ""  # of an event that tells of it; empty: it is not worth one
    is_warning: bool = False  # somebody should look after it


_NO_ACTION = Decision()
_IS_OFF = "its virtual machine is off"


def decide(observation: Observation, settings: EsxSettings) -> Decision:
    """Return what is to be done about a node."""
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
            "and is written again: the node is held for its ESX host"
        )
        return Decision(change=change, message=message, reason="CordonRestored", is_warning=True)
    if observation.state is HostState.HEALTHY:
        return _decide_power_on(observation, settings) if is_initiated(observation.node) else _NO_ACTION
    if not is_approved(observation.node):
        return _decide_unapproved(observation, settings)
    return _decide_shutdown(observation, settings)


def needs_machine(node: Node, state: HostState) -> bool:
    """Tell whether something may have to be done to the machine of a node."""
    return is_initiated(node) if state is HostState.HEALTHY else is_approved(node)


def is_initiated(node: Node) -> bool:
    """Tell whether a node is in our hands."""
    return node.metadata.annotations.get(INITIATED) == TRUE


def is_approved(node: Node) -> bool:
    """Tell whether a node may be shut down."""
    return node.metadata.labels.get(APPROVED) == TRUE


def _decide_power_on(observation: Observation, settings: EsxSettings) -> Decision:
    if observation.machine is None:
        return _NO_ACTION
    cause = f"ESX host {observation.host.name} is not in maintenance any more"
    if observation.machine.power is not PowerState.ON:
        if change := _annotation_change(
            observation.node, SHUTDOWN_REQUESTED, None
        ):  # first: from now on it is not expected to go off any more
            return Decision(change=change, message=_IS_OFF)
        return Decision(
            power_action=PowerAction.POWER_ON, message=f"{cause}: its virtual machine is turned on", reason="EsxPowerOn"
        )
    if (
        until := _shutdown_deadline(observation, settings)
    ) is not None:  # who gave it back now would leave it off for ever
        return Decision(requeue_at=min(observation.now + settings.shutdown_poll_interval, until))
    message = f"{cause}, and its virtual machine is on: the node is given back"
    return Decision(change=_release_node(observation.node), message=message, reason=END_REASON)


def _decide_unapproved(observation: Observation, settings: EsxSettings) -> Decision:
    """Do nothing more to a node that is not approved, any more perhaps: if it is approved again, it is asked anew."""
    if (until := _shutdown_deadline(observation, settings)) is not None:
        return Decision(requeue_at=until)
    return Decision(change=_annotation_change(observation.node, SHUTDOWN_REQUESTED, None))


def _shutdown_deadline(observation: Observation, settings: EsxSettings) -> datetime | None:
    """Return until when a guest may still do what it was asked to; None: it was not, or its time is over."""
    requested_at = _parse_instant(observation.node.metadata.annotations.get(SHUTDOWN_REQUESTED))
    until = None if requested_at is None or requested_at > observation.now else requested_at + settings.shutdown_timeout
    return until if until is not None and observation.now < until else None


def _decide_shutdown(observation: Observation, settings: EsxSettings) -> Decision:
    node = observation.node
    if not is_initiated(node) and (hold := active_hold(node, now=observation.now)) is not None:
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
            f"and the drain of the node waits: {observation.drain_blocker}"
        )
        return Decision(drain=drain, message=message, reason="EsxDrainBlocked", is_warning=True)
    if not observation.is_drained or observation.machine is None:
        return Decision(drain=drain, requeue_at=observation.drain_blocked_at)
    if observation.machine.power is not PowerState.ON:
        return Decision(drain=drain, change=_annotation_change(node, SHUTDOWN_REQUESTED, None), message=_IS_OFF)
    return _decide_power_off(observation, settings, drain)


def _decide_power_off(observation: Observation, settings: EsxSettings, drain: DrainPolicy) -> Decision:
    requested_at = _parse_instant(observation.node.metadata.annotations.get(SHUTDOWN_REQUESTED))
    if requested_at is None or requested_at > observation.now:  # by a clock that went ahead of ours
        change = _annotation_change(observation.node, SHUTDOWN_REQUESTED, micro_time(observation.now))
        message = "the node is empty: its virtual machine is shut down"
        return Decision(drain=drain, change=change, message=message, reason="EsxShutDown")
    until = requested_at + settings.shutdown_timeout
    if observation.now >= until:
        message = "its virtual machine was asked to shut down and still runs: it is turned off"
        return Decision(drain=drain, power_action=PowerAction.POWER_OFF, message=message, reason="EsxPowerOff")
    requeue_at = min(observation.now + settings.shutdown_poll_interval, until)
    power_action = None if observation.shutdown_requested else PowerAction.SHUT_DOWN
    return Decision(
        drain=drain, power_action=power_action, requeue_at=requeue_at, message="its virtual machine shuts down"
    )


# Changes of nodes: each carries what it rests on


def _label_change(node: Node, labels: dict[str, str]) -> RawObject | None:
    changed = {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}
    return _node_change(node, labels=changed) if changed else None


def _annotation_change(node: Node, key: str, value: str | None) -> RawObject | None:
    is_unchanged = node.metadata.annotations.get(key) == value
    return None if is_unchanged else _node_change(node, annotations={key: value})


def _acquire_node(node: Node, now: datetime) -> RawObject | None:
    """Return what marks a node and cordons it in our name; a cordon that came with the mark is ours, too."""
    cordon_change = cordon.acquire(node, CORDON_OWNER, CordonRequest(), now=now, adopting=is_initiated(node))
    if is_initiated(node):
        return cordon_change
    stale = (
        {SHUTDOWN_REQUESTED: None} if SHUTDOWN_REQUESTED in node.metadata.annotations else {}
    )  # by who took it before: it is asked anew
    return _with_annotations(cordon_change or _node_change(node), {INITIATED: TRUE, **stale})


def _release_node(node: Node) -> RawObject:
    change = cordon.release(node, CORDON_OWNER) if _has_own_cordon(node) else cordon.uncordon_by_hand(node)
    return _with_annotations(change or _node_change(node), {INITIATED: None, SHUTDOWN_REQUESTED: None})


def _has_own_cordon(node: Node) -> bool:
    """Tell whether we have a part in the cordon of a node."""
    mark = cordon.cordon_of(node)
    return mark is not None and CORDON_OWNER in mark.owners


def _node_change(node: Node, **metadata: RawObject) -> RawObject:
    return {"metadata": {**metadata, "uid": node.uid, "resourceVersion": node.resource_version}}


def _with_annotations(change: RawObject, annotations: dict[str, str | None]) -> RawObject:
    metadata = change["metadata"]
    return change | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | annotations}}


def _parse_instant(text: str | None) -> datetime | None:
    """Return an instant as we wrote it; what nobody can read was not written by us."""
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
    return "well"
