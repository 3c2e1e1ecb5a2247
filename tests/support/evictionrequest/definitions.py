"""EvictionRequest and Eviction (`lifecycle.k8s.io/v1alpha1`), behind a feature gate in Kubernetes 1.37.

They are CustomResourceDefinitions, for the sandbox and for a real cluster that does not have the API yet. They follow
what 1.37 demands of requests (`pkg/apis/lifecycle/validation/validation.go`). Of the status, which only controllers
write, they have the schema without its rules.
"""

from collections.abc import Iterable

from haulout.api.evictionrequest import EVICTED, FAILED, GROUP, VERSION, Intent, ResponderState
from haulout_sandbox.apiserver.kinds.kind import JsonObject

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
    return _object({"conditions": _conditions(), "observedGeneration": {"type": "integer", "minimum": 1}})


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
    )
    return _object(
        {
            "conditions": _conditions(),
            "observedGeneration": {"type": "integer", "minimum": 1},
            "requesters": _map_list(requester, max_items=100),
            "targetResponders": _map_list(target, max_items=_MAX_RESPONDERS),
            "responders": _map_list(responder, max_items=_MAX_RESPONDERS),
        }
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
