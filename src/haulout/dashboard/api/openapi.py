"""The OpenAPI document of `/api/v2`, made from `types` and the table below."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from haulout import __version__
from haulout.dashboard.api import types
from haulout.dashboard.api.types import ApiType, Problem

# Descriptions of fields are the comments beside them in `types`, so that each is written once.
#
# Both the OpenAPI document and the reference page are made from them. Without the source there are none.

_CLASS = re.compile(r"class (?P<name>\w+)\(")
_FIELD = re.compile(r"    (?P<name>\w+)(:| =) .*?  # (noqa: \w+ - a \w+: )?(?P<text>.+)")


@cache
def field_docs() -> Mapping[tuple[str, str], str]:
    """Return what is said of members of classes, by the names of both in the code."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What can be said with a question."""

    name: str
    text: str
    location: str = "query"
    is_list: bool = False
    schema: Mapping[str, Any] | None = None  # None: any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address, and what is answered there."""

    method: str
    path: str
    text: str
    answer: type[ApiType] | None = None  # None: a stream of events, or this document
    body: type[ApiType] | None = None
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = ()  # that may come instead, besides 503


_STATES = {"type": "string", "enum": [*types.NodeState]}
_NODE_FILTER_PARAMETERS = (
    Parameter(name="state", text="only nodes in one of these states", is_list=True, schema=_STATES),
    Parameter(name="zone", text="only nodes in one of these zones", is_list=True),
    Parameter(name="pool", text="only nodes of one of these pools", is_list=True),
    Parameter(name="profile", text="only nodes with one of these profiles", is_list=True),
    Parameter(name="q", text="only nodes of which a tile says all of these words"),
)
_INSTANT = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 5000}
_HISTORY_PARAMETERS = (
    Parameter(name="from", text="what happened then or later", schema=_INSTANT),
    Parameter(name="to", text="what happened before", schema=_INSTANT),
    Parameter(name="node", text="only these nodes", is_list=True),
    Parameter(
        name="what", text="only what is about one of these, such as profile or NodeMaintenance/patch", is_list=True
    ),
    Parameter(name="q", text="only entries that have all of these words"),
)
_NAME = Parameter(name="name", text="of the node", location="path")

ENDPOINTS = (
    Endpoint(method="get", path="/summary", text="Counts, budgets, banners, who leads", answer=types.Summary),
    Endpoint(
        method="get",
        path="/nodes",
        text="A tile for each node",
        answer=types.Fleet,
        parameters=_NODE_FILTER_PARAMETERS,
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/nodes/{name}",
        text="All there is to know about one node",
        answer=types.NodeDetail,
        parameters=(_NAME,),
        statuses=(404,),
    ),
    Endpoint(
        method="get",
        path="/timeline",
        text="What was, is and comes, per node",
        answer=types.Timeline,
        parameters=(
            Parameter(name="from", text="where it begins", schema=_INSTANT),
            Parameter(name="to", text="where it ends", schema=_INSTANT),
            Parameter(name="limit", text="rows, at most", schema=_COUNT),
            *_NODE_FILTER_PARAMETERS,
        ),
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/history",
        text="What happened to all nodes, deleted ones among them, the newest first",
        answer=types.HistoryList,
        parameters=(
            *_HISTORY_PARAMETERS,
            Parameter(name="limit", text="entries, at most; by default 500", schema=_COUNT),
        ),
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/history.csv",
        text="All of it as CSV, node by node; `haulout history --all -o csv` has the same columns",
        parameters=_HISTORY_PARAMETERS,
        statuses=(400,),
    ),
    Endpoint(method="get", path="/notices", text="All notices of maintenance", answer=types.NoticeList),
    Endpoint(
        method="get",
        path="/clusters",
        text="Of a hub: a tile for each workload cluster",
        answer=types.ClusterList,
        statuses=(404,),
    ),
    Endpoint(
        method="get",
        path="/configuration",
        text="The file in force, and what is wrong with the one that is not",
        answer=types.Configuration,
    ),
    Endpoint(
        method="post",
        path="/configuration/check",
        text="What would change with another file; changes nothing",
        answer=types.WhatIf,
        body=types.Edit,
        statuses=(400, 408, 413, 415),
    ),
    Endpoint(method="get", path="/health", text="How the replica that leads is doing", answer=types.Health),
    Endpoint(method="get", path="/session", text="Who asks, and what they may do", answer=types.Session),
    Endpoint(
        method="post",
        path="/session",
        text="Log a browser in, which keeps the token as a cookie",
        answer=types.Session,
        body=types.Login,
        statuses=(400, 401, 403, 408, 413, 415, 429),
    ),
    Endpoint(
        method="delete",
        path="/session",
        text="Log a browser out",
        answer=types.Session,
        statuses=(403,),
    ),
    Endpoint(
        method="post",
        path="/acts",
        text="Do something, in the name of whoever asks",
        answer=types.Done,
        body=types.Act,
        parameters=(
            Parameter(name="X-Haulout-Csrf", text="what Session says, unless a token is shown", location="header"),
        ),
        statuses=(400, 401, 403, 404, 408, 409, 413, 415, 429, 502),
    ),
    Endpoint(
        method="get",
        path="/events",
        text="Server-sent events: hello, summary, nodes, notices, node, clusters, reset",
        parameters=(
            Parameter(name="node", text="tell of this node in detail as well"),
            Parameter(name="since", text="go on after this event, as Last-Event-ID says, which goes before"),
            Parameter(name="Last-Event-ID", text="go on after this event", location="header"),
        ),
        statuses=(400, 404),
    ),
    Endpoint(method="get", path="/openapi.json", text="This document"),
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
    """Return the document as JSON."""
    return msgspec.json.format(msgspec.json.encode(build_document()), indent=1)


def build_document() -> dict[str, Any]:
    """Return the document."""
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
    """Say what the fields mean."""
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
        operation["responses"][str(status)] = {"description": "a problem, in words", "content": _json(Problem)}
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
        "description": f"{events}; after `reset`, which has nothing, ask for all anew",
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
