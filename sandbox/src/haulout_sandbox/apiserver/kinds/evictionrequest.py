"""EvictionRequest and Eviction (`lifecycle.k8s.io/v1alpha1`), behind a feature gate in Kubernetes 1.37.

    ApiServer(clock, features=[EVICTION_REQUEST_API])

To clients they are built-in kinds, but they are declared as CustomResourceDefinitions: a schema and its rules cover all
that matters here. So `definitions()` can also be installed in a real cluster that does not have the API yet. They
follow the 1.37 code (`pkg/apis/lifecycle/validation/validation.go`), with three differences: errors are worded as
schema errors, strategic merge patch is not supported, and timestamps of responders are not compared with the clock.

With the feature, pods have `spec.evictionResponders`, which the types of Kubernetes 1.36 lack:
`decode_eviction_responders` accepts it.
"""

from collections.abc import Iterable
from typing import Any

from haulout.api.evictionrequest import EVICTED, FAILED, GROUP, VERSION, Intent, ResponderState
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.serializer.decoder import Decoded

EVICTION_REQUEST_API = "EvictionRequestAPI"

_POD_FIELD = "evictionResponders"
_MAX_RESPONDERS = 11  # ten of the pod, and the imperative evictor
_NAME = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# definitions in a *.k8s.io group need this annotation
_API_APPROVAL = "https://github.com/kubernetes/kubernetes/pull/137050"


def definitions(*, requester: str = "requester") -> list[JsonObject]:
    """Return the definitions of both kinds; `requester` is the name of that field, which has changed upstream."""
    return [
        _definition("evictionrequests", "EvictionRequest", _request_spec(requester), _request_status()),
        _definition("evictions", "Eviction", _eviction_spec(), _eviction_status()),
    ]


def decode_eviction_responders(decoded: Decoded, sent: Any) -> Decoded:
    """Return the decoded object with `evictionResponders`, a field that its type does not have yet."""
    paths = [path for path in decoded.unknown if path == _POD_FIELD or path.endswith(f".{_POD_FIELD}")]
    if not paths:
        return decoded
    obj = decoded.obj
    for path in paths:
        obj = _copy_field(obj, sent, path.split("."))
    return Decoded(obj, [path for path in decoded.unknown if path not in paths])


def _copy_field(obj: JsonObject, sent: JsonObject, path: list[str]) -> JsonObject:
    name, *rest = path
    return obj | {name: _copy_field(obj[name], sent[name], rest) if rest else sent[name]}


# Schemas


def _definition(plural: str, kind: str, spec: JsonObject, status: JsonObject) -> JsonObject:
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = _object({"spec": spec, "status": status}, required=["spec"])
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Pod", "type": "string", "jsonPath": ".spec.target.pod.name"},
            {"name": "Evicted", "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{EVICTED}")].status'},
            {"name": "Failed", "type": "string", "jsonPath": f'.status.conditions[?(@.type=="{FAILED}")].status'},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": {"api-approved.kubernetes.io": _API_APPROVAL}},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
        "status": {"acceptedNames": names, "conditions": [{"type": "Established", "status": "True"}]},
    }


def _request_spec(requester: str) -> JsonObject:
    reserved = "!self.split('/')[0].endsWith('.k8s.io') && !self.split('/')[0].endsWith('.kubernetes.io')"
    requester_schema = _name() | _rules(
        ("self == oldSelf", "field is immutable"),
        (reserved, "domain names *.k8s.io and *.kubernetes.io are reserved"),
    )
    return _object(
        {"target": _target(), requester: requester_schema, "intent": _enum(Intent)},
        required=["target", requester, "intent"],
    )


def _eviction_spec() -> JsonObject:
    return _object({"target": _target()}, required=["target"])


def _target() -> JsonObject:
    pod = _object(
        {"name": {"type": "string", "minLength": 1, "maxLength": 253}, "uid": {"type": "string", "pattern": _UUID}},
        required=["name", "uid"],
    )
    return _object({"pod": pod}, required=["pod"]) | _rules(("self == oldSelf", "field is immutable"))


def _request_status() -> JsonObject:
    return _object({"conditions": _conditions(), "observedGeneration": {"type": "integer", "minimum": 1}}) | _rules(
        (_GENERATION_NEVER_DECREASES, "observedGeneration cannot decrement")
    )


def _eviction_status() -> JsonObject:
    requester = _object({"name": _name(), "intent": _enum(Intent)}, required=["name", "intent"])
    target = _object(
        {
            "name": _name(),
            "priority": {"type": "integer", "minimum": 0, "maximum": 100_000},
            "state": _enum(ResponderState),
        },
        required=["name", "priority", "state"],
    )
    times = ("startTime", "heartbeatTime", "expectedCompletionTime", "completionTime")
    responder = _object(
        {
            "name": _name(),
            **{name: {"type": "string", "format": "date-time"} for name in times},
            "message": {"type": "string", "maxLength": 4000},
        },
        required=["name"],
    ) | _rules(
        *(
            (
                f"!has(oldSelf.{name}) || (has(self.{name}) && self.{name} == oldSelf.{name})",
                f"{name} is immutable once set",
            )
            for name in ("startTime", "completionTime")
        ),
        ("!has(self.completionTime) || has(self.startTime)", "completionTime cannot be set before startTime is set"),
    )
    return _object(
        {
            "conditions": _conditions(),
            "observedGeneration": {"type": "integer", "minimum": 1},
            "requesters": _map_list(requester, max_items=100),
            "targetResponders": _map_list(target, max_items=_MAX_RESPONDERS),
            "responders": _map_list(responder, max_items=_MAX_RESPONDERS),
        }
    ) | _rules(
        (_GENERATION_NEVER_DECREASES, "observedGeneration cannot decrement"),
        (_TRUE_CONDITIONS_STAY, "a condition that is true cannot be reverted"),
        (_SAME_RESPONDERS, "targetResponders must preserve the same keys"),
        (_ONE_ACTIVE, "only one responder can be active at a time"),
        (_FINAL_STATES_STAY, "final state is immutable"),
        (_SAME_KEYS, "responders must contain the same keys as targetResponders"),
        (_ONLY_ACTIVE_CHANGES, "changes are only allowed by the active responder"),
    )


_GENERATION_NEVER_DECREASES = (
    "!has(oldSelf.observedGeneration) || "
    "(has(self.observedGeneration) && self.observedGeneration >= oldSelf.observedGeneration)"
)
_TRUE_CONDITIONS_STAY = (
    "!has(oldSelf.conditions) || oldSelf.conditions.all(o, o.status != 'True' || "
    "(has(self.conditions) && self.conditions.exists(n, n == o)))"
)
_SAME_RESPONDERS = (
    "!has(oldSelf.targetResponders) || (has(self.targetResponders) && "
    "size(self.targetResponders) == size(oldSelf.targetResponders) && "
    "oldSelf.targetResponders.all(o, self.targetResponders.exists(n, n.name == o.name && n.priority == o.priority)))"
)
_ONE_ACTIVE = "!has(self.targetResponders) || size(self.targetResponders.filter(n, n.state == 'Active')) <= 1"
_FINAL_STATES_STAY = (
    "!has(oldSelf.targetResponders) || !has(self.targetResponders) || oldSelf.targetResponders.all(o, "
    "self.targetResponders.all(n, n.name != o.name || n.state == o.state || "
    "o.state == 'Inactive' && n.state == 'Active' || o.state == 'Active' && n.state != 'Inactive'))"
)
_SAME_KEYS = (
    "(has(self.targetResponders) ? size(self.targetResponders) : 0) == "
    "(has(self.responders) ? size(self.responders) : 0) && (!has(self.responders) || "
    "self.responders.all(n, self.targetResponders.exists(t, t.name == n.name)))"
)
_ONLY_ACTIVE_CHANGES = (
    "!has(oldSelf.responders) || !has(self.responders) || oldSelf.responders.all(o, self.responders.all(n, "
    "n.name != o.name || n == o || self.targetResponders.exists(t, t.name == n.name && t.state == 'Active')))"
)


def _conditions() -> JsonObject:
    condition = _object(
        {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32_768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "minimum": 0},
        },
        required=["type", "status", "reason", "message", "lastTransitionTime"],
    )
    return _map_list(condition, max_items=100, key="type")


def _object(properties: JsonObject, *, required: Iterable[str] = ()) -> JsonObject:
    required_part = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **required_part}


def _map_list(items: JsonObject, *, max_items: int, key: str = "name") -> JsonObject:
    list_type = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {"type": "array", "items": items, "maxItems": max_items, **list_type}


def _name() -> JsonObject:
    return {"type": "string", "pattern": _NAME, "maxLength": 317}


def _enum(values: Iterable[str]) -> JsonObject:
    return {"type": "string", "enum": [str(value) for value in values]}


def _rules(*rules: tuple[str, str]) -> JsonObject:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules]}
