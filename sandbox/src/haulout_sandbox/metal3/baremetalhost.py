"""BareMetalHost controller: provisioning state and power.

A host with an image is provisioned, one without is available. The duration of a step counts from the status
(`operationHistory`), so a restarted controller continues. Each host is requeued after a minute at the latest.
"""

from datetime import datetime, timedelta
from functools import partial
from random import Random

from haulout.api.clusterapi import REBOOT_ANNOTATION
from haulout.api.objects import RawObject
from haulout.kube.client import Client
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import Controller, ControllerManager
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.metal3.objects import (
    AVAILABLE,
    BARE_METAL_HOSTS,
    EXTERNALLY_PROVISIONED,
    PROVISIONED,
    BareMetalHost,
)
from haulout_sandbox.metal3.power import decide_power
from haulout_sandbox.metal3.rack import Rack

_RESYNC_INTERVAL = timedelta(seconds=60)
_PAUSED_ANNOTATION, _DETACHED_ANNOTATION = "baremetalhost.metal3.io/paused", "baremetalhost.metal3.io/detached"
# Transitional states, and the states that follow.
_NEXT_STATES = {"inspecting": AVAILABLE, "provisioning": PROVISIONED, "deprovisioning": AVAILABLE}
_OPERATIONS = {"inspecting": "inspect", "provisioning": "provision", "deprovisioning": "deprovision"}


class BareMetalHostController(Controller[str]):
    name = "baremetalhosts"
    reporting_controller = "metal3-baremetal-controller"

    def __init__(self, informers: InformerFactory, random: Random, *, rack: Rack) -> None:
        super().__init__(informers, random)
        self._rack = rack
        self._hosts = informers.informer_for(BARE_METAL_HOSTS)
        self._hosts.subscribe(self._on_host_change)
        # invalid reboot annotations that were reported, by host
        self._reported_invalid: dict[str, tuple[str, ...]] = {}

    def _on_host_change(self, old: BareMetalHost | None, new: BareMetalHost | None) -> None:
        changed = new or old
        if changed is not None:
            self.queue.add(changed.key)

    async def sync(self, key: str) -> datetime | None:
        """Take one step; each write requeues the host for the next."""
        host = self._hosts.get(key)
        if host is None or host.is_being_deleted or _PAUSED_ANNOTATION in host.metadata.annotations:
            return None
        if _DETACHED_ANNOTATION in host.metadata.annotations:
            await self._update_status(host, {"operationalStatus": "detached"})
            return None
        requeue_at = await self._advance_provisioning(host)
        if requeue_at is None:
            requeue_at = await self._reconcile_power(host)
        return min(requeue_at or self.clock.now() + _RESYNC_INTERVAL, self.clock.now() + _RESYNC_INTERVAL)

    async def _advance_provisioning(self, host: BareMetalHost) -> datetime | None:
        """Advance the provisioning; return when to check again, or None if there is nothing to do."""
        delays = self._rack.delays
        durations = {"inspecting": delays.inspection, "provisioning": delays.provisioning}
        started_at, now = _operation_started_at(host), self.clock.now()
        if host.provisioning_state in _NEXT_STATES and started_at is not None:
            ends_at = started_at + durations.get(host.provisioning_state, delays.deprovisioning)
            if now < ends_at:
                return ends_at
            await self._enter_state(host, _NEXT_STATES[host.provisioning_state])
            return now
        next_state = _next_state(host)
        if next_state is None:
            return None
        await self._enter_state(host, next_state)
        return now

    async def _enter_state(self, host: BareMetalHost, state: str) -> None:
        history: RawObject = dict(host.status.get("operationHistory") or {})
        now = conditions.format_time(self.clock.now())
        if (ended := _OPERATIONS.get(host.provisioning_state)) in history:
            history[ended] = {**history[ended], "end": now}
        if (started := _OPERATIONS.get(state)) is not None:
            history[started] = {"start": now, "end": None}
        status: RawObject = {"provisioning": {"state": state}, "operationHistory": history, "operationalStatus": "OK"}
        await self._update_status(host, {**status, "errorType": "", "errorMessage": ""})

    async def _reconcile_power(self, host: BareMetalHost) -> datetime | None:
        desired = decide_power(host)
        if self._reported_invalid.get(host.key, ()) != desired.invalid_annotations:
            self._reported_invalid[host.key] = desired.invalid_annotations
            for name in desired.invalid_annotations:
                note = f"the value of {name} is no JSON with mode and force; it counts as a soft one"
                self.record_event(BARE_METAL_HOSTS, host, "InvalidAnnotationValue", note, event_type="Warning")
        if desired.removes_reboot_annotation:
            await object_control.patch(
                self.client, BARE_METAL_HOSTS, host, {"metadata": {"annotations": {REBOOT_ANNOTATION: None}}}
            )
        switched_at = self._rack.set_power(host.key, on=desired.is_on, hard=desired.is_hard)
        await self._update_status(host, {"poweredOn": self._rack.is_on(host.key), "operationalStatus": "OK"})
        return switched_at

    async def _update_status(self, host: BareMetalHost, desired: RawObject) -> None:
        async with object_control.WriteBarrier(self._hosts) as writes:
            writes.record(
                await object_control.update_status(
                    self.client, BARE_METAL_HOSTS, host, current=host.status, desired=desired
                )
            )


class Metal3:
    """Runs the Metal3 controller for the hosts of a rack; its CRDs must be served."""

    def __init__(self, client: Client, rack: Rack, *, random: Random) -> None:
        factories = (partial(BareMetalHostController, rack=rack),)
        self._controllers = ControllerManager(client, random=random, factories=factories, events=True)

    async def run(self) -> None:
        await self._controllers.run()


def _next_state(host: BareMetalHost) -> str | None:
    """Return the next state of a host that is not in transition; None if it stays."""
    if not host.provisioning_state:
        return EXTERNALLY_PROVISIONED if host.spec.externally_provisioned else "inspecting"
    if host.provisioning_state == AVAILABLE and host.spec.image is not None:
        return "provisioning"
    return "deprovisioning" if host.provisioning_state == PROVISIONED and host.spec.image is None else None


def _operation_started_at(host: BareMetalHost) -> datetime | None:
    operation = (host.status.get("operationHistory") or {}).get(_OPERATIONS.get(host.provisioning_state, ""), {})
    return conditions.parse_time(operation["start"]) if operation.get("start") else None
