"""Summaries of all records, without their entries: a list as Table, whose rows contain only metadata.

A record is up to 32 KiB long, and there is one per node. Its last states are in an annotation, so that a list of all
records costs a few hundred bytes each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS, LastState
from haulout.api.objects import Base, ListMeta, Object
from haulout.kube import responses
from haulout.kube.client import PAGE_SIZE, Client
from haulout.kube.transport import Request

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """The last states in one record, with UID and deletion time of its node."""

    node_uid: str
    last_states: Mapping[str, LastState]
    node_deleted: datetime | None = None
    is_owned: bool = False  # by the Node object, as older versions have it: garbage-collected with the node


class _Row(Base, frozen=True):
    object: Object = Object()


class _Table(Base, frozen=True):
    rows: tuple[_Row, ...] | None = None
    metadata: ListMeta = ListMeta()


async def list_summaries(client: Client) -> dict[str, RecordSummary]:
    """Return the summaries by node. Raise `NotFound` if the CRD is missing."""
    doing = f"listing {MAINTENANCE_RECORDS}"
    query = (("limit", str(PAGE_SIZE)), ("includeObject", "Metadata"))
    summaries: dict[str, RecordSummary] = {}
    continuation: tuple[tuple[str, str], ...] = ()
    while True:
        request = Request(method="GET", path=MAINTENANCE_RECORDS.path(), query=query + continuation, accept=_TABLE)
        page = responses.decode(_Table, (await client.request(request, doing=doing)).body, doing=doing)
        for row in page.rows or ():
            metadata = row.object.metadata
            summaries[row.object.name] = RecordSummary(
                records.node_uid(metadata),
                records.decode_last_states(metadata.annotations),
                records.node_deleted(metadata),
                is_owned=bool(records.node_owner_indexes(metadata)),
            )
        if not page.metadata.continue_:
            return summaries
        continuation = (("continue", page.metadata.continue_),)
