"""Reads of the API server: get, paged lists, and the start of watches.

Follows `apiserver/pkg/storage/cacher` of Kubernetes 1.36: resourceVersion, resourceVersionMatch and limit determine
whether a list is exact, not older than, or latest. Further pages show the revision of the first page.
"""

import base64
from collections.abc import Mapping
from datetime import timedelta
from random import Random

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.handlers import request_options
from haulout_sandbox.apiserver.handlers.api_call import ApiCall
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.request_paths import is_true
from haulout_sandbox.apiserver.status import RetryLater, StatusError, bad_request, warning_headers
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.storage.watch import Watch
from haulout_sandbox.apiserver.tables.table_convertor import event_converter

_FRESHNESS_WAIT = timedelta(seconds=3)
_MIN_WATCH_SECONDS = 1800.0  # the real server ends a watch without a timeout after one to two times this
_TOO_OLD_LIST = "The resourceVersion for the provided list is too old."
_TOO_OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_CONTINUE_VERSION = "meta.k8s.io/v1"
_MAX_DIGITS = 19  # of a resource version

Items = list[JsonObject]  # an alias, because `Reader.list` shadows the type


class Reader:
    """Reads from a store. Without `watch_lists` it behaves as an older server."""

    def __init__(self, store: Store, clock: Clock, random: Random, *, watch_lists: bool) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._watch_lists = watch_lists

    def get(self, call: ApiCall) -> JsonObject:
        target = call.target
        self._wait_for_revision(call, _parse_revision(call.query.get("resourceVersion", "")))
        if call.as_of is None:
            obj = self._store.get(target.kind, target.key)
        else:
            obj = self._store.objects_at(target.kind, call.as_of).get(target.key)
        if obj is None:
            raise status.not_found(target.kind, target.name)
        return obj

    def _wait_for_revision(self, call: ApiCall, revision: int) -> None:
        if revision <= self._store.revision:
            return
        if not call.attempt:
            raise RetryLater(_FRESHNESS_WAIT)
        raise status.resource_version_too_large(revision, self._store.revision)

    def list(self, call: ApiCall) -> JsonObject:
        """Return a list, or one page of it."""
        query, kind, selected = call.query, call.target.kind, call.selection
        _check_list_options(query)
        revision, start = self._page_start(call)
        objects = [
            (key, obj)
            for key, obj in self._store.objects_at(kind, revision).items()
            if key >= start and (not selected.namespace or key.startswith(f"{selected.namespace}/"))
        ]
        limit = 0 if query.get("resourceVersion") == "0" else max(request_options.integer_parameter(query, "limit"), 0)
        items: Items = []
        meta: JsonObject = {"resourceVersion": str(revision)} | ({"continue": ""} if kind.custom_resource else {})
        for count, (key, obj) in enumerate(objects, start=1):
            if selected.matches(obj):
                items.append(obj if kind.is_custom else _without_type(obj))
            # As in the real server, remaining objects make another page even if none matches: the last page may be
            # empty.
            if limit and len(items) == limit and count < len(objects):
                meta["continue"] = _continue_token(revision, f"{key}\0")
                if not selected.has_selectors:
                    meta["remainingItemCount"] = len(objects) - limit
                break
        return {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": meta, "items": items}

    def _page_start(self, call: ApiCall) -> tuple[int, str]:
        """Return the revision that the list shows, and the key at which the page starts."""
        query, version = call.query, call.query.get("resourceVersion", "")
        if query.get("continue"):
            revision, start = _parse_continue_token(query["continue"])
            if version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            if revision < 0:
                return self._store.revision, start
            if revision < self._store.compacted_revision:
                raise status.expired(_TOO_OLD_CONTINUE, continue_token=_continue_token(-1, start))
            return revision, start
        requested = _parse_revision(version)
        self._wait_for_revision(call, requested)
        match = query.get("resourceVersionMatch", "")
        if match == "Exact" or (not match and requested and request_options.integer_parameter(query, "limit")):
            if requested < self._store.compacted_revision:
                raise status.expired(_TOO_OLD_LIST)
            return requested, ""
        return self._store.revision if call.as_of is None else call.as_of, ""

    def watch(self, call: ApiCall) -> Watch:
        """Return a watch, which may have failed already."""
        query, version = call.query, call.query.get("resourceVersion", "")
        requested, selected = _parse_revision(version), call.selection
        sends_initial_events, bookmarks = self._sends_initial_events(call), is_true(query, "allowWatchBookmarks")
        current_revision = self._store.revision if call.as_of is None else call.as_of
        now = self._clock.monotonic()
        seconds = request_options.integer_parameter(query, "timeoutSeconds") or _MIN_WATCH_SECONDS * (
            1 + self._random.random()
        )
        since = current_revision if sends_initial_events or not requested else requested
        watch = Watch(
            self._store,
            selected,
            since=since,
            bookmarks=bookmarks,
            now=now,
            ends_at=now + seconds,
            convert=event_converter(call, clock=self._clock),
            headers=warning_headers(call.target.warnings),
        )
        if sends_initial_events:
            try:
                self._wait_for_revision(call, requested)
            except StatusError as error:
                watch.fail(error.status)
                return watch
            objects = self._store.objects_at(selected.kind, current_revision).values()
            # Without watch lists there are legacy initial events, and no bookmark marks their end.
            watch.send_initial_events(
                (obj for obj in objects if selected.matches(obj)), mark_end=bookmarks and self._watch_lists
            )
        elif since < self._store.oldest_watch_revision:
            message = f"too old resource version: {since} ({self._store.oldest_watch_revision})"
            watch.fail(status.expired(message).status)
        return watch

    def _sends_initial_events(self, call: ApiCall) -> bool:
        query, send_initial_events = call.query, call.query.get("sendInitialEvents")
        match = query.get("resourceVersionMatch", "")
        if send_initial_events is not None and not self._watch_lists:
            raise _forbidden("sendInitialEvents", "forbidden for watch unless the WatchList feature gate is enabled")
        if match != ("" if send_initial_events is None else "NotOlderThan"):
            raise _forbidden("resourceVersionMatch", "sendInitialEvents requires NotOlderThan, and is required by it")
        if send_initial_events is None:
            return query.get("resourceVersion", "") in ("", "0")
        return is_true(query, "sendInitialEvents")


def _check_list_options(query: Mapping[str, str]) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    for name in ("limit", "timeoutSeconds"):
        request_options.integer_parameter(query, name)
    if match not in ("", "Exact", "NotOlderThan") or (match and (not version or query.get("continue"))):
        raise _forbidden("resourceVersionMatch", "needs a resourceVersion, no continue, and is Exact or NotOlderThan")
    if match == "Exact" and version == "0":
        raise _forbidden("resourceVersionMatch", '"exact" is forbidden for resourceVersion "0"')
    if "sendInitialEvents" in query:
        raise _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _forbidden(field: str, rule: str) -> StatusError:
    cause = status.status_cause("FieldValueForbidden", field, f"Forbidden: {rule}")
    return status.invalid("meta.k8s.io", "ListOptions", "", [cause])


def _parse_revision(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise bad_request(f"invalid resource version: {text}")
    return int(text or 0)


def _continue_token(revision: int, start: str) -> str:
    raw = msgspec.json.encode({"v": _CONTINUE_VERSION, "rv": revision, "start": start})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _parse_continue_token(token: str) -> tuple[int, str]:
    try:
        raw = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, revision, start = raw["v"], raw["rv"], raw["start"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise _invalid_token("it cannot be read") from None
    if version != _CONTINUE_VERSION or not isinstance(revision, int) or not (isinstance(start, str) and start):
        raise _invalid_token("it is of another server")
    return revision, start


def _invalid_token(detail: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {detail}")


def _without_type(obj: JsonObject) -> JsonObject:
    """Return a list item without apiVersion and kind, as lists of built-in kinds have it."""
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
