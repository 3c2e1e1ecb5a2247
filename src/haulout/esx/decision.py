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

from haulout.drain import cordon
from haulout.drain.cordon import Wishes
from haulout.drain.policy import Policy
from haulout.esx.keys import APPROVED, ASKED, INITIATED, OWNER, STATE, TRUE, VERSION
from haulout.esx.settings import Settings
from haulout.esx.vcenter import Host, Machine, Power
from haulout.kinds.hold import HELD, holding
from haulout.kube.objects import Node, RawObject
from haulout.kube.timestamps import micro_time

BEGINS, ENDS = "EsxMaintenanceBegins", "EsxMaintenanceEnds"  # reasons: a node is taken, and given back


class HostState(StrEnum):
    """How it stands with a host, as the label says it."""

    IN_MAINTENANCE = "true"
    WELL = "false"
    ALARM = "alarm"


def state_of(host: Host, alarms: Iterable[str]) -> HostState:
    """Return the state of a host; an alarm is worse than maintenance."""
    if not host.alarms.isdisjoint(alarms):
        return HostState.ALARM
    return HostState.IN_MAINTENANCE if host.in_maintenance or host.is_entering else HostState.WELL


class Act(StrEnum):
    """What is done to a machine."""

    POWER_ON = "turned on"
    SHUT_DOWN = "asked to shut down"
    POWER_OFF = "turned off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is seen of a node."""

    node: Node
    host: Host
    state: HostState
    is_drained: bool = False
    blocked: str = ""  # what has kept it from that for long
    blocked_from: datetime | None = None  # when something will have
    machine: Machine | None = None  # None: nobody has looked, or it cannot be told which it is
    was_asked: bool = False  # the guest to shut down, by this process and since the machine was last on
    cordon_copy: cordon.Cordon | None = None  # of the mark on the node, kept outside the node
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be done next, and how the node is to be drained meanwhile."""

    change: RawObject | None = None  # a patch of the node
    act: Act | None = None
    drain: Policy | None = None  # None: it is not
    again_at: datetime | None = None
    why: str = ""
    reason: str = ""  # of an event that tells of it; empty: it is not worth one
    is_bad: bool = False  # somebody should look after it


_NOTHING = Decision()
_IS_OFF = "its virtual machine is off"


def decide(seen: Seen, settings: Settings) -> Decision:
    """Return what is to be done about a node."""
    labels = {VERSION: seen.host.version, STATE: str(seen.state)}
    if change := _labelled(seen.node, {key: value for key, value in labels.items() if value}):
        return Decision(change=change, why=f"ESX host {seen.host.name} is {_told(seen)}")
    if seen.cordon_copy is not None and (change := cordon.repaired(seen.node, (OWNER,), copy=seen.cordon_copy)):
        why = f"{cordon.damage(seen.node)}, and is written again: the node is held for its ESX host"
        return Decision(change=change, why=why, reason="CordonRestored", is_bad=True)
    if seen.state is HostState.WELL:
        return _start(seen, settings) if is_initiated(seen.node) else _NOTHING
    if not is_approved(seen.node):
        return _leave(seen, settings)
    return _shut_down(seen, settings)


def needs_machine(node: Node, state: HostState) -> bool:
    """Tell whether something may have to be done to the machine of a node."""
    return is_initiated(node) if state is HostState.WELL else is_approved(node)


def is_initiated(node: Node) -> bool:
    """Tell whether a node is in our hands."""
    return node.metadata.annotations.get(INITIATED) == TRUE


def is_approved(node: Node) -> bool:
    """Tell whether a node may be shut down."""
    return node.metadata.labels.get(APPROVED) == TRUE


def _start(seen: Seen, settings: Settings) -> Decision:
    if seen.machine is None:
        return _NOTHING
    well = f"ESX host {seen.host.name} is not in maintenance any more"
    if seen.machine.power is not Power.ON:
        if change := _annotated(seen.node, ASKED, None):  # first: from now on it is not expected to go off any more
            return Decision(change=change, why=_IS_OFF)
        return Decision(act=Act.POWER_ON, why=f"{well}: its virtual machine is turned on", reason="EsxPowerOn")
    if (until := _obeys_until(seen, settings)) is not None:  # who gave it back now would leave it off for ever
        return Decision(again_at=min(seen.now + settings.looks_every, until))
    why = f"{well}, and its virtual machine is on: the node is given back"
    return Decision(change=_given_back(seen.node), why=why, reason=ENDS)


def _leave(seen: Seen, settings: Settings) -> Decision:
    """Do nothing more to a node that is not approved, any more perhaps: if it is approved again, it is asked anew."""
    if (until := _obeys_until(seen, settings)) is not None:
        return Decision(again_at=until)
    return Decision(change=_annotated(seen.node, ASKED, None))


def _obeys_until(seen: Seen, settings: Settings) -> datetime | None:
    """Return until when a guest may still do what it was asked to; None: it was not, or its time is over."""
    asked = _instant(seen.node.metadata.annotations.get(ASKED))
    until = None if asked is None or asked > seen.now else asked + settings.shuts_down_within
    return until if until is not None and seen.now < until else None


def _shut_down(seen: Seen, settings: Settings) -> Decision:
    node = seen.node
    if not is_initiated(node) and (hold := holding(node, now=seen.now)) is not None:
        why = f"ESX host {seen.host.name} is {_told(seen)}, but the node is {hold}"
        return Decision(again_at=hold.until, why=why, reason=HELD, is_bad=True)
    if change := _taken(node, seen.now):
        begins = f"ESX host {seen.host.name} is {_told(seen)}, and the restart is approved"
        why = f"{begins}: the node is cordoned and drained, and its virtual machine shut down"
        return Decision(change=change, why=why, reason="" if _is_ours(node) else BEGINS)
    drain = settings.policy(in_a_hurry=seen.state is HostState.ALARM)
    if seen.blocked:
        why = f"ESX host {seen.host.name} is {_told(seen)}, and the drain of the node waits: {seen.blocked}"
        return Decision(drain=drain, why=why, reason="EsxDrainBlocked", is_bad=True)
    if not seen.is_drained or seen.machine is None:
        return Decision(drain=drain, again_at=seen.blocked_from)
    if seen.machine.power is not Power.ON:
        return Decision(drain=drain, change=_annotated(node, ASKED, None), why=_IS_OFF)
    return _turn_off(seen, settings, drain)


def _turn_off(seen: Seen, settings: Settings, drain: Policy) -> Decision:
    asked = _instant(seen.node.metadata.annotations.get(ASKED))
    if asked is None or asked > seen.now:  # by a clock that went ahead of ours
        change = _annotated(seen.node, ASKED, micro_time(seen.now))
        why = "the node is empty: its virtual machine is shut down"
        return Decision(drain=drain, change=change, why=why, reason="EsxShutDown")
    until = asked + settings.shuts_down_within
    if seen.now >= until:
        why = "its virtual machine was asked to shut down and still runs: it is turned off"
        return Decision(drain=drain, act=Act.POWER_OFF, why=why, reason="EsxPowerOff")
    again_at = min(seen.now + settings.looks_every, until)
    act = None if seen.was_asked else Act.SHUT_DOWN
    return Decision(drain=drain, act=act, again_at=again_at, why="its virtual machine shuts down")


# Changes of nodes: each carries what it rests on


def _labelled(node: Node, labels: dict[str, str]) -> RawObject | None:
    changed = {key: value for key, value in labels.items() if node.metadata.labels.get(key) != value}
    return _change(node, labels=changed) if changed else None


def _annotated(node: Node, key: str, value: str | None) -> RawObject | None:
    is_so = node.metadata.annotations.get(key) == value
    return None if is_so else _change(node, annotations={key: value})


def _taken(node: Node, now: datetime) -> RawObject | None:
    """Return what marks a node and cordons it in our name; a cordon that came with the mark is ours, too."""
    held = cordon.acquire(node, OWNER, Wishes(), now=now, adopting=is_initiated(node))
    if is_initiated(node):
        return held
    left = {ASKED: None} if ASKED in node.metadata.annotations else {}  # by who took it before: it is asked anew
    return _also(held or _change(node), {INITIATED: TRUE, **left})


def _given_back(node: Node) -> RawObject:
    change = cordon.release(node, OWNER) if _is_ours(node) else cordon.uncordon_by_hand(node)
    return _also(change or _change(node), {INITIATED: None, ASKED: None})


def _is_ours(node: Node) -> bool:
    """Tell whether we have a part in the cordon of a node."""
    mark = cordon.cordon_of(node)
    return mark is not None and OWNER in mark.owners


def _change(node: Node, **metadata: RawObject) -> RawObject:
    return {"metadata": {**metadata, "uid": node.uid, "resourceVersion": node.resource_version}}


def _also(change: RawObject, annotations: dict[str, str | None]) -> RawObject:
    metadata = change["metadata"]
    return change | {"metadata": metadata | {"annotations": metadata.get("annotations", {}) | annotations}}


def _instant(text: str | None) -> datetime | None:
    """Return an instant as we wrote it; what nobody can read was not written by us."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _told(seen: Seen) -> str:
    match seen.state:
        case HostState.ALARM:
            return f"in state alarm ({', '.join(sorted(seen.host.alarms))})"
        case HostState.IN_MAINTENANCE:
            return "in maintenance" if seen.host.in_maintenance else "entering maintenance"
    return "well"
