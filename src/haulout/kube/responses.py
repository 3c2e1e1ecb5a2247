"""Decodes API server responses: bytes into objects, and failures into errors that carry the server's Status.

Servers, and proxies and login pages in front of them, may answer anything. A response that is not Kubernetes raises
`MalformedResponse` with an excerpt; JSON that is not a list is never an empty list. One object that cannot be decoded
becomes an `UndecodableObject` and affects nothing else: a hostile object must not hide the other objects.

Recognizes errors of admission policies and webhooks by the text of the API server's message. A Status has no field for
that. The texts are those of `ToStatusErr` and `newFailedWebhookError` in
staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook, and of the dispatcher in plugin/policy/validating. A message
with another text is not recognized.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from haulout.api.reasons import AdmissionReason
from haulout.errors import ApiError, LimitExceeded, MalformedResponse
from haulout.kube.transport import DecodedEvent, Response

T = TypeVar("T")

# InitialEventsAnnotationKey of staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go (KEP-3157).
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_BOOKMARK_TYPE = "BOOKMARK"
_BOOKMARK = b'{"type":"BOOKMARK"'
_CHANGE_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED"})
# By code, not by `reason`: proxies and webhooks send statuses without a reason. AlreadyExists and Conflict share 409,
# and only the reason tells them apart (see `error_from_status`).
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
_MAX_EXCERPT = 120  # characters of an undecodable response in a message
_MAX_MESSAGE = 4000  # characters of a Status message: logs and object statuses contain it
# If a new API version makes all objects undecodable, a page of 500 must still pass, so that each of them is reported.
_MIN_UNDECODABLE_LIMIT = 1000
_MIN_OBJECT_BYTES = 64  # average bytes of an object: a name, a UID, timestamps
_SERVER_ERROR = 500

# What decoding may raise. Text that is not UTF-8 and unbounded nesting do not raise DecodeError.
_UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_DENIED_BY_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request(: )?(?P<says>.*)')
_DENIED_BY_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '(?P<name>[^']+)' with binding '(?P<binding>[^']+)' denied request: (?P<says>.*)"
)
_UNAVAILABLE = re.compile(r'failed calling webhook "(?P<name>[^"]+)": (?P<says>.*)')
_DENIED: dict[type[ApiError], type[ApiError]] = {
    ApiError: errors.AdmissionDenied,
    errors.BadRequest: errors.BadRequestByAdmission,
    errors.Forbidden: errors.ForbiddenByAdmission,
    errors.Invalid: errors.InvalidByAdmission,
}


class _ListResponse(Base, Generic[T], frozen=True):
    """A list. `items` is required, because a body without it is no list; an empty list may have null."""

    items: tuple[T, ...] | None
    metadata: ListMeta = ListMeta()


class _MinimalMeta(Base, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _MinimalObject(Base, frozen=True):
    metadata: _MinimalMeta = _MinimalMeta()


# A decoder is costly to create and cheap to keep. There is one for each kind that is read.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_page_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_event_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _decoders.get(model) or _decoders.setdefault(model, msgspec.json.Decoder(model))


def _page_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _page_decoders.get(model) or _page_decoders.setdefault(model, msgspec.json.Decoder(_ListResponse[model]))


def _event_decoder(model: Any) -> msgspec.json.Decoder[Any]:
    return _event_decoders.get(model) or _event_decoders.setdefault(model, msgspec.json.Decoder(WatchEvent[model]))


def decode(model: type[T], body: bytes, *, doing: str) -> T:
    """Return the object in `body`. Raise `MalformedResponse` if it cannot be decoded."""
    try:
        decoded: T = decoder(model).decode(body)
    except _UNDECODABLE as error:
        raise undecodable_response(body, error, doing=doing) from error
    return decoded


def decode_response(model: type[T], response: Response, *, doing: str) -> T:
    """Return the object of the response. Raise `MalformedResponse` if it cannot be decoded."""
    if response.content is None:
        return decode(model, response.body, doing=doing)
    try:
        return msgspec.convert(response.content, model)
    except msgspec.ValidationError:  # some values convert only from their JSON form
        return decode(model, msgspec.json.encode(response.content), doing=doing)


def expect_name(obj: object, name: str, *, doing: str) -> None:
    """Raise `MalformedResponse` unless `obj` has this name. Values without metadata pass if they are no dict."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else getattr(obj, "metadata", None)
    found = metadata.get("name") if isinstance(metadata, dict) else getattr(metadata, "name", None)
    if found != name and (isinstance(obj, dict) or metadata is not None):
        raise MalformedResponse(
            f"{doing}: the response is about {found!r}" if found else f"{doing}: the response is not an object"
        )


def decode_page(model: type[T], body: bytes, *, doing: str) -> Page[T | UndecodableObject]:
    """Return a page of a list. An object that cannot be decoded becomes an `UndecodableObject`."""
    try:
        whole: _ListResponse[T | UndecodableObject] = _page_decoder(model).decode(body)
    except _UNDECODABLE:
        # Decode again item by item, only now: for a good page the whole is faster, and bad pages are rare.
        raws = decode(_ListResponse[msgspec.Raw], body, doing=doing)
        limit = max(_MIN_UNDECODABLE_LIMIT, len(body) // _MIN_OBJECT_BYTES)
        return Page(
            metadata=raws.metadata, items=tuple(_decode_items(model, raws.items or (), limit=limit, doing=doing))
        )
    return Page(metadata=whole.metadata, items=whole.items or ())


def _decode_items(
    model: type[T], raws: Iterable[msgspec.Raw], *, limit: int, doing: str
) -> Iterator[T | UndecodableObject]:
    """Yield objects. An `UndecodableObject` takes many times its bytes, so `limit` bounds their number."""
    undecodable = 0
    for raw in raws:
        obj = _decode_item(model, raw)
        undecodable += isinstance(obj, UndecodableObject)
        if undecodable > limit:
            raise LimitExceeded(f"{doing}: more than {limit} objects of one page cannot be decoded")
        yield obj


def decode_event(
    model: type[T], line: bytes | DecodedEvent, *, doing: str
) -> WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark:
    """Return the watch event in a line. Raise the error that an `ERROR` event carries."""
    if isinstance(line, DecodedEvent):
        return _convert_event(model, line, doing=doing)
    # a fast check of the usual prefix; bookmarks with another field order are recognized by their type
    if line.startswith(_BOOKMARK):
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
        pass  # decode it again from JSON
    return _decode_unusual_event(model, msgspec.json.encode({"type": event.type, "object": event.object}), doing=doing)


def _decode_unusual_event(
    model: type[T], line: bytes, *, doing: str
) -> WatchEvent[T] | WatchEvent[UndecodableObject] | Bookmark:
    raw = decode(WatchEvent[msgspec.Raw], line, doing=doing)
    # The object of an ERROR event is a Status, such as 410 Gone (staging/src/k8s.io/apimachinery/pkg/watch/watch.go).
    # The status of the response was 200.
    if raw.type == "ERROR":
        raise error_from_status(decode(Status, raw.object, doing=doing), doing=doing)
    if raw.type == _BOOKMARK_TYPE:
        return _bookmark(decode(Object, raw.object, doing=doing))
    if raw.type not in _CHANGE_TYPES:
        raise MalformedResponse(f"{doing}: the watch sent an event of the unknown type {raw.type[:_MAX_EXCERPT]!r}")
    item = _decode_item(model, raw.object)
    return WatchEvent(type=raw.type, object=item)  # type: ignore[return-value]  # callers use isinstance


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
    """Return as much of an object's metadata as can be decoded; empty metadata if nothing can."""
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
    """Return the error for a response that is not 2xx, whether or not its body is a Status."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        parsed = decoder(Status).decode(body)
    except _UNDECODABLE:
        parsed = Status()
    if parsed.kind != "Status":
        hint = f"go to {headers['location']}" if "location" in headers else "no message"
        parsed = Status(code=status, message=f"HTTP {status}: {excerpt(body) or hint}")
    return error_from_status(parsed, code=status, retry_after=retry_after, doing=doing)


def error_from_status(
    status: Status, *, code: int | None = None, retry_after: timedelta | None = None, doing: str = ""
) -> ApiError:
    code = status.code or code or _SERVER_ERROR
    causes = status.details.causes if status.details else ()
    # client-go reads the same field (SuggestsClientDelay in staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go).
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
    """Return the error for a response that no Kubernetes API server sends."""
    if isinstance(error, msgspec.ValidationError):
        return MalformedResponse(f"{doing}: the response is JSON, but not of the Kubernetes API: {error}")
    found = excerpt(body) or "an empty body"
    hint = "is a proxy or a login page in between?"
    return MalformedResponse(f"{doing}: expected JSON from a Kubernetes API server, got {found}; {hint}")


def excerpt(body: bytes) -> str:
    """Return the beginning of a response, fit for one line of a message."""
    text = bytes(body)[: 10 * _MAX_EXCERPT].decode(errors="replace")
    if "<html" in text.lower() or "<!doctype" in text.lower():
        # The title of a login page or of a proxy's error tells the user more than its markup.
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return f"an HTML page titled {' '.join(title[1].split())[:_MAX_EXCERPT]!r}" if title else "an HTML page"
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _MAX_EXCERPT else text[:_MAX_EXCERPT] + "…"


def _seconds(text: str | None) -> timedelta | None:
    """Return a Retry-After in seconds. API servers do not use its other form, a date."""
    return timedelta(seconds=min(int(text), 86_400)) if text and text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class AdmissionFailure:
    """The admission policy or webhook that prevents a write."""

    object: str  # for example `ValidatingAdmissionPolicy no-drains`
    message: str
    advice: str


def error_type(kind: type[ApiError], message: str) -> type[ApiError]:
    """Return the error type for this message. `kind` is the type that the status code alone implies."""
    if _DENIED_BY_WEBHOOK.search(message) or _DENIED_BY_POLICY.search(message):
        return _DENIED.get(kind, kind)
    if kind is errors.ServerFailure and _UNAVAILABLE.search(message):
        return errors.AdmissionWebhookUnavailable
    return kind


def admission_failure_of(error: BaseException) -> AdmissionFailure | None:
    """Return the policy or webhook that caused an error; None if neither did."""
    if not isinstance(error, errors.AdmissionDenied | errors.AdmissionWebhookUnavailable):
        return None
    if denied := _DENIED_BY_POLICY.search(error.message):
        advice = f"change it or its binding {denied['binding']}, or exempt the operator from it"
        return AdmissionFailure(f"ValidatingAdmissionPolicy {denied['name']}", denied["says"], advice)
    if denied := _DENIED_BY_WEBHOOK.search(error.message):
        advice = "ask the owner of the webhook, or exempt the operator from it"
        return AdmissionFailure(f"webhook {denied['name']}", denied["says"], advice)
    if unavailable := _UNAVAILABLE.search(error.message):
        advice = "repair its Service and pods, or delete its webhook configuration"
        return AdmissionFailure(f"webhook {unavailable['name']}", f"it does not answer: {unavailable['says']}", advice)
    return None


def condition_reason(error: BaseException) -> str:
    """Return the reason of an error for conditions and events; empty if it has no reason of its own."""
    match error:
        case errors.AdmissionDenied():
            return AdmissionReason.ADMISSION_DENIED
        case errors.AdmissionWebhookUnavailable():
            return AdmissionReason.ADMISSION_WEBHOOK_UNAVAILABLE
    return ""
