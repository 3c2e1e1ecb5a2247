"""What becomes of Machines, told to those who watch: who asked for what, and what came of it.

The cloud and the timeline tell what they do themselves. Here others act, the operator and the Machine API, and what
they do is read from the objects that they write, as a person would with `kubectl get --watch`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, MachineMaintenance, Phase
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kinds.notice import Phase as NoticePhase
from haulout.kinds.openshift import MACHINES, Machine
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.follow import Selection
from haulout.kube.objects import Object
from haulout_sandbox.scenarios.deeds import Say

T = TypeVar("T", bound=Object)
_TOLD = (Phase.WAITING, Phase.SURGING, Phase.REFUSED)  # and why; of a Machine that is told to go, its deletion is told
_ENDED = tuple(it for it in NoticePhase if it.is_over)
_OVER = (Phase.COMPLETED, Phase.CANCELLED)


async def tell_news(client: Client, say: Say) -> None:
    """Tell what happens from now on, until cancelled."""
    machines = Cache(client, Selection(MACHINES), row=as_is)

    def notice_news(old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> str:
        meant = machine_key(new.spec.provider_id) if new is not None else ""
        here = (it.node for it in machines.all() if it.spec.provider_id and machine_key(it.spec.provider_id) == meant)
        return about_notice(old, new, node=next(here, ""))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(machines, about_machine, say))
        for resource, words in ((MAINTENANCE_NOTICES, notice_news), (MACHINE_MAINTENANCES, about_maintenance)):
            if await serves(client, resource):  # as the operator is here, too
                tasks.create_task(follow(Cache(client, Selection(resource), row=as_is), words, say))


async def follow(cache: Cache[T], words: Callable[[T | None, T | None], str], say: Say) -> None:
    """Tell what becomes of objects from now on, in these words."""
    watching = False  # before, what there is would be told as news

    def note(old: T | None, new: T | None) -> None:
        if watching and (told := words(old, new)):
            say(told)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(cache.run())
        await cache.wait_synced()
        cache.subscribe(note)
        watching = True


def about_machine(old: Machine | None, new: Machine | None) -> str:
    """Return what became of a Machine, for people; empty if it is nothing to speak of."""
    if new is None:
        return "" if old is None else f"Machine {old.name} is gone{f', and {old.node} with it' if old.node else ''}"
    if old is None:
        maker = f"{new.owner.kind} {new.owner.name} makes" if new.owner is not None else "there is"
        return f"{maker} Machine {new.name}"
    if new.is_leaving and not old.is_leaving:
        emptied = f": {new.node} is emptied, and its instance ended" if new.node else ""
        return f"Machine {new.name} is deleted{emptied}"
    if new.status.phase == old.status.phase:
        return ""
    return {
        "Running": f"Machine {new.name} is running: {new.node} joins",
        "Failed": f"Machine {new.name} has failed: its instance is gone",
    }.get(new.status.phase or "", "")


def about_maintenance(old: MachineMaintenance | None, new: MachineMaintenance | None) -> str:
    """Return what became of a MachineMaintenance, for people."""
    if new is None:
        return ""
    machine = new.spec.machinelink
    if old is None:
        return f"MachineMaintenance: Machine {machine} is to be replaced ({new.spec.eventcode})"
    phase, message = new.status.phase, new.status.message
    if phase in _TOLD and (phase, message) != (old.status.phase, old.status.message):
        return f"MachineMaintenance of {machine} is {phase}: {message}"
    return f"MachineMaintenance of {machine} is {phase}" if phase in _OVER and phase != old.status.phase else ""


def about_notice(old: MaintenanceNotice | None, new: MaintenanceNotice | None, *, node: str) -> str:
    """Return what became of a notice, for people."""
    if new is None:
        return ""
    if old is None:
        return f"MaintenanceNotice {new.name}: {new.spec.kind}{f' of {node}' if node else ''}"
    phase = new.status.phase
    return f"MaintenanceNotice {new.name} is {phase}" if phase in _ENDED and phase != old.status.phase else ""
