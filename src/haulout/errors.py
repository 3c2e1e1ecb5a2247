"""The tree of all exceptions that Haulout raises.

    HauloutError
     ├── UsageError                      the command line is wrong; exit code 2
     ├── ConfigError                     a file is invalid: names file, line, key and what was expected
     │   ├── ConfigErrors                several errors in one file
     │   ├── KubeconfigError             a kubeconfig is invalid or incomplete
     │   ├── PolicyError                 a drain policy is invalid: lists all problems
     │   └── TemplateError               a message template is invalid, or cannot be rendered
     ├── ExternalError                   a service outside the cluster does not answer, or refuses
     │   ├── UndeliverableMessage        a notification is invalid: retrying does not help
     │   ├── RescheduleRefused           a cloud does not move a maintenance to the requested time
     │   └── CloudError                  a cloud API refuses or does not answer: status, code, message, retry-after
     ├── LeadershipLost                  a write was refused because this process may no longer lead
     ├── LeadershipHandover              this process runs on a node that is to be drained: another one should lead
     ├── LockHeld                        another holder has the named lock: who, and until when
     ├── ObservationStale                an object has changed since it was observed: observe it again
     ├── ReconcileLoop                   a reconcile executes one action after the other without end
     └── KubeError                       a request to a cluster failed
          ├── NamespaceMissing           a namespace that the installation creates does not exist
          ├── ImpersonationUnavailable   no account is configured that may impersonate users
          ├── CredentialsError           no credentials available (exec plugin, token file, certificate)
          ├── Unreachable                no response: connection refused, reset, timed out, TLS failure
          ├── MalformedResponse          a response that is not Kubernetes: HTML, truncated JSON, wrong types
          ├── LimitExceeded              more bytes, objects or lines than Haulout accepts from a server
          └── ApiError                   the server's Status: reason, message, causes, retry-after
               ├── BadRequest            400
               ├── Unauthorized          401
               ├── Forbidden             403
               ├── NotFound              404
               ├── AlreadyExists         409, the name is taken
               ├── Conflict              409, a precondition failed: the object has changed
               ├── Expired               410, the resource version is too old: list again
               ├── Invalid               422
               ├── TooManyRequests       429, throttled, or refused by a PodDisruptionBudget
               ├── ServerFailure         5xx
               │   └── AdmissionWebhookUnavailable     an admission webhook does not answer: which
               └── AdmissionDenied       an admission policy or webhook refuses a write: which, and its message.
                                         Also a BadRequest, Forbidden or Invalid if the status code is theirs

A message says what was attempted, on which object, what happened and, where possible, what to do about it. It is one
line, so that it can be shown in a terminal, in a log and in the status of an object.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple


class HauloutError(Exception):
    """Base class of all exceptions of Haulout."""


class UsageError(HauloutError):
    """The command line is wrong. The process ends with exit code 2."""


class ConfigError(HauloutError):
    """A file is invalid. The message has the form FILE:LINE:COLUMN: KEY: PROBLEM, as far as these are known."""

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
    """Several errors in one file.

    `errors` is sorted by line. `warnings` are about content that is allowed but probably a mistake: a mistyped key, for
    example, explains why a required key is missing.
    """

    def __init__(self, errors: Sequence[ConfigError], *, warnings: Sequence[ConfigError] = ()) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: error.line or 0))
        self.warnings = tuple(sorted(warnings, key=lambda warning: warning.line or 0))
        super().__init__("; ".join(str(error) for error in self.errors))


class KubeconfigError(ConfigError):
    """A kubeconfig is invalid or incomplete. It is reported before any request is sent."""


class PolicyError(ConfigError):
    """A drain policy is invalid. All problems are listed, not only the first."""

    def __init__(self, problems: Sequence[str], *, file: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems), file=file)


class TemplateError(ConfigError, ValueError):
    """A message template is invalid, or cannot be rendered.

    `file` is the name of the template. `line` and `column` (both from 1) refer to the text of the template.
    """

    def __init__(self, problem: str, *, name: str, line: int, column: int) -> None:
        super().__init__(problem, file=name, line=line, column=column)


class ExternalError(HauloutError):
    """A service outside the cluster does not answer, or refuses."""


class UndeliverableMessage(ExternalError):
    """A notification is invalid. Retrying does not help."""


class RescheduleRefused(ExternalError):
    """A cloud does not move a maintenance to the requested time."""


class CloudError(ExternalError):
    """A cloud API refuses a request or does not answer.

    `status` is 0 if there is no answer. The request may have taken effect then.
    """

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
    """This process runs on a node that is about to be drained: another process should lead."""


class LockHeld(HauloutError):
    """Another holder has the named lock. It is free when its lease expires, at `until`."""

    def __init__(self, lock: str, *, holder: str, until: datetime | None) -> None:
        self.lock = lock
        self.holder = holder
        self.until = until
        until_text = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
        super().__init__(f"lock {lock} is held by {holder or 'an unknown holder'}{until_text}")


class ObservationStale(HauloutError):
    """An object has changed since it was observed, so that an action must not be executed. Nothing was changed."""


class ReconcileLoop(HauloutError):
    """A reconcile executes one action after the other without end: its decisions contradict each other."""


class KubeError(HauloutError):
    """A request to a cluster failed. Callers that only retry catch this; subclasses tell why."""


class NamespaceMissing(KubeError):
    """A namespace that the installation creates does not exist, and the operator may not create namespaces."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"namespace {name} does not exist, and the operator is not allowed to create it: "
            f"run `kubectl create namespace {name}`, or apply the installation again"
        )


class ImpersonationUnavailable(KubeError):
    """No account is configured that may impersonate the users whom a proxy authenticates."""


class CredentialsError(KubeError):
    """No credentials are available, so that no request was sent."""


class Unreachable(KubeError):
    """The server did not respond.

    `sent` tells whether the request may have reached the server. If it did not, any request can be repeated safely.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(message)


class MalformedResponse(KubeError):
    """A response does not come from a Kubernetes API server, or is truncated."""


class LimitExceeded(KubeError):
    """A response has more bytes, objects or lines than allowed, or the caches of a cluster exceed their quota."""


class Cause(NamedTuple):
    """One of the causes in a Status."""

    reason: str
    field: str
    message: str


class ApiError(KubeError):
    """The server answered with a Status of failure."""

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
    """400: the server could not decode the request, or does not support a parameter."""


class Unauthorized(ApiError):
    """401: the server did not accept the credentials, even after they were refreshed."""


class Forbidden(ApiError):
    """403: authenticated, but not authorized; or an admission webhook refused."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class AlreadyExists(ApiError):
    """409: the name is taken, perhaps by an earlier attempt of ours whose response was lost."""


class Conflict(ApiError):
    """409: a precondition failed; the object has changed."""


class Expired(ApiError):
    """410: the resource version is too old to continue from."""


class Invalid(ApiError):
    """422: the object is well-formed, but not valid."""


class TooManyRequests(ApiError):
    """429: throttled, or refused by a PodDisruptionBudget (then `causes` has a DisruptionBudget)."""


class ServerFailure(ApiError):
    """5xx: the server failed; the request may or may not have taken effect."""


class AdmissionWebhookUnavailable(ServerFailure):
    """An admission webhook of the cluster does not answer, and its failure policy is Fail."""


class AdmissionDenied(ApiError):
    """A ValidatingAdmissionPolicy or an admission webhook of the cluster refuses a write."""


class BadRequestByAdmission(AdmissionDenied, BadRequest):
    """400: the code of an admission webhook's refusal that does not set a code."""


class ForbiddenByAdmission(AdmissionDenied, Forbidden):
    """403 from an admission policy or webhook, not from missing permissions."""


class InvalidByAdmission(AdmissionDenied, Invalid):
    """422 from an admission policy or webhook, not from an invalid object."""
