"""What the API server refuses, in words, and with a fitting status. Pure."""

import re
from http import HTTPStatus

from haulout.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    CannotImpersonate,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from haulout.web.api.source import Unanswerable

_OF_OURS = re.compile(r"cannot impersonate[ :-]|impersonating the .* is not allowed")
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


def refused(error: KubeError, *, user: str) -> Unanswerable:
    """Return why something was not done."""
    if isinstance(error, Forbidden):
        return Unanswerable(_forbidden(error, user), HTTPStatus.FORBIDDEN)
    if isinstance(error, CannotImpersonate):
        return Unanswerable(str(error), HTTPStatus.FORBIDDEN)
    if isinstance(error, Unauthorized):
        return Unanswerable(f"the API server does not accept the token of {user} any more: log in again", _UNAUTHORIZED)
    if isinstance(error, Conflict):
        return Unanswerable(f"somebody was faster: look again ({error})", HTTPStatus.CONFLICT)
    status = next((it for kind, it in _STATUSES.items() if isinstance(error, kind)), HTTPStatus.BAD_GATEWAY)
    if isinstance(error, Unreachable) and error.sent:
        return Unanswerable(f"it may have been done, or not: look again ({error})", status)
    return Unanswerable(str(error), status)


def _forbidden(error: Forbidden, user: str) -> str:
    if _OF_OURS.search(str(error)):
        advice = "`haulout manifests --dashboard-auth proxy --dashboard-acts` prints what to grant"
        return f"Haulout may not act in the name of {user}: {advice} ({error})"
    return f"{user} may not do this: {error}"
