"""Sends notifications about objects in the background, according to the `notifications` section of the configuration.

    notifier = ObjectNotifier(client, external, journal=journal, kinds=(of_maintenances, of_notices))
    notifier.use(configuration.notifications)
    await notifier.run()  # until cancelled; `enqueue` requeues an object

`decide_notifications` is the pure function that returns which notifications are due: from the events of an object, the
configuration, and what was sent. An annotation of the object records what was sent and when, by instance, event and
key. It is written before a message is sent, under the object's resourceVersion, so each message is sent at most once,
whichever replica leads. A message in flight is lost if the process crashes, as notifications of profiles are. Failed
attempts are retried (`haulout.controllers.profiles.notify.delivery`), and recorded as events of the object.

An event that is over is dropped after `MAX_EVENT_AGE`, so that objects older than the configuration do not cause a
flood of messages.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from haulout.api import annotations
from haulout.api.notification_events import EventName, InvolvedObject, ObjectEvent
from haulout.api.objects import Object, RawObject
from haulout.api.reasons import OperatorEventReason
from haulout.api.resources import Resource
from haulout.controllers.profiles.config.model import NotificationRule
from haulout.controllers.profiles.notify.delivery import Delivery, DeliveryQueue, DeliveryState
from haulout.controllers.profiles.notify.node_notifier import read_node
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.core import duration
from haulout.core.timestamps import whole_seconds
from haulout.errors import Conflict, KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import ObjectReference, object_reference
from haulout.kube.workqueue import WorkQueue
from haulout.runtime.journal import Journal, Transition

log = logging.getLogger(__name__)

O = TypeVar("O", bound=Object)  # noqa: E741 - as elsewhere

_WORKERS = 4
_CONFLICT_RETRY_AFTER = timedelta(seconds=1)  # the cache is stale, and will be up to date by then
_FLUSH_TIMEOUT = timedelta(seconds=2)

NOTIFICATIONS_ANNOTATION = annotations.NOTIFIED
MAX_EVENT_AGE = timedelta(minutes=30)  # equals how long delivery of a message is retried
_MAX_KEYS = 100  # remembered per event; further ones are not sent

Sent = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifiedKind(Generic[O]):
    """A kind of objects that notifications can be about."""

    resource: Resource[O]
    get: Callable[[str], O | None]
    all: Callable[[], Iterable[O]]
    events: Callable[[O], Iterable[ObjectEvent]]
    involved_object: Callable[[O], InvolvedObject]


class ObjectNotifier:
    """Sends the due notifications of objects. Call `run` at most once."""

    def __init__(
        self, client: Client, external: ExternalClient, *, journal: Journal, kinds: Iterable[NotifiedKind[Any]]
    ) -> None:
        self._client = client
        self._journal = journal
        self._kinds = {kind.resource.kind: kind for kind in kinds}
        self._rules: tuple[NotificationRule, ...] = ()
        self._delivery = DeliveryQueue(external, clock=client.clock, random=client.random, on_update=self._report)
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            metrics=client.metrics,
            name="notifications",
        )

    def use(self, rules: tuple[NotificationRule, ...]) -> None:
        """Switch to these rules and requeue all objects."""
        self._rules = rules
        for kind, notified_kind in self._kinds.items():
            for obj in list(notified_kind.all()):
                self.enqueue(kind, obj.name)

    def enqueue(self, kind: str, name: str) -> None:
        if self._rules:
            self._queue.add((kind, name))

    async def run(self) -> None:
        """Send until cancelled; messages in flight get a short time to complete."""
        async with asyncio.TaskGroup() as group:
            notification = group.create_task(self._delivery.run())
            try:
                await self._queue.run()
            finally:
                await self._delivery.flush(_FLUSH_TIMEOUT)
                notification.cancel()

    async def _reconcile(self, key: tuple[str, str]) -> datetime | None:
        kind, now = self._kinds[key[0]], self._client.clock.now()
        obj = kind.get(key[1])
        if obj is None:
            return None
        decision = decide_notifications(kind.events(obj), self._rules, sent=sent_notifications(obj), now=now)
        if not decision.due:
            return decision.requeue_at
        metadata = {
            "uid": obj.uid,
            # Two leaders in a failover decide from the same state. The second write fails, so only one of them sends.
            "resourceVersion": obj.resource_version,
            "annotations": {NOTIFICATIONS_ANNOTATION: sent_annotation(decision.sent)},
        }
        try:
            await self._client.patch(kind.resource, obj.name, merge_patch({"metadata": metadata}))
        except NotFound:
            return None
        # Nothing was sent: the annotation is written first. To read the object again here would bypass the cache and
        # decide on a state that the informer has not delivered.
        except Conflict:
            return now + _CONFLICT_RETRY_AFTER
        involved = kind.involved_object(obj)
        raw = await self._node(involved.node)
        for notification in decision.due:
            self._delivery.enqueue(
                notification.instance,
                notification.notification,
                self._message(notification.event, involved, raw, object_reference(kind.resource, obj)),
            )
        return decision.requeue_at

    async def _node(self, name: str) -> RawObject:
        """Return a node with all its fields; only its name if the node does not exist or cannot be read."""
        if name:
            try:
                return await read_node(self._client, name)
            except KubeError as error:
                log.info("notifications contain only the name of node %s: %s", name, error)
        return {"metadata": {"name": name}}

    def _message(
        self, event: ObjectEvent, involved: InvolvedObject, raw: RawObject, regarding: ObjectReference
    ) -> Message:
        return Message(
            raw_node=raw,
            state=event.name.state,
            profile="",
            is_in_maintenance=bool(raw.get("spec", {}).get("unschedulable")),
            last_transition=event.at,
            logs_details=False,
            current_profile="",
            last_profile="",
            now=self._client.clock.now(),
            client=self._client,
            event=event,
            involved=involved,
            regarding=regarding,
        )

    def _report(self, delivery: Delivery) -> None:
        """Record the first failure and the final one; log the attempts in between."""
        message = delivery.message
        if message.event is None or message.involved is None:
            return
        notification_text = f"notification {delivery.instance} of {message.event.name}"
        object_text = f"{message.involved.kind} {message.involved.name}"
        if delivery.state is DeliveryState.SENT:
            log.info("%s about %s is sent", notification_text, object_text)
            return
        if delivery.state is DeliveryState.DELAYED and delivery.attempts > 1:
            log.debug("%s about %s: %s", notification_text, object_text, delivery.problem)
            return
        outlook = "it will be retried" if delivery.state is DeliveryState.DELAYED else "it will not be sent"
        self._journal.record(
            Transition(
                regarding=() if message.regarding is None else (message.regarding,),
                subject=object_text,
                reason=OperatorEventReason.NOTIFICATION_FAILED,
                message=f"{notification_text}: {delivery.problem}; {outlook}",
                action="Notify",
                is_warning=True,
            )
        )


@dataclass(frozen=True, slots=True)
class DueNotification:
    """A message to send, once the annotation records it as sent."""

    instance: str
    notification: Notification
    event: ObjectEvent


@dataclass(frozen=True, slots=True)
class NotificationDecision:
    """What to send, what to record as sent, and when to decide again."""

    due: tuple[DueNotification, ...]
    sent: Sent
    requeue_at: datetime | None


def decide_notifications(
    events: Iterable[ObjectEvent], rules: Iterable[NotificationRule], *, sent: Sent, now: datetime
) -> NotificationDecision:
    """Return what to send now: one message for each instance and event name."""
    by_name: dict[EventName, list[ObjectEvent]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event)
    known = {instance: {name: dict(keys) for name, keys in names.items()} for instance, names in sent.items()}
    due, later = [], []
    for rule in rules:
        for name, matching in by_name.items():
            if name not in rule.events:
                continue
            after = rule.after if name is EventName.NODE_MAINTENANCE_BLOCKED else timedelta()
            for member in rule.members:
                keys = known.get(member.name, {}).get(name, {})
                new = [candidate for candidate in matching if candidate.key not in keys]
                later += [candidate.at + after for candidate in new if candidate.at + after > now]
                sendable = [
                    candidate
                    for candidate in new
                    if candidate.at + after <= now and (candidate.is_ongoing or candidate.at + MAX_EVENT_AGE > now)
                ]
                # Annotations of an object may take 256 KiB together (TotalAnnotationSizeLimitB in
                # apimachinery/pkg/api/validation/objectmeta.go). A maintenance that is blocked in a hundred ways
                # needs a look, not one more message.
                if not sendable or len(keys) >= _MAX_KEYS:
                    continue
                due.append(DueNotification(member.name, member.plugin, sendable[-1]))
                # A message names everything that is ongoing, so none of it is sent again later.
                sent_keys = {
                    candidate.key: whole_seconds(now)
                    for candidate in new
                    if candidate.is_ongoing or candidate in sendable
                }
                known.setdefault(member.name, {})[name] = keys | sent_keys
    return NotificationDecision(tuple(due), known, min(later, default=None))


def sent_notifications(obj: Object) -> Sent:
    """Return what was sent about an object; empty if the annotation cannot be parsed."""
    try:
        return msgspec.json.decode(obj.metadata.annotations.get(NOTIFICATIONS_ANNOTATION, "{}"), type=_SENT)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def sent_annotation(sent: Sent) -> str:
    return msgspec.json.encode(sent).decode()


_SENT = dict[str, dict[str, dict[str, str]]]


def describe_rules(rules: Sequence[NotificationRule]) -> tuple[str, ...]:
    """Return a description of each rule: `ops-slack: NodeMaintenanceBlocked after 30m, NoticeLate`."""
    return tuple(map(_describe_rule, rules))


def _describe_rule(rule: NotificationRule) -> str:
    names = (
        f"{item} after {duration.format(rule.after)}"
        if item is EventName.NODE_MAINTENANCE_BLOCKED and rule.after
        else item
        for item in EventName
        if item in rule.events
    )
    return f"{', '.join(item.name for item in rule.members)}: {', '.join(names)}"
