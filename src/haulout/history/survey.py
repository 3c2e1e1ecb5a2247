"""Where everything stands by all records, without their entries: a list as a table, whose rows carry only metadata.

A record is up to 32 KiB long, and there is one for each node. What is needed of it to see whether it is complete is in
an annotation, so that a look at all of them costs a few hundred bytes each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from haulout.history import record as records
from haulout.history.record import MAINTENANCE_RECORDS, Stand
from haulout.kube import answers
from haulout.kube.client import PAGE_SIZE, Client
from haulout.kube.objects import Base, ListMetadata, Object
from haulout.kube.transport import Request

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where things stand by one record; `uid` is that of its node, and `deleted` when that was deleted."""

    uid: str
    standing: Mapping[str, Stand]
    deleted: datetime | None = None
    is_owned: bool = False  # by the Node object, as older versions have it: the server deletes it with the node


class _Row(Base, frozen=True):
    object: Object = Object()


class _Table(Base, frozen=True):
    rows: tuple[_Row, ...] | None = None
    metadata: ListMetadata = ListMetadata()


async def standings(client: Client) -> dict[str, Standing]:
    """Return by node where things stand; raises `NotFound` if there are no records here at all."""
    doing = f"listing {MAINTENANCE_RECORDS}"
    query = (("limit", str(PAGE_SIZE)), ("includeObject", "Metadata"))
    found: dict[str, Standing] = {}
    following: tuple[tuple[str, str], ...] = ()
    while True:
        request = Request(method="GET", path=MAINTENANCE_RECORDS.path(), query=query + following, accept=_TABLE)
        page = answers.decode(_Table, (await client.request(request, doing=doing)).body, doing=doing)
        for row in page.rows or ():
            metadata = row.object.metadata
            found[row.object.name] = Standing(
                records.node_uid(metadata),
                records.read_standing(metadata.annotations),
                records.node_deleted(metadata),
                is_owned=bool(records.owner_nodes(metadata)),
            )
        if not page.metadata.continue_:
            return found
        following = (("continue", page.metadata.continue_),)
