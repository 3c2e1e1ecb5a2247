"""Decides which notifications of an object are due, from its events, the configuration and what was sent. Pure.

    decision = decide(events, rules, sent=sent_notifications(obj), now=now)

An annotation of the object records what was sent and when, by instance, event and key. It is written before a message
is sent, under the object's resourceVersion, so each message is sent at most once, whichever replica leads. A message in
flight is lost if the process crashes, as notifications of profiles are.

An event that is over is dropped after `MAX_EVENT_AGE`, so that objects older than the configuration do not cause a
flood of messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.notification_events import EventName, ObjectEvent
from haulout.api.objects import Object
from haulout.controllers.profiles.config.model import NotificationRule
from haulout.controllers.profiles.plugin import Notification
from haulout.core import duration
from haulout.core.timestamps import whole_seconds

ANNOTATION = "haulout.dev/notified"
MAX_EVENT_AGE = timedelta(minutes=30)  # equals how long delivery of a message is retried
_MAX_KEYS = 100  # remembered per event; further ones are not sent

Sent = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class DueNotification:
    """A message to send."""

    instance: str
    notification: Notification
    event: ObjectEvent


@dataclass(frozen=True, slots=True)
class NotificationDecision:
    """What to send, what to record as sent, and when to decide again."""

    due: tuple[DueNotification, ...]
    sent: Sent
    requeue_at: datetime | None


def decide(
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
        return msgspec.json.decode(obj.metadata.annotations.get(ANNOTATION, "{}"), type=_SENT)
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
