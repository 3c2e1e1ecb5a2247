"""Base classes of the sandbox's controllers, and the manager that runs them.

A controller reconciles one key at a time. It reads the shared informers, decides in pure functions, acts
(`object_control`), and ends the pass only when the informers show its writes: so it never acts twice on the same cause,
however late its watches are. It keeps no important state in memory: another process continues from the state in the API
server.

A write that is refused because the object has changed or is deleted ends the pass silently: the missed change is about
to arrive by watch and requeues the key. The queue retries all other errors.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from haulout.api.objects import object_key
from haulout.api.resources import Resource
from haulout.errors import ApiError, Conflict, Forbidden, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.recorder import EventRecorder, EventType, object_reference
from haulout.kube.workqueue import WorkQueue
from haulout_sandbox.controllers.informers import InformerFactory, in_namespace
from haulout_sandbox.controllers.objects import OwnedObject
from haulout_sandbox.nodes.pod_spec import LabelSelector

K = TypeVar("K", bound=Hashable)
O = TypeVar("O", bound=OwnedObject)  # noqa: E741 - an object of any kind

log = logging.getLogger(__name__)

_WORKERS = 32  # a pass that waits for an informer occupies a worker
# Reconcile once for changes at the same instant: many pods of a large workload change together, and each pass reads all
# of them.
_BATCH_PERIOD = timedelta(milliseconds=20)


class Controller(ABC, Generic[K]):
    """Brings the cluster to the state that some objects ask for."""

    name: ClassVar[str]
    reporting_controller: ClassVar[str] = ""  # the reporter of its events; empty if it records none

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        self.recorder: EventRecorder | None = None
        self.informers = informers
        self.client = informers.client
        self.clock = informers.client.clock
        self.random = random
        self.queue: WorkQueue[K] = WorkQueue(
            self._sync_and_handle_errors, clock=self.clock, random=random, workers=_WORKERS, name=f"sandbox {self.name}"
        )

    @abstractmethod
    async def sync(self, key: K) -> datetime | None:
        """Reconcile `key`; return when to requeue it."""

    async def run(self) -> None:
        """Run until cancelled; may run again after that."""
        await self.queue.run()

    def record_event(
        self, resource: Resource[Any], obj: OwnedObject, reason: str, note: str, *, event_type: EventType = "Normal"
    ) -> None:
        """Record an event about `obj`, if the manager has a recorder."""
        if self.recorder is not None:
            self.recorder.event(
                object_reference(resource, obj), reason=reason, note=note, action=reason, type=event_type
            )

    async def _sync_and_handle_errors(self, key: K) -> datetime | None:
        try:
            return await self.sync(key)
        except (Conflict, NotFound) as error:
            log.debug("%s %s: %s; waiting for the change that was missed", self.name, key, error)
        except Forbidden as error:
            if not _is_namespace_terminating(error):
                raise
        return None


class OwningController(Controller[str]):
    """A controller of objects that own others; its keys are `namespace/name`."""

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        # resource versions of the statuses that this controller wrote last
        self._own_status_versions: dict[str, str] = {}
        self._batched_keys: set[str] = set()  # keys that are enqueued at the end of the batch

    def watch(self, informer: Informer[O]) -> None:
        """Enqueue each object of `informer` when it changes, except for this controller's own status writes."""

        def enqueue_changed(old: O | None, new: O | None) -> None:
            key = _newest_state(old, new).key
            if new is None:
                self._own_status_versions.pop(key, None)
            elif self._own_status_versions.get(key) == new.resource_version:
                return
            self.queue.add(key)

        informer.subscribe(enqueue_changed)

    def record_own_status(self, obj: O | None) -> O | None:
        """Note a status written by this controller, whose event needs no further pass; return the object."""
        if obj is not None:
            self._own_status_versions[obj.key] = obj.resource_version
        return obj

    async def _sync_and_handle_errors(self, key: str) -> datetime | None:
        self._batched_keys.discard(key)
        return await super()._sync_and_handle_errors(key)

    def enqueue_batched(self, key: str) -> None:
        """Enqueue an owner because of an object that it owns, together with other changes at this instant."""
        if key not in self._batched_keys:
            self._batched_keys.add(key)
            self.queue.add_at(key, self.clock.now() + _BATCH_PERIOD)

    def watch_owned(
        self,
        informer: Informer[O],
        *,
        kind: str,
        owners: Informer[Any],
        selector: Callable[[Any], LabelSelector | None],
        relevant_fields: Callable[[O], object] | None = None,
    ) -> None:
        """Enqueue an owner when an object changes that it controls or may adopt.

        `relevant_fields` returns the part of a controlled object that matters; by default any change does.
        """

        def is_irrelevant_change(old: O | None, new: O | None) -> bool:
            if relevant_fields is None or old is None or new is None or relevant_fields(old) != relevant_fields(new):
                return False
            owner = new.controller
            owning = None if owner is None else owners.get(object_key(owner.name, new.namespace))
            # An object about to be released: any change may be the one because of which the release was refused.
            owner_selector = None if owning is None else selector(owning)
            return owner_selector is not None and owner_selector.matches(new.labels)

        def enqueue_owners(old: O | None, new: O | None) -> None:
            if _has_other_owner_kind(kind, old, new) or is_irrelevant_change(old, new):
                return
            for obj in (old, new):
                owner = None if obj is None else obj.controller
                if obj is not None and owner is not None and owner.kind == kind:
                    self.enqueue_batched(object_key(owner.name, obj.namespace))
            # Any change to an object without controller: it may be the one because of which an adoption was refused.
            if new is not None and new.controller is None:
                for candidate in in_namespace(owners, new.namespace):
                    candidate_selector = selector(candidate)
                    if (
                        candidate_selector is not None
                        and not candidate_selector.is_empty
                        and candidate_selector.matches(new.labels)
                    ):
                        self.enqueue_batched(candidate.key)

        informer.subscribe(enqueue_owners)


class ControllerManager:
    """Controllers with shared informers; with `events`, they record Events."""

    def __init__(
        self,
        client: Client,
        *,
        random: Random,
        factories: Sequence[Callable[[InformerFactory, Random], Controller[Any]]],
        events: bool = False,
    ) -> None:
        self.informers = InformerFactory(client)
        # Each controller has its own random generator, so that none affects the names that another generates.
        self.controllers = [factory(self.informers, Random(random.getrandbits(64))) for factory in factories]
        self.recorders: list[EventRecorder] = []
        for controller in self.controllers:
            if events and controller.reporting_controller:
                controller.recorder = EventRecorder(
                    client, instance="sandbox", controller=controller.reporting_controller, is_throttled=False
                )
                self.recorders.append(controller.recorder)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers.all():
                tasks.create_task(informer.run())
            for recorder in self.recorders:
                tasks.create_task(recorder.run())
            await self.wait_synced()
            for controller in self.controllers:
                tasks.create_task(controller.run())

    async def wait_synced(self) -> None:
        for informer in self.informers.all():
            await informer.wait_synced()

    async def wait_idle(self) -> None:
        """Return when no controller has anything to do."""
        for controller in self.controllers:
            await controller.queue.wait_idle()


def _newest_state(old: O | None, new: O | None) -> O:
    obj = old if new is None else new
    if obj is None:
        raise ValueError("a change from nothing to nothing")
    return obj


def _has_other_owner_kind(kind: str, old: OwnedObject | None, new: OwnedObject | None) -> bool:
    """Return whether the object's controller has always been of another kind, as for most objects."""
    old_owner = None if old is None else old.controller
    new_owner = old_owner if new is None else new.controller
    return new_owner is not None and new_owner.kind != kind and (old_owner is None or old_owner.kind != kind)


def _is_namespace_terminating(error: ApiError) -> bool:
    return any(cause.reason == "NamespaceTerminating" for cause in error.causes)
