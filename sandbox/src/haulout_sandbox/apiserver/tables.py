"""Tables, as `kubectl get` asks for them: `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`.

A watch sends a table for each event and describes the columns only in the first. Built-in kinds are shown by
`printers`; custom resources by the columns that their definition names.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from haulout.core.clock import Clock
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.custom_versions import version_of
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.printers import AGE_COLUMN, Cells, Header, custom_printer, part, printer_of

META = "meta.k8s.io/v1"
_ROW_CONDITIONS = {  # rows that are over, which a client may hide
    phase: [{"type": "Completed", "status": "True", "reason": phase}] for phase in ("Succeeded", "Failed")
}


def shown(call: Call, obj: JsonObject, *, now: datetime) -> JsonObject:
    """Return the object as the caller wants to see it: as it is, or as a row of a table."""
    if not asks_for_table(call.request.accept):
        return obj
    version = part(obj, "metadata").get("resourceVersion")
    return _table(call, [obj], now=now, list_metadata={"resourceVersion": version} if version else {})


def shown_list(call: Call, listed: JsonObject, *, now: datetime) -> JsonObject:
    """Return a list likewise."""
    if not asks_for_table(call.request.accept):
        return listed
    typed = {"apiVersion": call.target.kind.api_version, "kind": call.target.kind.kind}
    meta = {name: value for name, value in listed["metadata"].items() if value}
    return _table(call, (typed | item for item in listed["items"]), now=now, list_metadata=meta)


def shown_events(call: Call, *, clock: Clock) -> Callable[[JsonObject], JsonObject] | None:
    """Return how a watch shows objects; columns are told in its first event only."""
    if not asks_for_table(call.request.accept):
        return None
    first = iter((True,))

    def show(obj: JsonObject) -> JsonObject:
        version = part(obj, "metadata").get("resourceVersion")
        meta = {"resourceVersion": version} if version else {}
        return _table(call, [obj], now=clock.now(), list_metadata=meta, headers=next(first, False))

    return show


def _table(
    call: Call, objects: Iterable[JsonObject], *, now: datetime, list_metadata: JsonObject, headers: bool = True
) -> JsonObject:
    kind, version = call.target.kind, version_of(call.target.kind)
    printer = printer_of(kind.group, kind.kind)
    if kind.custom:
        printer = custom_printer((version and version.now.columns) or (AGE_COLUMN,))
    include = call.query.get("includeObject", "")
    rows = [_row(kind, obj, printer.cells(obj, now), include) for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": list_metadata,
        "columnDefinitions": [_definition(header) for header in printer.headers] if headers else None,
        "rows": rows,
    }


def asks_for_table(accept: str) -> bool:
    """Tell whether the first media type in an Accept header that we serve is a Table."""
    for clause in accept.split(","):
        media, *parameters = (it.strip() for it in clause.split(";"))
        said = dict(it.split("=", 1) for it in parameters if "=" in it)
        if media not in ("application/json", "application/*", "*/*"):
            continue
        if (said.get("as"), said.get("g"), said.get("v")) == ("Table", "meta.k8s.io", "v1"):
            return True
        if "as" not in said:
            return False
    return False


def _definition(header: Header) -> JsonObject:
    return {
        "name": header.name,
        "type": header.type,
        "format": header.format,
        "description": header.description,
        "priority": header.priority,
    }


def _row(kind: Kind, obj: JsonObject, cells: Cells, include: str) -> JsonObject:
    row: JsonObject = {"cells": cells}
    if kind.kind == "Pod" and (conditions := _ROW_CONDITIONS.get(part(obj, "status").get("phase", ""))):
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = {"kind": kind.kind, "apiVersion": kind.api_version} | obj
    else:
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": part(obj, "metadata")}
    return row
