"""Metal3 beside the hub: BareMetalHosts of Machines that are approved for maintenance are powered off.

    metal3 = Metal3(client, machines, node_of=hub.node_of, events=events)
    hub.subscribe(metal3.nudge)
    await metal3.run()

It goes by hosts, not by Machines (`haulout.controllers.clusterapi.metal3.decision` decides): for each host it sees to
it that our annotation is there or is not. So nothing is left behind: whatever became of a Machine while nobody looked,
a host with our annotation is looked at when it is first seen, and whenever one of its Machines changes or goes.

Copies may be old, and both to power off and to power on can do harm. So the Machines are read from the server before
each write, which carries the version of the host that it rests on. Nothing is written that is there already, and
nobody else's annotation is touched.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.clusterapi import GROUP as CLUSTER_API
from haulout.api.clusterapi import Machine
from haulout.api.metal3 import BARE_METAL_HOSTS, GROUP, OUR_REBOOT_ANNOTATION, BareMetalHost
from haulout.api.resources import Resource
from haulout.controllers.clusterapi.metal3.decision import (
    MalformedProviderID,
    Metal3Settings,
    NodeLookup,
    PowerDecision,
    decide_power,
    host_key,
    is_powered_off_by_us,
)
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
)  # whether there is Metal3 by now
_CONFLICT_DELAY = timedelta(seconds=2)
_WAIT_RECHECK_INTERVAL = timedelta(minutes=1)  # while a Machine waits for what nobody tells of
_WORKERS = 4


def permissions() -> tuple[Permission, ...]:
    """Return what is needed, beside what follows Machines and tells people by events."""
    return (
        Permission(("get", "list", "watch", "patch"), GROUP, BARE_METAL_HOSTS.plural, None, "power hosts off and on"),
        Permission(("get", "list"), CLUSTER_API, "machines", None, "be sure that hosts are to be off"),
    )


@dataclass(frozen=True, slots=True)
class HostPowerCounts:
    """How many hosts are off because of us, and how many should be and cannot."""

    off: int
    waiting: int


class Metal3Controller:
    """Sees to all hosts; `run` may be called once, and somebody else runs the copy of Machines.

    `node_of` returns the node that a Machine became, as far as it can be seen now.
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
        self._machines_by_host: dict[str, set[str]] = {}  # by host: the keys of Machines that name it
        self._waiting: dict[str, tuple[str, str]] = {}  # by host: whose Machine waits, and what it waits for
        self._malformed: dict[str, tuple[str, str]] = {}  # by Machine: its uid, and what was told of its providerID
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="Metal3",
        )

    async def run(self) -> None:
        """Work until cancelled; without Metal3 in the cluster it waits for that."""
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
        """Look again at hosts whose Machines wait: something about a node may have changed."""
        for host in tuple(self._waiting):
            self._queue.add(host)

    def host_power_counts(self) -> HostPowerCounts:
        """Return how it stands with all hosts."""
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
                message = f"whether there is Metal3 cannot be told: {error}"
            if message != problem:
                log.warning("%s; asking again", message)
            failures, problem = failures + 1, message
            await self._clock.sleep(_DISCOVERY_BACKOFF.delay(failures, self._client.random))

    # Who is woken by what

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

    # One host

    async def _reconcile(self, key: str) -> datetime | None:
        try:
            return await self._reconcile_host(key)
        except (Conflict, NotFound) as error:
            log.debug("BareMetalHost %s is not as it was: %s", key, error)
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
        """Return the Machines that name a host, as the server has them right now."""
        resource = self._machines.resource.with_model(Machine)
        if cached:
            machines = [
                machine
                for cached_machine in cached
                if (machine := await self._read_machine(resource, cached_machine)) is not None
            ]
        else:  # there may be one after all; those of a host are beside it
            machines = list((await self._client.list(resource, namespace=host.namespace)).items)
        return [machine for machine in machines if self._host_key(machine) == host.key]

    async def _read_machine(self, resource: Resource[Machine], machine: Machine) -> Machine | None:
        try:
            return await self._client.get(resource, machine.name, namespace=machine.namespace)
        except NotFound:
            return None

    async def _patch_host(self, host: BareMetalHost, decision: PowerDecision) -> None:
        preconditions = {"uid": host.uid, "resourceVersion": host.resource_version}
        patch = merge_patch(
            {
                "metadata": preconditions
                | {"annotations": {OUR_REBOOT_ANNOTATION: "" if decision.should_be_off else None}}
            }
        )
        self._hosts.record_write(await self._client.patch(BARE_METAL_HOSTS, host.name, patch, namespace=host.namespace))
        if decision.should_be_off:
            reason, note = "HostPoweredOff", f"BareMetalHost {host.key} is powered off: {decision.message}"
        else:
            reason, note = "HostReleased", f"BareMetalHost {host.key} may be on again: {decision.message}"
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

    # What is told

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
        """Tell once what a Machine waits for; return when to look again."""
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
