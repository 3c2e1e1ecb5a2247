"""Which notifications of an object are due: a function of its events, the configuration and what was sent. Pure.

    decision = decide(events, rules, sent=sent_of(obj), now=now)

What was sent is an annotation of the object: by instance, event and key, and when. It is written before a message is
sent, with the object's resourceVersion; so each is sent at most once, whoever leads. A message that was on its way when
its process died is lost, as those of profiles are.

An event that is over is no news after `NEWS_FOR`: objects that are older than the configuration cause no flood.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.core import duration
from haulout.kinds.notification import EventName, ObjectEvent
from haulout.kube.objects import Object
from haulout.kube.timestamps import whole_seconds
from haulout.profiles.model import NotificationRule
from haulout.profiles.plugin import Notification

ANNOTATION = "haulout.dev/notified"
NEWS_FOR = timedelta(minutes=30)  # as long as it is tried to send a message
_MOST_KEYS = 100  # of one event that are remembered; beyond it no more is sent

Sent = Mapping[str, Mapping[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class DueNotification:
    """A message that is to be sent."""

    instance: str
    notification: Notification
    event: ObjectEvent


@dataclass(frozen=True, slots=True)
class Decision:
    """What to send, what will have been sent then, and when to look again."""

    due: tuple[DueNotification, ...]
    sent: Sent
    requeue_at: datetime | None


def decide(events: Iterable[ObjectEvent], rules: Iterable[NotificationRule], *, sent: Sent, now: datetime) -> Decision:
    """Return what is to be sent now: one message for each instance and name of an event."""
    by_name: dict[EventName, list[ObjectEvent]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event)
    known = {instance: {name: dict(keys) for name, keys in names.items()} for instance, names in sent.items()}
    due, later = [], []
    for rule in rules:
        for name, found in by_name.items():
            if name not in rule.events:
                continue
            after = rule.after if name is EventName.NODE_MAINTENANCE_BLOCKED else timedelta()
            for member in rule.members:
                keys = known.get(member.name, {}).get(name, {})
                new = [it for it in found if it.key not in keys]
                later += [it.at + after for it in new if it.at + after > now]
                fresh = [it for it in new if it.at + after <= now and (it.lasts or it.at + NEWS_FOR > now)]
                if not fresh or len(keys) >= _MOST_KEYS:
                    continue
                due.append(DueNotification(member.name, member.plugin, fresh[-1]))
                # A message names all that lasts, so that none of it is news later.
                told = {it.key: whole_seconds(now) for it in new if it.lasts or it in fresh}
                known.setdefault(member.name, {})[name] = keys | told
    return Decision(tuple(due), known, min(later, default=None))


def sent_of(obj: Object) -> Sent:
    """Return what was sent about an object; what cannot be read counts as nothing."""
    try:
        return msgspec.json.decode(obj.metadata.annotations.get(ANNOTATION, "{}"), type=_SENT)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def annotation_of(sent: Sent) -> str:
    """Return what the annotation says."""
    return msgspec.json.encode(sent).decode()


_SENT = dict[str, dict[str, dict[str, str]]]


def described(rules: Sequence[NotificationRule]) -> tuple[str, ...]:
    """Return what rules do, a line each: `ops-slack: NodeMaintenanceBlocked after 30m, NoticeLate`."""
    return tuple(map(_described, rules))


def _described(rule: NotificationRule) -> str:
    names = (
        f"{it} after {duration.format(rule.after)}" if it is EventName.NODE_MAINTENANCE_BLOCKED and rule.after else it
        for it in EventName
        if it in rule.events
    )
    return f"{', '.join(it.name for it in rule.members)}: {', '.join(names)}"
