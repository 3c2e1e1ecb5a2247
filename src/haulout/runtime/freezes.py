"""What keeps new maintenance off a node: its hold, or a MaintenanceFreeze. The same for every controller.

    hold = observation.freezes.hold_on(node, now=observation.now)

A freeze is a hold with another source. Like a hold, it prevents maintenance from starting and does not stop maintenance
that has started. `Freezes` is a value that controllers put into their observations. `FreezeLister` reads it from the
informer that all controllers share, and tells when it changes.

In doubt nothing begins: before the freezes are known, every node is held, and a freeze with an invalid selector selects
every node. Where the MaintenanceFreeze CRD is not installed, there are no freezes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from haulout.api.hold import Hold, active_hold, single_line
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES, FreezeException, FreezePhase, MaintenanceFreeze, phase_at
from haulout.api.objects import Node
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kube import selectors
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.kube.selectors import EVERYTHING, Selector, SelectorError
from haulout.runtime.tasks import background

log = logging.getLogger(__name__)

_NOT_LISTED = "MaintenanceFreezes have not been listed"
_START_TIMEOUT = timedelta(seconds=2)  # for the first list; until then the components of the leader do not run


@dataclass(frozen=True, slots=True)
class Freeze:
    """A freeze with its parsed selector."""

    freeze: MaintenanceFreeze
    selector: Selector = EVERYTHING
    problem: str = ""  # why the selector is invalid; then it selects every node

    def selects(self, node: Node) -> bool:
        return self.selector.matches(node.metadata.labels)

    def is_active(self, now: datetime) -> bool:
        return phase_at(self.freeze, now=now).phase is FreezePhase.ACTIVE

    @property
    def allows_notices(self) -> bool:
        """Whether maintenance that is announced by a notice may begin nevertheless."""
        return FreezeException.NOTICES in self.freeze.spec.except_

    def to_hold(self) -> Hold:
        spec = self.freeze.spec
        return Hold(
            by=single_line(spec.by),
            reason=single_line(spec.reason),
            until=spec.until,
            problem=self.problem,
            freeze=self.freeze.name,
        )


@dataclass(frozen=True, slots=True)
class Freezes:
    """All freezes at one moment."""

    items: tuple[Freeze, ...] = ()
    unknown: str = ""  # why they are not known; then nothing may begin

    def hold_on(
        self, node: Node, *, now: datetime, is_announced: bool = False, reads_annotation: bool = True
    ) -> Hold | None:
        """Return what keeps new maintenance off a node; of several holds and freezes, the one that ends last.

        `is_announced`: the maintenance is announced by a notice. A hub does not read the annotation of nodes of other
        clusters: the profiles there do.
        """
        hold = active_hold(node, now=now) if reads_annotation else None
        if not self.items and not self.unknown:
            return hold  # the case of most nodes
        found = [] if hold is None else [hold]
        if self.unknown:
            found.append(Hold(reason=f"it is not known yet whether the node is frozen: {self.unknown}"))
        found += [
            item.to_hold()
            for item in self.active(now)
            if item.selects(node) and not (is_announced and item.allows_notices)
        ]
        return max(found, key=lambda item: (item.until is None, item.until or now), default=None)

    def active(self, now: datetime) -> tuple[Freeze, ...]:
        return tuple(item for item in self.items if item.is_active(now))


def parse_freeze(freeze: MaintenanceFreeze) -> Freeze:
    try:
        return Freeze(freeze, selectors.from_label_selector(freeze.spec.selector))
    except SelectorError as error:
        return Freeze(freeze, problem=f"its selector is invalid, so it selects every node: {single_line(str(error))}")


class FreezeSource(Protocol):
    """Where a controller reads freezes."""

    def current(self) -> Freezes: ...

    def subscribe(self, on_change: Callable[[], object]) -> Callable[[], None]:
        """Call `on_change` after each change, until the returned function is called."""
        ...


class NoFreezes:
    """The source for a process that reads no freezes."""

    def current(self) -> Freezes:
        return Freezes()

    def subscribe(self, on_change: Callable[[], object]) -> Callable[[], None]:
        del on_change
        return lambda: None


class FreezeLister:
    """The freezes of a cluster. The manager runs it, so it outlasts a component that fails."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.informer: Informer[MaintenanceFreeze] = Informer(
            client, ListWatch(MAINTENANCE_FREEZES), transform=as_is, on_health_change=self._on_health_change
        )
        self.informer.subscribe(self._on_change)
        self._current = Freezes(unknown=_NOT_LISTED)
        self._known = asyncio.Event()
        self._is_served = True
        self._forbidden = asyncio.Event()
        self._subscribers: list[Callable[[], object]] = []

    async def run(self) -> None:
        async with background(self._wait_synced(), self._discover()):
            await self.informer.run()

    def current(self) -> Freezes:
        return self._current

    def subscribe(self, on_change: Callable[[], object]) -> Callable[[], None]:
        self._subscribers.append(on_change)
        return lambda: self._subscribers.remove(on_change)

    async def wait_known(self) -> None:
        """Return when the freezes are known, or after a while. Meanwhile every node is held."""
        try:
            async with asyncio.timeout(_START_TIMEOUT.total_seconds()):
                await self._known.wait()
        except TimeoutError:
            log.warning("cannot watch %s, so no maintenance begins: %s", self.informer.resource, self._current.unknown)

    async def _wait_synced(self) -> None:
        await self.informer.wait_synced()
        self._refresh()

    async def _discover(self) -> None:
        """Find out whether the CRD is installed when listing is forbidden.

        The API server answers 403 before it knows that there is no such resource. The roles of predecessors do not
        permit to list freezes, and where the CRD is missing they need not.
        """
        while True:
            await self._forbidden.wait()
            self._forbidden.clear()
            try:
                self._is_served = await serves(self._client, MAINTENANCE_FREEZES)
            except KubeError as error:
                log.debug("cannot discover whether %s is installed: %s", MAINTENANCE_FREEZES.kind, error)
            self._refresh()

    def _on_health_change(self, error: KubeError | None) -> None:
        if isinstance(error, Forbidden):
            self._forbidden.set()
        self._refresh()

    def _on_change(self, old: MaintenanceFreeze | None, new: MaintenanceFreeze | None) -> None:
        self._refresh(is_relevant=_relevant_state(old) != _relevant_state(new))

    def _refresh(self, *, is_relevant: bool = False) -> None:
        """Read the freezes; tell subscribers of a relevant change, and when they become known or unknown."""
        previous, self._current = self._current, self._read()
        if not self._current.unknown:
            self._known.set()
        if is_relevant or self._current.unknown != previous.unknown:
            for on_change in tuple(self._subscribers):
                on_change()

    def _read(self) -> Freezes:
        health = self.informer.health()
        if not health.has_synced:
            is_missing = health.is_missing or not self._is_served
            return Freezes(unknown="" if is_missing else single_line(health.problem or _NOT_LISTED))
        return Freezes(tuple(map(parse_freeze, self.informer.all())))


async def read_freezes(client: Client) -> Freezes:
    """Read the freezes once, for a command; raise `KubeError`."""
    try:
        return Freezes(tuple(map(parse_freeze, (await client.list(MAINTENANCE_FREEZES)).items)))
    except NotFound:  # the CRD is not installed
        return Freezes()


def _relevant_state(freeze: MaintenanceFreeze | None) -> object:
    """Return the fields whose changes affect a node, or the time at which it is reconciled.

    With the phase, every controller decides again when a freeze begins, so that it shows what waits from then on.
    """
    if freeze is None:
        return None
    return freeze.uid, freeze.spec, freeze.metadata.deletion_timestamp, freeze.status.phase
