"""A stream of OCI: partitions of messages, and groups of consumers that share them.

A group has committed offsets, which outlive its consumers. Each partition is reserved for one consumer at a time, for
as long as that one reads, commits or sends heartbeats. A consumer that goes silent loses its partitions; whoever gets
one begins at what was committed. A cursor is all that a consumer knows: how far it has read, and under which
reservations. It expires after five minutes.
"""

import base64
import itertools
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.oci.written import instant, written

CURSOR_LASTS = timedelta(minutes=5)
INSTANCE_TIMEOUT = timedelta(seconds=30)
LARGEST_LIMIT = 10_000
LARGEST_MESSAGE = 1 << 20
_GETS_A_SECOND = 5
_GAP_EVERY = 5  # offsets are not dense: so often one is left out

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A message in a partition."""

    offset: int
    key: str | None
    value: str
    at: datetime


@dataclass(slots=True)
class Reservation:
    """Who reads a partition."""

    instance: str
    number: int  # which tells it from an earlier one of the same instance


@dataclass(slots=True)
class Group:
    """Consumers that share a stream."""

    committed: dict[int, int]  # the next offset of each partition
    alive: dict[str, datetime] = field(default_factory=dict)  # instances, and until when without hearing of them
    reservations: dict[int, Reservation] = field(default_factory=dict)
    gets: list[datetime] = field(default_factory=list)


class Cursor(msgspec.Struct, frozen=True):
    """What a cursor says; consumers see it as an opaque text."""

    issued: datetime
    next: dict[int, int]
    group: str = ""
    instance: str = ""
    reserved: dict[int, int] = {}
    commit_on_get: bool = True
    timeout_ms: int = 30_000


class Stream:
    """One stream."""

    def __init__(
        self, name: str, clock: Clock, *, partitions: int = 1, retention: timedelta = timedelta(days=7)
    ) -> None:
        self.name = name
        self._clock = clock
        self.retention = retention
        self._partitions: list[list[Entry]] = [[] for _ in range(partitions)]
        self._written = [0] * partitions  # the next offset
        self._groups: dict[str, Group] = {}
        self._numbers = itertools.count(1)

    # The eight calls

    def put_messages(self, messages: list[Document]) -> Document:
        """Take messages in; each is answered by itself."""
        entries = [self._put(it.get("key"), it.get("value")) for it in messages]
        return {"failures": sum("error" in it for it in entries), "entries": entries}

    def create_cursor(self, details: Document) -> str:
        """Return a cursor for one partition."""
        try:
            partition = int(details.get("partition", ""))
            start = self._position(partition, details.get("type"), details)
        except (ValueError, IndexError):
            raise _bad("the partition does not exist") from None
        return self._issue(Cursor(self._clock.now(), {partition: start}))

    def create_group_cursor(self, details: Document) -> str:
        """Return a cursor for a member of a group, which begins to exist with its first."""
        name = details.get("groupName") or ""
        if not name:
            raise _bad("groupName is required")
        group = self._groups.get(name)
        if group is None:
            kind = details.get("type")
            positions = {it: self._position(it, kind, details) for it in range(len(self._partitions))}
            group = self._groups[name] = Group(positions)
        instance = details.get("instanceName") or f"instance-{next(self._numbers)}"
        cursor = Cursor(
            self._clock.now(),
            {},
            group=name,
            instance=instance,
            commit_on_get=details.get("commitOnGet", True) is not False,
            timeout_ms=details.get("timeoutInMs") or 30_000,
        )
        # Whoever asks for a cursor has forgotten how far it had read.
        for partition in [it for it, held in group.reservations.items() if held.instance == instance]:
            del group.reservations[partition]
        return self._issue(self._joined(group, cursor))

    def get_messages(self, value: str, limit: int) -> tuple[list[Document], str]:
        """Return the next messages, and the cursor to go on with."""
        cursor = self._read(value)
        if not 1 <= limit <= LARGEST_LIMIT:
            raise _bad(f"limit must be from 1 to {LARGEST_LIMIT}")
        if cursor.group:
            group = self._group(cursor.group)
            self._throttle(group)
            if cursor.commit_on_get:
                self._commit(group, cursor)
            cursor = self._joined(group, cursor)
        found: list[Document] = []
        reached = dict(cursor.next)
        for partition, position in cursor.next.items():
            self._forget_old(partition)
            entries = self._partitions[partition]
            first = bisect_left(entries, position, key=lambda it: it.offset)
            taken = entries[first : first + limit - len(found)]
            found += [self._shown(partition, it) for it in taken]
            reached[partition] = taken[-1].offset + 1 if taken else position
        return found, self._issue(msgspec.structs.replace(cursor, next=reached))

    def commit(self, value: str) -> str:
        """Commit how far a cursor is, and return it renewed."""
        cursor = self._read(value)
        group = self._group(cursor.group)
        if not self._commit(group, cursor):
            raise CloudError(
                "the partition is reserved for another instance",
                doing="ConsumerCommit",
                status=409,
                code="IncorrectState",
            )
        return self._issue(self._joined(group, cursor))

    def heartbeat(self, value: str) -> str:
        """Keep reservations, and return the cursor renewed."""
        cursor = self._read(value)
        return self._issue(self._joined(self._group(cursor.group), cursor))

    def get_group(self, name: str) -> Document:
        """Return how far a group is, and who reads what until when."""
        group = self._group(name)
        self._bury(group)
        reservations = []
        for partition, committed in sorted(group.committed.items()):
            held = group.reservations.get(partition)
            reservations.append(
                {
                    "partition": str(partition),
                    "committedOffset": committed - 1,
                    "reservedInstance": held and held.instance,
                    "timeReservedUntil": held and written(group.alive[held.instance]),
                }
            )
        return {"groupName": name, "reservations": reservations}

    def update_group(self, name: str, details: Document) -> None:
        """Set all positions of a group anew."""
        group = self._group(name)
        kind = details.get("type")
        group.committed = {it: self._position(it, kind, details) for it in range(len(self._partitions))}
        group.reservations.clear()

    # How

    def _put(self, key: object, value: object) -> Document:
        if not isinstance(value, str) or len(value) > LARGEST_MESSAGE:
            return {"error": "InvalidMessage", "errorMessage": "expected a value in base64 of at most 1 MB"}
        hashed = sum(str(key).encode()) if key is not None else next(self._numbers)
        partition = hashed % len(self._partitions)
        offset = self._written[partition]
        self._written[partition] += 2 if offset % _GAP_EVERY == _GAP_EVERY - 1 else 1
        now = self._clock.now()
        self._partitions[partition].append(Entry(offset, key if isinstance(key, str) else None, value, now))
        return {"partition": str(partition), "offset": offset, "timestamp": written(now)}

    def _shown(self, partition: int, entry: Entry) -> Document:
        return {
            "stream": self.name,
            "partition": str(partition),
            "key": entry.key,
            "value": entry.value,
            "offset": entry.offset,
            "timestamp": written(entry.at),
        }

    def _position(self, partition: int, kind: object, details: Document) -> int:
        entries = self._partitions[partition]
        self._forget_old(partition)
        match kind:
            case "TRIM_HORIZON":
                return 0
            case "LATEST":
                return self._written[partition]
            case "AT_TIME":
                since = instant(details.get("time"))
                return next((it.offset for it in entries if it.at >= since), self._written[partition])
            case "AT_OFFSET" | "AFTER_OFFSET":
                return int(details.get("offset", 0)) + (kind == "AFTER_OFFSET")
        raise _bad("type must be one of TRIM_HORIZON, LATEST, AT_TIME, AT_OFFSET, AFTER_OFFSET")

    def _joined(self, group: Group, cursor: Cursor) -> Cursor:
        """Return the cursor with the partitions that its consumer has now."""
        now = self._clock.now()
        self._bury(group)
        group.alive[cursor.instance] = now + timedelta(milliseconds=cursor.timeout_ms)
        share = -(-len(self._partitions) // len(group.alive))
        own = [it for it, held in group.reservations.items() if held.instance == cursor.instance]
        for surplus in own[share:]:
            del group.reservations[surplus]
        free = [it for it in range(len(self._partitions)) if it not in group.reservations]
        for partition in free[: max(share - len(own), 0)]:
            group.reservations[partition] = Reservation(cursor.instance, next(self._numbers))
        held = {it: at.number for it, at in sorted(group.reservations.items()) if at.instance == cursor.instance}
        position = {
            it: cursor.next[it] if cursor.reserved.get(it) == number and it in cursor.next else group.committed[it]
            for it, number in held.items()
        }
        return msgspec.structs.replace(cursor, issued=now, next=position, reserved=held)

    def _bury(self, group: Group) -> None:
        now = self._clock.now()
        for instance in [it for it, until in group.alive.items() if until <= now]:
            del group.alive[instance]
            for partition in [it for it, held in group.reservations.items() if held.instance == instance]:
                del group.reservations[partition]

    def _commit(self, group: Group, cursor: Cursor) -> bool:
        """Commit what the cursor's reservations allow; tell whether that was all of it."""
        self._bury(group)
        all_held = True
        for partition, position in cursor.next.items():
            held = group.reservations.get(partition)
            if held is None or held.number != cursor.reserved.get(partition):
                all_held = False
            else:
                group.committed[partition] = max(group.committed[partition], position)
        return all_held

    def _throttle(self, group: Group) -> None:
        now = self._clock.now()
        group.gets = [it for it in group.gets if it > now - timedelta(seconds=1)]
        if len(group.gets) >= _GETS_A_SECOND * len(self._partitions):
            raise CloudError("too many requests", doing="GetMessages", status=429, code="TooManyRequests")
        group.gets.append(now)

    def _forget_old(self, partition: int) -> None:
        oldest = self._clock.now() - self.retention
        entries = self._partitions[partition]
        while entries and entries[0].at < oldest:
            entries.pop(0)

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise CloudError(f"no group {name}", doing="a call of a group", status=404, code="NotAuthorizedOrNotFound")
        return group

    def _issue(self, cursor: Cursor) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()

    def _read(self, value: str) -> Cursor:
        try:
            cursor = msgspec.json.decode(base64.urlsafe_b64decode(value), type=Cursor)
        except ValueError:
            raise _bad("the cursor makes no sense") from None
        if cursor.issued + CURSOR_LASTS < self._clock.now():
            raise _bad("the cursor has expired")
        return cursor


def _bad(message: str) -> CloudError:
    return CloudError(message, doing="a call of the stream", status=400, code="InvalidParameter")
