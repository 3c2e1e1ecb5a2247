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

`/api/v2` tells how all nodes stand, in JSON. The dashboard shows nothing that it lacks. It is served on port 8080,
beside [`/api/v1/info` and `/metrics`](http.md), by every replica: one that does not lead asks the leader, also for
event streams.

    $ curl -s http://127.0.0.1:8080/api/v2/nodes?state=blocked
    {"revision":"18f2c0de-7","total":30,"nodes":[{"name":"general-04","state":"blocked","since":"2026-11-16T02:30:30Z",
    "why":"bank/ledger-0: PodDisruptionBudget bank/ledger needs 3 healthy pods and has 3; run more replicas, or relax
    the PodDisruptionBudget","progress":85,"zone":"zone-a","pool":"general","isCordoned":true,…}]}

- Times are RFC 3339 in UTC. What is empty, zero or false by default is left out.
- Fields are added, never taken away or given another meaning. `GET /api/v2/openapi.json` has all of it for programs.
- An error is a [Problem](#problem) with a fitting status: 400 says what is wrong with the question, 404 that there is
  no such node or address, 502 that the leader does not answer, 503 that no replica is the leader or data is not loaded
  yet.
  `/summary` is answered even then, with a banner that says so.
- Answers have an `ETag`, and are packed with gzip for those who accept that.
- It asks for [a token](dashboard-access.md), unless `--dashboard-auth` says otherwise: 401 says
  that it is not known who asks, 403 that they may not, and 429 that they ask too often.
- Nothing is computed while nobody asks. Tiles are kept up to date while somebody looks, and for half a minute after.

## Addresses

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
Changes are told in batches, at most four a second; every 15 s at least a comment comes. To miss nothing, open the
stream, ask for `/nodes` and `/notices` when `hello` has come, and put over them what has a higher number than their
`revision`. A summary in an event has neither `time` nor `leader.isAsked`, which are different for everybody.

Who comes back names the last event with the header `Last-Event-ID`, as browsers do by themselves, or with `?since=`,
and is told what came after it. If that is not known any more, or somebody reads so slowly that half a megabyte waits
for them, they are told `reset`, and ask for everything anew.

At most 500 streams are open at once, and 20 from one address; who comes after that is told 503 with `Retry-After`.
Whoever does not read for 30 s is disconnected.

## The timeline

    $ curl -s 'http://127.0.0.1:8080/api/v2/timeline?from=2026-11-16T00:00:00Z&to=2026-11-17T00:00:00Z&zone=zone-a'

Without `from` and `to` it is about a day before now and the week after; 400 days are the most. A profile has a span
for each state that it was in, a NodeMaintenance one from its making to its end. Drains are told with how many pods
left, in what time, and what stood in the way longest; those to come with what is expected of them. `windows` are the
time windows, blackouts and calendars that profiles wait for on their way into maintenance, up to 100 of each kind and
check.

There are 200 rows unless `limit` says otherwise, and 1,000 at most: nodes with something going on first, then those
for which something is announced, then those to which something happened. Histories are read when somebody asks, for
the nodes that are shown, and kept for 10 s. Without MaintenanceRecords what is over is not known, and `problem` says
so.

## The history

    $ curl -s 'http://127.0.0.1:8080/api/v2/history?from=2026-11-16T00:00:00Z&what=NodeMaintenance&limit=50'
    $ curl -sO 'http://127.0.0.1:8080/api/v2/history.csv?from=2026-11-16T00:00:00Z'

What is in all MaintenanceRecords, those of deleted nodes among them. `/history` has the newest entries, and `total` how
many fit. `/history.csv` has all of them, node by node, with [these columns](history.md#csv); it is sent as it is read.
An answer that breaks off is not complete. All records are read for each answer, so three may ask at once; others are
told 503 with `Retry-After`.

## The configuration

The file is shown as it was typed, line by line, with `(hidden)` in place of secrets: options that plugins say are
secret wherever they come from, what is called a token, password or the like where nobody knows better, credentials in
addresses, and all of these in comments. `${NAME}` stays, its default does not. More is struck out of a file that is
no YAML.

`POST /api/v2/configuration/check` tells what an edit would change; it changes nothing, and asks nobody.

    $ curl -s http://127.0.0.1:8080/api/v2/configuration/check -H 'Content-Type: application/json' \\
        -d "$(jq -Rs '{text: .}' maintenance.yaml)"
    {"isGood":true,"changes":[{"text":"would go into maintenance now; with the configuration in force they stay
    maintenance-required, and wait for night","profile":"os","nodes":["general-03","general-14"],"count":2},…],…}

For each node the step is worked out that the operator would take by what is in force, and by the edit. What a new
check would have to ask the outside counts as not known, and so does what is not followed yet, such as pods. An edit
may have 1 MiB and 20,000 values. It sees of the environment what the file in force uses for options that are no
secrets, and no file that it names; values of variables are never told, only their names. Regular expressions of an
edit are not tried.

## The clusters of a hub

A hub (`mode` of the summary is `management`) has `/clusters` and the event `clusters` instead of nodes: `/nodes` and
`/notices` are empty, `/timeline` and `/configuration` are 404. Its budgets are those across clusters. Who is no hub
answers `/clusters` with 404.

    $ curl -s http://127.0.0.1:8080/api/v2/clusters
    {"revision":"1a1e30b0575-10","total":3,"clusters":[{"key":"team-b/prod","reach":"connected","state":"waiting",
    "waitsFor":"1 of 1 cluster is in maintenance: team-a/prod","machines":3,"enabled":3,"nodes":3,"activeCount":1,…}]}

## Health

Leases, everything that is followed (with what does not fit its kind), queues with how long a key was due at worst,
calls to the API server with median and worst of the last minutes, parts and cloud sources, and the last 50 warnings
and errors of the log: repeated ones once, with how often, and without secrets. What an answer of the API server means
is left to whoever asked: that something is not there, that somebody else was quicker, or that a budget says no is not
an error.

## Shapes
"""


def page() -> str:
    return "\n".join(
        (*_INTRODUCTION.splitlines(), *_addresses(), *_events(), *_schemas(build_document()["components"]["schemas"]))
    )


def _addresses() -> Iterator[str]:
    yield "| | | answer |"
    yield "| --- | --- | --- |"
    for endpoint in ENDPOINTS:
        answer = _link(endpoint.answer.__name__) if endpoint.answer is not None else ""
        body = f"; asked with {_link(endpoint.body.__name__)}" if endpoint.body is not None else ""
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
    yield "| `reset` | nothing: ask for everything anew |"
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
