"""Which BareMetalHosts are to be off: a decision from a host and the Machines that name it. Pure.

    host_of("metal3://metal3/rack7-u12/worker-3")     # "metal3/rack7-u12"
    judge(host, machines, node_of=…)

A host is powered off by an annotation of ours for as long as a Machine that names it is approved for maintenance. Off
is a disruption, so it begins only if all is as it should be: the Machine is enabled and stays, its node is cordoned,
the host is one that can be kept off. Once it is off, a person may have their hands in it: it stays so until the Machine
is not approved any more, opts out, leaves or is gone, or another Machine has the host; not because its node, which is
down, cannot be seen.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haulout.api.clusterapi import Machine
from haulout.api.metal3 import METAL3_MACHINE_KIND, OUR_REBOOT_ANNOTATION, REBOOTABLE_STATES, BareMetalHost
from haulout.api.objects import Node, object_key

_SCHEME = "metal3:"
_MIN_PARTS = 4  # metal3:, nothing, namespace, name

NodeLookup = Callable[[Machine], Node | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metal3Settings:
    """What can differ from one hub to the next."""

    unguarded: bool = False
    """Any approved Machine has its host off, enabled or not, leaving or not, cordoned or not: as it is with the
    runtime-extension-maintenance-controller."""


@dataclass(frozen=True, slots=True)
class PowerDecision:
    """What is to become of a host."""

    should_be_off: bool
    message: str  # in a line, without an end mark
    machine: Machine | None = None  # because of whom
    is_waiting: bool = False  # the Machine is approved, and its host cannot be off as things are


def is_powered_off_by_us(host: BareMetalHost) -> bool:
    """Tell whether a host is off because of us."""
    return OUR_REBOOT_ANNOTATION in host.metadata.annotations


class MalformedProviderID(ValueError):
    """It is one of Metal3's, and does not say which host."""


def host_key(provider_id: str | None) -> str:
    """Return which host a Machine is on, as namespace/name; empty if on none of Metal3's."""
    parts = (provider_id or "").split("/")
    if parts[0] != _SCHEME:
        return ""
    if len(parts) < _MIN_PARTS or parts[1] or not parts[2] or not parts[3]:
        raise MalformedProviderID(f"found spec.providerID {provider_id!r}, expected metal3://NAMESPACE/HOST/NAME")
    return object_key(parts[3], parts[2])


def decide_power(
    host: BareMetalHost, machines: Iterable[Machine], *, node_of: NodeLookup, settings: Metal3Settings | None = None
) -> PowerDecision:
    """Return whether a host is to be off because of one of the Machines that name it."""
    settings = settings or Metal3Settings()
    waiting: PowerDecision | None = None
    refused: PowerDecision | None = None
    for machine in sorted(machines, key=lambda candidate: candidate.key):
        if refusal := _refusal_reason(host, machine, settings):
            is_waiting = machine.is_approved and not machine.is_being_deleted
            refused = refused or PowerDecision(False, refusal, machine, is_waiting=is_waiting)
            continue
        wait_reason = "" if is_powered_off_by_us(host) else _wait_reason(host, machine, node_of, settings)
        if not wait_reason:
            return PowerDecision(True, f"Machine {machine.key} is approved for maintenance", machine)
        waiting = waiting or PowerDecision(False, wait_reason, machine, is_waiting=True)
    return waiting or refused or PowerDecision(False, "no Machine names it any more")


def _refusal_reason(host: BareMetalHost, machine: Machine, settings: Metal3Settings) -> str:
    """Return why a host is not off because of a Machine, whatever comes; empty if it is."""
    if not machine.is_approved:
        return f"Machine {machine.key} is not approved for maintenance"
    if user := _other_consumer(host, machine):
        return f"it is used by {user}, not by Machine {machine.key}"
    if settings.unguarded:
        return ""
    if machine.is_being_deleted:
        return f"Machine {machine.key} is being deleted"
    return "" if machine.is_enabled else f"Machine {machine.key} is not enabled"


def _other_consumer(host: BareMetalHost, machine: Machine) -> str:
    """Return who else uses a host: one that was given to another while our Machine still names it."""
    consumer, infrastructure = host.spec.consumer_ref, machine.spec.infrastructure_ref
    if (
        consumer is None
        or consumer.kind != METAL3_MACHINE_KIND
        or infrastructure.kind != METAL3_MACHINE_KIND
        or not consumer.name
    ):
        return ""
    is_own = consumer.name == infrastructure.name and consumer.namespace in ("", machine.namespace)
    return "" if is_own else f"{METAL3_MACHINE_KIND} {object_key(consumer.name, consumer.namespace)}"


def _wait_reason(host: BareMetalHost, machine: Machine, node_of: NodeLookup, settings: Metal3Settings) -> str:
    """Return why a host cannot be off yet; empty if it can."""
    if settings.unguarded:
        return ""
    if host.spec.disable_power_off:
        return "it has spec.disablePowerOff, and would be rebooted again and again"
    state = host.status.provisioning.state
    if state and state not in REBOOTABLE_STATES:
        return f"it is {state}, and is powered off only when it is {' or '.join(REBOOTABLE_STATES)}"
    if not machine.node:
        return f"Machine {machine.key} has no node"
    node = node_of(machine)
    if node is None:
        return f"node {machine.node} of Machine {machine.key} cannot be seen now"
    return "" if node.spec.unschedulable else f"node {node.name} of Machine {machine.key} is not cordoned"
