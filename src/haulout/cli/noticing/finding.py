"""Finding notices: one by its name, or those that are asked for."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from haulout.cli.nodes import meant
from haulout.cli.noticing.sights import Sight, all_of_them, missing_kind
from haulout.core.similar import closest
from haulout.drain.words import some
from haulout.errors import KubeError, NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.client import Client
from haulout.kube.resources import NODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for; nothing: whatever there is."""

    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    everything: bool = False  # also those that are over

    def has(self, seen: Sight) -> bool:
        """Tell whether a notice is asked for."""
        if self.nodes and seen.node not in self.nodes:
            return False
        if self.sources and seen.notice.spec.source not in self.sources:
            return False
        return seen.phase in self.phases if self.phases else self.everything or not seen.phase.is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is."""

    sights: tuple[Sight, ...]
    now: datetime
    over: int = 0  # that would be shown if those that are over were asked for
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what is wrong with the nodes that were named


async def look(client: Client, wanted: Wanted) -> Found:
    """Return what is asked for, by its start; raises `HauloutError`."""
    try:
        sights, notes = await all_of_them(client)
    except NotFound as error:
        raise await missing_kind(client, error) from error
    chosen = tuple(filter(wanted.has, sights))
    everything = Wanted(nodes=wanted.nodes, sources=wanted.sources, everything=True)
    over = sum(map(everything.has, sights)) - len(chosen) if not wanted.phases else 0
    if any(not it.is_looked_at and not it.phase.is_over for it in chosen):
        names = some(it.notice.name for it in chosen if not it.is_looked_at and not it.phase.is_over)
        notes.append(f"The operator has not looked at {names} yet. Does it run?")
    unknown = await _unknown(client, wanted.nodes, {it.node for it in sights})
    return Found(sights=chosen, now=client.clock.now(), over=over, notes=tuple(notes), unknown=tuple(unknown))


async def find(client: Client, name: str) -> MaintenanceNotice:
    """Return the notice of that name, or that its source calls so; raises `HauloutError` that names those like it."""
    try:
        return await client.get(MAINTENANCE_NOTICES, name)
    except NotFound as error:
        missing = error
    try:
        sights, _ = await all_of_them(client)
    except NotFound as error:
        raise await missing_kind(client, error) from error
    match [it.notice for it in sights if it.notice.spec.notice_id == name]:
        case [notice]:
            return notice
        case []:
            raise KubeError(f'notice "{name}" not found{_meant(name, sights)}') from missing
        case several:
            raise KubeError(f'notice "{name}" may be {some(it.name for it in several)}: say which') from missing


def _meant(name: str, sights: Collection[Sight]) -> str:
    about_it = [it.notice.name for it in sights if it.node == name]
    if about_it:
        return f"; for the node of that name there is {some(about_it)}"
    known = [called for it in sights for called in (it.notice.name, it.notice.spec.notice_id)]
    near = closest(name, known)
    return f'; did you mean "{near}"?' if near else ""


async def _unknown(client: Client, nodes: Collection[str], known: Collection[str]) -> list[str]:
    """Return what is wrong with names of nodes: a mistyped one must not look as if nothing were announced."""
    found = []
    for name in nodes:
        if name in known:
            continue
        try:
            await client.get(NODES, name)
        except NotFound:
            found.append(f'node "{name}" not found{await meant(client, name)}')
        except KubeError:
            continue  # we may not see nodes: nobody knows
    return found
