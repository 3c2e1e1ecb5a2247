"""Tables, as `kubectl get` asks for them: `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`.

    table(POD, pods, now=clock.now(), list_metadata=listed["metadata"])
    table_of(POD, pod, now=clock.now(), headers=first)      # one object: a GET, or one event of a watch

A watch sends a table for each event and describes the columns only in the first (`headers`). Built-in kinds are shown
by `printers`; custom resources by the columns that their definition names, whose JSON paths the caller evaluates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Self

import msgspec

from haulout_sandbox.apiserver import printers, workloadprinters
from haulout_sandbox.apiserver.ages import UNKNOWN, human_duration
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.podprinter import POD_PRINTER
from haulout_sandbox.apiserver.printing import NAME, Cells, Header, Printer, name_of, part
from haulout_sandbox.apiserver.status import bad_request

META = "meta.k8s.io/v1"
PRINTERS = {**printers.PRINTERS, **workloadprinters.PRINTERS, ("", "Pod"): POD_PRINTER}

Include = Literal["Metadata", "Object", "None"]
Evaluate = Callable[[str, JsonObject], Sequence[Any]]  # a JSON path and an object: the values found there

_LARGEST_INTEGER = 2**63
_PLAIN_EXPONENTS = range(-4, 6)
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"  # the mark of a bookmark that a client waits for: always shown
_ROW_CONDITIONS = {  # rows that are over, which a client may hide
    phase: [{"type": "Completed", "status": "True", "reason": phase}] for phase in ("Succeeded", "Failed")
}


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom resource: `additionalPrinterColumns` in its definition."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    format: str = ""
    description: str = ""

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> Self:
        """Return the column that an item of `additionalPrinterColumns` defines."""
        told = {name: definition[name] for name in ("priority", "format", "description") if definition.get(name)}
        return cls(definition["name"], definition["type"], definition["jsonPath"], **told)


AGE_COLUMN = Column("Age", "date", ".metadata.creationTimestamp")  # of custom resources that name no columns


def dotted(path: str, obj: JsonObject) -> Sequence[Any]:
    """Evaluate a JSON path that only names fields, `.spec.replicas`; another finds nothing."""
    value: Any = obj
    for name in path.removeprefix(".").split("."):
        if not isinstance(value, dict) or name not in value:
            return ()
        value = value[name]
    return (value,)


def table(
    kind: Kind,
    objects: Iterable[JsonObject],
    *,
    now: datetime,
    list_metadata: JsonObject,
    include: Include = "Metadata",
    columns: Sequence[Column] = (),
    evaluate: Evaluate = dotted,
    headers: bool = True,
) -> JsonObject:
    """Return `objects` as a Table; `columns` and `evaluate` are for custom resources."""
    printer = _printer(kind, columns, evaluate)
    rows = [_row(kind, obj, printer.cells(obj, now), include) for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": META,
        "metadata": dict(list_metadata),
        "columnDefinitions": [_definition(header) for header in printer.headers] if headers else None,
        # An empty list is null where the server has no printer of its own for the kind.
        "rows": rows if rows or printer is not _DEFAULT else None,
    }


def table_of(
    kind: Kind,
    obj: JsonObject,
    *,
    now: datetime,
    include: Include = "Metadata",
    columns: Sequence[Column] = (),
    evaluate: Evaluate = dotted,
    headers: bool = True,
) -> JsonObject:
    """Return one object as a Table of one row."""
    version = part(obj, "metadata").get("resourceVersion")
    return table(
        kind,
        [obj],
        now=now,
        list_metadata={"resourceVersion": version} if version else {},
        include=include,
        columns=columns,
        evaluate=evaluate,
        headers=headers,
    )


def partial_metadata(obj: JsonObject) -> JsonObject:
    """Return what the API calls PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": part(obj, "metadata")}


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


def included(include_object: str) -> Include:
    """Return what a request's `includeObject` asks for; refuses what the server would."""
    match include_object:
        case "" | "Metadata":
            return "Metadata"
        case "Object":
            return "Object"
        case "None":
            return "None"
    raise bad_request(
        f'Unable to convert to Table as requested: includeObject: Invalid value: "{include_object}": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def _default_cells(obj: JsonObject, _: datetime) -> Cells:
    return [name_of(obj), part(obj, "metadata").get("creationTimestamp") or "0001-01-01T00:00:00Z"]


_DEFAULT = Printer((NAME, Header("Created At", "date")), _default_cells)


def _printer(kind: Kind, columns: Sequence[Column], evaluate: Evaluate) -> Printer:
    if kind.custom:
        return _custom_printer(columns or (AGE_COLUMN,), evaluate)
    return PRINTERS.get((kind.group, kind.kind), _DEFAULT)


def _definition(header: Header) -> JsonObject:
    return {
        "name": header.name,
        "type": header.type,
        "format": header.format,
        "description": header.description,
        "priority": header.priority,
    }


def _row(kind: Kind, obj: JsonObject, cells: Cells, include: Include) -> JsonObject:
    row: JsonObject = {"cells": cells}
    if kind.kind == "Pod" and (conditions := _ROW_CONDITIONS.get(part(obj, "status").get("phase", ""))):
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = {"kind": kind.kind, "apiVersion": kind.api_version} | obj
    elif include == "Metadata" or _INITIAL_EVENTS_END in part(obj, "metadata", "annotations"):
        row["object"] = partial_metadata(obj)
    else:
        row["object"] = None
    return row


def _custom_printer(columns: Sequence[Column], evaluate: Evaluate) -> Printer:
    headers = (Header(it.name, it.type, it.format, it.priority, it.description) for it in columns)

    def cells(obj: JsonObject, now: datetime) -> Cells:
        found = ((column, evaluate(column.json_path, obj)) for column in columns)
        return [name_of(obj), *(_cell(column.type, values[0], now) if values else None for column, values in found)]

    return Printer((NAME, *headers), cells)


def _cell(kind: str, value: Any, now: datetime) -> Any:
    """Return a value as its column's type shows it; None if it is not of that type."""
    if kind == "string":
        return _text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "integer" and is_number:
        return int(value)
    if kind == "number" and is_number:
        return _whole(value)
    if kind == "date" and isinstance(value, str):
        return _age_cell(value, now)
    return None


def _text(value: Any) -> str:
    if value is None:
        return "<no value>"
    if isinstance(value, dict | list):
        plain = msgspec.json.encode(value, order="sorted").decode()
        return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    if isinstance(value, bool):
        return str(value).lower()
    value = _whole(value)
    if isinstance(value, int) and abs(value) >= _LARGEST_INTEGER:
        value = float(value)
    return _float_text(value) if isinstance(value, float) else str(value)


def _float_text(value: float) -> str:
    """Return the shortest digits that mean `value`, with an exponent where Go's `%v` has one."""
    digits = Decimal(repr(value))
    exponent = digits.adjusted()
    if exponent in _PLAIN_EXPONENTS:
        return f"{digits:f}"
    return f"{digits.scaleb(-exponent).normalize():f}e{exponent:+03d}"


def _whole(value: Any) -> Any:
    """Return a float without a fraction as the integer that it becomes when it is stored."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_INTEGER else value


def _age_cell(timestamp: str, now: datetime) -> str:
    if timestamp in ("", "null"):
        return UNKNOWN
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    return "<invalid>" if then.tzinfo is None else human_duration(now - then)
