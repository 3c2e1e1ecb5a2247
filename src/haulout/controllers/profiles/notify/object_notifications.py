"""Which notifications of an object are due: a function of its events, the configuration and what was sent. Pure.

    decision = decide(events, rules, sent=sent_of(obj), now=now)

What was sent is an annotation of the object: by instance, event and key, and when. It is written before a message is
sent, with the object's resourceVersion; so each is sent at most once, whoever leads. A message that was on its way when
its process died is lost, as those of profiles are.

An event that is over is no news after `MAX_EVENT_AGE`: objects that are older than the configuration cause no flood.
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
from haulout.kube.timestamps import whole_seconds

ANNOTATION = "haulout.dev/notified"
MAX_EVENT_AGE = timedelta(minutes=30)  # as long as it is tried to send a message
_MAX_KEYS = 100  # of one event that are remembered; beyond it no more is sent

Sent = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class DueNotification:
    """A message that is to be sent."""

    instance: str
    notification: Notification
    event: ObjectEvent


@dataclass(frozen=True, slots=True)
class NotificationDecision:
    """What to send, what will have been sent then, and when to look again."""

    due: tuple[DueNotification, ...]
    sent: Sent
    requeue_at: datetime | None


def decide(
    events: Iterable[ObjectEvent], rules: Iterable[NotificationRule], *, sent: Sent, now: datetime
) -> NotificationDecision:
    """Return what is to be sent now: one message for each instance and name of an event."""
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
                # A message names all that lasts, so that none of it is news later.
                sent_keys = {
                    candidate.key: whole_seconds(now)
                    for candidate in new
                    if candidate.is_ongoing or candidate in sendable
                }
                known.setdefault(member.name, {})[name] = keys | sent_keys
    return NotificationDecision(tuple(due), known, min(later, default=None))


def sent_notifications(obj: Object) -> Sent:
    """Return what was sent about an object; what cannot be read counts as nothing."""
    try:
        return msgspec.json.decode(obj.metadata.annotations.get(ANNOTATION, "{}"), type=_SENT)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def sent_annotation(sent: Sent) -> str:
    """Return what the annotation says."""
    return msgspec.json.encode(sent).decode()


_SENT = dict[str, dict[str, dict[str, str]]]


def describe_rules(rules: Sequence[NotificationRule]) -> tuple[str, ...]:
    """Return what rules do, a line each: `ops-slack: NodeMaintenanceBlocked after 30m, NoticeLate`."""
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
