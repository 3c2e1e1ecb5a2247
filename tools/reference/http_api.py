"""The reference page of `/api/v2`, generated from its OpenAPI description.

    python -m tools.reference.http_api docs/reference

writes `api.md` there. General statements are written in this module; paths, parameters and schemas come from `openapi`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from haulout.dashboard.api.openapi import ENDPOINTS, EVENTS, Endpoint, build_document

PAGE = "api.md"

_INTRODUCTION = """\
# The API of the dashboard

`/api/v2` returns the state of all nodes, in JSON. The dashboard gets all its data from it. Every replica serves it on
port 8080, like [`/api/v1/info` and `/metrics`](http.md). A standby forwards requests and event streams to the leader.

    $ curl -s http://127.0.0.1:8080/api/v2/nodes?state=blocked
    {"revision":"18f2c0de-7","total":30,"nodes":[{"name":"general-04","state":"blocked","since":"2026-11-16T02:30:30Z",
    "message":"bank/ledger-0: PodDisruptionBudget bank/ledger needs 3 healthy pods and has 3; run more replicas, or
    relax the PodDisruptionBudget","progress":85,"zone":"zone-a","pool":"general","isCordoned":true,…}]}

- Times are RFC 3339 in UTC. Fields that have their default (empty, zero or false) are omitted.
- Fields are only ever added. None is removed or changes its meaning. `GET /api/v2/openapi.json` describes the API for
  programs.
- An error is a [Problem](#problem). The status is 400 if the request is invalid, 404 if the node or path does not
  exist, 502 if the leader does not answer, and 503 if no replica is the leader or the data is not loaded yet.
  `/summary` is available even then, with a banner that reports the problem.
- Responses have an `ETag`, and are compressed with gzip if the client accepts that.
- Clients need [a token](dashboard-access.md), unless `--dashboard-auth` says otherwise. The status is 401 without a
  valid token, 403 without the permission, and 429 after too many requests.
- Nothing is computed without requests. Summaries of nodes are kept up to date while there are viewers, and for
  half a minute after.

## Paths

"""

_EVENTS = """
## Events

`GET /api/v2/events` is a stream of [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html):

    $ curl -sN http://127.0.0.1:8080/api/v2/events
    event: hello
    data: {"revision":"18f2c0de-7"}

    id: 18f2c0de-8
    event: nodes
    data: {"revision":"18f2c0de-8","changed":[{"name":"general-04","state":"draining",…}]}

"""

_AFTER_EVENTS = """
Changes are sent in batches, at most four a second. At least every 15 s there is an event or a comment. To miss
nothing, open the stream, get `/nodes` and `/notices` after `hello`, and then apply the events with a higher revision
than theirs. A summary in an event has neither `time` nor `leader.isThisReplica`, which differ between clients.

To resume, send the last event in the header `Last-Event-ID`, as browsers do, or with `?since=`. The stream continues
after it. If that event is no longer known, or if half a megabyte waits for a slow client, the event `reset` is sent:
get everything again.

At most 500 streams are open at once, and 20 from one address. Further clients get 503 with `Retry-After`. A client
that does not read for 30 s is disconnected.

## The timeline

    $ curl -s 'http://127.0.0.1:8080/api/v2/timeline?from=2026-11-16T00:00:00Z&to=2026-11-17T00:00:00Z&zone=zone-a'

The default range is about a day before now and the week after. The maximum is 400 days. A profile has a span for each
state that it was in, and a NodeMaintenance a span from its creation to its end. Drains have the number of pods that
left, the duration, and the longest blocker. Future drains have their expected duration. `windows` are the time windows,
blackouts and calendars that profiles wait for before maintenance, up to 100 of each kind and check.

There are 200 rows by default, and 1,000 at most (`limit`): first the nodes with maintenance in progress, then those
with announced maintenance, then those with a history. Histories are read on request, for the nodes that are shown, and
cached for 10 s. Without MaintenanceRecords there is no history, and `problem` says so.

## The history

    $ curl -s 'http://127.0.0.1:8080/api/v2/history?from=2026-11-16T00:00:00Z&object=NodeMaintenance&limit=50'
    $ curl -sO 'http://127.0.0.1:8080/api/v2/history.csv?from=2026-11-16T00:00:00Z'

These return the entries of all MaintenanceRecords, including those of deleted nodes. `/history` has the newest entries;
`total` is the number of all entries that match. `/history.csv` has all of them, node by node, with
[these columns](history.md#csv). It is sent while it is read: if the connection breaks, it is not complete. Each
request reads all records, so at most three are served at once. Others get 503 with `Retry-After`.

## The configuration

The file is returned as it is, line by line, with `(hidden)` in place of secrets: options that a plugin declares as
secret, values whose key is a token, a password or similar, credentials in URLs, and all of these in comments. `${NAME}`
stays, its default is hidden. In a file that is not valid YAML, more is hidden.

`POST /api/v2/configuration/check` returns what an edit would change. It changes nothing, and sends no query.

    $ curl -s http://127.0.0.1:8080/api/v2/configuration/check -H 'Content-Type: application/json' \\
        -d "$(jq -Rs '{text: .}' maintenance.yaml)"
    {"isValid":true,"changes":[{"text":"would go into maintenance now; with the configuration in force they stay
    maintenance-required, and wait for night","profile":"os","nodes":["general-03","general-14"],"count":2},…],…}

For each node it computes the decision by the configuration in force, and by the edit. The result of an external query
of a new check is unknown, and so is data that is not watched yet, such as pods. An edit may have 1 MiB and 20,000
values. It can use only the environment variables that the file in force uses for options that are not secret, and no
files. Values of variables are never returned, only their names. Regular expressions of an edit are not evaluated.

## The clusters of a hub

A hub (`mode` of the summary is `management`) has `/clusters` and the event `clusters` instead of nodes: `/nodes` and
`/notices` are empty, `/timeline` and `/configuration` are 404. Its budgets are those across clusters. An operator that
is not a hub returns 404 for `/clusters`.

    $ curl -s http://127.0.0.1:8080/api/v2/clusters
    {"revision":"1a1e30b0575-10","total":3,"clusters":[{"key":"team-b/prod","connection":"connected","state":"waiting",
    "waitingFor":"1 of 1 cluster is in maintenance: team-a/prod","machines":3,"enabled":3,"nodes":3,"activeCount":1,…}]}

## Health

This returns the leases, the watches (with objects that do not fit their kind), the queues with the longest wait, the
requests to the API server with the median and the maximum of the last minutes, components and cloud sources, and the
last 50 warnings and errors of the log, without secrets. A repeated warning is listed once, with its count. Responses
that callers expect (404, a conflict, an eviction that a PodDisruptionBudget refuses) are not errors.

## Types
"""


def page() -> str:
    return "\n".join(
        (*_INTRODUCTION.splitlines(), *_paths(), *_events(), *_schemas(build_document()["components"]["schemas"]))
    )


def _paths() -> Iterator[str]:
    yield "| Path | Description | Response |"
    yield "| --- | --- | --- |"
    for endpoint in ENDPOINTS:
        answer = _link(endpoint.answer.__name__) if endpoint.answer is not None else ""
        body = f"; the body is {_link(endpoint.body.__name__)}" if endpoint.body is not None else ""
        yield (
            f"| `{endpoint.method.upper()} /api/v2{endpoint.path}` | "
            f"{endpoint.text}{body}{_parameters(endpoint)} | {answer} |"
        )


def _parameters(endpoint: Endpoint) -> str:
    lines = [f"`{each.name}`: {each.text}" for each in endpoint.parameters if each.location == "query"]
    return f"<br>{'<br>'.join(lines)}" if lines else ""


def _events() -> Iterator[str]:
    yield from _EVENTS.splitlines()
    yield "| event | data |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | {_link(shape.__name__)} |" for name, shape in EVENTS.items())
    yield "| `reset` | nothing: get everything again |"
    yield from _AFTER_EVENTS.splitlines()


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield ""
        yield f"### {name}"
        yield ""
        yield schema.get("description", "").strip()
        if "enum" in schema:
            if "`" not in schema["description"]:
                yield ""
                yield ", ".join(f"`{value}`" for value in schema["enum"])
            continue
        yield ""
        yield "| field | type | |"
        yield "| --- | --- | --- |"
        for key, field in schema["properties"].items():
            optional_mark = "" if key in schema.get("required", ()) else "?"
            yield f"| `{key}`{optional_mark} | {_type(field)} | {field.get('description', '')} |".replace("  |", " |")
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    kind = str(schema.get("type"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"{_type(schema['additionalProperties'])} by name"
    return "time" if schema.get("format") == "date-time" else _TYPES.get(kind, "anything")


_TYPES = {"string": "text", "boolean": "true or false", "integer": "number", "number": "number"}


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


if __name__ == "__main__":
    Path(sys.argv[1], PAGE).write_text(page(), encoding="utf-8")
