"""The OpenAPI document of `/api/v2`, generated from `types` and the table below."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import msgspec

from haulout import __version__
from haulout.dashboard.api import types
from haulout.dashboard.api.types import ApiType, Problem

# Descriptions of fields are the comments beside them in `types`, so that each is written once.
#
# The OpenAPI document and the reference page use both. Without the source there are no descriptions.

_CLASS = re.compile(r"class (?P<name>\w+)\(")
_FIELD = re.compile(r"    (?P<name>\w+)(:| =) .*?  # (noqa: \w+ - a \w+: )?(?P<text>.+)")


@cache
def field_docs() -> Mapping[tuple[str, str], str]:
    """Return the comments of members, by the names of class and member in the code."""
    found: dict[tuple[str, str], str] = {}
    name = ""
    for line in _types_source():
        if class_match := _CLASS.match(line):
            name = class_match["name"]
        elif member := _FIELD.fullmatch(line):
            found[name, member["name"]] = member["text"]
    return found


def _types_source() -> list[str]:
    try:
        return inspect.getsource(types).splitlines()
    except OSError:
        return []


_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a request."""

    name: str
    text: str
    _: KW_ONLY
    location: str = "query"
    is_list: bool = False
    schema: Mapping[str, Any] | None = None  # None: a string


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and path, and its response."""

    method: str
    path: str
    text: str
    answer: type[ApiType] | None = None  # None: an event stream, or this document
    _: KW_ONLY
    body: type[ApiType] | None = None
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = ()  # error statuses besides 503


_STATES = {"type": "string", "enum": [*types.NodeState]}
_NODE_FILTER_PARAMETERS = (
    Parameter("state", "only nodes in one of these states", is_list=True, schema=_STATES),
    Parameter("zone", "only nodes in one of these zones", is_list=True),
    Parameter("pool", "only nodes of one of these pools", is_list=True),
    Parameter("profile", "only nodes with one of these profiles", is_list=True),
    Parameter("q", "only nodes whose tile contains all of these words"),
)
_INSTANT = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 5000}
_HISTORY_PARAMETERS = (
    Parameter("from", "entries at or after this time", schema=_INSTANT),
    Parameter("to", "entries before this time", schema=_INSTANT),
    Parameter("node", "only these nodes", is_list=True),
    Parameter("object", "only entries about one of these, such as profile or NodeMaintenance/patch", is_list=True),
    Parameter("q", "only entries that contain all of these words"),
)
_NAME = Parameter("name", "of the node", location="path")

ENDPOINTS = (
    Endpoint("get", "/summary", "Counts, budgets, banners and the leader", types.Summary),
    Endpoint(
        "get", "/nodes", "A tile for each node", types.NodeList, parameters=_NODE_FILTER_PARAMETERS, statuses=(400,)
    ),
    Endpoint("get", "/nodes/{name}", "Details of one node", types.NodeDetail, parameters=(_NAME,), statuses=(404,)),
    Endpoint(
        "get",
        "/timeline",
        "Past, current and planned maintenance per node",
        types.Timeline,
        parameters=(
            Parameter("from", "start of the range", schema=_INSTANT),
            Parameter("to", "end of the range", schema=_INSTANT),
            Parameter("limit", "maximum number of rows", schema=_COUNT),
            *_NODE_FILTER_PARAMETERS,
        ),
        statuses=(400,),
    ),
    Endpoint(
        "get",
        "/history",
        "History of all nodes, including deleted ones, newest first",
        types.HistoryList,
        parameters=(
            *_HISTORY_PARAMETERS,
            Parameter("limit", "maximum number of entries; by default 500", schema=_COUNT),
        ),
        statuses=(400,),
    ),
    Endpoint(
        "get",
        "/history.csv",
        "The whole history as CSV, node by node; `haulout history --all -o csv` has the same columns",
        parameters=_HISTORY_PARAMETERS,
        statuses=(400,),
    ),
    Endpoint("get", "/notices", "All notices of maintenance", types.NoticeList),
    Endpoint("get", "/clusters", "On a hub: a tile for each workload cluster", types.ClusterList, statuses=(404,)),
    Endpoint(
        "get",
        "/configuration",
        "The configuration in force, and the errors of a newer file that is not",
        types.Configuration,
    ),
    Endpoint(
        "post",
        "/configuration/check",
        "Preview what another file would change; changes nothing",
        types.ConfigurationPreview,
        body=types.ConfigurationEdit,
        statuses=(400, 408, 413, 415),
    ),
    Endpoint("get", "/health", "Health of the leader", types.Health),
    Endpoint("get", "/session", "The caller and the actions they may take", types.Session),
    Endpoint(
        "post",
        "/session",
        "Log in: the browser keeps the token as a cookie",
        types.Session,
        body=types.Login,
        statuses=(400, 401, 403, 408, 413, 415, 429),
    ),
    Endpoint("delete", "/session", "Log out", types.Session, statuses=(403,)),
    Endpoint(
        "post",
        "/actions",
        "Execute an action as the caller",
        types.ActionResponse,
        body=types.Action,
        parameters=(
            Parameter("X-Haulout-Csrf", "the csrf value of Session; not needed with a bearer token", location="header"),
        ),
        statuses=(400, 401, 403, 404, 408, 409, 413, 415, 429, 502),
    ),
    Endpoint(
        "get",
        "/events",
        "Server-sent events: hello, summary, nodes, notices, node, clusters, reset",
        parameters=(
            Parameter("node", "also send details of this node"),
            Parameter("since", "resume after this event; Last-Event-ID takes precedence"),
            Parameter("Last-Event-ID", "resume after this event", location="header"),
        ),
        statuses=(400, 404),
    ),
    Endpoint("get", "/openapi.json", "This document"),
)

EVENTS: Mapping[str, type[ApiType]] = {
    "hello": types.Hello,
    "summary": types.Summary,
    "nodes": types.NodesChanged,
    "notices": types.NoticesChanged,
    "node": types.NodeDetail,
    "clusters": types.ClustersChanged,
}


@cache
def document() -> bytes:
    return msgspec.json.format(msgspec.json.encode(build_document()), indent=1)


def build_document() -> dict[str, Any]:
    used = {api_type for endpoint in ENDPOINTS for api_type in (endpoint.answer, endpoint.body) if api_type is not None}
    _, components = msgspec.json.schema_components(
        sorted(used | set(EVENTS.values()) | {Problem}, key=lambda api_type: api_type.__name__), ref_template=_REF
    )
    _add_descriptions(components)
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Haulout",
            "version": __version__,
            "description": "Node maintenance on Kubernetes. Times are RFC 3339 in UTC. What is empty, zero or false by "
            "default is left out. Fields are added, never taken away.",
        },
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _add_descriptions(components: dict[str, Any]) -> None:
    """Add the descriptions of fields and enum members."""
    for name, schema in components.items():
        api_type = getattr(types, name)
        if "enum" in schema:
            values = [(item.value, field_docs().get((name, item.name), "")) for item in api_type]
            schema["description"] = " ".join(
                (f"{api_type.__doc__}", *(f"`{item}`: {text}." for item, text in values if text))
            )
            continue
        for field in msgspec.structs.fields(api_type):
            if text := field_docs().get((name, field.name)):
                schema["properties"][field.encode_name]["description"] = text


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.text,
        "operationId": endpoint.method + "".join(part.title() for part in re.findall(r"[a-z]+", endpoint.path)),
        "responses": {"200": _success_response(endpoint)},
    }
    for status in (*endpoint.statuses, 503):
        operation["responses"][str(status)] = {"description": "description of the problem", "content": _json(Problem)}
    if endpoint.parameters:
        operation["parameters"] = [_parameter(parameter) for parameter in endpoint.parameters]
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(endpoint.body)}
    return operation


def _success_response(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.answer is not None:
        return {"description": endpoint.text, "content": _json(endpoint.answer)}
    if endpoint.path.endswith(".csv"):
        return {"description": endpoint.text, "content": {"text/csv": {"schema": {"type": "string"}}}}
    if endpoint.path != "/events":
        return {"description": endpoint.text, "content": {"application/json": {"schema": {"type": "object"}}}}
    events = "; ".join(f"`{name}` has a {api_type.__name__}" for name, api_type in EVENTS.items())
    return {
        "description": f"{events}; `reset` has no data: reload everything after it",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }


def _json(api_type: type[ApiType]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=api_type.__name__)}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema = parameter.schema or {"type": "string"}
    described: dict[str, Any] = {"name": parameter.name, "in": parameter.location, "description": parameter.text}
    described["schema"] = {"type": "array", "items": schema} if parameter.is_list else schema
    if parameter.is_list:
        described |= {"style": "form", "explode": False}
    if parameter.location == "path":
        described["required"] = True
    return described
