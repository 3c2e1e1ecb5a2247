"""How the sandbox's API server reads: one object, lists in pages, and where watches begin.

Follows `apiserver/pkg/storage/cacher` of Kubernetes 1.36: a list is exact, not older than, or latest by its
resourceVersion, resourceVersionMatch and limit, and its further pages show the revision of the first.
"""

import base64
from collections.abc import Mapping
from datetime import timedelta
from random import Random

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import options, status
from haulout_sandbox.apiserver.calls import Call
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.paths import is_true
from haulout_sandbox.apiserver.status import NotYet, Refused, bad_request, warning_headers
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.tables import shown_events
from haulout_sandbox.apiserver.watch import Watch

_FRESHNESS_WAIT = timedelta(seconds=3)
_SHORTEST_WATCH_SECONDS = 1800.0  # the real server ends a watch without a timeout after one to two times this
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_CONTINUE_VERSION = "meta.k8s.io/v1"
_MOST_DIGITS = 19  # of a resource version

Items = list[JsonObject]  # where a method has the name


class Reader:
    """Reads from a store. Without `watch_lists` it is that of an older server."""

    def __init__(self, store: Store, clock: Clock, random: Random, *, watch_lists: bool) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._watch_lists = watch_lists

    def get(self, call: Call) -> JsonObject:
        """Return one object."""
        target = call.target
        self._wait_for(call, _revision(call.query.get("resourceVersion", "")))
        if call.as_of is None:
            found = self._store.get(target.kind, target.key)
        else:
            found = self._store.at(target.kind, call.as_of).get(target.key)
        if found is None:
            raise status.not_found(target.kind, target.name)
        return found

    def _wait_for(self, call: Call, revision: int) -> None:
        if revision <= self._store.revision:
            return
        if not call.attempt:
            raise NotYet(_FRESHNESS_WAIT)
        raise status.too_large(revision, self._store.revision)

    def list(self, call: Call) -> JsonObject:
        """Return a list, or a page of one."""
        query, kind, chosen = call.query, call.target.kind, call.selection
        _check_list_options(query)
        revision, start = self._page(call)
        objects = [
            (key, obj)
            for key, obj in self._store.at(kind, revision).items()
            if key >= start and (not chosen.namespace or key.startswith(f"{chosen.namespace}/"))
        ]
        limit = 0 if query.get("resourceVersion") == "0" else max(options.number(query, "limit"), 0)
        items: Items = []
        meta: JsonObject = {"resourceVersion": str(revision)} | ({"continue": ""} if kind.rules else {})
        for count, (key, obj) in enumerate(objects, start=1):
            if chosen.matches(obj):
                items.append(obj if kind.custom else _without_type(obj))
            # As in the real server more objects, matching or not, make more pages: the last may be empty.
            if limit and len(items) == limit and count < len(objects):
                meta["continue"] = _token(revision, f"{key}\0")
                if not chosen.selects:
                    meta["remainingItemCount"] = len(objects) - limit
                break
        return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def _page(self, call: Call) -> tuple[int, str]:
        """Return the revision that the list shows, and the key it starts at."""
        query, version = call.query, call.query.get("resourceVersion", "")
        if query.get("continue"):
            revision, start = _from_token(query["continue"])
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            if revision < 0:
                return self._store.revision, start
            if revision < self._store.compacted:
                raise status.expired(_TOO_OLD_CONTINUE, go_on=_token(-1, start))
            return revision, start
        wanted = _revision(version)
        self._wait_for(call, wanted)
        match = query.get("resourceVersionMatch", "")
        if match == "Exact" or (not match and wanted and options.number(query, "limit")):
            if wanted < self._store.compacted:
                raise status.expired(_TOO_OLD_LIST)
            return wanted, ""
        return self._store.revision if call.as_of is None else call.as_of, ""

    def watch(self, call: Call) -> Watch:
        """Return a watch, which may have failed already."""
        query, version = call.query, call.query.get("resourceVersion", "")
        wanted, chosen = _revision(version), call.selection
        initial, bookmarks = self._initial_events(call), is_true(query, "allowWatchBookmarks")
        fresh = self._store.revision if call.as_of is None else call.as_of
        now = self._clock.monotonic()
        seconds = options.number(query, "timeoutSeconds") or _SHORTEST_WATCH_SECONDS * (1 + self._random.random())
        since = fresh if initial or not wanted else wanted
        watch = Watch(
            self._store,
            chosen,
            since=since,
            bookmarks=bookmarks,
            now=now,
            ends_at=now + seconds,
            show=shown_events(call, clock=self._clock),
            headers=warning_headers(call.target.warnings),
        )
        if initial:
            try:
                self._wait_for(call, wanted)
            except Refused as refused:
                watch.fail(refused.status)
                return watch
            objects = self._store.at(chosen.kind, fresh).values()
            # Without watch lists there are legacy initial events, but their end is not marked.
            watch.begin((obj for obj in objects if chosen.matches(obj)), mark_end=bookmarks and self._watch_lists)
        elif since < self._store.oldest_watch:
            said = f"too old resource version: {since} ({self._store.oldest_watch})"
            watch.fail(status.expired(said).status)
        return watch

    def _initial_events(self, call: Call) -> bool:
        query, asked = call.query, call.query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        if asked is not None and not self._watch_lists:
            raise _forbidden("sendInitialEvents", "forbidden for watch unless the WatchList feature gate is enabled")
        if match != ("" if asked is None else "NotOlderThan"):
            raise _forbidden("resourceVersionMatch", "sendInitialEvents requires NotOlderThan, and is required by it")
        if asked is None:
            return query.get("resourceVersion", "") in ("", "0")
        return is_true(query, "sendInitialEvents")


def _check_list_options(query: Mapping[str, str]) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    for name in ("limit", "timeoutSeconds"):
        options.number(query, name)
    if match not in ("", "Exact", "NotOlderThan") or (match and (not version or query.get("continue"))):
        raise _forbidden("resourceVersionMatch", "needs a resourceVersion, no continue, and is Exact or NotOlderThan")
    if match == "Exact" and version == "0":
        raise _forbidden("resourceVersionMatch", '"exact" is forbidden for resourceVersion "0"')
    if "sendInitialEvents" in query:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _forbidden(field: str, rule: str) -> Refused:
    cause = status.field_error("FieldValueForbidden", field, f"Forbidden: {rule}")
    return status.invalid("meta.k8s.io", "ListOptions", "", [cause])


def _revision(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise bad_request(f"invalid resource version: {text}")
    return int(text or 0)


def _token(revision: int, start: str) -> str:
    raw = msgspec.json.encode({"v": _CONTINUE_VERSION, "rv": revision, "start": start})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, str]:
    try:
        raw = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = raw["v"], raw["rv"], raw["start"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise _invalid_token("it cannot be read") from None
    if version != _CONTINUE_VERSION or not isinstance(revision, int) or not (isinstance(start, str) and start):
        raise _invalid_token("it is of another server")
    return revision, start


def _invalid_token(why: str) -> Refused:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def _without_type(obj: JsonObject) -> JsonObject:
    """Return a list item as built-in kinds have it: their kind is told once, by the list."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
