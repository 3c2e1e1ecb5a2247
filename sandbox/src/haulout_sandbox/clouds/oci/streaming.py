"""An OCI stream: partitions of messages, and consumer groups that share them.

A group has committed offsets, which outlive its consumers. Each partition is reserved for one consumer at a time, as
long as that one reads, commits or sends heartbeats. A silent consumer loses its partitions; the next one starts at the
committed offset. A cursor holds the complete state of a consumer: its positions and its reservations. It expires after
five minutes.
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
from haulout_sandbox.clouds.oci.time_format import format_time

CURSOR_LIFETIME = timedelta(minutes=5)
INSTANCE_TIMEOUT = timedelta(seconds=30)
MAX_LIMIT = 10_000
MAX_MESSAGE_BYTES = 1 << 20
_MAX_GETS_PER_SECOND = 5
_OFFSET_GAP_INTERVAL = 5  # offsets are not dense: every fifth is skipped

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    offset: int
    key: str | None
    value: str
    published_at: datetime


@dataclass(slots=True)
class Reservation:
    """The reservation of a partition by a consumer."""

    instance: str
    generation: int  # distinguishes reservations of the same consumer


@dataclass(slots=True)
class ConsumerGroup:
    committed: dict[int, int]  # the next offset of each partition
    expiry_by_instance: dict[str, datetime] = field(
        default_factory=dict
    )  # instances, and when they expire without a heartbeat
    reservations: dict[int, Reservation] = field(default_factory=dict)
    recent_gets: list[datetime] = field(default_factory=list)


class Cursor(msgspec.Struct, frozen=True):
    """The content of a cursor; for consumers it is opaque."""

    issued: datetime
    next: dict[int, int]
    group: str = ""
    instance: str = ""
    reserved: dict[int, int] = {}
    commit_on_get: bool = True
    timeout_ms: int = 30_000


class Stream:
    def __init__(
        self, name: str, clock: Clock, *, partitions: int = 1, retention: timedelta = timedelta(days=7)
    ) -> None:
        self.name = name
        self._clock = clock
        self.retention = retention
        self._partitions: list[list[Message]] = [[] for _ in range(partitions)]
        self._next_offsets = [0] * partitions  # the next offset
        self._groups: dict[str, ConsumerGroup] = {}
        self._numbers = itertools.count(1)

    # API calls

    def put_messages(self, messages: list[Document]) -> Document:
        """Store messages; the response has an entry for each."""
        entries = [self._append(message.get("key"), message.get("value")) for message in messages]
        return {"failures": sum("error" in message for message in entries), "entries": entries}

    def create_group_cursor(self, details: Document) -> str:
        """Return a cursor for a member of a group, which is created with its first member."""
        name = details.get("groupName") or ""
        if not name:
            raise _invalid_parameter("groupName is required")
        group = self._groups.get(name)
        if group is None:
            cursor_type = details.get("type")
            positions = {
                partition_number: self._start_offset(partition_number, cursor_type)
                for partition_number in range(len(self._partitions))
            }
            group = self._groups[name] = ConsumerGroup(positions)
        instance = details.get("instanceName") or f"instance-{next(self._numbers)}"
        cursor = Cursor(
            self._clock.now(),
            {},
            group=name,
            instance=instance,
            commit_on_get=details.get("commitOnGet", True) is not False,
            timeout_ms=details.get("timeoutInMs") or 30_000,
        )
        # A consumer that asks for a cursor has lost its position.
        for partition in [
            partition_number
            for partition_number, reservation in group.reservations.items()
            if reservation.instance == instance
        ]:
            del group.reservations[partition]
        return self._encode_cursor(self._join_group(group, cursor))

    def get_messages(self, value: str, limit: int) -> tuple[list[Document], str]:
        """Return the next messages, and the next cursor."""
        cursor = self._decode_cursor(value)
        if not 1 <= limit <= MAX_LIMIT:
            raise _invalid_parameter(f"limit must be from 1 to {MAX_LIMIT}")
        if cursor.group:
            group = self._get_group(cursor.group)
            self._throttle(group)
            if cursor.commit_on_get:
                self._commit_positions(group, cursor)
            cursor = self._join_group(group, cursor)
        result: list[Document] = []
        next_offsets = dict(cursor.next)
        for partition, position in cursor.next.items():
            self._trim(partition)
            entries = self._partitions[partition]
            first = bisect_left(entries, position, key=lambda message: message.offset)
            batch = entries[first : first + limit - len(result)]
            result += [self._message_document(partition, message) for message in batch]
            next_offsets[partition] = batch[-1].offset + 1 if batch else position
        return result, self._encode_cursor(msgspec.structs.replace(cursor, next=next_offsets))

    def commit(self, value: str) -> str:
        """Commit the position of a cursor, and return the renewed cursor."""
        cursor = self._decode_cursor(value)
        group = self._get_group(cursor.group)
        if not self._commit_positions(group, cursor):
            raise CloudError(
                "the partition is reserved for another instance",
                doing="ConsumerCommit",
                status=409,
                code="IncorrectState",
            )
        return self._encode_cursor(self._join_group(group, cursor))

    def heartbeat(self, value: str) -> str:
        """Extend the reservations, and return the renewed cursor."""
        cursor = self._decode_cursor(value)
        return self._encode_cursor(self._join_group(self._get_group(cursor.group), cursor))

    def get_group(self, name: str) -> Document:
        """Return the committed offsets of a group, and the reservations with their expiry."""
        group = self._get_group(name)
        self._expire_members(group)
        reservations = []
        for partition, committed in sorted(group.committed.items()):
            reservation = group.reservations.get(partition)
            reservations.append(
                {
                    "partition": str(partition),
                    "committedOffset": committed - 1,
                    "reservedInstance": reservation and reservation.instance,
                    "timeReservedUntil": reservation and format_time(group.expiry_by_instance[reservation.instance]),
                }
            )
        return {"groupName": name, "reservations": reservations}

    # Helpers

    def _append(self, key: object, value: object) -> Document:
        if not isinstance(value, str) or len(value) > MAX_MESSAGE_BYTES:
            return {"error": "InvalidMessage", "errorMessage": "expected a value in base64 of at most 1 MB"}
        partition_hash = sum(str(key).encode()) if key is not None else next(self._numbers)
        partition = partition_hash % len(self._partitions)
        offset = self._next_offsets[partition]
        self._next_offsets[partition] += 2 if offset % _OFFSET_GAP_INTERVAL == _OFFSET_GAP_INTERVAL - 1 else 1
        now = self._clock.now()
        self._partitions[partition].append(Message(offset, key if isinstance(key, str) else None, value, now))
        return {"partition": str(partition), "offset": offset, "timestamp": format_time(now)}

    def _message_document(self, partition: int, entry: Message) -> Document:
        return {
            "stream": self.name,
            "partition": str(partition),
            "key": entry.key,
            "value": entry.value,
            "offset": entry.offset,
            "timestamp": format_time(entry.published_at),
        }

    def _start_offset(self, partition: int, cursor_type: object) -> int:
        match cursor_type:
            case "TRIM_HORIZON":
                return 0
            case "LATEST":
                return self._next_offsets[partition]
        raise _invalid_parameter("type must be TRIM_HORIZON or LATEST")

    def _join_group(self, group: ConsumerGroup, cursor: Cursor) -> Cursor:
        """Return the cursor with the partitions that its consumer has now."""
        now = self._clock.now()
        self._expire_members(group)
        group.expiry_by_instance[cursor.instance] = now + timedelta(milliseconds=cursor.timeout_ms)
        partitions_per_member = -(-len(self._partitions) // len(group.expiry_by_instance))
        own_partitions = [
            partition_number
            for partition_number, own_reservations in group.reservations.items()
            if own_reservations.instance == cursor.instance
        ]
        for surplus in own_partitions[partitions_per_member:]:
            del group.reservations[surplus]
        free = [
            partition_number
            for partition_number in range(len(self._partitions))
            if partition_number not in group.reservations
        ]
        for partition in free[: max(partitions_per_member - len(own_partitions), 0)]:
            group.reservations[partition] = Reservation(cursor.instance, next(self._numbers))
        own_reservations = {
            partition_number: reservation.generation
            for partition_number, reservation in sorted(group.reservations.items())
            if reservation.instance == cursor.instance
        }
        position = {
            partition_number: cursor.next[partition_number]
            if cursor.reserved.get(partition_number) == number and partition_number in cursor.next
            else group.committed[partition_number]
            for partition_number, number in own_reservations.items()
        }
        return msgspec.structs.replace(cursor, issued=now, next=position, reserved=own_reservations)

    def _expire_members(self, group: ConsumerGroup) -> None:
        now = self._clock.now()
        for instance in [key for key, expires_at in group.expiry_by_instance.items() if expires_at <= now]:
            del group.expiry_by_instance[instance]
            for partition in [
                key for key, reservation in group.reservations.items() if reservation.instance == instance
            ]:
                del group.reservations[partition]

    def _commit_positions(self, group: ConsumerGroup, cursor: Cursor) -> bool:
        """Commit the offsets of reserved partitions; return whether these were all."""
        self._expire_members(group)
        all_committed = True
        for partition, position in cursor.next.items():
            reservation = group.reservations.get(partition)
            if reservation is None or reservation.generation != cursor.reserved.get(partition):
                all_committed = False
            else:
                group.committed[partition] = max(group.committed[partition], position)
        return all_committed

    def _throttle(self, group: ConsumerGroup) -> None:
        now = self._clock.now()
        group.recent_gets = [instant for instant in group.recent_gets if instant > now - timedelta(seconds=1)]
        if len(group.recent_gets) >= _MAX_GETS_PER_SECOND * len(self._partitions):
            raise CloudError("too many requests", doing="GetMessages", status=429, code="TooManyRequests")
        group.recent_gets.append(now)

    def _trim(self, partition: int) -> None:
        oldest = self._clock.now() - self.retention
        entries = self._partitions[partition]
        while entries and entries[0].published_at < oldest:
            entries.pop(0)

    def _get_group(self, name: str) -> ConsumerGroup:
        group = self._groups.get(name)
        if group is None:
            raise CloudError(f"no group {name}", doing="a call of a group", status=404, code="NotAuthorizedOrNotFound")
        return group

    def _encode_cursor(self, cursor: Cursor) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()

    def _decode_cursor(self, value: str) -> Cursor:
        try:
            cursor = msgspec.json.decode(base64.urlsafe_b64decode(value), type=Cursor)
        except ValueError:
            raise _invalid_parameter("the cursor makes no sense") from None
        if cursor.issued + CURSOR_LIFETIME < self._clock.now():
            raise _invalid_parameter("the cursor has expired")
        return cursor


def _invalid_parameter(message: str) -> CloudError:
    return CloudError(message, doing="a call of the stream", status=400, code="InvalidParameter")
