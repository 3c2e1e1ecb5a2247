"""Whether a BareMetalHost must be off, from the host and the Machines that name it. Pure.

    host_key("metal3://metal3/rack7-u12/worker-3")     # "metal3/rack7-u12"
    decide_power(host, machines, node_of=…)

An annotation of ours keeps a host off as long as a Machine that names it is approved for maintenance. Powering off is a
disruption, so it happens only if the Machine is enabled and not being deleted, its node is cordoned, and the host can
be kept off. Once a host is off, a person may be working on it: it stays off until the Machine is no longer approved,
opts out or is deleted, or another Machine uses the host. It stays off if its node, which is down, cannot be observed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haulout.api.clusterapi import (
    METAL3_MACHINE_KIND,
    OUR_REBOOT_ANNOTATION,
    REBOOTABLE_STATES,
    BareMetalHost,
    Machine,
)
from haulout.api.objects import Node, object_key

_WAIT_RECHECK_INTERVAL = timedelta(minutes=1)  # while a Machine waits for something that triggers no event

_SCHEME = "metal3:"
_MIN_PARTS = 4  # metal3:, empty, namespace, name

NodeLookup = Callable[[Machine], Node | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metal3Settings:
    """Settings of the Metal3 controller. The defaults are stricter than the predecessor."""

    # Every approved Machine has its host powered off, whether enabled, being deleted or cordoned or not, as the
    # runtime-extension-maintenance-controller does.
    unguarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostObservation:
    """A host, and the Machines that name it."""

    key: str
    host: BareMetalHost | None  # None: it does not exist
    machines: tuple[Machine, ...]
    nodes: Mapping[str, Node] = field(default_factory=dict)  # by key of the Machine, as far as they are known
    now: datetime


@dataclass(frozen=True, slots=True)
class PowerDecision:
    """The decision for one host, with the Machine and the message for events."""

    should_be_off: bool
    message: str  # one line, without a full stop
    machine: Machine | None = None  # the Machine that caused the decision
    is_waiting: bool = False  # the Machine is approved, but its host cannot be powered off now
    requeue_at: datetime | None = None


def decide(observation: HostObservation, settings: Metal3Settings) -> PowerDecision:
    if observation.host is None:
        decision = _without_host(observation.machines, settings)
    else:
        decision = decide_power(
            observation.host,
            observation.machines,
            node_of=lambda machine: observation.nodes.get(machine.key),
            settings=settings,
        )
    return replace(decision, requeue_at=observation.now + _WAIT_RECHECK_INTERVAL) if decision.is_waiting else decision


def _without_host(machines: Iterable[Machine], settings: Metal3Settings) -> PowerDecision:
    approved = (item for item in machines if item.is_approved and (item.is_enabled or settings.unguarded))
    machine = next(approved, None)
    return PowerDecision(False, "it does not exist", machine, is_waiting=machine is not None)


def is_powered_off_by_us(host: BareMetalHost) -> bool:
    return OUR_REBOOT_ANNOTATION in host.metadata.annotations


class MalformedProviderID(ValueError):
    """The provider ID is one of Metal3, but does not name a host."""


def host_key(provider_id: str | None) -> str:
    """Return the `namespace/name` of a Machine's host; empty if the provider ID is not one of Metal3.

    Raise `MalformedProviderID` if it does not name a host.
    """
    parts = (provider_id or "").split("/")
    if parts[0] != _SCHEME:
        return ""
    if len(parts) < _MIN_PARTS or parts[1] or not parts[2] or not parts[3]:
        raise MalformedProviderID(f"found spec.providerID {provider_id!r}, expected metal3://NAMESPACE/HOST/NAME")
    return object_key(parts[3], parts[2])


def decide_power(
    host: BareMetalHost, machines: Iterable[Machine], *, node_of: NodeLookup, settings: Metal3Settings | None = None
) -> PowerDecision:
    """Return whether a host must be off because of one of the Machines that name it."""
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
    return waiting or refused or PowerDecision(False, "no Machine uses it any more")


def _refusal_reason(host: BareMetalHost, machine: Machine, settings: Metal3Settings) -> str:
    """Return why a Machine does not keep a host off; empty if it does."""
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
    """Return which other Metal3Machine uses a host that our Machine still names; empty if none does."""
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
    """Return why a host cannot be powered off yet; empty if it can."""
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
        return f"node {machine.node} of Machine {machine.key} cannot be read now"
    return "" if node.spec.unschedulable else f"node {node.name} of Machine {machine.key} is not cordoned"
