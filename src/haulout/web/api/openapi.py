"""The OpenAPI document of `/api/v2`, made from `shapes` and the table below."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from haulout import __version__
from haulout.web.api import shapes
from haulout.web.api.meanings import meanings
from haulout.web.api.shapes import Problem, Shape

_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What can be said with a question."""

    name: str
    text: str
    place: str = "query"
    is_list: bool = False
    schema: Mapping[str, Any] | None = None  # None: any text


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address, and what is answered there."""

    method: str
    path: str
    text: str
    answer: type[Shape] | None = None  # None: a stream of events, or this document
    body: type[Shape] | None = None
    parameters: tuple[Parameter, ...] = ()
    statuses: tuple[int, ...] = ()  # that may come instead, besides 503


_STATES = {"type": "string", "enum": [*shapes.NodeState]}
_NARROWING = (
    Parameter(name="state", text="only nodes in one of these states", is_list=True, schema=_STATES),
    Parameter(name="zone", text="only nodes in one of these zones", is_list=True),
    Parameter(name="pool", text="only nodes of one of these pools", is_list=True),
    Parameter(name="profile", text="only nodes with one of these profiles", is_list=True),
    Parameter(name="q", text="only nodes of which a tile says all of these words"),
)
_INSTANT = {"type": "string", "format": "date-time"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 5000}
_OF_HISTORY = (
    Parameter(name="from", text="what happened then or later", schema=_INSTANT),
    Parameter(name="to", text="what happened before", schema=_INSTANT),
    Parameter(name="node", text="only these nodes", is_list=True),
    Parameter(
        name="what", text="only what is about one of these, such as profile or NodeMaintenance/patch", is_list=True
    ),
    Parameter(name="q", text="only entries that have all of these words"),
)
_NAME = Parameter(name="name", text="of the node", place="path")

ENDPOINTS = (
    Endpoint(method="get", path="/summary", text="Counts, budgets, banners, who leads", answer=shapes.Summary),
    Endpoint(
        method="get",
        path="/nodes",
        text="A tile for each node",
        answer=shapes.Fleet,
        parameters=_NARROWING,
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/nodes/{name}",
        text="All there is to know about one node",
        answer=shapes.NodeDetail,
        parameters=(_NAME,),
        statuses=(404,),
    ),
    Endpoint(
        method="get",
        path="/timeline",
        text="What was, is and comes, per node",
        answer=shapes.Timeline,
        parameters=(
            Parameter(name="from", text="where it begins", schema=_INSTANT),
            Parameter(name="to", text="where it ends", schema=_INSTANT),
            Parameter(name="limit", text="rows, at most", schema=_COUNT),
            *_NARROWING,
        ),
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/history",
        text="What happened to all nodes, deleted ones among them, the newest first",
        answer=shapes.HistoryList,
        parameters=(*_OF_HISTORY, Parameter(name="limit", text="entries, at most; by default 500", schema=_COUNT)),
        statuses=(400,),
    ),
    Endpoint(
        method="get",
        path="/history.csv",
        text="All of it as CSV, node by node; `haulout history --all -o csv` has the same columns",
        parameters=_OF_HISTORY,
        statuses=(400,),
    ),
    Endpoint(method="get", path="/notices", text="All notices of maintenance", answer=shapes.NoticeList),
    Endpoint(
        method="get",
        path="/clusters",
        text="Of a hub: a tile for each workload cluster",
        answer=shapes.ClusterList,
        statuses=(404,),
    ),
    Endpoint(
        method="get",
        path="/configuration",
        text="The file in force, and what is wrong with the one that is not",
        answer=shapes.Configuration,
    ),
    Endpoint(
        method="post",
        path="/configuration/check",
        text="What would change with another file; changes nothing",
        answer=shapes.WhatIf,
        body=shapes.Edit,
        statuses=(400, 408, 413, 415),
    ),
    Endpoint(method="get", path="/health", text="How the replica that leads is doing", answer=shapes.Health),
    Endpoint(method="get", path="/session", text="Who asks, and what they may do", answer=shapes.Session),
    Endpoint(
        method="post",
        path="/session",
        text="Log a browser in, which keeps the token as a cookie",
        answer=shapes.Session,
        body=shapes.Login,
        statuses=(400, 401, 403, 408, 413, 415, 429),
    ),
    Endpoint(
        method="delete",
        path="/session",
        text="Log a browser out",
        answer=shapes.Session,
        statuses=(403,),
    ),
    Endpoint(
        method="post",
        path="/acts",
        text="Do something, in the name of whoever asks",
        answer=shapes.Done,
        body=shapes.Act,
        parameters=(
            Parameter(name="X-Haulout-Csrf", text="what Session says, unless a token is shown", place="header"),
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
            Parameter(name="Last-Event-ID", text="go on after this event", place="header"),
        ),
        statuses=(400, 404),
    ),
    Endpoint(method="get", path="/openapi.json", text="This document"),
)

EVENTS: Mapping[str, type[Shape]] = {
    "hello": shapes.Hello,
    "summary": shapes.Summary,
    "nodes": shapes.NodesChanged,
    "notices": shapes.NoticesChanged,
    "node": shapes.NodeDetail,
    "clusters": shapes.ClustersChanged,
}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    return msgspec.json.format(msgspec.json.encode(described()), indent=1)


def described() -> dict[str, Any]:
    """Return the document."""
    used = {it for each in ENDPOINTS for it in (each.answer, each.body) if it is not None}
    _, components = msgspec.json.schema_components(
        sorted(used | set(EVENTS.values()) | {Problem}, key=lambda it: it.__name__), ref_template=_REF
    )
    _explain(components)
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, {})[each.method] = _operation(each)
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


def _explain(components: dict[str, Any]) -> None:
    """Say what the fields mean."""
    for name, schema in components.items():
        shape = getattr(shapes, name)
        if "enum" in schema:
            said = [(it.value, meanings().get((name, it.name), "")) for it in shape]
            schema["description"] = " ".join((f"{shape.__doc__}", *(f"`{it}`: {text}." for it, text in said if text)))
            continue
        for field in msgspec.structs.fields(shape):
            if text := meanings().get((name, field.name)):
                schema["properties"][field.encode_name]["description"] = text


def _operation(each: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": each.text,
        "operationId": each.method + "".join(part.title() for part in re.findall(r"[a-z]+", each.path)),
        "responses": {"200": _good(each)},
    }
    for status in (*each.statuses, 503):
        operation["responses"][str(status)] = {"description": "a problem, in words", "content": _json(Problem)}
    if each.parameters:
        operation["parameters"] = [_parameter(it) for it in each.parameters]
    if each.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(each.body)}
    return operation


def _good(each: Endpoint) -> dict[str, Any]:
    if each.answer is not None:
        return {"description": each.text, "content": _json(each.answer)}
    if each.path.endswith(".csv"):
        return {"description": each.text, "content": {"text/csv": {"schema": {"type": "string"}}}}
    if each.path != "/events":
        return {"description": each.text, "content": {"application/json": {"schema": {"type": "object"}}}}
    told = "; ".join(f"`{name}` has a {shape.__name__}" for name, shape in EVENTS.items())
    return {
        "description": f"{told}; after `reset`, which has nothing, ask for all anew",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }


def _json(shape: type[Shape]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=shape.__name__)}}}


def _parameter(it: Parameter) -> dict[str, Any]:
    one = it.schema or {"type": "string"}
    described: dict[str, Any] = {"name": it.name, "in": it.place, "description": it.text}
    described["schema"] = {"type": "array", "items": one} if it.is_list else one
    if it.is_list:
        described |= {"style": "form", "explode": False}
    if it.place == "path":
        described["required"] = True
    return described
