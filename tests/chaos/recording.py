"""The recording of a round as values: the audit log of the API server, and the events of an observer's watches.

    recording = Recording(read_audit(lines, restored=[]), watched)
    for revision in recording.revisions("nodes"): …

A watch shows each revision of an object, but not who wrote it; the audit log shows who wrote what, but lacks writes
directly before the server was killed. Together they are complete. Revisions are ordered by resourceVersion. A restored
etcd assigns resourceVersions a second time, so revisions are ordered by epoch first; each restore starts an epoch.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

Raw = Mapping[str, Any]
_DELETED = "DELETED"
AUDIT = "audit.log"
WATCHED = "watched.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One request that the API server has answered."""

    user: str
    verb: str
    resource: str
    name: str
    code: int
    received: datetime
    completed: datetime
    namespace: str = ""
    subresource: str = ""
    epoch: int = 0
    request: Raw | None = None
    response: Raw | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the request took effect."""
        return self.code < HTTPStatus.MULTIPLE_CHOICES

    @property
    def version(self) -> int | None:
        """The resourceVersion of the object that the server answered with."""
        metadata = (self.response or {}).get("metadata") or {}
        text = metadata.get("resourceVersion")
        return int(text) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch."""

    resource: str
    type: str
    object: Raw
    at: datetime
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """An object at one resourceVersion, and who wrote it if the audit log says so."""

    resource: str
    epoch: int
    version: int
    object: Raw
    at: datetime
    user: str = ""
    received: datetime | None = None
    deleted: bool = False

    @property
    def key(self) -> str:
        """Namespace and name."""
        metadata = self.object["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])

    @property
    def order(self) -> tuple[int, int]:
        """What revisions are ordered by."""
        return self.epoch, self.version


@dataclass(frozen=True, slots=True)
class Recording:
    """All that the invariants of a round are checked on."""

    audit: Sequence[AuditEvent] = ()
    watched: Sequence[WatchEvent] = ()
    _revisions: dict[str, tuple[Revision, ...]] = field(default_factory=dict, repr=False, compare=False)

    def revisions(self, *resources: str) -> list[Revision]:
        """Return the revisions of all objects of these kinds, in their order."""
        for resource in resources:
            if resource not in self._revisions:
                self._revisions[resource] = tuple(_merged(resource, self.audit, self.watched))
        return sorted(
            (revision for kind in resources for revision in self._revisions[kind]), key=lambda revision: revision.order
        )

    def final(self, resource: str) -> dict[str, Raw]:
        """Return the objects of a kind at the end of the recording, by namespace and name."""
        objects: dict[str, Raw] = {}
        epoch = max((event.epoch for event in self.watched), default=0)  # a restore takes what is not listed after it
        for event in self.revisions(resource):
            if event.epoch != epoch:
                continue
            if event.deleted:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.object
        return objects

    def writes(self, users: Iterable[str]) -> Iterator[AuditEvent]:
        """Yield the requests of these users that took effect, in the order in which the server finished them."""
        wanted = frozenset(users)
        yield from sorted(
            (event for event in self.audit if event.user in wanted and event.succeeded),
            key=lambda event: event.completed,
        )


def save_watched(file: Path, watched: Sequence[WatchEvent], restored: Sequence[datetime]) -> None:
    """Save the watch events, so that a round can be checked again with its audit log."""
    events = [asdict(event) | {"at": event.at.isoformat()} for event in watched]
    file.write_text(json.dumps({"restored": [event.isoformat() for event in restored], "events": events}))


def load(folder: Path) -> Recording:
    """Return the recording that a round left in its folder."""
    kept = json.loads((folder / WATCHED).read_text())
    restored = [_instant(event) for event in kept["restored"]]
    watched = tuple(WatchEvent(**event | {"at": _instant(event["at"])}) for event in kept["events"])
    with (folder / AUDIT).open() as lines:
        return Recording(tuple(read_audit(lines, restored=restored)), watched)


def read_audit(lines: Iterable[str], *, restored: Sequence[datetime] = ()) -> Iterator[AuditEvent]:
    """Yield the requests of an audit log that were answered; `restored` is when etcd was restored, in order.

    The last line of a server that was killed may be incomplete: that request is only in the watches.
    """
    for line in lines:
        try:
            raw = json.loads(line)
        except ValueError:
            continue
        if raw.get("stage") != "ResponseComplete":
            continue
        reference = raw.get("objectRef") or {}
        request, response = raw.get("requestObject"), raw.get("responseObject")
        completed = _instant(raw["stageTimestamp"])
        yield AuditEvent(
            user=raw["user"]["username"],
            verb=raw["verb"],
            resource=reference.get("resource", ""),
            subresource=reference.get("subresource", ""),
            namespace=reference.get("namespace", ""),
            name=reference.get("name") or ((response or {}).get("metadata") or {}).get("name", ""),
            code=int((raw.get("responseStatus") or {}).get("code", 0)),
            received=_instant(raw["requestReceivedTimestamp"]),
            completed=completed,
            epoch=bisect_right(restored, completed),
            request=request if isinstance(request, dict) else None,
            response=response if isinstance(response, dict) else None,
        )


def _merged(resource: str, audit: Iterable[AuditEvent], watched: Iterable[WatchEvent]) -> Iterator[Revision]:
    writers: dict[tuple[int, int], AuditEvent] = {}
    for event in sorted(
        (candidate for candidate in audit if candidate.resource == resource), key=lambda candidate: candidate.received
    ):
        is_object = event.succeeded and event.version is not None and event.subresource in ("", "status")
        if is_object and event.verb in ("create", "update", "patch"):
            # A patch that changes nothing is answered with the revision of the write before it, which is not its own.
            writers.setdefault((event.epoch, event.version or 0), event)
    seen_versions: set[tuple[int, int]] = set()
    for watch in watched:
        if watch.resource != resource:
            continue
        version = int(watch.object["metadata"]["resourceVersion"])
        position = (watch.epoch, version)
        if position in seen_versions:
            continue
        seen_versions.add(position)
        writer = writers.get(position)
        yield Revision(
            resource=resource,
            epoch=watch.epoch,
            version=version,
            object=watch.object,
            at=watch.at if writer is None else writer.completed,
            user="" if writer is None else writer.user,
            received=None if writer is None else writer.received,
            deleted=watch.type == _DELETED,
        )
    for (epoch, version), event in writers.items():
        if (epoch, version) not in seen_versions and event.response is not None:
            yield Revision(
                resource=resource,
                epoch=epoch,
                version=version,
                object=event.response,
                at=event.completed,
                user=event.user,
                received=event.received,
                deleted=_removes_object(event.response),
            )


def _removes_object(obj: Raw) -> bool:
    """Tell whether a write removed the last finalizer of an object that was being deleted, and thereby the object."""
    return bool(obj["metadata"].get("deletionTimestamp")) and not obj["metadata"].get("finalizers")


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
