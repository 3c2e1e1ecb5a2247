"""Sends notifications of objects, as the section `notifications` of a configuration says, while nothing waits for them.

    notifier = ObjectNotifier(client, outside, events=recorder, kinds=(of_maintenances, of_notices))
    notifier.use(configuration.notifications)
    await notifier.run()                       # until cancelled; `note` wakes it

That a message is sent is written to its object first (`haulout.profiles.object_notifications`). What cannot be sent is
tried again (`haulout.profiles.posting`), and told by an event about the object.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from haulout.errors import Conflict, KubeError, NotFound
from haulout.kinds.notification import InvolvedObject, ObjectEvent
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder, ObjectReference, reference
from haulout.kube.objects import Object, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.queue import Queue
from haulout.kube.resources import Resource
from haulout.profiles.mailroom import read_node
from haulout.profiles.model import NotificationRule
from haulout.profiles.object_notifications import ANNOTATION, annotation_of, decide, sent_of
from haulout.profiles.plugin import Message, Outside
from haulout.profiles.posting import Fate, Posted, Poster

log = logging.getLogger(__name__)

O = TypeVar("O", bound=Object)  # noqa: E741 - as elsewhere

_WORKERS = 4
_AGAIN_AFTER = timedelta(seconds=1)  # our cache is behind, and will know by then
_LAST_WORDS = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifiedKind(Generic[O]):
    """A kind of objects that may be notified of."""

    resource: Resource[O]
    get: Callable[[str], O | None]
    all: Callable[[], Iterable[O]]
    events: Callable[[O], Iterable[ObjectEvent]]
    involved_object: Callable[[O], InvolvedObject]


class ObjectNotifier:
    """Sends what is due about objects; `run` may be called once."""

    def __init__(
        self, client: Client, outside: Outside, *, events: EventRecorder, kinds: Iterable[NotifiedKind[Any]]
    ) -> None:
        self._client = client
        self._events = events
        self._kinds = {it.resource.kind: it for it in kinds}
        self._rules: tuple[NotificationRule, ...] = ()
        self._poster = Poster(outside, clock=client.clock, random=client.random, tell=self._report)
        self._queue: Queue[tuple[str, str]] = Queue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            meters=client.meters,
            name="notifications",
        )

    def use(self, rules: tuple[NotificationRule, ...]) -> None:
        """Go on by these rules."""
        self._rules = rules
        for kind, it in self._kinds.items():
            for obj in list(it.all()):
                self.note(kind, obj.name)

    def note(self, kind: str, name: str) -> None:
        """Look at an object soon."""
        if self._rules:
            self._queue.add((kind, name))

    async def run(self) -> None:
        """Send until cancelled; what is being sent then gets a last moment."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._poster.run())
            try:
                await self._queue.run()
            finally:
                await self._poster.settle(_LAST_WORDS)
                sending.cancel()

    async def _reconcile(self, key: tuple[str, str]) -> datetime | None:
        kind, now = self._kinds[key[0]], self._client.clock.now()
        obj = kind.get(key[1])
        if obj is None:
            return None
        decision = decide(kind.events(obj), self._rules, sent=sent_of(obj), now=now)
        if not decision.due:
            return decision.requeue_at
        metadata = {
            "uid": obj.uid,
            "resourceVersion": obj.resource_version,
            "annotations": {ANNOTATION: annotation_of(decision.sent)},
        }
        try:
            await self._client.patch(kind.resource, obj.name, merge_patch({"metadata": metadata}))
        except NotFound:
            return None
        except Conflict:
            return now + _AGAIN_AFTER
        involved = kind.involved_object(obj)
        raw = await self._node(involved.node)
        for it in decision.due:
            self._poster.post(
                it.instance, it.notification, self._message(it.event, involved, raw, reference(kind.resource, obj))
            )
        return decision.requeue_at

    async def _node(self, name: str) -> RawObject:
        """Return a node with all its fields; only its name if it is gone or cannot be read."""
        if name:
            try:
                return await read_node(self._client, name)
            except KubeError as error:
                log.info("notifications tell only the name of node %s: %s", name, error)
        return {"metadata": {"name": name}}

    def _message(
        self, event: ObjectEvent, involved: InvolvedObject, raw: RawObject, regarding: ObjectReference
    ) -> Message:
        return Message(
            raw=raw,
            state=event.name.state,
            profile="",
            is_in_maintenance=bool(raw.get("spec", {}).get("unschedulable")),
            last_transition=event.at,
            logs_details=False,
            current="",
            last="",
            now=self._client.clock.now(),
            client=self._client,
            event=event,
            involved=involved,
            regarding=regarding,
        )

    def _report(self, posted: Posted) -> None:
        """Tell of trouble when it begins and when it has ended badly; the attempts in between are for the log."""
        message = posted.message
        if message.event is None or message.involved is None:
            return
        what = f"notification {posted.instance} of {message.event.name}"
        about = f"{message.involved.kind} {message.involved.name}"
        if posted.fate is Fate.SENT:
            log.info("%s about %s is sent", what, about)
            return
        if posted.fate is Fate.DELAYED and posted.attempts > 1:
            log.debug("%s about %s: %s", what, about, posted.problem)
            return
        outlook = "it is tried again" if posted.fate is Fate.DELAYED else "it will not be sent"
        log.warning("%s about %s: %s; %s", what, about, posted.problem, outlook)
        if message.regarding is not None:
            note = f"{what}: {posted.problem}; {outlook}"
            self._events.record(
                message.regarding, type="Warning", reason="NotificationFailed", note=note, action="Notify"
            )
