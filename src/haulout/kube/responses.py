"""Understanding what a server answered: bytes into objects, and refusals into errors that carry the server's Status.

Servers, and the proxies and login pages in front of them, answer with anything. What is not Kubernetes becomes a
`MalformedResponse` that shows how it began; JSON that is no list is not an empty list. One object that does not fit its
kind becomes a `UndecodableObject` and spoils nothing else: a hostile object must not blind us to its neighbours.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from haulout import errors
from haulout.api.objects import (
    Base,
    Bookmark,
    ListMeta,
    Object,
    ObjectMeta,
    Page,
    Status,
    UndecodableObject,
    WatchEvent,
)
from haulout.errors import ApiError, LimitExceeded, MalformedResponse
from haulout.kube.admission_errors import error_type
from haulout.kube.transport import DecodedEvent, Response

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_BOOKMARK_TYPE = "BOOKMARK"
_BOOKMARK = b'{"type":"BOOKMARK"'
_CHANGE_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_BY_CODE: dict[int, type[ApiError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}
_MAX_EXCERPT = 120  # characters of an unintelligible answer that a message shows
_MAX_MESSAGE = 4000  # characters of a Status: it goes into logs and objects
_MIN_UNDECODABLE_LIMIT = 1000
_MIN_OBJECT_BYTES = 64  # bytes, on the average: a name, a uid, times
_SERVER_ERROR = 500


# What decoding may end in, besides a result. Text that is not UTF-8 and nesting without end are not DecodeErrors.
_UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _ListResponse(Base, Generic[T], frozen=True):
    """A list must say what is in it; an empty one may say null."""

    items: tuple[T, ...] | None
    metadata: ListMeta = ListMeta()


class _MinimalMeta(Base, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _MinimalObject(Base, frozen=True):
    metadata: _MinimalMeta = _MinimalMeta()


# Making a decoder is costly and having it is cheap; there are as many as there are kinds we read.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_page_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_event_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(model: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder for one `model`."""
    return _decoders.get(model) or _decoders.setdefault(model, msgspec.json.Decoder(model))


def _page_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _page_decoders.get(model) or _page_decoders.setdefault(model, msgspec.json.Decoder(_ListResponse[model]))


def _event_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _event_decoders.get(model) or _event_decoders.setdefault(model, msgspec.json.Decoder(WatchEvent[model]))


def decode(model: type[T], body: bytes, *, doing: str) -> T:
    """Return the object in `body`."""
    try:
        decoded: T = decoder(model).decode(body)
    except _UNDECODABLE as error:
        raise undecodable_response(body, error, doing=doing) from error
    return decoded


def decode_response(model: type[T], response: Response, *, doing: str) -> T:
    """Return the object that was answered."""
    if response.content is None:
        return decode(model, response.body, doing=doing)
    try:
        return msgspec.convert(response.content, model)
    except msgspec.ValidationError:  # or nothing of its kind can be told, only written
        return decode(model, msgspec.json.encode(response.content), doing=doing)


def expect_name(obj: object, name: str, *, doing: str) -> None:
    """Raise unless `obj`, if it is an object, is the one of this name."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else getattr(obj, "metadata", None)
    found = metadata.get("name") if isinstance(metadata, dict) else getattr(metadata, "name", None)
    if found != name and (isinstance(obj, dict) or metadata is not None):
        raise MalformedResponse(
            f"{doing}: the answer is about {found!r}" if found else f"{doing}: the answer is no object"
        )


def decode_page(model: type[T], body: bytes, *, doing: str) -> Page[T | UndecodableObject]:
    """Return a page of a list; an object in it that does not fit its kind becomes a `UndecodableObject`."""
    try:
        whole: _ListResponse[T | UndecodableObject] = _page_decoder(model).decode(body)
    except _UNDECODABLE:
        raws = decode(_ListResponse[msgspec.Raw], body, doing=doing)
        limit = max(_MIN_UNDECODABLE_LIMIT, len(body) // _MIN_OBJECT_BYTES)
        return Page(
            metadata=raws.metadata, items=tuple(_decode_items(model, raws.items or (), limit=limit, doing=doing))
        )
    return Page(metadata=whole.metadata, items=whole.items or ())


def _decode_items(
    model: type[T], raws: Iterable[msgspec.Raw], *, limit: int, doing: str
) -> Iterator[T | UndecodableObject]:
    """Yield objects and misfits; a misfit takes many times its bytes, so that there may not be a million of them."""
    undecodable = 0
    for raw in raws:
        obj = _decode_item(model, raw)
        undecodable += isinstance(obj, UndecodableObject)
        if undecodable > limit:
            raise LimitExceeded(f"{doing}: more than {limit} objects of one page do not fit their kind")
        yield obj


def decode_event(
    model: type[T], line: bytes | DecodedEvent, *, doing: str
) -> WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark:
    """Return what a line of a watch tells; raises the error that an `ERROR` line carries."""
    if isinstance(line, DecodedEvent):
        return _convert_event(model, line, doing=doing)
    if line.startswith(_BOOKMARK):  # known by how servers begin it; if not by that, then by its type
        return _decode_unusual_event(model, line, doing=doing)
    try:
        event: WatchEvent[T] = _event_decoder(model).decode(line)
    except _UNDECODABLE:
        return _decode_unusual_event(model, line, doing=doing)
    return event if event.type in _CHANGE_TYPES else _decode_unusual_event(model, line, doing=doing)


def _convert_event(
    model: type[T], event: DecodedEvent, *, doing: str
) -> WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark:
    try:
        if event.type in _CHANGE_TYPES:
            return WatchEvent(type=event.type, object=msgspec.convert(event.object, model))
        if event.type == _BOOKMARK_TYPE:
            return _bookmark(msgspec.convert(event.object, Object))
    except msgspec.ValidationError:
        pass  # it is told as a line would be
    return _decode_unusual_event(model, msgspec.json.encode({"type": event.type, "object": event.object}), doing=doing)


def _decode_unusual_event(
    model: type[T], line: bytes, *, doing: str
) -> WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark:
    raw = decode(WatchEvent[msgspec.Raw], line, doing=doing)
    if raw.type == "ERROR":
        raise error_from_status(decode(Status, raw.object, doing=doing), doing=doing)
    if raw.type == _BOOKMARK_TYPE:
        return _bookmark(decode(Object, raw.object, doing=doing))
    if raw.type not in _CHANGE_TYPES:
        raise MalformedResponse(f"{doing}: the watch sent an event of the unknown type {raw.type[:_MAX_EXCERPT]!r}")
    item = _decode_item(model, raw.object)
    return WatchEvent(type=raw.type, object=item)  # type: ignore[return-value]  # one of the two, told apart by isinstance


def _bookmark(obj: Object) -> Bookmark:
    metadata = obj.metadata
    ends = metadata.annotations.get(INITIAL_EVENTS_END) == "true"
    return Bookmark(resource_version=metadata.resource_version, ends_initial_list=ends)


def _decode_item(model: type[T], raw: msgspec.Raw) -> T | UndecodableObject:
    try:
        decoded: T = decoder(model).decode(raw)
    except _UNDECODABLE as error:
        return UndecodableObject(metadata=_metadata(raw), problem=" ".join(str(error).split()))
    return decoded


def _metadata(raw: msgspec.Raw) -> ObjectMeta:
    """Return as much of an object's metadata as can be read, if only its name; nothing, if not even that."""
    try:
        whole: ObjectMeta = decoder(Object).decode(raw).metadata
    except _UNDECODABLE:
        try:
            minimal: _MinimalMeta = decoder(_MinimalObject).decode(raw).metadata
        except _UNDECODABLE:
            return ObjectMeta()
        return ObjectMeta(
            name=minimal.name, namespace=minimal.namespace, uid=minimal.uid, resource_version=minimal.resource_version
        )
    return whole


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, doing: str) -> ApiError:
    """Return the error for an answer that is not a success, whether or not its body is a Status."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        parsed = decoder(Status).decode(body)
    except _UNDECODABLE:
        parsed = Status()
    if parsed.kind != "Status":
        hint = f"go to {headers['location']}" if "location" in headers else "no further word"
        parsed = Status(code=status, message=f"HTTP {status}: {excerpt(body) or hint}")
    return error_from_status(parsed, code=status, retry_after=retry_after, doing=doing)


def error_from_status(
    status: Status, *, code: int | None = None, retry_after: timedelta | None = None, doing: str = ""
) -> ApiError:
    """Return the error that `status` describes."""
    code = status.code or code or _SERVER_ERROR
    causes = status.details.causes if status.details else ()
    if retry_after is None and status.details and status.details.retry_after_seconds > 0:
        retry_after = _seconds(str(status.details.retry_after_seconds))
    kind = _BY_CODE.get(code, errors.ServerFailure if code >= _SERVER_ERROR else ApiError)
    if status.reason == "AlreadyExists":
        kind = errors.AlreadyExists
    message = _message(status) or status.reason or f"HTTP {code}"
    return error_type(kind, message)(
        message,
        doing=doing,
        code=code,
        reason=status.reason,
        causes=[errors.Cause(cause.reason, cause.field, cause.message) for cause in causes],
        retry_after=retry_after,
    )


def _message(status: Status) -> str:
    text = " ".join(status.message.split())
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "…"


def undecodable_response(body: bytes, error: Exception, *, doing: str) -> MalformedResponse:
    """Return the error for an answer that is not what a Kubernetes API server says."""
    if isinstance(error, msgspec.ValidationError):
        return MalformedResponse(f"{doing}: the answer is JSON, but not what Kubernetes would say: {error}")
    found = excerpt(body) or "nothing at all"
    hint = "is a proxy or a login page in between?"
    return MalformedResponse(f"{doing}: expected JSON from a Kubernetes API server, got {found}; {hint}")


def excerpt(body: bytes) -> str:
    """Return how an answer begins, fit for one line of a message."""
    text = bytes(body)[: 10 * _MAX_EXCERPT].decode(errors="replace")
    if "<html" in text.lower() or "<!doctype" in text.lower():
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"an HTML page titled {' '.join(title[1].split())[:_MAX_EXCERPT]!r}" if title else "an HTML page"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _MAX_EXCERPT else text[:_MAX_EXCERPT] + "…"


def _seconds(text: str | None) -> timedelta | None:
    """Return a Retry-After in seconds; its other form, a date, is not used by API servers."""
    return timedelta(seconds=min(int(text), 86_400)) if text and text.isascii() and text.isdigit() else None
