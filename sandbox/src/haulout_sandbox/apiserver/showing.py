"""How objects are shown: as they are, or as rows of a table, whichever the caller accepts."""

from collections.abc import Callable
from datetime import datetime

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import jsonpath
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.custom_versions import version_of
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.tables import Column, asks_for_table, included, table, table_of


def shown(call: Call, obj: JsonObject, *, now: datetime) -> JsonObject:
    """Return the object as the caller wants to see it: as it is, or as a row of a table."""
    if not asks_for_table(call.request.accept):
        return obj
    include = included(call.query.get("includeObject", ""))
    return table_of(
        call.target.kind,
        obj,
        now=now,
        include=include,
        columns=_columns(call),
        evaluate=jsonpath.find,
    )


def shown_list(call: Call, listed: JsonObject, *, now: datetime) -> JsonObject:
    """Return a list likewise."""
    if not asks_for_table(call.request.accept):
        return listed
    include = included(call.query.get("includeObject", ""))
    kind, typed = call.target.kind, {"apiVersion": call.target.kind.api_version, "kind": call.target.kind.kind}
    rows, meta = [typed | item for item in listed["items"]], {k: v for k, v in listed["metadata"].items() if v}
    return table(
        kind,
        rows,
        now=now,
        list_metadata=meta,
        include=include,
        columns=_columns(call),
        evaluate=jsonpath.find,
    )


def shown_events(call: Call, *, clock: Clock) -> Callable[[JsonObject], JsonObject] | None:
    """Return how a watch shows objects; columns are told in its first event only."""
    if not asks_for_table(call.request.accept):
        return None
    include, first, columns = included(call.query.get("includeObject", "")), iter((True,)), _columns(call)

    def show(obj: JsonObject) -> JsonObject:
        headers = next(first, False)
        return table_of(
            call.target.kind,
            obj,
            now=clock.now(),
            include=include,
            columns=columns,
            evaluate=jsonpath.find,
            headers=headers,
        )

    return show


def _columns(call: Call) -> tuple[Column, ...]:
    version = version_of(call.target.kind)
    return version.now.columns if version else ()
