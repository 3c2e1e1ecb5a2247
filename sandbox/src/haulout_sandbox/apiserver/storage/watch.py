"""One watch on the server's side: its next event, and when to check again.

A watch does not wait; a transport pulls lines from it and lets time pass. It follows `apiserver/pkg/storage/cacher`: an
object that starts to match is ADDED, one that stops matching is DELETED with its old content and the new revision.
Bookmarks are sent each minute and two seconds before the end, and only after the revision has moved past the one at
which the watch started. A watch of a custom resource ends when its version is no longer served.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from haulout.kube.transport import DecodedEvent
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.selectors import Selection
from haulout_sandbox.apiserver.status import JSON, expired
from haulout_sandbox.apiserver.storage.store import Store, Write, with_resource_version
from haulout_sandbox.apiserver.storage.stored_object import encode_json

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BOOKMARK_INTERVAL = 60.0
_BOOKMARK_BEFORE_END = 2.0


class Watch:
    """A watch that starts at a revision. Times are seconds of the clock's `monotonic`."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        *,
        since: int,
        bookmarks: bool,
        now: float,
        ends_at: float,
        convert: Callable[[JsonObject], JsonObject] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.headers = {"content-type": JSON} | dict(headers or {})
        self.kind = selection.kind
        self._store = store
        self._selection = selection
        self._matches_all = not selection.namespace and not selection.has_selectors and not selection.kind.is_converted
        self._convert = convert
        self._start_revision = self._current_revision = since
        self._ends_at = ends_at
        self._bookmark_at = self._next_bookmark(now) if bookmarks else None
        self.next_check_at = self._next_check()  # the next bookmark or the end, if nothing is written before
        self._events: deque[DecodedEvent] = deque()
        self._may_have_events = True
        self.is_ended = False

    def send_initial_events(self, objects: Iterable[JsonObject], *, mark_end: bool) -> None:
        """Send the existing objects first."""
        self._events.extend(self._new_event("ADDED", obj) for obj in objects)
        if mark_end:
            self._events.append(self._bookmark(self._current_revision, annotations={INITIAL_EVENTS_END: "true"}))

    def fail(self, status: JsonObject) -> None:
        """Send an ERROR event with this Status, and end."""
        self._events.append(DecodedEvent("ERROR", status))
        self.is_ended = True

    @property
    def may_have_events(self) -> bool:
        """Return whether there may be events to send, regardless of time."""
        return self._may_have_events or bool(self._events)

    def pull(self, now: float) -> DecodedEvent | None:
        """Return the next event, if there is one now."""
        self._check_if_due(now)
        return self._events.popleft() if self._events else None

    def pull_all(self, now: float) -> Iterable[DecodedEvent]:
        """Return all events that there are now."""
        self._check_if_due(now)
        events, self._events = self._events, deque()
        return events

    def notify(self) -> None:
        """Note that an object of this kind was written; until then no check is needed."""
        self._may_have_events = True

    def _next_check(self) -> float:
        return self._ends_at if self._bookmark_at is None else min(self._ends_at, self._bookmark_at)

    def _check_if_due(self, now: float) -> None:
        if not self._events and not self.is_ended and (self._may_have_events or now >= self.next_check_at):
            self._read_writes(now)

    def _read_writes(self, now: float) -> None:
        self._store.expire_objects()
        if not self._store.has_writes_since(self.kind, self._current_revision):
            # The client read so slowly that writes it needs are compacted; a real server ends such watches, too.
            self.fail(
                expired(f"too old resource version: {self._current_revision} ({self._store.compacted_revision})").status
            )
            return
        for write in self._store.writes_since(self.kind, self._current_revision):
            if event := self._event_of(write):
                self._events.append(event)
        self._may_have_events = False
        self._current_revision = max(self._current_revision, self._store.revision)
        if self._bookmark_at is not None and now >= self._bookmark_at:
            self._bookmark_at = self._next_bookmark(now)
            self.next_check_at = self._next_check()
            if self._current_revision > self._start_revision:
                self._events.append(self._bookmark(self._current_revision))
        self.is_ended = now >= self._ends_at or self._is_version_removed()

    def _is_version_removed(self) -> bool:
        rules = self._selection.kind.custom_resource
        return rules is not None and not rules.is_served

    def _next_bookmark(self, now: float) -> float | None:
        bookmark_at = min(now + _BOOKMARK_INTERVAL, self._ends_at - _BOOKMARK_BEFORE_END)
        return bookmark_at if bookmark_at > now else None

    def _event_of(self, write: Write) -> DecodedEvent | None:
        before, after = write.before, write.after
        if self._matches_all and before is not None and after is not None:
            return self._new_event("MODIFIED", after)
        if self.kind.custom_resource is not None:
            before, after = (None if obj is None else self.kind.from_storage(obj) for obj in (before, after))
        matched = before is not None and self._selection.matches(before)
        if after is not None and self._selection.matches(after):
            return self._new_event("MODIFIED" if matched else "ADDED", after)
        if before is not None and matched:
            return self._new_event("DELETED", with_resource_version(before, write.revision))
        return None

    def _new_event(self, event_type: str, obj: JsonObject) -> DecodedEvent:
        return DecodedEvent(event_type, self._convert(obj) if self._convert else obj)

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> DecodedEvent:
        kind = self._selection.kind
        meta: JsonObject = {"resourceVersion": str(revision)} | ({"annotations": annotations} if annotations else {})
        sections: JsonObject = {name: {} for name in kind.always_present}
        return DecodedEvent(
            "BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta} | sections
        )


def encode_event(event: DecodedEvent) -> bytes:
    return b'{"type":"%b","object":%b}' % (event.type.encode(), encode_json(event.object))
