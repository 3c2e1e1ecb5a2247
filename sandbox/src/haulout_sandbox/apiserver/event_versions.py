"""Events have two APIs, `v1` and `events.k8s.io/v1`, and are one thing: what is written by one is read by the other.

They are stored as `v1` has them, without what says nothing; each API then shows all the fields that its Go type always
has. Follows `pkg/apis/events/v1/conversion.go` of Kubernetes 1.36.
"""

from typing import Any

JsonObject = dict[str, Any]

OLD_BLANK: JsonObject = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
NEW_BLANK: JsonObject = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}

_TYPE = {"apiVersion": "v1", "kind": "Event"}
_NEW_TYPE = {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
_OLD_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {old: new for new, old in _OLD_NAMES.items()}


def old_stored(event: JsonObject) -> JsonObject:
    """Return a `v1` event as it is stored."""
    return {name: value for name, value in event.items() if value not in (None, "", {}, 0)} | _TYPE


def old_shown(stored: JsonObject) -> JsonObject:
    """Return what is stored as a `v1` event."""
    return OLD_BLANK | stored


def new_stored(event: JsonObject) -> JsonObject:
    """Return an `events.k8s.io/v1` event as it is stored."""
    return old_stored({_OLD_NAMES.get(name, name): value for name, value in event.items()})


def new_shown(stored: JsonObject) -> JsonObject:
    """Return what is stored as an `events.k8s.io/v1` event."""
    return NEW_BLANK | {_NEW_NAMES.get(name, name): value for name, value in stored.items()} | _NEW_TYPE
