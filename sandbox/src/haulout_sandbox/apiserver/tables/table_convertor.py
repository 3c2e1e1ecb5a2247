"""Tables for `kubectl get`: `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`.

A watch sends a table per event and describes the columns only in the first one. `printers` has the columns of built-in
kinds; definitions have those of custom resources.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from haulout.core.clock import Clock
from haulout_sandbox.apiserver.apiextensions.custom_resource_version import custom_version_of
from haulout_sandbox.apiserver.handlers.api_call import ApiCall
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.tables.printers import AGE_COLUMN, Cells, Header, custom_printer, printer_of, section_at

META = "meta.k8s.io/v1"
_ROW_CONDITIONS = {  # conditions of rows that are completed, which clients may hide
    phase: [{"type": "Completed", "status": "True", "reason": phase}] for phase in ("Succeeded", "Failed")
}


def convert_object(call: ApiCall, obj: JsonObject, *, now: datetime) -> JsonObject:
    """Return the object as requested: unchanged, or as a table with one row."""
    if not accepts_table(call.request.accept):
        return obj
    version = section_at(obj, "metadata").get("resourceVersion")
    return _table(call, [obj], now=now, list_metadata={"resourceVersion": version} if version else {})


def convert_list(call: ApiCall, object_list: JsonObject, *, now: datetime) -> JsonObject:
    """Return a list as requested: unchanged, or as a table."""
    if not accepts_table(call.request.accept):
        return object_list
    type_meta = {"apiVersion": call.target.kind.api_version, "kind": call.target.kind.kind}
    meta = {name: value for name, value in object_list["metadata"].items() if value}
    return _table(call, (type_meta | item for item in object_list["items"]), now=now, list_metadata=meta)


def event_converter(call: ApiCall, *, clock: Clock) -> Callable[[JsonObject], JsonObject] | None:
    """Return the conversion of a watch's objects to tables, if requested; only the first event has columns."""
    if not accepts_table(call.request.accept):
        return None
    first = iter((True,))

    def convert(obj: JsonObject) -> JsonObject:
        version = section_at(obj, "metadata").get("resourceVersion")
        meta = {"resourceVersion": version} if version else {}
        return _table(call, [obj], now=clock.now(), list_metadata=meta, headers=next(first, False))

    return convert


def _table(
    call: ApiCall, objects: Iterable[JsonObject], *, now: datetime, list_metadata: JsonObject, headers: bool = True
) -> JsonObject:
    kind, version = call.target.kind, custom_version_of(call.target.kind)
    printer = printer_of(kind.group, kind.kind)
    if kind.is_custom:
        printer = custom_printer((version and version.current.columns) or (AGE_COLUMN,))
    include_object = call.query.get("includeObject", "")
    rows = [_row(kind, obj, printer.cells(obj, now), include_object) for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": list_metadata,
        "columnDefinitions": [_column_definition(header) for header in printer.headers] if headers else None,
        "rows": rows,
    }


def accepts_table(accept: str) -> bool:
    """Return whether the first supported media type of an Accept header is a Table."""
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        if (options.get("as"), options.get("g"), options.get("v")) == ("Table", "meta.k8s.io", "v1"):
            return True
        if "as" not in options:
            return False
    return False


def _column_definition(header: Header) -> JsonObject:
    return {
        "name": header.name,
        "type": header.type,
        "format": header.format,
        "description": header.description,
        "priority": header.priority,
    }


def _row(kind: Kind, obj: JsonObject, cells: Cells, include_object: str) -> JsonObject:
    row: JsonObject = {"cells": cells}
    if kind.kind == "Pod" and (conditions := _ROW_CONDITIONS.get(section_at(obj, "status").get("phase", ""))):
        row["conditions"] = conditions
    if include_object == "Object":
        row["object"] = {"kind": kind.kind, "apiVersion": kind.api_version} | obj
    else:
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": section_at(obj, "metadata")}
    return row
