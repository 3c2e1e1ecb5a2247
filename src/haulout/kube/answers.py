"""Understanding what a server answered: bytes into objects, and refusals into errors that carry the server's Status.

Servers, and the proxies and login pages in front of them, answer with anything. What is not Kubernetes becomes a
`GarbledAnswer` that shows how it began; JSON that is no list is not an empty list. One object that does not fit its
kind becomes a `Misfit` and spoils nothing else: a hostile object must not blind us to its neighbours.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from haulout import errors
from haulout.errors import ApiError, GarbledAnswer, LimitExceeded
from haulout.kube.admission import error_type
from haulout.kube.objects import Base, Bookmark, ListMetadata, Metadata, Misfit, Object, Page, Status, WatchEvent
from haulout.kube.transport import Response, Told

T = TypeVar("T")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_BOOKMARK_TYPE = "BOOKMARK"
_BOOKMARK = b'{"type":"BOOKMARK"'
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
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
_SHOWN = 120  # characters of an unintelligible answer that a message shows
_LONGEST_MESSAGE = 4000  # characters of a Status: it goes into logs and objects
_FEW_MISFITS = 1000
_SMALLEST_OBJECT = 64  # bytes, on the average: a name, a uid, times
_SERVER_TROUBLE = 500


# What decoding may end in, besides a result. Text that is not UTF-8 and nesting without end are not DecodeErrors.
_UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _ListOnTheWire(Base, Generic[T], frozen=True):
    """A list must say what is in it; an empty one may say null."""

    items: tuple[T, ...] | None
    metadata: ListMetadata = ListMetadata()


class _Essentials(Base, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(Base, frozen=True):
    metadata: _Essentials = _Essentials()


# Making a decoder is costly and having it is cheap; there are as many as there are kinds we read.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_page_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_event_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(model: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder for one `model`."""
    return _decoders.get(model) or _decoders.setdefault(model, msgspec.json.Decoder(model))


def _page_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _page_decoders.get(model) or _page_decoders.setdefault(model, msgspec.json.Decoder(_ListOnTheWire[model]))


def _event_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _event_decoders.get(model) or _event_decoders.setdefault(model, msgspec.json.Decoder(WatchEvent[model]))


def decode(model: type[T], body: bytes, *, doing: str) -> T:
    """Return the object in `body`."""
    try:
        decoded: T = decoder(model).decode(body)
    except _UNDECODABLE as error:
        raise garbled(body, error, doing=doing) from error
    return decoded


def read(model: type[T], response: Response, *, doing: str) -> T:
    """Return the object that was answered."""
    if response.content is None:
        return decode(model, response.body, doing=doing)
    try:
        return msgspec.convert(response.content, model)
    except msgspec.ValidationError:  # or nothing of its kind can be told, only written
        return decode(model, msgspec.json.encode(response.content), doing=doing)


def expect_name(thing: object, name: str, *, doing: str) -> None:
    """Raise unless `thing`, if it is an object, is the one of this name."""
    metadata = thing.get("metadata") if isinstance(thing, dict) else getattr(thing, "metadata", None)
    found = metadata.get("name") if isinstance(metadata, dict) else getattr(metadata, "name", None)
    if found != name and (isinstance(thing, dict) or metadata is not None):
        raise GarbledAnswer(f"{doing}: the answer is about {found!r}" if found else f"{doing}: the answer is no object")


def decode_page(model: type[T], body: bytes, *, doing: str) -> Page[T | Misfit]:
    """Return a page of a list; an object in it that does not fit its kind becomes a `Misfit`."""
    try:
        whole: _ListOnTheWire[T | Misfit] = _page_decoder(model).decode(body)
    except _UNDECODABLE:
        raws = decode(_ListOnTheWire[msgspec.Raw], body, doing=doing)
        most = max(_FEW_MISFITS, len(body) // _SMALLEST_OBJECT)
        return Page(metadata=raws.metadata, items=tuple(_fitted(model, raws.items or (), most=most, doing=doing)))
    return Page(metadata=whole.metadata, items=whole.items or ())


def _fitted(model: type[T], raws: Iterable[msgspec.Raw], *, most: int, doing: str) -> Iterator[T | Misfit]:
    """Yield objects and misfits; a misfit takes many times its bytes, so that there may not be a million of them."""
    misfits = 0
    for raw in raws:
        thing = _fit(model, raw)
        misfits += isinstance(thing, Misfit)
        if misfits > most:
            raise LimitExceeded(f"{doing}: more than {most} objects of one page do not fit their kind")
        yield thing


def decode_event(model: type[T], line: bytes | Told, *, doing: str) -> WatchEvent[T] | WatchEvent[Misfit] | Bookmark:
    """Return what a line of a watch tells; raises the error that an `ERROR` line carries."""
    if isinstance(line, Told):
        return _told_event(model, line, doing=doing)
    if line.startswith(_BOOKMARK):  # known by how servers begin it; if not by that, then by its type
        return _unusual_event(model, line, doing=doing)
    try:
        event: WatchEvent[T] = _event_decoder(model).decode(line)
    except _UNDECODABLE:
        return _unusual_event(model, line, doing=doing)
    return event if event.type in _CHANGES else _unusual_event(model, line, doing=doing)


def _told_event(model: type[T], told: Told, *, doing: str) -> WatchEvent[T] | WatchEvent[Misfit] | Bookmark:
    try:
        if told.type in _CHANGES:
            return WatchEvent(type=told.type, object=msgspec.convert(told.object, model))
        if told.type == _BOOKMARK_TYPE:
            return _bookmark(msgspec.convert(told.object, Object))
    except msgspec.ValidationError:
        pass  # it is told as a line would be
    return _unusual_event(model, msgspec.json.encode({"type": told.type, "object": told.object}), doing=doing)


def _unusual_event(model: type[T], line: bytes, *, doing: str) -> WatchEvent[T] | WatchEvent[Misfit] | Bookmark:
    raw = decode(WatchEvent[msgspec.Raw], line, doing=doing)
    if raw.type == "ERROR":
        raise from_status(decode(Status, raw.object, doing=doing), doing=doing)
    if raw.type == _BOOKMARK_TYPE:
        return _bookmark(decode(Object, raw.object, doing=doing))
    if raw.type not in _CHANGES:
        raise GarbledAnswer(f"{doing}: the watch sent an event of the unknown type {raw.type[:_SHOWN]!r}")
    misfit = _fit(model, raw.object)
    return WatchEvent(type=raw.type, object=misfit)  # type: ignore[return-value]  # one of the two, told apart by isinstance


def _bookmark(thing: Object) -> Bookmark:
    metadata = thing.metadata
    ends = metadata.annotations.get(INITIAL_EVENTS_END) == "true"
    return Bookmark(resource_version=metadata.resource_version, ends_initial_list=ends)


def _fit(model: type[T], raw: msgspec.Raw) -> T | Misfit:
    try:
        fitting: T = decoder(model).decode(raw)
    except _UNDECODABLE as error:
        return Misfit(metadata=_metadata(raw), problem=" ".join(str(error).split()))
    return fitting


def _metadata(raw: msgspec.Raw) -> Metadata:
    """Return as much of an object's metadata as can be read, if only its name; nothing, if not even that."""
    try:
        whole: Metadata = decoder(Object).decode(raw).metadata
    except _UNDECODABLE:
        try:
            bare: _Essentials = decoder(_Bare).decode(raw).metadata
        except _UNDECODABLE:
            return Metadata()
        return Metadata(name=bare.name, namespace=bare.namespace, uid=bare.uid, resource_version=bare.resource_version)
    return whole


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, doing: str) -> ApiError:
    """Return the error for an answer that is not a success, whether or not its body is a Status."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        said = decoder(Status).decode(body)
    except _UNDECODABLE:
        said = Status()
    if said.kind != "Status":
        elsewhere = f"go to {headers['location']}" if "location" in headers else "no further word"
        said = Status(code=status, message=f"HTTP {status}: {beginning(body) or elsewhere}")
    return from_status(said, code=status, retry_after=retry_after, doing=doing)


def from_status(
    status: Status, *, code: int | None = None, retry_after: timedelta | None = None, doing: str = ""
) -> ApiError:
    """Return the error that `status` describes."""
    code = status.code or code or _SERVER_TROUBLE
    causes = status.details.causes if status.details else ()
    if retry_after is None and status.details and status.details.retry_after_seconds > 0:
        retry_after = _seconds(str(status.details.retry_after_seconds))
    kind = _BY_CODE.get(code, errors.ServerFailure if code >= _SERVER_TROUBLE else ApiError)
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
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


def garbled(body: bytes, error: Exception, *, doing: str) -> GarbledAnswer:
    """Return the error for an answer that is not what a Kubernetes API server says."""
    if isinstance(error, msgspec.ValidationError):
        return GarbledAnswer(f"{doing}: the answer is JSON, but not what Kubernetes would say: {error}")
    shown = beginning(body) or "nothing at all"
    hint = "is a proxy or a login page in between?"
    return GarbledAnswer(f"{doing}: expected JSON from a Kubernetes API server, got {shown}; {hint}")


def beginning(body: bytes) -> str:
    """Return how an answer begins, fit for one line of a message."""
    text = bytes(body)[: 10 * _SHOWN].decode(errors="replace")
    if "<html" in text.lower() or "<!doctype" in text.lower():
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"an HTML page titled {' '.join(title[1].split())[:_SHOWN]!r}" if title else "an HTML page"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _seconds(text: str | None) -> timedelta | None:
    """Return a Retry-After in seconds; its other form, a date, is not used by API servers."""
    return timedelta(seconds=min(int(text), 86_400)) if text and text.isascii() and text.isdigit() else None
