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
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.api.clusterapi import BARE_METAL_HOSTS, METAL3_GROUP, OUR_REBOOT_ANNOTATION, BareMetalHost, Machine
from haulout.api.clusterapi import GROUP as CLUSTER_API
from haulout.api.reasons import HubEventReason
from haulout.api.resources import Resource
from haulout.controllers.clusterapi.host_power import (
    HostObservation,
    MalformedProviderID,
    Metal3Settings,
    NodeLookup,
    PowerDecision,
    decide,
    host_key,
    is_powered_off_by_us,
)
from haulout.core.backoff import Backoff
from haulout.errors import ObservationStale
from haulout.kube.client import Client
from haulout.kube.discovery import wait_until_served
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch
from haulout.runtime.controller import Controller
from haulout.runtime.journal import Journal, Transition
from haulout.runtime.reconciler import Reconciler

_DISCOVERY_BACKOFF = Backoff(
    first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.2
)  # while Metal3 is not installed
_EVENT_ACTION = "PowerOff"
_WORKERS = 4


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


class Metal3Controller:
    """Runs the reconciler for all hosts. Call `run` at most once; the caller runs the informer of Machines.

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
        self._client = client
        self._machines = machines
        self._journal = Journal("Metal3", events, metrics=client.metrics)
        self._hosts = MutationCache(Informer(client, ListWatch(BARE_METAL_HOSTS), transform=as_is))
        self._machines_by_host: dict[str, set[str]] = {}  # by host: keys of the Machines that name it
        self._reconciler = HostReconciler(
            client,
            machines,
            hosts=self._hosts,
            machines_of=self._machines_of,
            node_of=node_of,
            journal=self._journal,
            settings=settings or Metal3Settings(),
        )
        self._controller: Controller[str, HostObservation, PowerDecision] = Controller(
            self._reconciler, client, name="Metal3", workers=_WORKERS
        )

    async def run(self) -> None:
        """Run until cancelled; wait until Metal3 is installed."""
        await wait_until_served(self._client, BARE_METAL_HOSTS, product="Metal3", backoff=_DISCOVERY_BACKOFF)
        await self._controller.run(background=(self._hosts.informer.run,), start=self._start)

    def enqueue_waiting(self) -> None:
        """Reconcile hosts whose Machines wait: a node may have changed."""
        for host in tuple(self._reconciler.waiting):
            self._controller.queue.add(host)

    def host_power_counts(self) -> HostPowerCounts:
        """Return how many hosts are off, and how many wait."""
        off = sum(map(is_powered_off_by_us, self._hosts.informer.all()))
        return HostPowerCounts(off=off, waiting=len(self._reconciler.waiting))

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._machines.wait_synced()
        await self._hosts.informer.wait_synced()
        subscriptions.callback(self._machines.subscribe(self._on_machine_change))
        subscriptions.callback(self._hosts.informer.subscribe(self._on_host_change))

    def _machines_of(self, host: str) -> tuple[Machine, ...]:
        machines = (self._machines.get(key) for key in sorted(self._machines_by_host.get(host, ())))
        return tuple(machine for machine in machines if machine is not None)

    def _on_host_change(self, old: BareMetalHost | None, new: BareMetalHost | None) -> None:
        host = new or old
        if host is not None and (is_powered_off_by_us(host) or host.key in self._machines_by_host):
            self._controller.queue.add(host.key)

    def _on_machine_change(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            host = "" if machine is None else self._host_key(machine)
            if machine is None or not host:
                continue
            named = self._machines_by_host.setdefault(host, set())
            named.add(machine.key) if machine is new else named.discard(machine.key)
            if not named:
                del self._machines_by_host[host]
            self._controller.queue.add(host)
        if new is None and old is not None:
            self._journal.forget(old.uid)

    def _host_key(self, machine: Machine) -> str:
        try:
            return host_key(machine.spec.provider_id)
        except MalformedProviderID as error:
            if machine.is_enabled or machine.is_approved:
                warning = _machine_warning("MalformedProviderID", str(error), machine, self._machines.resource)
                self._journal.record_once((machine.uid, "providerID"), warning)
            return ""


class HostReconciler(Reconciler[str, HostObservation, PowerDecision]):
    """Reconciles one host. `machines_of` returns the Machines in the cache that name it."""

    def __init__(
        self,
        client: Client,
        machines: Informer[Machine],
        *,
        hosts: MutationCache[BareMetalHost],
        machines_of: Callable[[str], tuple[Machine, ...]],
        node_of: NodeLookup,
        journal: Journal,
        settings: Metal3Settings,
    ) -> None:
        self.waiting: set[str] = set()  # hosts whose Machines wait
        self._client = client
        self._resource = machines.resource.with_model(Machine)
        self._hosts = hosts
        self._machines_of = machines_of
        self._node_of = node_of
        self._journal = journal
        self._settings = settings

    async def observe(self, key: str) -> HostObservation | None:
        host, machines = self._hosts.get(key), self._machines_of(key)
        return None if host is None and not machines else self._observation(key, host, machines)

    def decide(self, observation: HostObservation) -> PowerDecision:
        return decide(observation, self._settings)

    async def act(self, observation: HostObservation, decision: PowerDecision) -> bool:
        host = observation.host
        if host is None or decision.should_be_off == is_powered_off_by_us(host):
            return False
        confirmed = self.decide(
            self._observation(host.key, host, await self._read_machines(host, observation.machines))
        )
        if confirmed.should_be_off != decision.should_be_off:
            raise ObservationStale(f"the Machines of BareMetalHost {host.key} have changed: {confirmed.message}")
        # Metal3 keeps a host off as long as it has any annotation `reboot.metal3.io/…`. Each client has its own suffix.
        annotations = {OUR_REBOOT_ANNOTATION: "" if confirmed.should_be_off else None}
        patch = merge_patch({"metadata": host.preconditions | {"annotations": annotations}})
        self._hosts.record_write(await self._client.patch(BARE_METAL_HOSTS, host.name, patch, namespace=host.namespace))
        self._record_power(host, confirmed)
        return True

    async def report(self, observation: HostObservation, decision: PowerDecision) -> datetime | None:
        """Record an event once per reason for which a Machine waits."""
        key, machine = observation.key, decision.machine
        if not decision.is_waiting or machine is None:
            return await self.forget(key)
        self.waiting.add(key)
        note = f"BareMetalHost {key} is not powered off yet: {decision.message}"
        warning = _machine_warning("HostNotPoweredOff", note, machine, self._resource)
        self._journal.record_once((key, machine.uid), warning)
        return None

    async def refresh(self, key: str, error: Exception) -> bool:
        cached = self._hosts.get(key)
        if cached is None or isinstance(error, ObservationStale):
            return False  # the watch of Machines must deliver what has changed
        await self._hosts.refresh(self._client, BARE_METAL_HOSTS, cached.name, namespace=cached.namespace)
        return True

    async def forget(self, key: str) -> datetime | None:
        self.waiting.discard(key)
        self._journal.forget(key)
        return None

    def _observation(self, key: str, host: BareMetalHost | None, machines: tuple[Machine, ...]) -> HostObservation:
        nodes = {machine.key: node for machine in machines if (node := self._node_of(machine)) is not None}
        return HostObservation(key=key, host=host, machines=machines, nodes=nodes, now=self._client.clock.now())

    async def _read_machines(self, host: BareMetalHost, cached: tuple[Machine, ...]) -> tuple[Machine, ...]:
        """Return the Machines that name a host, read from the API server."""
        if cached:
            machines = [
                machine
                for item in cached
                if (machine := await self._client.find(self._resource, item.name, namespace=item.namespace)) is not None
            ]
        else:  # the cache may have missed one; a Machine and its host share a namespace
            machines = list((await self._client.list(self._resource, namespace=host.namespace)).items)
        return tuple(machine for machine in machines if _names_host(machine, host.key))

    def _record_power(self, host: BareMetalHost, decision: PowerDecision) -> None:
        references = [object_reference(BARE_METAL_HOSTS, host)]
        if decision.machine is not None:
            references.append(object_reference(self._resource, decision.machine))
        if decision.should_be_off:
            reason, what = HubEventReason.HOST_POWERED_OFF, "is powered off"
        else:
            reason, what = HubEventReason.HOST_POWER_OFF_WITHDRAWN, "may be powered on again"
        note = f"BareMetalHost {host.key} {what}: {decision.message}"
        self._journal.record(
            Transition(
                regarding=tuple(references),
                subject=f"BareMetalHost {host.key}",
                reason=reason,
                message=note,
                action=_EVENT_ACTION,
            )
        )


def _machine_warning(reason: str, note: str, machine: Machine, resource: Resource[Any]) -> Transition:
    return Transition(
        regarding=(object_reference(resource, machine),),
        subject=f"Machine {machine.key}",
        reason=reason,
        message=note,
        action=_EVENT_ACTION,
        is_warning=True,
    )


def _names_host(machine: Machine, key: str) -> bool:
    try:
        return host_key(machine.spec.provider_id) == key
    except MalformedProviderID:
        return False
