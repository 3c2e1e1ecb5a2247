"""What all of the sandbox's controllers have in common, and the bundle that runs them.

    controllers = Controllers(client, random=Random(seed), kinds=ALL)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controllers.run())

A controller looks at one key at a time. It reads the shared caches, decides in pure functions, acts (`edge`), and ends
its run when the caches show what it wrote: so it never acts twice on one and the same cause, however late its watches
are. It keeps nothing that matters in memory; another process continues from what is in the API server.

A write that is refused because the object has changed, or is gone, ends the run without a word: the change that was
missed is on its way, and brings the key back. All else is tried again by the queue.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from haulout.errors import ApiError, Conflict, Forbidden, NotFound
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.objects import object_key
from haulout.kube.queue import Queue
from haulout.kube.resources import Resource
from haulout_sandbox.controllers.caches import Caches, in_namespace
from haulout_sandbox.controllers.objects import LabelSelector, Owned

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=Owned)  # noqa: E741 - an object of any kind

log = logging.getLogger(__name__)

_WORKERS = 32  # a run that waits for a cache holds one
# What happens at a time is looked at once: of a large workload many pods change at a time, and each look goes over all.
_TOGETHER = timedelta(milliseconds=20)


class Controller(ABC, Generic[K]):
    """Makes the cluster be what some objects say."""

    name: ClassVar[str]
    reporter: ClassVar[str] = ""  # as whom it records events; empty if it records none

    def __init__(self, caches: Caches, random: Random) -> None:
        self.events: EventRecorder | None = None
        self.caches = caches
        self.client = caches.client
        self.clock = caches.client.clock
        self.random = random
        self.queue: Queue[K] = Queue(
            self._look, clock=self.clock, random=random, workers=_WORKERS, name=f"sandbox {self.name}"
        )

    @abstractmethod
    async def sync(self, key: K) -> datetime | None:
        """Look at `key`, act, and return when to look again."""

    async def run(self) -> None:
        """Work until cancelled; may be run again after that."""
        await self.queue.run()

    def record(
        self, resource: Resource[Any], thing: Owned, reason: str, note: str, *, kind: EventType = "Normal"
    ) -> None:
        """Tell people what was done about `thing`, if events are wanted."""
        if self.events is not None:
            self.events.record(reference(resource, thing), reason=reason, note=note, action=reason, type=kind)

    async def _look(self, key: K) -> datetime | None:
        try:
            return await self.sync(key)
        except (Conflict, NotFound) as error:
            log.debug("%s %s: %s; waiting for the change that was missed", self.name, key, error)
        except Forbidden as error:
            if not _namespace_is_ending(error):
                raise
        return None


class OwningController(Controller[str]):
    """A controller of objects that own others, by `namespace/name`."""

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._told: dict[str, str] = {}  # the resource versions of the statuses that we wrote last
        self._soon: set[str] = set()  # what we shall look at soon

    def follow(self, cache: Cache[O]) -> None:
        """Look at each object in `cache` when it changes, unless that is what we wrote ourselves."""

        def note(old: O | None, new: O | None) -> None:
            key = _either(old, new).key
            if new is None:
                self._told.pop(key, None)
            elif self._told.get(key) == new.resource_version:
                return
            self.queue.add(key)

        cache.subscribe(note)

    def told(self, written: O | None) -> O | None:
        """Note a status that we wrote, to which there is nothing to add; return it."""
        if written is not None:
            self._told[written.key] = written.resource_version
        return written

    async def _look(self, key: str) -> datetime | None:
        self._soon.discard(key)
        return await super()._look(key)

    def look_soon(self, key: str) -> None:
        """Look at an owner because of something that it owns, together with what else happens now."""
        if key not in self._soon:
            self._soon.add(key)
            self.queue.wake_at(key, self.clock.now() + _TOGETHER)

    def follow_owned(
        self,
        cache: Cache[O],
        *,
        kind: str,
        owners: Cache[Any],
        selector: Callable[[Any], LabelSelector | None],
        matters: Callable[[O], object] | None = None,
    ) -> None:
        """Look at an owner when something changes that it manages, or might want to adopt.

        `matters` is all that counts of something that it manages; by default any change does.
        """

        def is_the_same(old: O | None, new: O | None) -> bool:
            if matters is None or old is None or new is None or matters(old) != matters(new):
                return False
            owner = new.controller
            found = None if owner is None else owners.get(object_key(owner.name, new.namespace))
            # One that is about to be let go of: any change of it may be the one for want of which that was refused.
            wanted = None if found is None else selector(found)
            return wanted is not None and wanted.matches(new.labels)

        def note(old: O | None, new: O | None) -> None:
            if _is_of_others(kind, old, new) or is_the_same(old, new):
                return
            for thing in (old, new):
                owner = None if thing is None else thing.controller
                if thing is not None and owner is not None and owner.kind == kind:
                    self.look_soon(object_key(owner.name, thing.namespace))
            # Any change to what nobody manages: it may be the one for want of which an adoption was refused.
            if new is not None and new.controller is None:
                for candidate in in_namespace(owners, new.namespace):
                    wanted = selector(candidate)
                    if wanted is not None and not wanted.selects_all and wanted.matches(new.labels):
                        self.look_soon(candidate.key)

        cache.subscribe(note)


class Controllers:
    """Controllers that share their caches; with `events`, they tell people what they do."""

    def __init__(
        self,
        client: Client,
        *,
        random: Random,
        kinds: Sequence[Callable[[Caches, Random], Controller[Any]]],
        events: bool = False,
    ) -> None:
        self.caches = Caches(client)
        # Each has its own source of chance: what one does leaves the names that another chooses as they are.
        self.controllers = [kind(self.caches, Random(random.getrandbits(64))) for kind in kinds]
        self.recorders: list[EventRecorder] = []
        for controller in self.controllers:
            if events and controller.reporter:
                controller.events = EventRecorder(
                    client, instance="sandbox", controller=controller.reporter, gives_way=False
                )
                self.recorders.append(controller.events)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self.caches.all():
                tasks.create_task(cache.run())
            for recorder in self.recorders:
                tasks.create_task(recorder.run())
            await self.wait_synced()
            for controller in self.controllers:
                tasks.create_task(controller.run())

    async def wait_synced(self) -> None:
        """Return when all caches have been complete once."""
        for cache in self.caches.all():
            await cache.wait_synced()

    async def wait_idle(self) -> None:
        """Return when none of them has anything to do now."""
        for controller in self.controllers:
            await controller.queue.wait_idle()


def _either(old: O | None, new: O | None) -> O:
    thing = old if new is None else new
    if thing is None:
        raise ValueError("a change from nothing to nothing")
    return thing


def _is_of_others(kind: str, old: Owned | None, new: Owned | None) -> bool:
    """Tell whether something always had a controller, and never one of this kind: so most have."""
    before = None if old is None else old.controller
    after = before if new is None else new.controller
    return after is not None and after.kind != kind and (before is None or before.kind != kind)


def _namespace_is_ending(error: ApiError) -> bool:
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)
