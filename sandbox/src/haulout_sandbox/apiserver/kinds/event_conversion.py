"""Events have two APIs, `v1` and `events.k8s.io/v1`, and are one thing: what is written by one is read by the other.

They are stored as `v1` has them, without what says nothing; each API then shows all the fields that its Go type always
has. Follows `pkg/apis/events/v1/conversion.go` of Kubernetes 1.36.
"""

from typing import Any

JsonObject = dict[str, Any]

V1_EMPTY: JsonObject = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
EVENTS_V1_EMPTY: JsonObject = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}

_V1_TYPE = {"apiVersion": "v1", "kind": "Event"}
_EVENTS_V1_TYPE = {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
_V1_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_EVENTS_V1_NAMES = {old: new for new, old in _V1_NAMES.items()}


def v1_to_storage(event: JsonObject) -> JsonObject:
    """Return a `v1` event as it is stored."""
    return {name: value for name, value in event.items() if value not in (None, "", {}, 0)} | _V1_TYPE


def v1_from_storage(stored: JsonObject) -> JsonObject:
    """Return what is stored as a `v1` event."""
    return V1_EMPTY | stored


def events_v1_to_storage(event: JsonObject) -> JsonObject:
    """Return an `events.k8s.io/v1` event as it is stored."""
    return v1_to_storage({_V1_NAMES.get(name, name): value for name, value in event.items()})


def events_v1_from_storage(stored: JsonObject) -> JsonObject:
    """Return what is stored as an `events.k8s.io/v1` event."""
    return (
        EVENTS_V1_EMPTY | {_EVENTS_V1_NAMES.get(name, name): value for name, value in stored.items()} | _EVENTS_V1_TYPE
    )
