"""Events of both APIs: the old one forgives nearly everything, the new one asks for who, what and when.

Follows `pkg/apis/core/validation/events.go` of Kubernetes 1.36; names of fields are those of the old API, as there.
"""

from haulout_sandbox.apiserver.fields import invalid, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, rules
from haulout_sandbox.apiserver.validation.common import Causes, by_rule, unchanged
from haulout_sandbox.apiserver.validation.internal import shown

_LONGEST_TEXT, _LONGEST_MESSAGE = 128, 1024
_NO_MATCH = "does not match event.namespace"
_RENAMED = {  # as the new API has them: as errors name them
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
    "reportingInstance",
)
_OBJECTS = {"involvedObject": "core.ObjectReference", "related": "*core.ObjectReference", "source": "core.EventSource"}
_TEXTS = ("reason", "message", "type", "action", "reportingController", "reportingInstance")


def event(new: JsonObject, old: JsonObject | None = None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with an Event of the core group."""
    said = dict(new)
    said["reportingController"] = new.get("reportingComponent", "")
    return _known_to_both(said, "reportingComponent")


def new_event(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with an Event of events.k8s.io."""
    said, meta = _as_old(new), new["metadata"]
    causes = _known_to_both(said, "reportingController")
    if old is not None:
        before = _as_old(old)
        causes += metadata.of_update(meta, old["metadata"])
        causes += _series(said) if said.get("series") != before.get("series") else []
        return causes + [cause for name in _FIXED for cause in _unchanged(name, said, before)]
    causes += metadata.of_new(meta, namespaced=True, name_rule=rules.subdomain)
    causes += _series(said)
    if not said.get("eventTime"):
        causes.append(required("eventTime"))
    if said.get("type") not in ("Normal", "Warning"):
        causes.append(invalid("type", "", f"has invalid value: {said.get('type', '')}"))
    for name in ("firstTimestamp", "lastTimestamp", "count"):
        causes += [invalid(name, "", "needs to be unset")] if said.get(name) else []
    source = said.get("source") or {}
    if source.get("component") or source.get("host"):
        causes.append(invalid("source", "", "needs to be unset"))
    return causes


def _as_old(new: JsonObject) -> JsonObject:
    return {_RENAMED.get(name, name): value for name, value in new.items()}


def _unchanged(name: str, said: JsonObject, before: JsonObject) -> Causes:
    new, old = said.get(name), before.get(name)
    if name in _TEXTS:
        return unchanged(name, new or "", old or "")
    if name == "count":
        return unchanged(name, new or 0, old or 0)
    printed = shown(new, _OBJECTS[name]) if name in _OBJECTS else new
    return unchanged(name, new, old, shown=printed)


def _series(said: JsonObject) -> Causes:
    series = said.get("series")
    if series is None:
        return []
    causes: Causes = []
    if series.get("count", 0) < 2:  # noqa: PLR2004 - one is no series
        causes.append(invalid("series.count", "", "should be at least 2"))
    return causes if series.get("lastObservedTime") else [*causes, required("series.lastObservedTime")]


def _known_to_both(said: JsonObject, controller: str) -> Causes:
    namespace = said["metadata"].get("namespace", "")
    about = (said.get("involvedObject") or {}).get("namespace", "")
    causes: Causes = []
    if not said.get("eventTime"):
        if (namespace != about) if about else namespace not in ("", "default"):
            causes.append(invalid("involvedObject.namespace", about, _NO_MATCH))
    else:
        if not about and namespace not in ("default", "kube-system"):
            causes.append(invalid("involvedObject.namespace", about, _NO_MATCH))
        causes += _who_and_what(said, controller)
    return causes + by_rule("namespace", namespace, rules.subdomain)


def _who_and_what(said: JsonObject, controller: str) -> Causes:
    reporter = said.get("reportingController", "")
    causes = [] if reporter else [required(controller)]
    causes += by_rule(controller, reporter, rules.qualified_name)
    for name in ("reportingInstance", "action", "reason"):
        text = said.get(name, "")
        causes += [] if text else [required(name)]
        if len(text) > _LONGEST_TEXT:
            causes.append(invalid(name, "", f"can have at most {_LONGEST_TEXT} characters"))
    if len(said.get("message", "")) > _LONGEST_MESSAGE:
        causes.append(invalid("message", "", f"can have at most {_LONGEST_MESSAGE} characters"))
    return causes
