"""The Metal3 controller: power off the BareMetalHosts of Machines that are approved for maintenance.

    metal3 = Metal3Controller(client, machines, node_of=controller.node_of, events=events)
    controller.subscribe(metal3.enqueue_waiting)
    await metal3.run()

It reconciles hosts, not Machines: each host either has our reboot annotation or not. So nothing is left behind: a host
with our annotation is reconciled when it is first observed and whenever one of its Machines changes or is deleted,
whatever happened while the controller was down.

Caches may be stale, and both powering off and powering on can do harm. So the Machines are read from the API server
before each write, and the patch has the resourceVersion of the host. Nothing is written that is already there, and
annotations of others are never touched.

`decide_power` decides whether a host must be off, from the host and the Machines that name it. It is pure:

    host_key("metal3://metal3/rack7-u12/worker-3")     # "metal3/rack7-u12"
    decide_power(host, machines, node_of=…)

An annotation of ours keeps a host off as long as a Machine that names it is approved for maintenance. Powering off is a
disruption, so it happens only if the Machine is enabled and not being deleted, its node is cordoned, and the host can
be kept off. Once a host is off, a person may be working on it: it stays off until the Machine is no longer approved,
opts out or is deleted, or another Machine uses the host. It stays off if its node, which is down, cannot be observed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.clusterapi import (
    BARE_METAL_HOSTS,
    METAL3_GROUP,
    METAL3_MACHINE_KIND,
    OUR_REBOOT_ANNOTATION,
    REBOOTABLE_STATES,
    BareMetalHost,
    Machine,
)
from haulout.api.clusterapi import GROUP as CLUSTER_API
from haulout.api.objects import Node, object_key
from haulout.api.reasons import HubEventReason
from haulout.api.resources import Resource
from haulout.core.backoff import Backoff
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder, EventType, object_reference
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

_DISCOVERY_BACKOFF = Backoff(
    first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.2
)  # while Metal3 is not installed
_CONFLICT_DELAY = timedelta(seconds=2)
_WAIT_RECHECK_INTERVAL = timedelta(minutes=1)  # while a Machine waits for something that triggers no event
_WORKERS = 4

_SCHEME = "metal3:"
_MIN_PARTS = 4  # metal3:, empty, namespace, name

NodeLookup = Callable[[Machine], Node | None]


def permissions() -> tuple[Permission, ...]:
    """Return the permissions beyond those to watch Machines and record events."""
    return (
        Permission(
            ("get", "list", "watch", "patch"), METAL3_GROUP, BARE_METAL_HOSTS.plural, None, "power hosts off and on"
        ),
        Permission(("get", "list"), CLUSTER_API, "machines", None, "confirm that hosts must be off"),
    )


@dataclass(frozen=True, slots=True)
class HostPowerCounts:
    """How many hosts are off because of us, and how many should be off but cannot be yet."""

    off: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metal3Settings:
    """Settings of the Metal3 controller. The defaults are stricter than the predecessor."""

    # Every approved Machine has its host powered off, whether enabled, being deleted or cordoned or not, as the
    # runtime-extension-maintenance-controller does.
    unguarded: bool = False


@dataclass(frozen=True, slots=True)
class PowerDecision:
    """The decision for one host, with the Machine and the message for events."""

    should_be_off: bool
    message: str  # one line, without a full stop
    machine: Machine | None = None  # the Machine that caused the decision
    is_waiting: bool = False  # the Machine is approved, but its host cannot be powered off now


class Metal3Controller:
    """Reconciles all hosts. Call `run` at most once; the caller runs the informer of Machines.

    `node_of` returns the node of a Machine; None if it is not known now.
    """

    def __init__(
        self,
        client: Client,
        machines: Informer[Machine],
        *,
        node_of: NodeLookup,
        events: EventRecorder,
        settings: Metal3Settings | None = None,
    ) -> None:
        self.settings = settings or Metal3Settings()
        self._client = client
        self._clock = client.clock
        self._machines = machines
        self._node_of = node_of
        self._events = events
        self._hosts = MutationCache(Informer(client, ListWatch(BARE_METAL_HOSTS), transform=as_is))
        self._machines_by_host: dict[str, set[str]] = {}  # by host: keys of the Machines that name it
        self._waiting: dict[str, tuple[str, str]] = {}  # by host: uid of the waiting Machine, and the reason
        self._malformed: dict[str, tuple[str, str]] = {}  # by Machine: its uid, and its providerID problem
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="Metal3",
        )

    async def run(self) -> None:
        """Run until cancelled; wait until Metal3 is installed."""
        await self._wait_until_served()
        hosts = self._hosts.informer
        async with asyncio.TaskGroup() as group:
            group.create_task(hosts.run())
            await self._machines.wait_synced()
            await hosts.wait_synced()
            with ExitStack() as stack:
                stack.callback(self._machines.subscribe(self._on_machine_change))
                stack.callback(hosts.subscribe(self._on_host_change))
                await self._queue.run()

    def enqueue_waiting(self) -> None:
        """Reconcile hosts whose Machines wait: a node may have changed."""
        for host in tuple(self._waiting):
            self._queue.add(host)

    def host_power_counts(self) -> HostPowerCounts:
        """Return how many hosts are off, and how many wait."""
        return HostPowerCounts(
            off=sum(map(is_powered_off_by_us, self._hosts.informer.all())), waiting=len(self._waiting)
        )

    async def _wait_until_served(self) -> None:
        failures, problem = 0, ""
        while True:
            try:
                if await serves(self._client, BARE_METAL_HOSTS):
                    return
                message = (
                    "Metal3 is not installed in this cluster: there are "
                    f"no {BARE_METAL_HOSTS.plural}.{BARE_METAL_HOSTS.group}"
                )
            except KubeError as error:
                message = f"cannot check whether Metal3 is installed: {error}"
            if message != problem:
                log.warning("%s; retrying", message)
            failures, problem = failures + 1, message
            await self._clock.sleep(_DISCOVERY_BACKOFF.delay(failures, self._client.random))

    # Event handlers

    def _on_host_change(self, old: BareMetalHost | None, new: BareMetalHost | None) -> None:
        host = new or old
        if host is not None and (is_powered_off_by_us(host) or host.key in self._machines_by_host):
            self._queue.add(host.key)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            host = "" if machine is None else self._host_key(machine)
            if machine is None or not host:
                continue
            named = self._machines_by_host.setdefault(host, set())
            named.add(machine.key) if machine is new else named.discard(machine.key)
            if not named:
                del self._machines_by_host[host]
            self._queue.add(host)
        if new is None and old is not None:
            self._malformed.pop(old.key, None)

    def _host_key(self, machine: Machine) -> str:
        try:
            return host_key(machine.spec.provider_id)
        except MalformedProviderID as error:
            report = machine.uid, str(error)
            if (machine.is_enabled or machine.is_approved) and self._malformed.get(machine.key) != report:
                self._malformed[machine.key] = report
                self._record_event(machine, "MalformedProviderID", str(error), is_warning=True)
            return ""

    # Reconcile

    async def _reconcile(self, key: str) -> datetime | None:
        try:
            return await self._reconcile_host(key)
        except (Conflict, NotFound) as error:
            log.debug("BareMetalHost %s has changed, retrying: %s", key, error)
            await self._refresh(key)
            return self._clock.now() + _CONFLICT_DELAY

    async def _reconcile_host(self, key: str) -> datetime | None:
        host, machines = self._hosts.get(key), list(self._machines_of(key))
        if host is None:
            return self._handle_missing_host(key, machines)
        decision = self._decide(host, machines)
        if decision.should_be_off != is_powered_off_by_us(host):
            decision = self._decide(host, await self._read_machines(host, machines))
        if decision.should_be_off != is_powered_off_by_us(host):
            await self._patch_host(host, decision)
        return self._report_waiting(key, decision)

    def _decide(self, host: BareMetalHost, machines: list[Machine]) -> PowerDecision:
        return decide_power(host, machines, node_of=self._node_of, settings=self.settings)

    def _machines_of(self, host: str) -> Iterator[Machine]:
        machines = (self._machines.get(key) for key in sorted(self._machines_by_host.get(host, ())))
        return (machine for machine in machines if machine is not None)

    async def _read_machines(self, host: BareMetalHost, cached: list[Machine]) -> list[Machine]:
        """Return the Machines that name a host, read from the API server."""
        resource = self._machines.resource.with_model(Machine)
        if cached:
            machines = [
                machine
                for cached_machine in cached
                if (machine := await self._read_machine(resource, cached_machine)) is not None
            ]
        else:  # the cache may have missed one; a Machine and its host share a namespace
            machines = list((await self._client.list(resource, namespace=host.namespace)).items)
        return [machine for machine in machines if self._host_key(machine) == host.key]

    async def _read_machine(self, resource: Resource[Machine], machine: Machine) -> Machine | None:
        try:
            return await self._client.get(resource, machine.name, namespace=machine.namespace)
        except NotFound:
            return None

    async def _patch_host(self, host: BareMetalHost, decision: PowerDecision) -> None:
        # Metal3 keeps a host off as long as it has any annotation `reboot.metal3.io/…`. Each client has its own suffix.
        preconditions = {"uid": host.uid, "resourceVersion": host.resource_version}
        patch = merge_patch(
            {
                "metadata": preconditions
                | {"annotations": {OUR_REBOOT_ANNOTATION: "" if decision.should_be_off else None}}
            }
        )
        self._hosts.record_write(await self._client.patch(BARE_METAL_HOSTS, host.name, patch, namespace=host.namespace))
        if decision.should_be_off:
            reason, note = (
                HubEventReason.HOST_POWERED_OFF,
                f"BareMetalHost {host.key} is powered off: {decision.message}",
            )
        else:
            reason, note = (
                HubEventReason.HOST_POWER_OFF_WITHDRAWN,
                f"BareMetalHost {host.key} may be powered on again: {decision.message}",
            )
        log.info("%s", note)
        self._record_event(host, reason, note)
        if decision.machine is not None:
            self._record_event(decision.machine, reason, note)

    async def _refresh(self, key: str) -> None:
        cached = self._hosts.get(key)
        if cached is None:
            return
        try:
            self._hosts.record_write(await self._client.get(BARE_METAL_HOSTS, cached.name, namespace=cached.namespace))
        except NotFound:
            self._hosts.record_delete(cached)

    # Events

    def _handle_missing_host(self, key: str, machines: list[Machine]) -> datetime | None:
        approved = (
            candidate
            for candidate in machines
            if candidate.is_approved and (candidate.is_enabled or self.settings.unguarded)
        )
        machine = next(approved, None)
        return self._report_waiting(
            key, PowerDecision(False, "it does not exist", machine, is_waiting=machine is not None)
        )

    def _report_waiting(self, key: str, decision: PowerDecision) -> datetime | None:
        """Record an event once per reason for which a Machine waits; return when to check again."""
        if not decision.is_waiting or decision.machine is None:
            self._waiting.pop(key, None)
            return None
        wait = decision.machine.uid, decision.message
        if self._waiting.get(key) != wait:
            self._waiting[key] = wait
            note = f"BareMetalHost {key} is not powered off yet: {decision.message}"
            log.info("Machine %s: %s", decision.machine.key, note)
            self._record_event(decision.machine, "HostNotPoweredOff", note, is_warning=True)
        return self._clock.now() + _WAIT_RECHECK_INTERVAL

    def _record_event(self, obj: BareMetalHost | Machine, reason: str, note: str, *, is_warning: bool = False) -> None:
        event_type: EventType = "Warning" if is_warning else "Normal"
        resource = self._machines.resource if isinstance(obj, Machine) else BARE_METAL_HOSTS
        self._events.event(
            object_reference(resource, obj), reason=reason, note=note, action="PowerOff", type=event_type
        )


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
