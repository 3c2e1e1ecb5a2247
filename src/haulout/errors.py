"""Everything that can go wrong, in one tree.

    HauloutError
    ├── UsageError                  what the user typed makes no sense; exit code 2
    ├── ConfigError                 a file makes no sense: names file, line, key and what was expected
    │   ├── ConfigErrors            several things in one file make no sense
    │   ├── KubeconfigError         the way to the cluster is not described well
    │   ├── PolicyError             a drain policy makes no sense: all that is wrong with it
    │   └── TemplateError           a message template makes no sense, or cannot be filled in
    ├── OutsideError                something outside of the cluster did not answer, or said no
    │   ├── Unsendable              what is to be told makes no sense: trying again is of no use
    │   ├── CannotMove              a cloud does not move a maintenance to the time that it was asked for
    │   └── CloudError              a cloud's API said no, or nothing: status, code, message, retry-after
    ├── LeadershipLost              a write was refused because this process may no longer lead
    ├── HandOver                    this process sits on a node that is to be emptied: another should lead
    ├── LockHeld                    somebody else holds the named lock: who, and until when
    └── KubeError                   talking to a cluster failed
        ├── NamespaceMissing        a namespace that the installation brings is not there
        ├── CannotImpersonate       there is no account that may act in the names of people
        ├── CredentialsError        no credentials could be had (exec plugin, token file, certificate)
        ├── Unreachable             no answer: refused, reset, timed out, TLS trouble
        ├── GarbledAnswer           an answer that is not Kubernetes: HTML, cut JSON, wrong types
        ├── LimitExceeded           an answer with more bytes, objects or lines than a server may send
        └── ApiError                the server's own Status: reason, message, causes, retry-after
            ├── BadRequest          400
            ├── Unauthorized        401
            ├── Forbidden           403
            ├── NotFound            404
            ├── AlreadyExists       409, the name is taken
            ├── Conflict            409, a precondition failed: the object is not what we thought
            ├── Expired             410, the resource version is too old: list again
            ├── Invalid             422
            ├── TooManyRequests     429, throttled, or a PodDisruptionBudget says no
            ├── ServerFailure       5xx
            │   └── AdmissionWebhookUnavailable     an admission webhook does not answer: which
            └── AdmissionDenied     an admission policy or webhook refuses a write: which, and what it says. It is
                                    BadRequest, Forbidden or Invalid as well, if the status code says so

A message says what was being done, with what, what happened and, where there is something, what to do about it. It is
one line: it must read well in a terminal, in a log and in an object's status.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple


class HauloutError(Exception):
    """The root of the tree."""


class UsageError(HauloutError):
    """What the user typed makes no sense."""


class ConfigError(HauloutError):
    """A file makes no sense."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        key: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        location = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(": ".join(part for part in (location, key, problem) if part))


class ConfigErrors(ConfigError):
    """Several things in one file make no sense: `errors`, in the order of their lines.

    `warnings` are about what is allowed and probably not meant: a mistyped key explains why another one is missed.
    """

    def __init__(self, errors: Sequence[ConfigError], *, warnings: Sequence[ConfigError] = ()) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: error.line or 0))
        self.warnings = tuple(sorted(warnings, key=lambda warning: warning.line or 0))
        super().__init__("; ".join(str(error) for error in self.errors))


class KubeconfigError(ConfigError):
    """The way to the cluster is not described well."""


class PolicyError(ConfigError):
    """A drain policy makes no sense."""

    def __init__(self, problems: Sequence[str], *, file: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems), file=file)


class TemplateError(ConfigError, ValueError):
    """A message template makes no sense, or cannot be filled in.

    `file` is the name of the template, `line` and `column` (both from 1) are those of its own text.
    """

    def __init__(self, problem: str, *, name: str, line: int, column: int) -> None:
        super().__init__(problem, file=name, line=line, column=column)


class ExternalError(HauloutError):
    """Something outside of the cluster did not answer, or said no."""


class UndeliverableMessage(ExternalError):
    """What is to be told makes no sense, so that trying again is of no use."""


class RescheduleRefused(ExternalError):
    """A cloud does not move a maintenance to the time that it was asked for."""


class CloudError(ExternalError):
    """A cloud's API said no, or nothing at all: then `status` is 0, and the request may have taken effect."""

    def __init__(
        self, message: str, *, doing: str, status: int = 0, code: str = "", retry_after: timedelta | None = None
    ) -> None:
        self.message = message
        self.status = status
        self.code = code
        self.retry_after = retry_after
        status_text = " ".join(str(part) for part in (status, code) if part)
        super().__init__(f"{doing}: {status_text}: {message}" if status_text else f"{doing}: {message}")


class LeadershipLost(HauloutError):
    """A write was refused because this process may no longer lead."""


class LeadershipHandover(HauloutError):
    """This process sits on a node that is about to be emptied, and another should lead."""


class LockHeld(HauloutError):
    """Somebody else holds the named lock."""

    def __init__(self, lock: str, *, holder: str, until: datetime | None) -> None:
        self.lock = lock
        self.holder = holder
        self.until = until
        until_text = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
        super().__init__(f"lock {lock} is held by {holder or 'somebody unnamed'}{until_text}")


class KubeError(HauloutError):
    """Talking to a cluster failed."""


class NamespaceMissing(KubeError):
    """A namespace that the installation brings is not there, and may not be created."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"namespace {name} does not exist, and the operator may not create namespaces: "
            f"run `kubectl create namespace {name}`, or apply the installation again"
        )


class ImpersonationUnavailable(KubeError):
    """There is no account that may act in the names of people whom a proxy names."""


class CredentialsError(KubeError):
    """No credentials could be had."""


class Unreachable(KubeError):
    """No answer.

    `sent` tells whether the request may have reached the server: if not, repeating it is safe whatever it was.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class MalformedResponse(KubeError):
    """An answer that is not Kubernetes."""


class LimitExceeded(KubeError):
    """An answer with more bytes, objects or lines than a server may send, or more than may be kept of a cluster."""


class Cause(NamedTuple):
    """One of the causes in a Status: what kind, which field, in words."""

    reason: str
    field: str
    message: str


class ApiError(KubeError):
    """The server answered with a Status that says no."""

    def __init__(
        self,
        message: str,
        *,
        doing: str = "",
        code: int,
        reason: str = "",
        causes: Sequence[Cause] = (),
        retry_after: timedelta | None = None,
    ) -> None:
        self.message = message
        self.code = code
        self.reason = reason
        self.causes = tuple(causes)
        self.retry_after = retry_after
        super().__init__(f"{doing}: {message}" if doing else message)


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted, also not after they were refreshed."""


class Forbidden(ApiError):
    """403: known, but not allowed; or an admission webhook said no."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class AlreadyExists(ApiError):
    """409: the name is taken."""


class Conflict(ApiError):
    """409: a precondition failed; the object is not what we thought it was."""


class Expired(ApiError):
    """410: the resource version is too old to continue from."""


class Invalid(ApiError):
    """422: the object was understood and refused."""


class TooManyRequests(ApiError):
    """429: throttled, or a PodDisruptionBudget says no (then `causes` has a DisruptionBudget)."""


class ServerFailure(ApiError):
    """5xx: the server could not do it; the request may or may not have taken effect."""


class AdmissionWebhookUnavailable(ServerFailure):
    """An admission webhook of the cluster does not answer, and its failure policy refuses writes then."""

    REASON = "AdmissionWebhookUnavailable"


class AdmissionDenied(ApiError):
    """A ValidatingAdmissionPolicy or an admission webhook of the cluster refuses a write."""

    REASON = "AdmissionDenied"


class BadRequestByAdmission(AdmissionDenied, BadRequest):
    """400, which is what an admission webhook says without a code of its own."""


class ForbiddenByAdmission(AdmissionDenied, Forbidden):
    """403 that is no lack of permissions."""


class InvalidByAdmission(AdmissionDenied, Invalid):
    """422 that is no mistake in the object."""
