"""One watch as the server keeps it: what it has to say next, and when it must look again.

It does not wait; a transport pulls lines out of it and lets the time pass. The real rules it follows
(`apiserver/pkg/storage/cacher`): an object that starts to match is ADDED, one that stops is DELETED with its old
content and the new revision; bookmarks come each minute and two seconds before the end, and only once the revision
has moved past the one the watch started from. A watch of a custom resource ends with what is watched: when its version
is not served any more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from haulout.kube.transport import Told
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.selectors import Selection
from haulout_sandbox.apiserver.status import JSON, expired
from haulout_sandbox.apiserver.store import Store, Write, stamped
from haulout_sandbox.apiserver.values import encoded

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0


class Watch:
    """A watch from one revision on. Times are seconds of the clock's `monotonic`."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        *,
        since: int,
        bookmarks: bool,
        now: float,
        ends_at: float,
        show: Callable[[JsonObject], JsonObject] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.headers = {"content-type": JSON} | dict(headers or {})
        self.kind = selection.kind
        self._store = store
        self._selection = selection
        self._takes_all = not selection.namespace and not selection.selects and not selection.kind.is_converted
        self._show = show
        self._started_from = self._seen = since
        self._ends_at = ends_at
        self._bookmark_at = self._next_bookmark(now) if bookmarks else None
        self.wakes_at = self._next_look()  # if nothing is written before: to say something, or to end
        self._lines: deque[Told] = deque()
        self._has_news = True
        self.ended = False

    def begin(self, objects: Iterable[JsonObject], *, mark_end: bool) -> None:
        """Start with what there is."""
        self._lines.extend(self._change("ADDED", obj) for obj in objects)
        if mark_end:
            self._lines.append(self._bookmark(self._seen, annotations={INITIAL_EVENTS_END: "true"}))

    def fail(self, status: JsonObject) -> None:
        """Say why not, and end."""
        self._lines.append(Told("ERROR", status))
        self.ended = True

    @property
    def has_news(self) -> bool:
        """Tell whether there is, or may be, something to say, however much time has passed."""
        return self._has_news or bool(self._lines)

    def pull(self, now: float) -> Told | None:
        """Return what the next line says, if there is one now."""
        self._look_if_due(now)
        return self._lines.popleft() if self._lines else None

    def pull_all(self, now: float) -> Iterable[Told]:
        """Return what all lines say that there are now."""
        self._look_if_due(now)
        lines, self._lines = self._lines, deque()
        return lines

    def note(self) -> None:
        """Note that something was written that may have to be told; until then there is nothing to look for."""
        self._has_news = True

    def _next_look(self) -> float:
        return self._ends_at if self._bookmark_at is None else min(self._ends_at, self._bookmark_at)

    def _look_if_due(self, now: float) -> None:
        if not self._lines and not self.ended and (self._has_news or now >= self.wakes_at):
            self._look(now)

    def _look(self, now: float) -> None:
        self._store.expire()
        if not self._store.remembers(self.kind, self._seen):
            # We were not asked for so long that we missed writes: a real server ends such watches, too.
            self.fail(expired(f"too old resource version: {self._seen} ({self._store.compacted})").status)
            return
        for write in self._store.since(self.kind, self._seen):
            if line := self._event(write):
                self._lines.append(line)
        self._has_news = False
        self._seen = max(self._seen, self._store.revision)
        if self._bookmark_at is not None and now >= self._bookmark_at:
            self._bookmark_at = self._next_bookmark(now)
            self.wakes_at = self._next_look()
            if self._seen > self._started_from:
                self._lines.append(self._bookmark(self._seen))
        self.ended = now >= self._ends_at or self._is_over()

    def _is_over(self) -> bool:
        rules = self._selection.kind.rules
        return rules is not None and not rules.is_served

    def _next_bookmark(self, now: float) -> float | None:
        at = min(now + _BOOKMARK_EVERY, self._ends_at - _BOOKMARK_BEFORE_END)
        return at if at > now else None

    def _event(self, write: Write) -> Told | None:
        before, after = write.before, write.after
        if self._takes_all and before is not None and after is not None:
            return self._change("MODIFIED", after)
        if self.kind.rules is not None:
            before, after = (None if it is None else self.kind.shown(it) for it in (before, after))
        matched = before is not None and self._selection.matches(before)
        if after is not None and self._selection.matches(after):
            return self._change("MODIFIED" if matched else "ADDED", after)
        if before is not None and matched:
            return self._change("DELETED", stamped(before, write.revision))
        return None

    def _change(self, kind: str, obj: JsonObject) -> Told:
        return Told(kind, self._show(obj) if self._show else obj)

    def _bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> Told:
        kind = self._selection.kind
        meta: JsonObject = {"resourceVersion": str(revision)} | ({"annotations": annotations} if annotations else {})
        sections: JsonObject = {name: {} for name in kind.sections}
        return Told("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta} | sections)


def line_of(told: Told) -> bytes:
    """Return what is told as a line."""
    return b'{"type":"%b","object":%b}' % (told.type.encode(), encoded(told.object))
