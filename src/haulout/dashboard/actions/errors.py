"""Convert errors of the API server to HTTP errors with a message for users. Pure."""

import re
from http import HTTPStatus

from haulout.dashboard.api.backend import HttpError
from haulout.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    ImpersonationUnavailable,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

_IMPERSONATION_DENIED = re.compile(r"cannot impersonate[ :-]|impersonating the .* is not allowed")
_UNAUTHORIZED = HTTPStatus.UNAUTHORIZED
_STATUSES: dict[type[ApiError], HTTPStatus] = {
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    Conflict: HTTPStatus.CONFLICT,
    Invalid: HTTPStatus.BAD_REQUEST,
    BadRequest: HTTPStatus.BAD_REQUEST,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
}


def to_http_error(error: KubeError, *, user: str) -> HttpError:
    """Return the HTTP error for a failed action."""
    if isinstance(error, Forbidden):
        return HttpError(_forbidden_message(error, user), HTTPStatus.FORBIDDEN)
    if isinstance(error, ImpersonationUnavailable):
        return HttpError(str(error), HTTPStatus.FORBIDDEN)
    if isinstance(error, Unauthorized):
        return HttpError(f"the API server does not accept the token of {user} any more: log in again", _UNAUTHORIZED)
    if isinstance(error, Conflict):
        return HttpError(f"the object has changed in the meantime: reload and try again ({error})", HTTPStatus.CONFLICT)
    status = next(
        (http_status for kind, http_status in _STATUSES.items() if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY
    )
    if isinstance(error, Unreachable) and error.sent:
        return HttpError(
            f"the connection broke, so the action may or may not have been done: reload and check ({error})", status
        )
    return HttpError(str(error), status)


def _forbidden_message(error: Forbidden, user: str) -> str:
    if _IMPERSONATION_DENIED.search(str(error)):
        advice = "`haulout manifests --dashboard-auth proxy --dashboard-actions` prints what to grant"
        return f"Haulout may not impersonate {user}: {advice} ({error})"
    return f"{user} may not do this: {error}"
