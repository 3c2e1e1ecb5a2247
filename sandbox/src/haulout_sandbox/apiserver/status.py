"""Error responses of the API server: Status objects.

Handlers raise `StatusError`, which the server turns into a response. `RetryLater` is not a response: it means that the
real server would wait and try again, and the caller lets that time pass.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from haulout.kube.transport import Response
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.storage.stored_object import encode_json

JSON = "application/json"
OBJECT_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"

_GENERIC = {  # code: reason and message, as apimachinery's NewGenericServerResponse has them
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("Conflict", "the server reported a conflict"),
    410: ("Expired", "the requested content is too old"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}


class StatusError(Exception):
    """The server refuses the request with a Status."""

    def __init__(self, status: JsonObject) -> None:
        self.status = status
        super().__init__(status["message"])


class RetryLater(Exception):
    """The server waits this long and tries again."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = delay
        super().__init__(f"look again in {delay}")


_JSON_HEADERS = {"content-type": JSON}


def json_response(status: int, body: Any, *, content_type: str = JSON) -> Response:
    """Return a JSON response; a Status with retryAfterSeconds also sets the Retry-After header."""
    headers = {"content-type": content_type}
    details = body.get("details") if isinstance(body, dict) and body.get("kind") == "Status" else None
    if details and details.get("retryAfterSeconds"):
        headers["retry-after"] = str(details["retryAfterSeconds"])
    return Response(status, headers, encode_json(body))


def decoded_response(status: int, obj: Any) -> Response:
    """Return a response for a client in the same process, which needs no JSON."""
    return Response(status, _JSON_HEADERS, b"", obj)


def with_warnings(response: Response, warnings: Sequence[str]) -> Response:
    """Return the response with Warning headers, which may be joined into one."""
    if not warnings:
        return response
    return Response(response.status, {**response.headers, **warning_headers(warnings)}, response.body)


def warning_headers(warnings: Sequence[str]) -> dict[str, str]:
    """Return the Warning header of `warnings`, without duplicates."""
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings))
    return {"warning": ", ".join(f'299 - "{text}"' for text in escaped)} if warnings else {}


def failure_status(code: int, reason: str, message: str, details: JsonObject | None = None) -> JsonObject:
    """Return a failure Status; empty values are omitted as in the real server."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    status["message"] = message
    if reason:
        status["reason"] = reason
    if details is not None:
        status["details"] = {name: value for name, value in details.items() if value}
    return status | {"code": code}


def success_status(*, code: int | None = None, details: JsonObject | None = None) -> JsonObject:
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = {name: value for name, value in details.items() if value}
    return status | ({"code": code} if code is not None else {})


def generic_status(code: int, *, retry_after: int = 0) -> JsonObject:
    """Return the Status that the server's outer layers return for `code`."""
    reason, message = _GENERIC.get(code, ("", f"the server responded with the status code {code}"))
    return failure_status(code, reason, message, {"retryAfterSeconds": retry_after})


def quote(text: str) -> str:
    """Return `text` in quotation marks, with characters that are not printable escaped."""
    return json.dumps(text, ensure_ascii=False)


def not_found(kind: Kind, name: str) -> StatusError:
    return StatusError(
        failure_status(404, "NotFound", f"{kind.resource} {quote(name)} not found", _details(kind, name))
    )


def already_exists(kind: Kind, name: str, *, generated: bool, terminating: bool) -> StatusError:
    message = f"{kind.resource} {quote(name)} already exists"
    details = _details(kind, name)
    if generated:
        message += ", the server was not able to generate a unique name for the object"
        details["retryAfterSeconds"] = 1
    if terminating:
        message = f"object is being deleted: {message}"
    return StatusError(failure_status(409, "AlreadyExists", message, details))


def conflict(kind: Kind, name: str, detail: str) -> StatusError:
    message = f"Operation cannot be fulfilled on {kind.resource} {quote(name)}: {detail}"
    return StatusError(failure_status(409, "Conflict", message, _details(kind, name)))


def uid_conflict(kind: Kind, name: str, *, expected: str, actual: str) -> StatusError:
    return conflict(kind, name, f"Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}")


def forbidden(group: str, resource: str, name: str, detail: str) -> StatusError:
    message = f'{resource}.{group} "{name}" is forbidden: {detail}'
    return StatusError(failure_status(403, "Forbidden", message, {"name": name, "group": group, "kind": resource}))


def status_cause(reason: str, field: str, message: str) -> JsonObject:
    return {"reason": reason, "message": message, "field": field}


def invalid(group: str, kind: str, name: str, causes: Sequence[JsonObject]) -> StatusError:
    problems = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in causes))
    message = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": list(causes)}
    return StatusError(failure_status(422, "Invalid", f"{qualified} {quote(name)} is invalid: {message}", details))


def bad_request(message: str) -> StatusError:
    return StatusError(failure_status(400, "BadRequest", message))


def expired(message: str, *, continue_token: str = "") -> StatusError:
    """Return the error for a compacted revision; `continue_token` continues a list inconsistently."""
    status = failure_status(410, "Expired", message)
    if continue_token:
        status["metadata"] = {"continue": continue_token}
    return StatusError(status)


def resource_version_too_large(requested: int, current: int) -> StatusError:
    """Return the error for a resource version that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(failure_status(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1}))


def too_many_requests(message: str, *, cause: str, retry_after: int) -> StatusError:
    """Return the error of an eviction that a PodDisruptionBudget does not allow."""
    causes = [{"reason": "DisruptionBudget", "message": cause}]
    return StatusError(
        failure_status(429, "TooManyRequests", message, {"causes": causes, "retryAfterSeconds": retry_after})
    )


def _details(kind: Kind, name: str) -> JsonObject:
    return {"name": name, "group": kind.group, "kind": kind.plural}
