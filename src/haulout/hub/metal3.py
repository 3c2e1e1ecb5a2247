"""Metal3 beside the hub: BareMetalHosts of Machines that are approved for maintenance are powered off.

    metal3 = Metal3(client, machines, node_of=hub.node_of, events=events)
    hub.subscribe(metal3.nudge)
    await metal3.run()

It goes by hosts, not by Machines (`haulout.hub.hosts` decides): for each host it sees to it that our annotation is
there or is not. So nothing is left behind: whatever became of a Machine while nobody looked, a host with our annotation
is looked at when it is first seen, and whenever one of its Machines changes or goes.

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

from haulout.core.backoff import Backoff
from haulout.errors import Conflict, KubeError, NotFound
from haulout.hub.hosts import Judgement, MalformedProviderID, Metal3Settings, NodeOf, host_of, is_ours, judge
from haulout.kinds.clusterapi import GROUP as CLUSTER_API
from haulout.kinds.clusterapi import Machine
from haulout.kinds.metal3 import GROUP, HOSTS, REBOOT_OURS, BareMetalHost
from haulout.kube.access import Permission
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.follow import Selection
from haulout.kube.fresh import Fresh
from haulout.kube.patches import merge_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import Resource

log = logging.getLogger(__name__)

_ASKED = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.2)  # whether there is Metal3 by now
_SHORTLY = timedelta(seconds=2)
_LOOKED_AT_EVERY = timedelta(minutes=1)  # while a Machine waits for what nobody tells of
_WORKERS = 4


def permissions() -> tuple[Permission, ...]:
    """Return what is needed, beside what follows Machines and tells people by events."""
    return (
        Permission(("get", "list", "watch", "patch"), GROUP, HOSTS.plural, None, "power hosts off and on"),
        Permission(("get", "list"), CLUSTER_API, "machines", None, "be sure that hosts are to be off"),
    )


@dataclass(frozen=True, slots=True)
class Power:
    """How many hosts are off because of us, and how many should be and cannot."""

    off: int
    waiting: int


class Metal3:
    """Sees to all hosts; `run` may be called once, and somebody else runs the copy of Machines.

    `node_of` returns the node that a Machine became, as far as it can be seen now.
    """

    def __init__(
        self,
        client: Client,
        machines: Cache[Machine],
        *,
        node_of: NodeOf,
        events: EventRecorder,
        settings: Metal3Settings | None = None,
    ) -> None:
        self.settings = settings or Metal3Settings()
        self._client = client
        self._clock = client.clock
        self._machines = machines
        self._node_of = node_of
        self._events = events
        self._hosts = Fresh(Cache(client, Selection(HOSTS), row=as_is))
        self._named: dict[str, set[str]] = {}  # by host: the keys of Machines that name it
        self._waiting: dict[str, tuple[str, str]] = {}  # by host: whose Machine waits, and what it waits for
        self._malformed: dict[str, tuple[str, str]] = {}  # by Machine: its uid, and what was told of its providerID
        self._queue: Queue[str] = Queue(
            self._work, clock=client.clock, random=client.random, workers=_WORKERS, meters=client.meters, name="Metal3"
        )

    async def run(self) -> None:
        """Work until cancelled; without Metal3 in the cluster it waits for that."""
        await self._installed()
        hosts = self._hosts.cache
        async with asyncio.TaskGroup() as group:
            group.create_task(hosts.run())
            await self._machines.wait_synced()
            await hosts.wait_synced()
            with ExitStack() as stack:
                stack.callback(self._machines.subscribe(self._note_machine))
                stack.callback(hosts.subscribe(self._note_host))
                await self._queue.run()

    def nudge(self) -> None:
        """Look again at hosts whose Machines wait: something about a node may have changed."""
        for host in tuple(self._waiting):
            self._queue.add(host)

    def power(self) -> Power:
        """Return how it stands with all hosts."""
        return Power(off=sum(map(is_ours, self._hosts.cache.all())), waiting=len(self._waiting))

    async def _installed(self) -> None:
        failures, problem = 0, ""
        while True:
            try:
                if await serves(self._client, HOSTS):
                    return
                said = f"Metal3 is not installed in this cluster: there are no {HOSTS.plural}.{HOSTS.group}"
            except KubeError as error:
                said = f"whether there is Metal3 cannot be told: {error}"
            if said != problem:
                log.warning("%s; asking again", said)
            failures, problem = failures + 1, said
            await self._clock.sleep(_ASKED.delay(failures, self._client.random))

    # Who is woken by what

    def _note_host(self, old: BareMetalHost | None, new: BareMetalHost | None) -> None:
        host = new or old
        if host is not None and (is_ours(host) or host.key in self._named):
            self._queue.add(host.key)

    def _note_machine(self, old: Machine | None, new: Machine | None) -> None:
        for machine in (old, new):
            host = "" if machine is None else self._host_of(machine)
            if machine is None or not host:
                continue
            named = self._named.setdefault(host, set())
            named.add(machine.key) if machine is new else named.discard(machine.key)
            if not named:
                del self._named[host]
            self._queue.add(host)
        if new is None and old is not None:
            self._malformed.pop(old.key, None)

    def _host_of(self, machine: Machine) -> str:
        try:
            return host_of(machine.spec.provider_id)
        except MalformedProviderID as error:
            told = machine.uid, str(error)
            if (machine.is_enabled or machine.is_approved) and self._malformed.get(machine.key) != told:
                self._malformed[machine.key] = told
                self._tell(machine, "MalformedProviderID", str(error), is_bad=True)
            return ""

    # One host

    async def _work(self, key: str) -> datetime | None:
        try:
            return await self._look_at(key)
        except (Conflict, NotFound) as error:
            log.debug("BareMetalHost %s is not as it was: %s", key, error)
            await self._read_again(key)
            return self._clock.now() + _SHORTLY

    async def _look_at(self, key: str) -> datetime | None:
        host, machines = self._hosts.get(key), list(self._naming(key))
        if host is None:
            return self._wait_for_host(key, machines)
        judgement = self._judged(host, machines)
        if judgement.is_off != is_ours(host):
            judgement = self._judged(host, await self._confirmed(host, machines))
        if judgement.is_off != is_ours(host):
            await self._change(host, judgement)
        return self._tell_waiting(key, judgement)

    def _judged(self, host: BareMetalHost, machines: list[Machine]) -> Judgement:
        return judge(host, machines, node_of=self._node_of, settings=self.settings)

    def _naming(self, host: str) -> Iterator[Machine]:
        found = (self._machines.get(key) for key in sorted(self._named.get(host, ())))
        return (machine for machine in found if machine is not None)

    async def _confirmed(self, host: BareMetalHost, known: list[Machine]) -> list[Machine]:
        """Return the Machines that name a host, as the server has them right now."""
        resource = self._machines.resource.of(Machine)
        if known:
            found = [it for each in known if (it := await self._found(resource, each)) is not None]
        else:  # there may be one after all; those of a host are beside it
            found = list((await self._client.list(resource, namespace=host.namespace)).items)
        return [it for it in found if self._host_of(it) == host.key]

    async def _found(self, resource: Resource[Machine], machine: Machine) -> Machine | None:
        try:
            return await self._client.get(resource, machine.name, namespace=machine.namespace)
        except NotFound:
            return None

    async def _change(self, host: BareMetalHost, judgement: Judgement) -> None:
        basis = {"uid": host.uid, "resourceVersion": host.resource_version}
        patch = merge_patch({"metadata": basis | {"annotations": {REBOOT_OURS: "" if judgement.is_off else None}}})
        self._hosts.note(await self._client.patch(HOSTS, host.name, patch, namespace=host.namespace))
        if judgement.is_off:
            reason, note = "HostPoweredOff", f"BareMetalHost {host.key} is powered off: {judgement.why}"
        else:
            reason, note = "HostReleased", f"BareMetalHost {host.key} may be on again: {judgement.why}"
        log.info("%s", note)
        self._tell(host, reason, note)
        if judgement.machine is not None:
            self._tell(judgement.machine, reason, note)

    async def _read_again(self, key: str) -> None:
        known = self._hosts.get(key)
        if known is None:
            return
        try:
            self._hosts.note(await self._client.get(HOSTS, known.name, namespace=known.namespace))
        except NotFound:
            self._hosts.note_gone(known)

    # What is told

    def _wait_for_host(self, key: str, machines: list[Machine]) -> datetime | None:
        wanting = (it for it in machines if it.is_approved and (it.is_enabled or self.settings.unguarded))
        machine = next(wanting, None)
        return self._tell_waiting(key, Judgement(False, "it does not exist", machine, waits=machine is not None))

    def _tell_waiting(self, key: str, judgement: Judgement) -> datetime | None:
        """Tell once what a Machine waits for; return when to look again."""
        if not judgement.waits or judgement.machine is None:
            self._waiting.pop(key, None)
            return None
        waits = judgement.machine.uid, judgement.why
        if self._waiting.get(key) != waits:
            self._waiting[key] = waits
            note = f"BareMetalHost {key} is not powered off yet: {judgement.why}"
            log.info("Machine %s: %s", judgement.machine.key, note)
            self._tell(judgement.machine, "HostNotPoweredOff", note, is_bad=True)
        return self._clock.now() + _LOOKED_AT_EVERY

    def _tell(self, about: BareMetalHost | Machine, reason: str, note: str, *, is_bad: bool = False) -> None:
        kind: EventType = "Warning" if is_bad else "Normal"
        resource = self._machines.resource if isinstance(about, Machine) else HOSTS
        self._events.record(reference(resource, about), reason=reason, note=note, action="PowerOff", type=kind)
