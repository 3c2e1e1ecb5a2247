"""BareMetalHosts: from one that is found to one that runs something, and whether it is on.

A host with an image is provisioned, one without is available. How long a step has taken is counted from what the status
says of it (`operationHistory`), so a successor goes on where this one stopped. It looks again every minute at the
latest.
"""

from datetime import datetime, timedelta
from random import Random

from haulout.kinds.metal3 import REBOOT
from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.metal3.objects import AVAILABLE, EXTERNAL, HOSTS, PROVISIONED, Host
from haulout_sandbox.metal3.power import wish
from haulout_sandbox.metal3.rack import Rack

_LOOKS_EVERY = timedelta(seconds=60)
_PAUSED, _DETACHED = "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"
# What a host is in the middle of, and what it is afterwards.
_AFTER = {"inspecting": AVAILABLE, "provisioning": PROVISIONED, "deprovisioning": AVAILABLE}
_OPERATIONS = {"inspecting": "inspect", "provisioning": "provision", "deprovisioning": "deprovision"}


class BareMetalHosts(Controller[str]):
    """Leads each host through its life."""

    name = "baremetalhosts"
    reporter = "metal3-baremetal-controller"

    def __init__(self, caches: Caches, random: Random, *, rack: Rack) -> None:
        super().__init__(caches, random)
        self._rack = rack
        self._hosts = caches.of(HOSTS)
        self._hosts.subscribe(self._note)
        self._told: dict[str, tuple[str, ...]] = {}  # of which annotations that make no sense

    def _note(self, old: Host | None, new: Host | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write brings the host back for the next."""
        host = self._hosts.get(key)
        if host is None or host.deleting or _PAUSED in host.metadata.annotations:
            return None
        if _DETACHED in host.metadata.annotations:
            await self._tell(host, {"operationalStatus": "detached"})
            return None
        due = await self._advance(host)
        if due is None:
            due = await self._see_to_power(host)
        return min(due or self.clock.now() + _LOOKS_EVERY, self.clock.now() + _LOOKS_EVERY)

    async def _advance(self, host: Host) -> datetime | None:
        """See to what is on it; None: that is as it should be."""
        paces = self._rack.paces
        takes = {"inspecting": paces.inspection, "provisioning": paces.provisioning}
        began, now = _began(host), self.clock.now()
        if host.state in _AFTER and began is not None:
            due = began + takes.get(host.state, paces.deprovisioning)
            if now < due:
                return due
            await self._enter(host, _AFTER[host.state])
            return now
        wanted = _next(host)
        if wanted is None:
            return None
        await self._enter(host, wanted)
        return now

    async def _enter(self, host: Host, state: str) -> None:
        known: RawObject = dict(host.status.get("operationHistory") or {})
        now = conditions.stamp(self.clock.now())
        if (ended := _OPERATIONS.get(host.state)) in known:
            known[ended] = {**known[ended], "end": now}
        if (begun := _OPERATIONS.get(state)) is not None:
            known[begun] = {"start": now, "end": None}
        told: RawObject = {"provisioning": {"state": state}, "operationHistory": known, "operationalStatus": "OK"}
        await self._tell(host, {**told, "errorType": "", "errorMessage": ""})

    async def _see_to_power(self, host: Host) -> datetime | None:
        wanted = wish(host)
        if self._told.get(host.key, ()) != wanted.invalid:
            self._told[host.key] = wanted.invalid
            for name in wanted.invalid:
                note = f"the value of {name} is no JSON with mode and force; it counts as a soft one"
                self.record(HOSTS, host, "InvalidAnnotationValue", note, kind="Warning")
        if wanted.ends_reboot:
            await edge.change(self.client, HOSTS, host, {"metadata": {"annotations": {REBOOT: None}}})
        due = self._rack.turn(host.key, on=wanted.is_on, hard=wanted.is_hard)
        await self._tell(host, {"poweredOn": self._rack.is_on(host.key), "operationalStatus": "OK"})
        return due

    async def _tell(self, host: Host, wanted: RawObject) -> None:
        async with edge.Writes(self._hosts) as writes:
            writes.made(await edge.write_status(self.client, HOSTS, host, seen=host.status, wanted=wanted))


def _next(host: Host) -> str | None:
    """Return what a host that is at rest goes on to; None: it stays as it is."""
    if not host.state:
        return EXTERNAL if host.spec.externally_provisioned else "inspecting"
    if host.state == AVAILABLE and host.spec.image is not None:
        return "provisioning"
    return "deprovisioning" if host.state == PROVISIONED and host.spec.image is None else None


def _began(host: Host) -> datetime | None:
    operation = (host.status.get("operationHistory") or {}).get(_OPERATIONS.get(host.state, ""), {})
    return conditions.instant(operation["start"]) if operation.get("start") else None
