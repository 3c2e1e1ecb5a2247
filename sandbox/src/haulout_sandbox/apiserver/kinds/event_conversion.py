"""Conversion of Events between `v1` and `events.k8s.io/v1`, which share their objects.

Events are stored as `v1`, without empty fields; each API version then shows all fields that its Go type always has.
Follows `pkg/apis/events/v1/conversion.go` of Kubernetes 1.36.
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
    return {name: value for name, value in event.items() if value not in (None, "", {}, 0)} | _V1_TYPE


def v1_from_storage(stored: JsonObject) -> JsonObject:
    return V1_EMPTY | stored


def events_v1_to_storage(event: JsonObject) -> JsonObject:
    return v1_to_storage({_V1_NAMES.get(name, name): value for name, value in event.items()})


def events_v1_from_storage(stored: JsonObject) -> JsonObject:
    return (
        EVENTS_V1_EMPTY | {_EVENTS_V1_NAMES.get(name, name): value for name, value in stored.items()} | _EVENTS_V1_TYPE
    )
